"""The records of `__mirror_state`: what the control plane stores, as values.

Each record has a `key` (its type's name, then what identifies it); a later record with the same key replaces the
earlier one, a `Tombstone` removes it. The key fields are the record's first fields. A mirror's coordinator is the
owner of its shard (`sharding`). Who writes what:

| record                          | written by                                     |
|---------------------------------|------------------------------------------------|
| `MirrorRecord`, `TopicRecord`   | admin commands; the mirror's coordinator      |
| `PartitionRecord`               | the worker that owns the partition's shard     |
| `ShardRecord`, `ProgressRecord` | the worker that owns the shard                 |
| `WorkerRecord`                  | that worker                                    |
| `SkippedRecord`                 | the mirror's coordinator                       |
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple
from uuid import UUID

from twinlog.config.acls import Acl
from twinlog.control.lifecycle import DesiredState, PartitionState

Key = tuple[str | int, ...]
"""A record's identity: `("partition", "my-mirror", "my-topic", 3)`."""

NO_TOPIC_ID = UUID(int=0)
"""The id of a topic that has none (brokers before 2.8) or does not exist yet."""

UNKNOWN_OFFSET = -1
NEVER_RETRY = -1


def topic_id_text(topic_id: UUID) -> str:
    """A topic id as Kafka's tools print it: unpadded base64url of its 16 bytes (`org.apache.kafka.common.Uuid`)."""
    return base64.urlsafe_b64encode(topic_id.bytes).decode("ascii").rstrip("=")


def parse_topic_id(text: str) -> UUID:
    """Read what `topic_id_text` or Kafka's tools printed; ValueError for anything else."""
    try:
        return UUID(bytes=base64.b64decode(text + "==", altchars=b"-_", validate=True))
    except (ValueError, binascii.Error):
        raise ValueError(
            f"'{text}' is not a topic id: expected 22 characters of base64url, as Kafka prints them"
        ) from None


def topics_life(source: UUID, destination: UUID) -> int:
    """A number for the pair of topics with these ids: figures of another pair are about logs that are gone.

    63 bits of random ids, which JSON readers of all kinds can hold, where both in full would be half of a figure.
    """
    return (source.int ^ destination.int) & (2**63 - 1)


class _Keyed:
    """Gives a record its key: the type's name, then its first `KEY_FIELDS`."""

    __slots__ = ()
    TYPE: ClassVar[str]
    KEY_FIELDS: ClassVar[tuple[str, ...]]

    @property
    def key(self) -> Key:
        return (self.TYPE, *(getattr(self, name) for name in self.KEY_FIELDS))


class _OfTwins:
    """A record about one pair of topics."""

    __slots__ = ()
    source_topic_id: UUID
    destination_topic_id: UUID

    @property
    def ids(self) -> tuple[UUID, UUID]:
        """The ids of both: records with others are about topics that had the same names."""
        return self.source_topic_id, self.destination_topic_id


@dataclass(frozen=True, slots=True)
class MirrorRecord(_Keyed):
    """One mirror: its configs as given (secrets only by reference) and its source cluster's id ("" while unknown).

    `looked_include`, `looked_exclude`: the patterns for which the source's topics were looked through once.
    `unstarted`: the topics found then that could not be started, each as its name, a slash and its id (`looked`).
    """

    TYPE: ClassVar[str] = "mirror"
    KEY_FIELDS: ClassVar[tuple[str, ...]] = ("mirror",)

    mirror: str
    configs: Mapping[str, str]
    source_cluster_id: str
    looked_include: tuple[str, ...] = ()
    looked_exclude: tuple[str, ...] = ()
    unstarted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicRecord(_Keyed, _OfTwins):
    """One topic of one mirror: what is desired, and which topics on both sides were meant (NO_TOPIC_ID: none yet).

    - `recoveries`: how often an operator asked for what has FAILED to be tried again.
    - `start_at`: where the first copy was told to begin, as it was said; "": at the beginning.
    - `start_offsets`: the offsets that this came to, by partition number; a partition beyond them begins at its
      source's beginning.
    - `shared_offsets`: up to where both sides were recorded to hold the same when it was started, by partition number;
      a partition beyond them shares nothing that is known.
    - `anew`: while the destination's topic is made anew, for which it is PAUSED: what it is to have again
      (`control.anew`); "": it is not.
    """

    TYPE: ClassVar[str] = "topic"
    KEY_FIELDS: ClassVar[tuple[str, ...]] = ("mirror", "topic")

    mirror: str
    topic: str
    desired: DesiredState
    source_topic_id: UUID
    destination_topic_id: UUID
    partitions: int
    recoveries: int = 0
    start_at: str = ""
    start_offsets: tuple[int, ...] = ()
    shared_offsets: tuple[int, ...] = ()
    anew: str = ""

    def start_offset(self, partition: int) -> int:
        """Where a partition's first copy begins; -1: at its source's beginning."""
        return self.start_offsets[partition] if partition < len(self.start_offsets) else UNKNOWN_OFFSET

    def shared_until(self, partition: int) -> int:
        """Up to where a partition was recorded to be the same on both sides; -1: nowhere."""
        return self.shared_offsets[partition] if partition < len(self.shared_offsets) else UNKNOWN_OFFSET


@dataclass(frozen=True, slots=True)
class PartitionRecord(_Keyed, _OfTwins):
    """One partition's actual state.

    - `producer_id`, `producer_epoch`: P and the highest epoch known of it; -1: none yet.
    - `spare_producer_id`: the one that takes over when P's epochs run out; either may be at the log's end then.
    - `checked_offset`: the tail check may begin here.
    - `last_mirrored_offset`: the destination's end (the next offset, not the last) when this was written; -1: unknown.
    - `long_runs`: a long blank run may have left a transactional id of this partition's own at the destination.
    - `retry_attempt`: retries made since the last success; NEVER_RETRY when only an operator can help.
    - `previous_state`: where a FAILED partition returns to.
    - `filled_to`, `last_filling`, `configs_before`: what is left of a first copy whose holes were filled
      (`relay.takeover.Copy`); -1, -1 and "" for nothing.
    - `recoveries`: the topic's, as far as this partition has answered them.
    - `first_offset`: filler was, or is being, written below it, and the destination's log is to start there; -1: none.
    - the two topic ids: of the topics that this state is about; with others in the TopicRecord, it is stale.
    """

    TYPE: ClassVar[str] = "partition"
    KEY_FIELDS: ClassVar[tuple[str, ...]] = ("mirror", "topic", "partition")

    mirror: str
    topic: str
    partition: int
    state: PartitionState
    producer_id: int = -1
    producer_epoch: int = -1
    spare_producer_id: int = -1
    checked_offset: int = UNKNOWN_OFFSET
    last_mirrored_offset: int = UNKNOWN_OFFSET
    long_runs: bool = False
    error: str = ""
    retry_attempt: int = 0
    previous_state: PartitionState = PartitionState.UNKNOWN
    source_topic_id: UUID = NO_TOPIC_ID
    destination_topic_id: UUID = NO_TOPIC_ID
    filled_to: int = UNKNOWN_OFFSET
    last_filling: int = UNKNOWN_OFFSET
    configs_before: str = ""
    recoveries: int = 0
    first_offset: int = UNKNOWN_OFFSET


@dataclass(frozen=True, slots=True)
class ShardRecord(_Keyed):
    """Who owns a shard, or owned it last.

    - `released`: it was given up with nothing under way, so a successor begins at once.
    - `unsettled`: it was given up, and nothing more is sent; but what had been sent may still be under way, so a
      successor settles first, as after a crash, without fencing anybody. Then `released` stays false: a program that
      overlooks this field takes the shard for held, and fences the worker, which is slower and as safe.
    """

    TYPE: ClassVar[str] = "shard"
    KEY_FIELDS: ClassVar[tuple[str, ...]] = ("shard",)

    shard: int
    worker: str
    released: bool = False
    unsettled: bool = False

    @property
    def held(self) -> bool:
        """Whether the worker has not given it up, so that a successor has to fence it."""
        return not self.released and not self.unsettled


@dataclass(frozen=True, slots=True)
class WorkerRecord(_Keyed):
    """A worker process, for `describe` and for people: where it runs, and when it last wrote (wall clock).

    `fresh_ms`, `fresh_shards`: what it has published of these shards was still so at this time, and is not said again.
    """

    TYPE: ClassVar[str] = "worker"
    KEY_FIELDS: ClassVar[tuple[str, ...]] = ("worker",)

    worker: str
    host: str
    pid: int
    started_ms: int
    beat_ms: int
    fresh_ms: int = 0
    fresh_shards: tuple[int, ...] = ()


class Figure(NamedTuple):
    """One partition's published offsets; -1 where unknown. All are next offsets, as Kafka counts log ends.

    A tuple, since each worker makes and compares one a second for every partition, and reads what it has written: a
    frozen class takes several times as long for each.

    `life` tells the topics apart that have had this name one after another (`topics_life`).
    """

    mirror: str
    topic: str
    partition: int
    source_log_start: int
    source_high_watermark: int
    source_stable_offset: int
    destination_log_start: int
    destination_end: int
    waiting_for_transaction: bool
    life: int = 0


@dataclass(frozen=True, slots=True)
class ProgressRecord(_Keyed):
    """All figures of one shard at one time (`at_ms`, wall clock of the worker)."""

    TYPE: ClassVar[str] = "progress"
    KEY_FIELDS: ClassVar[tuple[str, ...]] = ("shard",)

    shard: int
    worker: str
    at_ms: int
    figures: tuple[Figure, ...] = ()


@dataclass(frozen=True, slots=True)
class Skipped:
    """One thing that the last refresh of a mirror left alone: its kind (topic, config, group, acl), name and reason."""

    kind: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class SkippedRecord(_Keyed):
    """What a mirror's last refresh (`at_ms`, wall clock of the coordinator) left alone; `beyond`: how many more.

    `held`: ACLs of the source that would let somebody write to a mirrored topic, to be given at the destination when it
    is stopped, with the source down, too. `held_for`: the topics that wider patterns among them are held back for.
    `last_synced`: the topics whose group offsets were looked at once more when they were stopped, as of the stop that
    was seen last; `last_synced_ms`: when that was over, be it with success or not.
    `denied`: topics to which twinlog denies others to write; noted before the ACL is made, until after it is deleted.
    """

    TYPE: ClassVar[str] = "skipped"
    KEY_FIELDS: ClassVar[tuple[str, ...]] = ("mirror",)

    mirror: str
    at_ms: int
    items: tuple[Skipped, ...] = ()
    beyond: int = 0
    held: tuple[Acl, ...] = ()
    held_for: tuple[str, ...] = ()
    last_synced: tuple[str, ...] = ()
    last_synced_ms: int = 0
    denied: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Removes the record with this key; one that removes nothing is fine."""

    key: Key


Record = MirrorRecord | TopicRecord | PartitionRecord | ShardRecord | WorkerRecord | ProgressRecord | SkippedRecord
Change = Record | Tombstone
"""What the log is a sequence of."""

RECORD_TYPES: tuple[type[Record], ...] = (
    MirrorRecord,
    TopicRecord,
    PartitionRecord,
    ShardRecord,
    WorkerRecord,
    ProgressRecord,
    SkippedRecord,
)
