"""Which shard (partition of `__mirror_state`) a record belongs to, and so which worker's it is.

The hash is part of the stored format: it must never change, or records of one key would lie in two partitions. All
that a mirror's coordinator writes lies in the mirror's shard, all that a partition's owner writes in the partition's.
"""

from typing import assert_never
from zlib import crc32

from twinlog.control.records import (
    Change,
    Key,
    MirrorRecord,
    PartitionRecord,
    ProgressRecord,
    ShardRecord,
    Tombstone,
    TopicRecord,
    WorkerRecord,
)


def shard_of(mirror: str, topic: str, partition: int, shards: int) -> int:
    """The shard that a mirror partition hashes to; '/' can be in no mirror's or topic's name."""
    return _hash(f"{mirror}/{topic}/{partition}", shards)


def mirror_shard(mirror: str, shards: int) -> int:
    """The shard whose owner is the mirror's coordinator (discovery and syncs)."""
    return _hash(mirror, shards)


def partition_of(change: Change, shards: int) -> int:
    """The partition of `__mirror_state` that holds this record; ValueError for a key that belongs nowhere."""
    match change:
        case Tombstone(key):
            return _partition_of_key(key, shards)
        case MirrorRecord() | TopicRecord():
            return mirror_shard(change.mirror, shards)
        case PartitionRecord():
            return shard_of(change.mirror, change.topic, change.partition, shards)
        case ShardRecord() | ProgressRecord():
            return _own(change.shard, shards)
        case WorkerRecord():
            return _hash(change.worker, shards)
        case _:
            assert_never(change)


def _partition_of_key(key: Key, shards: int) -> int:
    match key:
        case ("mirror", str(mirror)) | ("topic", str(mirror), str()):
            return mirror_shard(mirror, shards)
        case ("partition", str(mirror), str(topic), int(partition)):
            return shard_of(mirror, topic, partition, shards)
        case ("shard", int(shard)) | ("progress", int(shard)):
            return _own(shard, shards)
        case ("worker", str(worker)):
            return _hash(worker, shards)
        case _:
            raise ValueError(f"The key {key} belongs to no shard.")


def _own(shard: int, shards: int) -> int:
    if not 0 <= shard < shards:
        raise ValueError(f"There is no shard {shard}: the state has {shards}.")
    return shard


def _hash(text: str, shards: int) -> int:
    return crc32(text.encode("utf-8")) % shards
