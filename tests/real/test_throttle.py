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

pytestmark = pytest.mark.timed

RATE = 2_000_000
BATCH_RECORDS, VALUE_BYTES, BATCHES = 60, 1000, 700
HUGE, SMALL = 0, 5


@pytest.fixture(scope="module")
def mirror(source: LocalKafka, destination: LocalKafka) -> Iterator[Mirror]:
    """One mirror and its worker for all tests of this file."""
    with Mirror(source, destination) as mirror:
        yield mirror


def limit(mirror: Mirror, rate: int | None, replicas: str = "*") -> None:
    """Alter the mirror's rate, and what it covers, as a command does."""
    key = "mirror.replication.throttled"
    rates = {} if rate is None else {f"{key}.rate": str(rate), f"{key}.replicas": replicas}
    configs = {"bootstrap.servers": mirror.source.bootstrap, **FAST_RETRY, **rates}
    mirror.put(MirrorRecord(mirror.name, configs, mirror.clusters[0].cluster_id))


def fill(mirror: Mirror, topic: str, batches: int, *, partition: int = HUGE) -> None:
    """Give a partition a backlog in batches of 60 KB."""
    records = [Record(number, 1_700_000_000_000, b"k", bytes(VALUE_BYTES), ()) for number in range(BATCH_RECORDS)]
    batch = bytes(encode(records, codec=0).raw)
    for _ in range(batches):
        mirror.run(produce_batch(mirror.clusters[0], Tp(topic, partition), batch))


def copied_a_second(mirror: Mirror, topic: str, seconds: int) -> float:
    """Bytes a second of the huge partition, while small ones move, each of which is level a second later."""
    small = range(1, 1 + SMALL)
    before, began = mirror.ends(topic)[HUGE], time.monotonic()
    for second in range(seconds):
        written = mirror.ends(topic, at_source=True)[1] + 5
        for partition in small:
            write(mirror.source, topic, numbered(5), partition=partition)
        time.sleep(max(0.0, began + second + 1 - time.monotonic()))
        ends = mirror.ends(topic)
        assert [ends[partition] for partition in small] == [written] * SMALL
    return (mirror.ends(topic)[HUGE] - before) * VALUE_BYTES / (time.monotonic() - began)


def test_rate_is_held_and_small_partitions_go_on(mirror: Mirror, topic: str) -> None:
    """Over 10 s within 10%, also after it was changed; a small partition waits for a second at most."""
    mirror.create(topic, partitions=1 + SMALL)
    fill(mirror, topic, BATCHES)
    limit(mirror, RATE)
    mirror.start(topic)
    mirror.wait_figure(topic, lambda figure: figure.destination_end > 2 * BATCH_RECORDS)
    rate = copied_a_second(mirror, topic, 10)
    assert 0.9 * RATE < rate < 1.1 * RATE, rate
    limit(mirror, RATE // 2)
    time.sleep(0.5)
    rate = copied_a_second(mirror, topic, 4)
    assert 0.45 * RATE < rate < 0.55 * RATE, rate
    assert mirror.ends(topic)[HUGE] < BATCHES * BATCH_RECORDS
    limit(mirror, None)
    mirror.wait_level(topic, timeout_s=8.0)


def test_only_the_listed_partitions_are_held(mirror: Mirror, topic: str) -> None:
    """A partition that is not in the list goes at full speed, however low the rate of the others is."""
    mirror.create(topic, partitions=2)
    for partition in range(2):
        fill(mirror, topic, 60, partition=partition)
    limit(mirror, 300_000, f"other,{topic}:1")
    mirror.start(topic)
    mirror.wait_figure(topic, lambda figure: figure.destination_end == 60 * BATCH_RECORDS)
    assert mirror.ends(topic)[1] < 40 * BATCH_RECORDS
    limit(mirror, None)
    mirror.wait_level(topic, timeout_s=8.0)
