"""Sizes: batches at a topic's limit and far above a fetch, many tiny ones, and a destination that takes less."""

import random
from collections.abc import Iterator

import pytest
from tests.real.mirrored_logs import alter, numbered, put, stored, transactional, write
from tests.real.mirroring import Mirror

from twinlog.control.lifecycle import PartitionState
from twinlog.testing.checker import assert_identical
from twinlog.testing.data import EVERYTHING_ALLOWED, Made
from twinlog.testing.kafka import LocalKafka
from twinlog.testing.load import CODECS, Load

MB = 1 << 20
WAIT_S = 20.0
LARGEST_CLIENT = {"message.max.bytes": 30 * MB, "queue.buffering.max.kbytes": 128 << 10}
MOST_MB = 250
"""What a worker may hold while a batch of 15 MB goes through: its buffers' bound, and the rest of it."""


@pytest.fixture(scope="module")
def mirror(source: LocalKafka, destination: LocalKafka) -> Iterator[Mirror]:
    """One mirror and its worker for all tests of this file."""
    with Mirror(source, destination) as mirror:
        yield mirror


def mirrored(mirror: Mirror, topic: str) -> int:
    """Start the topic, wait until it is level, compare, and return how many records there are."""
    mirror.start(topic)
    mirror.wait_level(topic)
    return assert_identical(mirror.source, mirror.destination, topic).source_records


def test_batches_of_exactly_the_limit(mirror: Mirror, topic: str) -> None:
    """A batch that fills max.message.bytes to the byte, and compressed ones whose records are twice the limit."""
    mirror.create(topic)
    load = Load(mirror.source, topic, random.Random(1))
    for _ in range(3):
        load.plain(10)
        load.large()
    load.close()
    assert mirrored(mirror, topic) == load.acknowledged


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_fifteen_megabyte_record_among_small_ones(mirror: Mirror, topic: str, codec: str) -> None:
    """A source that takes 20 MB: the record passes at default limits, and the worker's memory stays bounded."""
    mirror.create(topic, partitions=2, config=EVERYTHING_ALLOWED | {"max.message.bytes": str(20 * MB)})
    mirror.start(topic)
    large = Made(b"large", random.Random(2).randbytes(15 * MB), [])
    for partition in range(2):
        small = numbered(500, seed=partition)
        records = [*small, large, *small, large]
        write(mirror.source, topic, records, partition=partition, **LARGEST_CLIENT, **{"compression.type": codec})
    mirrored(mirror, topic)
    mirror.adopt_anew(topic)
    assert mirrored(mirror, topic) == 2 * 1002
    assert mirror.workers[0].resident_mb() < MOST_MB


def test_aborted_batches_larger_than_any_fetch(mirror: Mirror, topic: str) -> None:
    """Several fetches' worth of aborted large batches with nothing visible between: the mirror goes on behind them."""
    mirror.create(topic)
    aborted = transactional(mirror.source)
    aborted.begin_transaction()
    put(aborted, topic, [Made(b"k", random.Random(3).randbytes(900_000), [])] * 12)
    aborted.abort_transaction(WAIT_S)
    write(mirror.source, topic, numbered(3))
    assert mirrored(mirror, topic) == 3


def test_many_tiny_batches(mirror: Mirror, topic: str) -> None:
    """Twenty thousand batches of one record each, joined on the way."""
    mirror.create(topic, partitions=2)
    load = Load(mirror.source, topic, random.Random(4))
    for partition in range(2):
        write(
            mirror.source,
            topic,
            numbered(10_000, value_bytes=10),
            partition=partition,
            **{"batch.num.messages": 1, "linger.ms": 0, "max.in.flight": 100},
        )
    load.close()
    assert mirrored(mirror, topic) == 20_000
    assert len(stored(mirror, topic, at_source=True)) == 10_000
    assert len(stored(mirror, topic, at_source=False)) < 1_000


@pytest.mark.parametrize("fetch_bytes", [1024, 1025, 10_007, 1_048_575])
def test_fetches_of_odd_sizes(mirror: Mirror, topic: str, fetch_bytes: int) -> None:
    """Batches from ten bytes to 900 KB, committed and aborted, read by fetches that cut them anywhere."""
    configs = {"mirror.fetch.max.bytes": str(fetch_bytes), "mirror.fetch.response.max.bytes": str(fetch_bytes)}
    with Mirror(mirror.source, mirror.destination, configs=configs, workers=0) as odd:
        odd.create(topic, partitions=3)
        load = Load(mirror.source, topic, random.Random(fetch_bytes))
        for size in (10, 1000, 100_000, 900_000):
            values = numbered(3, value_bytes=size, seed=size)
            for partition in range(3):
                write(
                    mirror.source,
                    topic,
                    values,
                    partition=partition,
                    **{"compression.type": load.make.rng.choice(CODECS)},
                )
        load.transactions(10, records=20)
        load.tiny(50)
        load.edges()
        load.close()
        assert mirrored(odd, topic) == 36 + load.acknowledged


def test_a_batch_that_the_destination_does_not_take(mirror: Mirror, topic: str) -> None:
    """FAILED with the batch's offset, nothing written twice; once the limit is raised it resumes by itself."""
    mirror.create(topic, partitions=2, at_destination={"max.message.bytes": "100000"})
    mirror.start(topic)
    write(mirror.source, topic, numbered(500, value_bytes=10))
    write(mirror.source, topic, [Made(b"k", random.Random(5).randbytes(500_000), [])])
    write(mirror.source, topic, numbered(50, value_bytes=10), partition=1)
    error = mirror.wait_failed(topic)
    assert "offset 500" in error
    assert "max.message.bytes" in error
    mirror.wait_for(lambda: mirror.ends(topic) == {0: 500, 1: 50}, lambda: f"ends are {mirror.ends(topic)}", WAIT_S)
    alter(mirror.destination, topic, {"max.message.bytes": str(MB)})
    mirror.wait_for(lambda: mirror.ends(topic)[0] == 501, lambda: "it resumes", WAIT_S)
    mirror.wait_state(topic, PartitionState.MIRRORING)
    assert mirrored(mirror, topic) == 551
