"""What the log of `__mirror_state` adds up to. Replay is the only thing that changes it, at load and live alike."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar, assert_never

from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import (
    Change,
    Figure,
    Key,
    MirrorRecord,
    PartitionRecord,
    ProgressRecord,
    Record,
    ShardRecord,
    SkippedRecord,
    Tombstone,
    TopicRecord,
    WorkerRecord,
)

PartitionKey = tuple[str, str, int]
"""Mirror, topic, partition."""

A = TypeVar("A")
B = TypeVar("B")
K = TypeVar("K", str, int)
V = TypeVar("V")


class Published(NamedTuple):
    """A partition's figure, who published it, and when it was last known to be so (wall clock of that worker)."""

    figure: Figure
    worker: str
    at_ms: int


class Image:
    """The latest record of every key, with the lookups that commands and workers need.

    Records are immutable, so a value once looked up stays as it was. Read the maps, change them only by `apply`.
    `positions` belongs to whoever replays: the offset up to which each shard is in the image.
    """

    def __init__(self, changes: Iterable[Change] = ()) -> None:
        self.positions: dict[int, int] = {}
        self.mirrors: dict[str, MirrorRecord] = {}
        self.shards: dict[int, ShardRecord] = {}
        self.workers: dict[str, WorkerRecord] = {}
        self.progress: dict[int, ProgressRecord] = {}
        self.skipped: dict[str, SkippedRecord] = {}
        self._topics: dict[str, dict[str, TopicRecord]] = {}
        self._mirrors_of: dict[str, dict[str, TopicRecord]] = {}
        self._partitions: dict[tuple[str, str], dict[int, PartitionRecord]] = {}
        self._places: dict[PartitionKey, tuple[int, int]] = {}
        for change in changes:
            self.apply(change)

    def apply(self, change: Change) -> None:
        """Replay one record or tombstone."""
        match change:
            case Tombstone(key):
                self._remove(*key)
            case MirrorRecord():
                self.mirrors[change.mirror] = change
            case TopicRecord():
                self._topics.setdefault(change.mirror, {})[change.topic] = change
                self._mirrors_of.setdefault(change.topic, {})[change.mirror] = change
            case PartitionRecord():
                self._partitions.setdefault((change.mirror, change.topic), {})[change.partition] = change
            case ShardRecord():
                self.shards[change.shard] = change
            case WorkerRecord():
                self.workers[change.worker] = change
            case ProgressRecord():
                self._publish(change)
            case SkippedRecord():
                self.skipped[change.mirror] = change
            case _:
                assert_never(change)

    def find(self, key: Key) -> Record | None:
        """The record of any type under a key."""
        found: Record | None = None
        match key:
            case ("mirror", str(mirror)):
                found = self.mirrors.get(mirror)
            case ("topic", str(mirror), str(topic)):
                found = self.topic(mirror, topic)
            case ("partition", str(mirror), str(topic), int(partition)):
                found = self.partition(mirror, topic, partition)
            case ("shard", int(shard)):
                found = self.shards.get(shard)
            case ("worker", str(worker)):
                found = self.workers.get(worker)
            case ("progress", int(shard)):
                found = self.progress.get(shard)
            case ("skipped", str(mirror)):
                found = self.skipped.get(mirror)
        return found

    def holds(self, change: Change) -> bool:
        """Whether the image is as if this change had been the last one of its key."""
        return self.find(change.key) == (None if isinstance(change, Tombstone) else change)

    def topic(self, mirror: str, topic: str) -> TopicRecord | None:
        """The record of one topic of one mirror."""
        return self._topics.get(mirror, {}).get(topic)

    def topics_of(self, mirror: str) -> list[TopicRecord]:
        """A mirror's topics in any desired state, by name."""
        return _by_key(self._topics.get(mirror, {}))

    def all_topics(self) -> Iterator[TopicRecord]:
        """Every topic of every mirror, by mirror and topic."""
        for mirror in sorted(self._topics):
            yield from self.topics_of(mirror)

    def mirrors_of(self, topic: str) -> list[TopicRecord]:
        """The records of all mirrors that name this topic, by mirror."""
        return _by_key(self._mirrors_of.get(topic, {}))

    def active_in(self, topic: str) -> TopicRecord | None:
        """The record under which a topic is active (desired MIRRORING or PAUSED); at most one mirror has it so."""
        for record in self.mirrors_of(topic):
            if record.desired is not DesiredState.STOPPED:
                return record
        return None

    def partition(self, mirror: str, topic: str, partition: int) -> PartitionRecord | None:
        """The stored state of one partition."""
        return self._partitions.get((mirror, topic), {}).get(partition)

    def partitions_of(self, mirror: str, topic: str) -> list[PartitionRecord]:
        """The stored states of a topic's partitions, by number; a partition that no worker has seen yet has none."""
        return _by_key(self._partitions.get((mirror, topic), {}))

    def state(self, mirror: str, topic: str, partition: int) -> PartitionState:
        """One partition's state; UNKNOWN where none is stored."""
        record = self.partition(mirror, topic, partition)
        return PartitionState.UNKNOWN if record is None else record.state

    def published(self, mirror: str, topic: str, partition: int) -> Published | None:
        """The latest figures of one partition, with their age's beginning."""
        place = self._places.get((mirror, topic, partition))
        if place is None:
            return None
        shard, at = place
        record = self.progress[shard]
        worker = self.workers.get(record.worker)
        fresh_ms = worker.fresh_ms if worker is not None and shard in worker.fresh_shards else 0
        return Published(record.figures[at], record.worker, max(record.at_ms, fresh_ms))

    def _publish(self, record: ProgressRecord) -> None:
        """A shard's record replaces all figures of the one before it; of quiet partitions they are the same."""
        former = self.progress.get(record.shard)
        if former is None or former.figures != record.figures:
            self._unpublish(record.shard)
            for at, figure in enumerate(record.figures):
                self._places[figure.mirror, figure.topic, figure.partition] = (record.shard, at)
        self.progress[record.shard] = record

    def _unpublish(self, shard: int) -> None:
        former = self.progress.pop(shard, None)
        for figure in former.figures if former else ():
            self._places.pop((figure.mirror, figure.topic, figure.partition), None)

    def _remove(self, *key: str | int) -> None:
        match key:
            case ("mirror", str(mirror)):
                self.mirrors.pop(mirror, None)
            case ("topic", str(mirror), str(topic)):
                _remove_inner(self._topics, mirror, topic)
                _remove_inner(self._mirrors_of, topic, mirror)
            case ("partition", str(mirror), str(topic), int(partition)):
                _remove_inner(self._partitions, (mirror, topic), partition)
            case ("shard", int(shard)):
                self.shards.pop(shard, None)
            case ("worker", str(worker)):
                self.workers.pop(worker, None)
            case ("progress", int(shard)):
                self._unpublish(shard)
            case ("skipped", str(mirror)):
                self.skipped.pop(mirror, None)
            case _:
                pass  # of a type that only a newer twinlog knows (codec, rule 3)


def _by_key(values: dict[K, V]) -> list[V]:
    return [values[key] for key in sorted(values)]


def _remove_inner(outer: dict[A, dict[B, V]], first: A, second: B) -> None:
    inner = outer.get(first)
    if inner is not None:
        inner.pop(second, None)
        if not inner:
            del outer[first]
