"""Replay and the lookups it leads to."""

from itertools import permutations

import pytest

from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import (
    NO_TOPIC_ID,
    Change,
    Figure,
    MirrorRecord,
    PartitionRecord,
    ProgressRecord,
    Record,
    ShardRecord,
    Tombstone,
    TopicRecord,
    WorkerRecord,
)


def topic(mirror: str, name: str, desired: DesiredState = DesiredState.MIRRORING) -> TopicRecord:
    """A topic's record."""
    return TopicRecord(mirror, name, desired, NO_TOPIC_ID, NO_TOPIC_ID, 2)


def figure(name: str, partition: int, end: int) -> Figure:
    """One partition's figures."""
    return Figure("m", name, partition, 0, end, end, 0, end, waiting_for_transaction=False)


RECORDS: tuple[Record, ...] = (
    MirrorRecord("m", {"a": "1"}, "S"),
    topic("m", "t"),
    PartitionRecord("m", "t", 1, PartitionState.MIRRORING),
    ShardRecord(3, "w"),
    WorkerRecord("w", "h", 1, 2, 3),
    ProgressRecord(3, "w", 5, (figure("t", 1, 9),)),
)


@pytest.mark.parametrize("record", RECORDS)
def test_the_last_record_of_a_key_counts(record: Record) -> None:
    """A record is found under its key, replaced by a later one, and gone after its tombstone."""
    image = Image()
    assert image.find(record.key) is None
    assert image.holds(Tombstone(record.key))
    image.apply(record)
    assert image.find(record.key) == record
    assert image.holds(record)
    assert not image.holds(Tombstone(record.key))
    image.apply(Tombstone(record.key))
    assert image.find(record.key) is None
    image.apply(Tombstone(record.key))


def test_order_matters_only_within_a_key() -> None:
    """Shards are replayed in any order, so records of different keys must commute."""
    for order in permutations(RECORDS):
        image = Image(order)
        assert all(image.holds(record) for record in RECORDS)
        published = image.published("m", "t", 1)
        assert published is not None
        assert (published.worker, published.at_ms, published.figure.destination_end) == ("w", 5, 9)


def test_topics_by_mirror_and_mirrors_by_topic() -> None:
    """A topic is found from both sides, sorted, and active in the mirror where it is not stopped."""
    stopped, active, other = topic("a", "t", DesiredState.STOPPED), topic("b", "t"), topic("b", "s")
    image = Image([active, stopped, other])
    assert image.topics_of("b") == [other, active]
    assert image.topics_of("c") == []
    assert list(image.all_topics()) == [stopped, other, active]
    assert image.mirrors_of("t") == [stopped, active]
    assert image.active_in("t") == active
    image.apply(Tombstone(active.key))
    assert image.active_in("t") is None
    assert image.mirrors_of("t") == [stopped]
    assert image.topic("b", "t") is None


def test_partitions_without_a_record_are_unknown() -> None:
    """A partition that no worker has seen has no record, and the state UNKNOWN."""
    two, eleven = (PartitionRecord("m", "t", n, PartitionState.PAUSED) for n in (2, 11))
    image = Image([eleven, two])
    assert image.partitions_of("m", "t") == [two, eleven]
    assert image.partitions_of("m", "s") == []
    assert image.state("m", "t", 2) is PartitionState.PAUSED
    assert image.state("m", "t", 0) is PartitionState.UNKNOWN


def test_a_shards_figures_are_replaced_as_a_whole() -> None:
    """What a later record of the shard no longer lists is forgotten; other shards keep theirs."""
    image = Image(
        [
            ProgressRecord(1, "w", 5, (figure("t", 0, 1), figure("t", 1, 2))),
            ProgressRecord(2, "v", 6, (figure("t", 2, 3),)),
            ProgressRecord(1, "x", 7, (figure("t", 1, 4),)),
        ]
    )
    assert image.published("m", "t", 0) is None
    later = image.published("m", "t", 1)
    assert later is not None
    assert (later.worker, later.at_ms, later.figure.destination_end) == ("x", 7, 4)
    assert image.published("m", "t", 2) is not None
    image.apply(Tombstone(("progress", 1)))
    assert image.published("m", "t", 1) is None


def test_figures_are_as_young_as_their_worker_says() -> None:
    """Only that of the worker that has published them, and only in the shards that it names; after it, their own."""
    record = ProgressRecord(1, "w", 5, (figure("t", 0, 1),))
    image = Image([record])

    def at_ms(*changes: Change) -> int:
        for change in changes:
            image.apply(change)
        published = image.published("m", "t", 0)
        assert published is not None
        return published.at_ms

    assert at_ms(WorkerRecord("w", "h", 1, 2, 9, 8, (0, 1))) == 8
    assert at_ms(WorkerRecord("w", "h", 1, 2, 9, 8, (0,))) == 5
    assert at_ms(WorkerRecord("w", "h", 1, 2, 9, 4, (1,))) == 5
    assert at_ms(WorkerRecord("w", "h", 1, 2, 9, 8, (1,)), ProgressRecord(1, "v", 6, record.figures)) == 6
    assert at_ms(record, Tombstone(("worker", "w"))) == 5


@pytest.mark.parametrize("key", [("comet", 1), ("shard", "x"), ("topic", "m"), ()])
def test_tombstones_of_other_keys_do_nothing(key: tuple[str | int, ...]) -> None:
    """What only a newer program knows is not here to be removed."""
    image = Image(RECORDS)
    change: Change = Tombstone(key)
    image.apply(change)
    assert image.find(key) is None
    assert all(image.holds(record) for record in RECORDS)
