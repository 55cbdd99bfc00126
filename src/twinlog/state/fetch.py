"""Pieces of `__mirror_state` as a read_committed reader gets them: many partitions of one leader in one request."""

from collections.abc import Mapping
from dataclasses import dataclass

from kafka.protocol.consumer import FetchRequest, FetchResponse

from twinlog.batch.records import Record as RawRecord
from twinlog.batch.records import decode as decode_batch
from twinlog.batch.scan import Aborted, Data, readable
from twinlog.control.codec import decode
from twinlog.control.records import Change, Tombstone
from twinlog.control.sharding import partition_of
from twinlog.errors import BadInput, UnsupportedVersion
from twinlog.names import TopicPartition
from twinlog.state.topic import STATE_TOPIC
from twinlog.wire import codes
from twinlog.wire.cluster import Cluster, Leader
from twinlog.wire.leaders import Answer
from twinlog.wire.ops_log import by_topic

# A response takes 50 partitions at their bound; what did not fit is asked for in the next round.
RESPONSE_BYTES = 50 << 20
PARTITION_BYTES = 1 << 20

_READ_COMMITTED = 1
_NEWEST_FETCH_BY_NAME = 12


@dataclass(frozen=True, slots=True)
class Piece:
    """Committed records of one partition, and the offset from which to go on."""

    records: tuple[RawRecord, ...]
    next_offset: int


async def fetch(
    cluster: Cluster,
    node: int,
    asked: Mapping[TopicPartition, tuple[Leader, int]],
    *,
    lane: str,
    max_wait_ms: int,
    timeout_s: float,
) -> dict[TopicPartition, Answer[Piece]]:
    """Ask broker `node` for what is committed from each partition's offset on; it waits up to `max_wait_ms` for news.

    `timeout_s` bounds the answer beyond that wait. Error codes of partitions are values. Raises ConnectionLost,
    Unreachable, CorruptBatch.
    """
    response: FetchResponse = await cluster.call(
        _request(asked, max_wait_ms),
        node=node,
        lane=lane,
        timeout_s=max_wait_ms / 1000 + timeout_s,
        max_version=_NEWEST_FETCH_BY_NAME,
    )
    if response.error_code:
        return {tp: Answer(response.error_code) for tp in asked}
    return {
        tp: _answer(tp, asked[tp][1], told)
        for answered in response.responses
        for told in answered.partitions
        if (tp := TopicPartition(answered.topic, told.partition_index)) in asked
    }


def _request(asked: Mapping[TopicPartition, tuple[Leader, int]], max_wait_ms: int) -> FetchRequest:
    topic = FetchRequest.FetchTopic
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=RESPONSE_BYTES,
        isolation_level=_READ_COMMITTED,
        topics=[
            topic(
                topic=name,
                partitions=[
                    topic.FetchPartition(
                        partition=number,
                        current_leader_epoch=leader.epoch,
                        fetch_offset=offset,
                        partition_max_bytes=PARTITION_BYTES,
                    )
                    for number, (leader, offset) in partitions
                ],
            )
            for name, partitions in by_topic(asked.items())
        ],
    )


_Told = FetchResponse.FetchableTopicResponse.PartitionData


def _answer(tp: TopicPartition, position: int, told: "_Told") -> Answer[Piece]:
    if told.error_code:
        return Answer(told.error_code)
    if not told.records:
        return Answer(codes.NONE, Piece((), position))
    scan = readable(
        memoryview(told.records),
        position=position,
        stable=told.last_stable_offset,
        aborted=[Aborted(entry.producer_id, entry.first_offset) for entry in told.aborted_transactions or ()],
        where=tp,
    )
    records = tuple(
        record
        for item in scan.items
        if isinstance(item, Data)
        for record in decode_batch(item.batch, where=tp)
        if record.offset >= position
    )
    return Answer(codes.NONE, Piece(records, scan.next_offset))


def understood(shard: int, record: RawRecord, shards: int) -> Change | None:
    """Decode one record of a shard; what `codec` refuses is refused here with its place, and what to do.

    None for the tombstone of something that would be refused: that is how an operator removes it. Raises
    UnsupportedVersion, BadInput.
    """
    try:
        return _understood(shard, record, shards)
    except BadInput:
        if record.value is None:
            return None
        raise


def _understood(shard: int, record: RawRecord, shards: int) -> Change:
    where = f"{TopicPartition(STATE_TOPIC, shard)} at offset {record.offset}"
    try:
        change = decode(record.key, record.value)
    except (UnsupportedVersion, BadInput) as refused:
        raise type(refused)(f"{where}: {refused}.") from None
    if not _belongs(change, shard, shards):
        raise BadInput(
            f"{where}: the record of {change.key} lies in another partition than it belongs to. Was the number of "
            f"partitions of {STATE_TOPIC} changed (it is {shards})? It must stay as created."
        )
    return change


def _belongs(change: Change, shard: int, shards: int) -> bool:
    try:
        return partition_of(change, shards) == shard
    except ValueError:  # a tombstone of a type that only a newer twinlog knows, or of a shard that there never was
        return isinstance(change, Tombstone)
