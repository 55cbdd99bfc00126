"""Where records lie: a stored format, so the numbers themselves are pinned."""

import itertools
from collections import Counter
from collections.abc import Sequence
from zlib import crc32

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


# What the group makes of 50 shards when a second, third and fourth worker joins, when one of the four leaves and when
# four come at once, each as ranges of shards; as librdkafka's cooperative-sticky assignor did it.
BY_TWO = ([*range(25, 50)], [*range(25)])
BY_THREE = ([*range(33, 50)], [*range(8, 25)], [*range(8), *range(25, 33)])
BY_FOUR = (
    [*range(37, 50)],
    [*range(12, 25)],
    [*range(4, 8), *range(25, 33)],
    [*range(4), *range(8, 12), *range(33, 37)],
)
LEFT = (
    [*range(12, 25), 38, 41, 44, 47],
    [*range(4, 8), *range(25, 33), 37, 40, 43, 46, 49],
    [*range(4), *range(8, 12), *range(33, 37), 39, 42, 45, 48],
)
AT_ONCE = tuple([*range(first, 50, 4)] for first in range(4))


def test_the_hash_never_changes() -> None:
    """Known names hash to known shards, in every release and process (crc32, then steps of 31)."""
    assert shard_of("my-mirror", "my-topic", 0, 50) == crc32(b"my-mirror/my-topic") % 50
    assert [shard_of("my-mirror", "my-topic", partition, 50) for partition in range(4)] == [21, 2, 33, 14]
    assert mirror_shard("my-mirror", 50) == 3157596755 % 50


@pytest.mark.parametrize(("owners", "most"), [(BY_TWO, 34), (BY_THREE, 24), (BY_FOUR, 19), (LEFT, 25), (AT_ONCE, 19)])
def test_a_topic_of_64_partitions_is_shared_evenly(owners: Sequence[Sequence[int]], most: int) -> None:
    """However the group cuts the circle of shards, no worker has much more of any one topic than the others."""
    assert sorted(itertools.chain(*owners)) == list(range(50))
    owner_of = {shard: number for number, shards in enumerate(owners) for shard in shards}
    for number in range(200):
        counts = Counter(owner_of[shard_of("m", f"topic-{number}", partition, 50)] for partition in range(64))
        assert max(counts.values()) <= most, (number, counts)


def test_every_number_of_shards_is_used_whole() -> None:
    """A topic of as many partitions as there are shards has one in each, whatever their number."""
    for shards in range(1, 130):
        assert {shard_of("m", "t", partition, shards) for partition in range(shards)} == set(range(shards))


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
