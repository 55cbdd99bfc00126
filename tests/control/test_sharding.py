"""Where records lie: a stored format, so the numbers themselves are pinned."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import (
    NO_TOPIC_ID,
    Change,
    MirrorRecord,
    PartitionRecord,
    ProgressRecord,
    ShardRecord,
    Tombstone,
    TopicRecord,
    WorkerRecord,
)
from twinlog.control.sharding import mirror_shard, partition_of, shard_of

RECORDS: tuple[Change, ...] = (
    MirrorRecord("m", {}, ""),
    TopicRecord("m", "t", DesiredState.STOPPED, NO_TOPIC_ID, NO_TOPIC_ID, 1),
    PartitionRecord("m", "t", 3, PartitionState.PAUSED),
    ShardRecord(49, "w"),
    ProgressRecord(48, "w", 1),
    WorkerRecord("w", "h", 1, 2, 3),
)


def test_the_hash_never_changes() -> None:
    """Known names hash to known shards, in every release and process (crc32)."""
    assert shard_of("my-mirror", "my-topic", 3, 50) == 3917649590 % 50
    assert mirror_shard("my-mirror", 50) == 3157596755 % 50


def test_each_record_lies_with_its_owner() -> None:
    """A mirror and its topics share a shard, a partition has its own, shard records lie in the shard itself."""
    mirror, topic, partition, shard, progress, _ = (partition_of(record, 50) for record in RECORDS)
    assert mirror == topic == mirror_shard("m", 50)
    assert partition == shard_of("m", "t", 3, 50)
    assert (shard, progress) == (49, 48)


def test_a_tombstone_lies_where_its_record_lay() -> None:
    """Otherwise compaction would keep both."""
    for record in RECORDS:
        assert partition_of(Tombstone(record.key), 50) == partition_of(record, 50)


@given(st.text(), st.text(), st.integers(0, 100_000), st.integers(1, 500))
def test_every_partition_has_a_shard(mirror: str, topic: str, partition: int, shards: int) -> None:
    """The shard is within the topic's partitions, whatever the names."""
    assert 0 <= shard_of(mirror, topic, partition, shards) < shards


def test_partitions_are_spread() -> None:
    """A topic's partitions do not gather in a few shards."""
    used = {shard_of("m", "t", partition, 50) for partition in range(500)}
    assert len(used) == 50


@pytest.mark.parametrize(
    "change", [ShardRecord(50, "w"), ShardRecord(-1, "w"), Tombstone(("comet", 1)), Tombstone(("shard", "x"))]
)
def test_what_belongs_nowhere_is_refused(change: Change) -> None:
    """A shard that does not exist and a key of no known type have no place."""
    with pytest.raises(ValueError, match=r"no shard"):
        partition_of(change, 50)
