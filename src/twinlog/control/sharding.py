"""Which shard (partition of `__mirror_state`) a record belongs to, and so which worker's it is.

Where a record lies is part of the stored format: it must never change, or records of one key would lie in two
partitions. All that a mirror's coordinator writes lies in the mirror's shard, all that a partition's owner writes in
the partition's.

The group gives each worker as many shards as the others, whatever is in them (the client library takes no assignor of
ours), and mostly runs of neighbours, or every second or third. So what shares the load evenly has to be in here: a
topic's partitions begin at a hashed shard and go on in steps of a golden section of the circle, so that any run of
neighbours, and any regular choice of shards, holds its part of every topic, one partition more or less. Mostly it is
the topics that differ in load, less the partitions of one topic; topics of a single partition are left to the hash.
"""

from functools import lru_cache
from math import gcd
from typing import assert_never
from zlib import crc32

from twinlog.control.records import (
    Change,
    Key,
    MirrorRecord,
    PartitionRecord,
    ProgressRecord,
    ShardRecord,
    SkippedRecord,
    Tombstone,
    TopicRecord,
    WorkerRecord,
)


def shard_of(mirror: str, topic: str, partition: int, shards: int) -> int:
    """The shard of a mirror partition; '/' can be in no mirror's or topic's name."""
    return (_hash(f"{mirror}/{topic}", shards) + partition * _step(shards)) % shards


def mirror_shard(mirror: str, shards: int) -> int:
    """The shard whose owner is the mirror's coordinator (discovery and syncs)."""
    return _hash(mirror, shards)


def partition_of(change: Change, shards: int) -> int:
    """The partition of `__mirror_state` that holds this record; ValueError for a key that belongs nowhere."""
    match change:
        case Tombstone(key):
            return _partition_of_key(key, shards)
        case MirrorRecord() | TopicRecord() | SkippedRecord():
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
        case ("mirror" | "skipped", str(mirror)) | ("topic", str(mirror), str()):
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


@lru_cache(maxsize=8)
def _step(shards: int) -> int:
    """The first number from 0.618 of `shards` on that has no divisor in common with it, so that all are reached."""
    step = shards * 618 // 1000
    while gcd(step, shards) != 1:
        step += 1
    return step


def _hash(text: str, shards: int) -> int:
    return crc32(text.encode("utf-8")) % shards
