"""A mirror's rate in a worker: held, changed while it runs, and fair to partitions with little to send."""

import time
from collections.abc import Iterator

import pytest
from tests.real.mirrored_logs import numbered, write
from tests.real.mirroring import FAST_RETRY, Mirror

from twinlog.batch.records import Record, encode
from twinlog.control.records import MirrorRecord
from twinlog.names import TopicPartition as Tp
from twinlog.testing.kafka import LocalKafka
from twinlog.wire.ops import produce_batch

RATE, OVER_S = 2_000_000, 10.0
BATCH_RECORDS, VALUE_BYTES, BATCHES = 60, 1000, 600
HUGE, SMALL = 0, 5


@pytest.fixture(scope="module")
def mirror(source: LocalKafka, destination: LocalKafka) -> Iterator[Mirror]:
    """One mirror and its worker for all tests of this file."""
    with Mirror(source, destination) as mirror:
        yield mirror


def limit(mirror: Mirror, rate: int | None) -> None:
    """Alter the mirror's rate as a command does."""
    rates = {} if rate is None else {"mirror.replication.throttled.rate": str(rate)}
    configs = {"bootstrap.servers": mirror.source.bootstrap, **FAST_RETRY, **rates}
    mirror.put(MirrorRecord(mirror.name, configs, mirror.clusters[0].cluster_id))


def fill(mirror: Mirror, topic: str) -> None:
    """Give partition HUGE a backlog of 36 MB in batches of 60 KB."""
    records = [Record(number, 1_700_000_000_000, b"k", bytes(VALUE_BYTES), ()) for number in range(BATCH_RECORDS)]
    batch = bytes(encode(records, codec=0).raw)
    for _ in range(BATCHES):
        mirror.run(produce_batch(mirror.clusters[0], Tp(topic, HUGE), batch))


def test_rate_is_held_and_small_partitions_go_on(mirror: Mirror, topic: str) -> None:
    """Over 10 s the rate is met within 10%, small partitions are level meanwhile, and without it all is soon level."""
    mirror.create(topic, partitions=1 + SMALL)
    fill(mirror, topic)
    limit(mirror, RATE)
    mirror.start(topic)
    mirror.wait_figure(topic, lambda figure: figure.destination_end > 2 * BATCH_RECORDS)
    for partition in range(1, 1 + SMALL):
        write(mirror.source, topic, numbered(10), partition=partition)
    before, began = mirror.ends(topic)[HUGE], time.monotonic()
    time.sleep(OVER_S)
    ends, took_s = mirror.ends(topic), time.monotonic() - began
    assert [ends[partition] for partition in range(1, 1 + SMALL)] == [10] * SMALL
    sent = (ends[HUGE] - before) * VALUE_BYTES
    assert 0.9 * RATE < sent / took_s < 1.1 * RATE, sent / took_s
    assert ends[HUGE] < BATCHES * BATCH_RECORDS
    limit(mirror, None)
    mirror.wait_level(topic, timeout_s=8.0)
