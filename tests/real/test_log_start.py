"""Logs that do not start at 0, emptied and empty ones: the twin starts and ends where the source does."""

import random
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from tests.real.mirrored_logs import alter, config_of, delete_records, numbered, write, write_transaction
from tests.real.mirroring import Mirror

from twinlog.batch.blank import MAX_FILLER, filler_batch
from twinlog.control.lifecycle import PartitionState
from twinlog.names import TopicPartition as Tp
from twinlog.testing.checker import assert_identical
from twinlog.testing.data import EVERYTHING_ALLOWED
from twinlog.testing.kafka import LocalKafka
from twinlog.testing.load import Load
from twinlog.testing.reader import Bounds, TopicReader
from twinlog.wire.ops import produce_batch

WAIT_S = 20.0


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


def bounds(kafka: LocalKafka, topic: str) -> dict[int, Bounds]:
    """Each partition's bounds, as a consumer is told them."""
    reader = TopicReader(kafka, topic)
    try:
        return reader.bounds()
    finally:
        reader.close()


def answer_below_the_start(kafka: LocalKafka, topic: str) -> int | None:
    """The error code that a consumer gets when it reads offset 3."""
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": topic, "auto.offset.reset": "error"}
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(topic, 0, 3)])
        message = consumer.poll(WAIT_S)
    finally:
        consumer.close()
    assert message is not None
    error = message.error()
    return None if error is None else error.code()


def test_a_source_whose_beginning_was_deleted(mirror: Mirror, topic: str) -> None:
    """Three partitions start at 5000, 0 and 1: so does the twin, and below the start both answer the same error."""
    mirror.create(topic, partitions=3)
    write(mirror.source, topic, numbered(10_000, value_bytes=10))
    write(mirror.source, topic, numbered(10), partition=1)
    write(mirror.source, topic, numbered(10), partition=2)
    delete_records(mirror.source, topic, {0: 5000, 2: 1})
    assert mirrored(mirror, topic) == 5019
    assert [at.start for at in bounds(mirror.destination, topic).values()] == [5000, 0, 1]
    answers = [answer_below_the_start(kafka, topic) for kafka in (mirror.source, mirror.destination)]
    assert answers == [KafkaError._AUTO_OFFSET_RESET] * 2


@pytest.mark.parametrize("policy", ["delete", pytest.param("compact,delete", marks=pytest.mark.soak)])
def test_a_source_that_starts_at_ten_million(mirror: Mirror, topic: str, policy: str) -> None:
    """The prefix takes about as long as it took to write it at the source; what is behind it is at its offsets."""
    start = 10 * MAX_FILLER + 17
    mirror.create(topic, config=EVERYTHING_ALLOWED | {"cleanup.policy": policy})
    began = time.monotonic()
    _fill(mirror, topic, start)
    filled_s = time.monotonic() - began
    delete_records(mirror.source, topic, {0: start})
    write(mirror.source, topic, numbered(100))
    write_transaction(mirror.source, topic, numbered(10), commit=False)
    began = time.monotonic()
    assert mirrored(mirror, topic) == 100
    assert time.monotonic() - began < 3 * filled_s + 20
    assert bounds(mirror.destination, topic)[0].start == start
    mirror.adopt_anew(topic)
    mirror.wait_level(topic)


def _fill(mirror: Mirror, topic: str, end: int) -> None:
    """Bring the source's log to `end` with records of one key."""
    source = mirror.clusters[0]
    for first in range(0, end, MAX_FILLER):
        count = min(MAX_FILLER, end - first)
        batch = filler_batch(
            count, producer_id=-1, epoch=-1, sequence=-1, transactional=False, timestamp_ms=0, key=b"k"
        )
        found = mirror.run(produce_batch(source, Tp(topic, 0), batch.header + bytes(batch.body)))
        assert (found.error, found.base_offset) == (0, first)


def test_a_purely_compacted_source_whose_beginning_was_deleted(mirror: Mirror, topic: str) -> None:
    """A compacted topic that had another policy once: the twin's policy is compact again behind the prefix."""
    mirror.create(topic)
    write(mirror.source, topic, numbered(100))
    delete_records(mirror.source, topic, {0: 50})
    for kafka in (mirror.source, mirror.destination):
        alter(kafka, topic, {"cleanup.policy": "compact"})
    assert mirrored(mirror, topic) == 50
    assert bounds(mirror.destination, topic)[0].start == 50
    assert config_of(mirror.destination, topic)["cleanup.policy"] == "compact"


def test_empty_partitions_mirror_as_empty_until_something_comes(mirror: Mirror, topic: str) -> None:
    """Nothing was ever written to two of three partitions; what comes later arrives."""
    mirror.create(topic, partitions=3)
    write(mirror.source, topic, numbered(10), partition=1)
    assert mirrored(mirror, topic) == 10
    assert bounds(mirror.destination, topic)[0] == Bounds(0, 0, 0)
    load = Load(mirror.source, topic, random.Random(1))
    load.everything(20)
    load.close()
    assert mirrored(mirror, topic) == 10 + load.acknowledged


def test_a_partition_emptied_before_the_mirror_starts(mirror: Mirror, topic: str) -> None:
    """500 records, all deleted: start and end are 500 on both sides, so that a group's commit of 500 is valid there."""
    mirror.create(topic)
    write(mirror.source, topic, numbered(500))
    delete_records(mirror.source, topic, {0: 500})
    assert mirrored(mirror, topic) == 0
    assert bounds(mirror.destination, topic) == {0: Bounds(500, 500, 500)}
    write(mirror.source, topic, numbered(5))
    assert mirrored(mirror, topic) == 5


def test_records_deleted_while_mirroring_are_deleted_at_the_twin(mirror: Mirror, topic: str) -> None:
    """The log start follows the source's, up to the end of the log; then the mirror is stopped, and started again."""
    mirror.create(topic, partitions=2)
    for partition in range(2):
        write(mirror.source, topic, numbered(100), partition=partition)
    mirrored(mirror, topic)
    delete_records(mirror.source, topic, {0: 60, 1: 100})
    wanted = {0: Bounds(60, 100, 100), 1: Bounds(100, 100, 100)}
    mirror.wait_for(lambda: bounds(mirror.destination, topic) == wanted, lambda: f"bounds {wanted}", WAIT_S)
    mirror.stop(topic)
    for partition in range(2):
        mirror.wait_state(topic, PartitionState.STOPPED, partition)
        write(mirror.source, topic, numbered(10), partition=partition)
    write_transaction(mirror.source, topic, numbered(3), commit=False)
    assert mirrored(mirror, topic) == 60


def test_retention_that_overtakes_a_stopped_mirror_is_said(mirror: Mirror, topic: str) -> None:
    """Records deleted before they were mirrored: the partition is FAILED with both offsets, its neighbour goes on."""
    mirror.create(topic, partitions=2)
    write(mirror.source, topic, numbered(10))
    mirrored(mirror, topic)
    mirror.stop(topic)
    mirror.wait_state(topic, PartitionState.STOPPED)
    for partition in range(2):
        write(mirror.source, topic, numbered(90), partition=partition)
    delete_records(mirror.source, topic, {0: 50})
    mirror.start(topic)
    error = mirror.wait_failed(topic)
    assert "10" in error
    assert "50" in error
    mirror.wait_state(topic, PartitionState.MIRRORING, 1)
    mirror.wait_for(lambda: mirror.ends(topic)[1] == 90, lambda: "partition 1 goes on", 20)
    assert mirror.ends(topic)[0] == 10
