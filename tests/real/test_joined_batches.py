"""Small batches that are joined on the way: fewer at the destination, and every record where it was."""

import random
import time
from collections.abc import Iterator, Mapping

import pytest
from tests.real.mirrored_logs import numbered, stored, write, write_transaction
from tests.real.mirroring import Mirror

from twinlog.batch.layout import HEADER_SIZE
from twinlog.testing.checker import assert_identical
from twinlog.testing.kafka import LocalKafka
from twinlog.testing.load import Load

DAY_MS = 86_400_000
SINGLY = {"batch.num.messages": 1, "linger.ms": 0, "max.in.flight": 100}


@pytest.fixture(scope="module")
def mirror(source: LocalKafka, destination: LocalKafka) -> Iterator[Mirror]:
    """One mirror and its worker for all tests of this file."""
    with Mirror(source, destination) as mirror:
        yield mirror


def mirrored(mirror: Mirror, topic: str) -> tuple[int, int]:
    """Start the topic, wait until it is level, compare; returns how many batches each side has."""
    mirror.start(topic)
    mirror.wait_level(topic)
    assert_identical(mirror.source, mirror.destination, topic)
    return len(stored(mirror, topic, at_source=True)), len(stored(mirror, topic, at_source=False))


@pytest.mark.parametrize("age_days", [0, 30], ids=["fresh", "a month old"])
def test_small_batches_become_fewer(mirror: Mirror, topic: str, age_days: int) -> None:
    """Also where records are so old that each batch waits until the one before is confirmed."""
    mirror.create(topic)
    written_ms = time.time_ns() // 1_000_000 - age_days * DAY_MS
    write(mirror.source, topic, numbered(2_000, value_bytes=1_000, timestamp_ms=written_ms), **SINGLY)
    at_source, at_destination = mirrored(mirror, topic)
    assert at_source == 2_000
    assert at_destination < 100


@pytest.mark.parametrize(
    ("configs", "limits", "largest"),
    [
        ({"mirror.batch.join.max.bytes": "5000"}, {}, 5_000),
        ({}, {"max.message.bytes": "20000"}, 20_000),
    ],
    ids=["by the mirror", "by the topic"],
)
def test_none_is_larger_than_it_may_be(
    mirror: Mirror, topic: str, configs: Mapping[str, str], limits: Mapping[str, str], largest: int
) -> None:
    """By the mirror's config, and by the destination topic's own limit."""
    with Mirror(mirror.source, mirror.destination, configs=configs, workers=0) as bound:
        bound.create(topic, at_destination=limits)
        write(bound.source, topic, numbered(300, value_bytes=700), **SINGLY)
        at_source, at_destination = mirrored(bound, topic)
        assert at_source == 300
        assert 300 * 700 // largest <= at_destination < 100
        sizes = [len(batch.body) + HEADER_SIZE for batch in stored(bound, topic, at_source=False)]
        assert max(sizes) <= largest


def test_nothing_is_joined_where_that_is_switched_off(mirror: Mirror, topic: str) -> None:
    """Each batch has the source's bytes."""
    configs = {"mirror.batch.join.max.bytes": "0"}
    with Mirror(mirror.source, mirror.destination, configs=configs, workers=0) as plain:
        plain.create(topic)
        write(plain.source, topic, numbered(100), **SINGLY)
        assert mirrored(plain, topic) == (100, 100)
        assert stored(plain, topic, at_source=False) == stored(plain, topic, at_source=True)


def test_transactions_and_what_lies_between_them(mirror: Mirror, topic: str) -> None:
    """Batches of a transaction are joined up to its marker, never over it; an aborted one's are not there."""
    mirror.create(topic)
    for _ in range(5):
        write(mirror.source, topic, numbered(30), **SINGLY)
        write_transaction(mirror.source, topic, numbered(30))
        write_transaction(mirror.source, topic, numbered(30), commit=False)
    at_source, at_destination = mirrored(mirror, topic)
    assert at_destination < at_source / 3


def test_a_copy_with_joined_batches_is_adopted_and_goes_on(mirror: Mirror, topic: str) -> None:
    """A mirror that knows nothing of the copy compares all of it, however each side is batched."""
    mirror.create(topic, partitions=2)
    load = Load(mirror.source, topic, random.Random(5))
    for _ in range(3):
        load.tiny(400)
        load.transactions(5, records=10)
        mirrored(mirror, topic)
        mirror.adopt_anew(topic)
    load.close()
    mirrored(mirror, topic)
    assert assert_identical(mirror.source, mirror.destination, topic).source_records == load.acknowledged
