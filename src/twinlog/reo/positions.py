"""How far each source partition was copied: records of a compacted topic on the destination, a partition a share.

A position is written in the same transaction as the records before it, so what a read_committed reader finds is true.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from zlib import crc32

from twinlog.batch.records import Record, decode, encode
from twinlog.batch.scan import Data, readable
from twinlog.batch.view import Batch
from twinlog.errors import BadInput, RetryLater, TopicAlreadyExists
from twinlog.names import TopicPartition
from twinlog.wire import codes
from twinlog.wire.cluster import Cluster, TopicInfo
from twinlog.wire.ops import LATEST, create_topic, one_offset, read_log
from twinlog.wire.retry import Attempts

READ_BYTES: Final = 4_194_304
MOST_REPLICAS: Final = 3
APPEARS_WITHIN_S: Final = 30.0
WAIT_MS: Final = 200
CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(8 << 20),
    "min.cleanable.dirty.ratio": "0.1",
    "compression.type": "producer",
}


@dataclass(frozen=True, slots=True)
class Place:
    """A source partition: which cluster's, and which topic of that name."""

    application: str
    cluster: str
    topic: str
    topic_id: str
    partition: int


@dataclass(frozen=True, slots=True)
class Position:
    """All below `next_offset` was copied to the topic `target` with id `target_id`; `error` is what stops it now."""

    next_offset: int
    epoch: int
    target: str
    target_id: str
    time_ms: int
    error: str = ""


def encoded(positions: Mapping[Place, Position]) -> Batch:
    """One batch that holds `positions`."""
    records = [
        Record(at, position.time_ms, _key(place), _value(position))
        for at, (place, position) in enumerate(positions.items())
    ]
    return encode(records, codec=0)


def _key(place: Place) -> bytes:
    told = {
        "application": place.application,
        "cluster": place.cluster,
        "topic": place.topic,
        "topicId": place.topic_id,
        "partition": place.partition,
    }
    return json.dumps(told, separators=(",", ":")).encode()


def _value(position: Position) -> bytes:
    told = {
        "nextOffset": position.next_offset,
        "leaderEpoch": position.epoch,
        "destinationTopic": position.target,
        "destinationTopicId": position.target_id,
        "timeMs": position.time_ms,
        "error": position.error,
    }
    return json.dumps(told, separators=(",", ":")).encode()


def decoded(record: Record, where: TopicPartition) -> tuple[Place, Position | None]:
    """Read a record of the topic; BadInput for one that this program did not write."""
    try:
        key: dict[str, Any] = json.loads(record.key or b"")
        place = Place(key["application"], key["cluster"], key["topic"], key["topicId"], key["partition"])
        if record.value is None:
            return place, None
        told: dict[str, Any] = json.loads(record.value)
        return place, Position(
            told["nextOffset"],
            told["leaderEpoch"],
            told["destinationTopic"],
            told["destinationTopicId"],
            told["timeMs"],
            told["error"],
        )
    except (ValueError, KeyError, TypeError):
        raise BadInput(
            f"{where} holds at offset {record.offset} a record that is no position. Use another application.name, or "
            f"delete that topic and say with start-from where to begin."
        ) from None


def beginning_of(application: str, cluster: str) -> Place:
    """Under which a share notes that it has begun with a source cluster, be it with no partition at all."""
    return Place(application, cluster, "", "", -1)


def has_begun(known: Iterable[Place], application: str, cluster: str) -> bool:
    """Whether a share that has written these has begun before; what it does not know of was then added since."""
    return any((place.application, place.cluster) == (application, cluster) for place in known)


def share_of(topic: str, partition: int, shares: int) -> int:
    """Which share a source partition belongs to: the partitions of a topic are dealt out in turn."""
    return (crc32(topic.encode()) + partition) % shares


async def ensure_topic(
    cluster: Cluster, topic: str, *, partitions: int, replication_factor: int | None, configs: Mapping[str, str]
) -> TopicInfo:
    """The topic, created where it does not exist; RetryLater where it does not appear."""
    told = (await cluster.topics([topic])).get(topic)
    if told is not None and not told.error and told.partitions:
        return told
    factor = replication_factor or min(MOST_REPLICAS, len(cluster.brokers))
    with suppress(TopicAlreadyExists):
        await create_topic(cluster, topic, partitions=partitions, replication_factor=factor, configs=configs)
    attempts = Attempts(APPEARS_WITHIN_S)
    while True:
        told = (await cluster.topics([topic])).get(topic)
        made = [TopicPartition(topic, number) for number in range(partitions)]
        if told is not None and not told.error and all(cluster.leader(where) is not None for where in made):
            return told
        if not await attempts.again():
            raise RetryLater(f"The topic {topic} was created on the {cluster}, but has no leader yet.")


class Positions:
    """A share's partition of the topic as last read; reading goes on where it ended."""

    def __init__(self, cluster: Cluster, topic: str, share: int, *, shares: int) -> None:
        self.where = TopicPartition(topic, share)
        self.known: dict[Place, Position] = {}
        self.topic_id = ""
        self._shares = shares
        self._cluster = cluster
        self._next = 0

    async def ensure(self, replication_factor: int | None) -> None:
        """Create the topic where it does not exist; BadInput where it has another number of shares."""
        topic = self.where.topic
        told = await ensure_topic(
            self._cluster,
            topic,
            partitions=self._shares,
            replication_factor=replication_factor,
            configs=CONFIGS,
        )
        if len(told.partitions) != self._shares:
            raise BadInput(
                f"{topic} on the {self._cluster} has {len(told.partitions)} partitions, but shares is {self._shares}. "
                f"Set shares to {len(told.partitions)}: their number cannot change while positions are kept."
            )
        if str(told.id) != self.topic_id:
            self.topic_id, self.known, self._next = str(told.id), {}, 0

    async def refresh(self, *, timeout_s: float = 60.0, decided_only: bool = False) -> None:
        """Read what is committed up to the end that the topic has now; `decided_only`: up to where that is decided.

        RetryLater where a transaction is still open at the end of `timeout_s`.
        """
        end = await one_offset(self._cluster, self.where, LATEST, read_committed=decided_only)
        attempts = Attempts(timeout_s)
        while self._next < end:
            if not await self._read() and not await attempts.again():
                raise RetryLater(f"{self.where} on the {self._cluster} is decided only up to {self._next} of {end}.")

    async def _read(self) -> bool:
        chunk = await read_log(
            self._cluster, self.where, self._next, max_bytes=READ_BYTES, read_committed=True, max_wait_ms=WAIT_MS
        )
        codes.check(chunk.error, f"{self.where} could not be read on the {self._cluster}")
        scan = readable(
            chunk.records,
            position=self._next,
            stable=chunk.last_stable_offset,
            aborted=chunk.aborted,
            where=self.where,
        )
        for item in scan.items:
            if isinstance(item, Data):
                for record in decode(item.batch, where=self.where):
                    self._take(record)
        moved = scan.next_offset > self._next
        self._next = max(self._next, scan.next_offset)
        if not moved and chunk.last_stable_offset > self._next and not len(chunk.records):
            self._next, moved = chunk.last_stable_offset, True
        return moved

    def _take(self, record: Record) -> None:
        if record.offset < self._next:
            return
        place, position = decoded(record, self.where)
        if position is None:
            self.known.pop(place, None)
        else:
            self.known[place] = position
