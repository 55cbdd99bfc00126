"""Reading at a leader: Fetch, with its waiting for data, and ListOffsets.

Rules: `ReplicaManager.fetchMessages` and `fetchOffset`, `Partition.readRecords` of Apache Kafka.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from kafka.protocol.consumer import FetchResponse, ListOffsetsResponse
from tests.sim.broker.asks import Ask
from tests.sim.broker.node import SimBroker
from tests.sim.broker.partition import Replica
from tests.sim.broker.refusals import Refused

from twinlog.batch.records import decode
from twinlog.batch.scan import Aborted
from twinlog.batch.view import Batch
from twinlog.names import TopicPartition
from twinlog.wire import codes

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
CONSUMER, DEBUGGER = -1, -2
FIRST_BY_ID = 13
_READ_COMMITTED = 1


class Item(NamedTuple):
    """One partition of a Fetch request; the topic is empty where its id is unknown."""

    where: TopicPartition
    topic_id: UUID
    part: Any


@dataclass(slots=True)
class Piece:
    """The answer for one partition of a Fetch request."""

    where: TopicPartition
    topic_id: UUID
    code: int
    records: bytes = b""
    high_watermark: int = -1
    stable: int = -1
    start: int = -1
    aborted: tuple[Aborted, ...] = ()
    diverging: tuple[int, int] | None = None


def fetch(broker: SimBroker, ask: Ask) -> None:
    """Answer a Fetch request, once it has enough bytes or its time is over."""
    asked = ask.message
    if asked.session_id or asked.session_epoch > 0:
        raise AssertionError("fetch sessions are not simulated")
    items = [_item(broker, ask.version, topic, part) for topic in asked.topics for part in topic.partitions]

    def attempt() -> bool:
        pieces = _read_all(broker, asked, items)
        enough = sum(len(p.records) for p in pieces) >= asked.min_bytes or asked.max_wait_ms <= 0
        if enough or any(p.code or p.diverging for p in pieces):
            ask.reply(_fetched(ask.version, pieces))
            return True
        return False

    def give_up() -> None:
        ask.reply(_fetched(ask.version, _read_all(broker, asked, items)))

    broker.waiting.wait(
        {item.where: None for item in items},
        attempt,
        give_up,
        most_s=max(0, asked.max_wait_ms) / 1000,
    )


def _item(broker: SimBroker, version: int, topic: Any, part: Any) -> Item:
    if version < FIRST_BY_ID:
        return Item(TopicPartition(topic.topic, part.partition), broker.cluster.topic_id(topic.topic), part)
    return Item(TopicPartition(broker.cluster.topic_name(topic.topic_id), part.partition), topic.topic_id, part)


def _read_all(broker: SimBroker, asked: Any, items: list[Item]) -> list[Piece]:
    left = min(asked.max_bytes, broker.cluster.settings.fetch_max_bytes)
    pieces: list[Piece] = []
    nothing_yet = True
    for item in items:
        piece = _read(broker, asked, item, left=left, at_least_one=nothing_yet)
        nothing_yet = nothing_yet and not piece.records
        left = max(0, left - len(piece.records))
        pieces.append(piece)
    return pieces


def _read(broker: SimBroker, asked: Any, item: Item, *, left: int, at_least_one: bool) -> Piece:
    where, topic_id, part = item
    try:
        if not where.topic:
            raise Refused(codes.UNKNOWN_TOPIC_ID)
        replica = broker.replica(where)
        replica.check(part.current_leader_epoch)
        log = replica.log
        upper = replica.stable_for(read_committed=asked.isolation_level == _READ_COMMITTED)
        piece = Piece(where, topic_id, codes.NONE, b"", log.high_watermark, log.last_stable_offset, log.start)
        piece.diverging = _diverging(replica, part)
        if piece.diverging is not None:
            return piece
        if not log.start <= part.fetch_offset <= log.end:
            raise Refused(codes.OFFSET_OUT_OF_RANGE, f"{part.fetch_offset} is not in {log.start}..{log.end}")
    except Refused as refused:
        return Piece(where, topic_id, refused.code)
    most = min(left, part.partition_max_bytes)
    batches = log.from_offset(part.fetch_offset, upper, max(most, 0)) if part.fetch_offset < upper else []
    piece.records = _cut(batches, most, whole=at_least_one)
    if asked.isolation_level == _READ_COMMITTED and batches:
        piece.aborted = tuple(log.aborted_in(part.fetch_offset, batches[-1].next_offset))
    return piece


def _diverging(replica: Replica, part: Any) -> tuple[int, int] | None:
    """Where the reader's log and this one part, by the epoch that the reader read last (KIP-320, KIP-595)."""
    last = getattr(part, "last_fetched_epoch", -1)
    if last is None or last < 0:
        return None
    epoch, end = replica.log.epochs.end_of(last, replica.log.end)
    if epoch < 0 or end < 0:
        raise Refused(codes.OFFSET_OUT_OF_RANGE, f"where epoch {last} ends is not known")
    if part.fetch_offset < replica.log.start:
        raise Refused(codes.OFFSET_OUT_OF_RANGE, f"{part.fetch_offset} is below {replica.log.start}")
    return (epoch, end) if epoch < last or end < part.fetch_offset else None


def _cut(batches: list[Batch], most: int, *, whole: bool) -> bytes:
    """A slice of the log as it lies there: its end may be a part of a batch, its first batch may be too large."""
    if not batches or (most < batches[0].size and not whole):
        return b""
    data = b"".join(batch.raw for batch in batches)
    return data[: max(most, batches[0].size)]


def _fetched(version: int, pieces: list[Piece]) -> FetchResponse:
    topic_kind = FetchResponse.FetchableTopicResponse
    topics: list[Any] = []
    for piece in pieces:
        if not topics or (topics[-1].topic, topics[-1].topic_id) != (piece.where.topic, piece.topic_id):
            topics.append(topic_kind(topic=piece.where.topic, topic_id=piece.topic_id, partitions=[]))
        topics[-1].partitions.append(_partition_data(version, piece))
    return FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=topics)


def _partition_data(version: int, piece: Piece) -> Any:
    kind = FetchResponse.FetchableTopicResponse.PartitionData
    data = kind(
        partition_index=piece.where.partition,
        error_code=piece.code,
        high_watermark=piece.high_watermark,
        last_stable_offset=piece.stable,
        log_start_offset=piece.start,
        aborted_transactions=[
            kind.AbortedTransaction(producer_id=a.producer_id, first_offset=a.first_offset) for a in piece.aborted
        ],
        preferred_read_replica=-1,
        records=piece.records,
    )
    if piece.diverging is not None and version >= 12:
        data.diverging_epoch = kind.EpochEndOffset(epoch=piece.diverging[0], end_offset=piece.diverging[1])
    return data


def list_offsets(broker: SimBroker, ask: Ask) -> None:
    """Answer a ListOffsets request."""
    topic_kind = ListOffsetsResponse.ListOffsetsTopicResponse
    topics = [
        topic_kind(name=topic.name, partitions=[_listed(broker, ask, topic.name, part) for part in topic.partitions])
        for topic in ask.message.topics
    ]
    ask.reply(ListOffsetsResponse(throttle_time_ms=0, topics=topics))


def _listed(broker: SimBroker, ask: Ask, topic: str, part: Any) -> Any:
    kind = ListOffsetsResponse.ListOffsetsTopicResponse.ListOffsetsPartitionResponse
    try:
        timestamp, offset, epoch = _offset(broker, ask, TopicPartition(topic, part.partition_index), part)
    except Refused as refused:
        return kind(partition_index=part.partition_index, error_code=refused.code, timestamp=-1, offset=-1)
    return kind(
        partition_index=part.partition_index, error_code=0, timestamp=timestamp, offset=offset, leader_epoch=epoch
    )


def _offset(broker: SimBroker, ask: Ask, where: TopicPartition, part: Any) -> tuple[int, int, int]:
    """Timestamp, offset and leader epoch that were asked for; -1 each where nothing is found."""
    asked = ask.message
    replica = broker.replica(where)
    replica.check(getattr(part, "current_leader_epoch", -1), leader_only=asked.replica_id != DEBUGGER)
    log = replica.log
    lagging = asked.replica_id == CONSUMER and replica.leads and replica.epoch_start > log.high_watermark
    fetchable = log.end
    if asked.replica_id == CONSUMER:
        fetchable = replica.stable_for(read_committed=asked.isolation_level == _READ_COMMITTED)
    if part.timestamp == LATEST:
        if lagging:
            raise Refused(codes.OFFSET_NOT_AVAILABLE if ask.version >= 5 else codes.LEADER_NOT_AVAILABLE)
        return -1, fetchable, replica.assigned.epoch
    if part.timestamp == EARLIEST:
        first = log.epochs.entries[0] if log.epochs.entries else None
        return -1, log.start, first.epoch if first is not None and first.start <= log.start else -1
    found = _by_time(log.batches, part.timestamp, log.start)
    if found is not None and found[1] < fetchable:
        return found
    if lagging:
        raise Refused(codes.OFFSET_NOT_AVAILABLE if ask.version >= 5 else codes.LEADER_NOT_AVAILABLE)
    return -1, -1, -1


def _by_time(batches: list[Batch], timestamp: int, start: int) -> tuple[int, int, int] | None:
    if timestamp == MAX_TIMESTAMP:
        newest = max(batches, key=lambda batch: batch.max_timestamp, default=None)
        batches, timestamp = ([newest], newest.max_timestamp) if newest is not None else ([], 0)
    for batch in batches:
        if batch.max_timestamp >= timestamp:
            for record in decode(batch):
                if record.timestamp >= timestamp and record.offset >= start:
                    return record.timestamp, record.offset, batch.leader_epoch
    return None
