"""Questions about logs: where they begin and end, what they hold, who writes to them; and the cutting of their front.

Error codes of single partitions are values here. What passes by itself (no leader now, a leader that moved) is asked
again, with backoff and within a bound; after that its code is returned like any other.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Final, TypeVar

from kafka.protocol.admin import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from kafka.protocol.consumer import FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from twinlog.batch.scan import Aborted
from twinlog.errors import ProtocolViolation, RetryLater
from twinlog.names import TopicPartition
from twinlog.wire import codes
from twinlog.wire.cluster import CONTROL_LANE, Cluster, Leader
from twinlog.wire.leaders import Answer, ask_leaders
from twinlog.wire.metadata import NO_ID
from twinlog.wire.retry import ANSWER_SLACK_S

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3

CONSUMER: Final = -1  # as replica id: what a consumer sees, up to the high watermark
DEBUGGER: Final = -2  # as replica id: the true end of the log (`FetchRequest.DEBUGGING_CONSUMER_ID`)

READ_LANE: Final = "read"
WRITE_LANE: Final = "write"

_FIRST_WITH_MAX_TIMESTAMP: Final = 7
NEWEST_LIST_OFFSETS: Final = 9  # later ones add tiered storage's timestamps
_NEWEST_FETCH_BY_NAME: Final = 12
_FIRST_FETCH_BY_ID: Final = 13
_NEWEST_FETCH_FROM_LEADER_ONLY: Final = 10  # KIP-392's redirects to followers begin with 11
_NEWEST_CLASSIC_PRODUCE: Final = 11  # with 12 a transactional produce joins the transaction by itself (KIP-890)
_PATIENCE_S: Final = 15.0

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """An offset of one partition; `timestamp` and `leader_epoch` are -1 where the broker gave none.

    With `error` set, or when no record has the timestamp asked for, `offset` is -1.
    """

    offset: int
    timestamp: int = -1
    leader_epoch: int = -1
    error: int = 0


@dataclass(frozen=True, slots=True)
class LogChunk:
    """A piece of a log as fetched; with `error` set there are no records, and offsets are -1 where not told.

    `aborted` are the transactions aborted in the range, as a read_committed fetch lists them.
    """

    records: memoryview
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[Aborted, ...]
    error: int


@dataclass(frozen=True, slots=True)
class LowWatermark:
    """Where a log begins after DeleteRecords, on its slowest replica; -1 with `error`."""

    offset: int
    error: int


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """What a leader remembers of one producer; sequence and transaction start are -1 where there is none."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    txn_start_offset: int


@dataclass(frozen=True, slots=True)
class Appended:
    """A broker's answer to one batch: where it stands (-1 with `error`), and the broker's words."""

    base_offset: int
    error: int
    message: str


def by_topic(items: Iterable[tuple[TopicPartition, V]]) -> list[tuple[str, list[tuple[int, V]]]]:
    """Group partitions by topic, as requests want them; sorted, so that equal questions make equal bytes."""
    ordered = sorted(items, key=lambda item: item[0])
    return [
        (topic, [(tp.partition, value) for tp, value in group])
        for topic, group in groupby(ordered, key=lambda item: item[0].topic)
    ]


# Offsets


def list_offsets_request(
    asked: Mapping[TopicPartition, tuple[Leader, int]], *, replica_id: int = CONSUMER, read_committed: bool = False
) -> ListOffsetsRequest:
    """Build one broker's ListOffsets request; `asked` gives each partition's leader and the timestamp or constant.

    The leader's epoch goes along, and must with replica id -2: for that one any replica answers with its own log's
    end, and only the epoch keeps a deposed leader from doing so (`Partition.fetchOffsetForTimestamp`).
    """
    topic = ListOffsetsRequest.ListOffsetsTopic
    return ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=int(read_committed),
        topics=[
            topic(
                name=name,
                partitions=[
                    topic.ListOffsetsPartition(
                        partition_index=number, current_leader_epoch=leader.epoch, timestamp=timestamp
                    )
                    for number, (leader, timestamp) in partitions
                ],
            )
            for name, partitions in by_topic(asked.items())
        ],
        timeout_ms=0,
    )


def listed_offsets(response: ListOffsetsResponse) -> dict[TopicPartition, ListedOffset]:
    """Read a ListOffsets response."""
    return {
        TopicPartition(topic.name, part.partition_index): ListedOffset(
            part.offset, part.timestamp, part.leader_epoch, part.error_code
        )
        for topic in response.topics
        for part in topic.partitions
    }


async def list_offsets(
    cluster: Cluster,
    at: Mapping[TopicPartition, int],
    *,
    replica_id: int = CONSUMER,
    read_committed: bool = False,
    timeout_s: float = _PATIENCE_S,
    lane: str = CONTROL_LANE,
) -> dict[TopicPartition, ListedOffset]:
    """Return an offset of each partition: at a timestamp (ms), LATEST, EARLIEST or MAX_TIMESTAMP.

    LATEST is the high watermark, with `read_committed` the last stable offset, with replica id -2 the log's true end
    (`ReplicaManager.fetchOffset`). Raises UnsupportedVersion for MAX_TIMESTAMP on a broker before 3.0.
    """
    min_version = _FIRST_WITH_MAX_TIMESTAMP if MAX_TIMESTAMP in at.values() else 1

    async def ask(
        node: int, asked: Mapping[TopicPartition, tuple[Leader, int]], left_s: float
    ) -> dict[TopicPartition, Answer[ListedOffset]]:
        request = list_offsets_request(asked, replica_id=replica_id, read_committed=read_committed)
        response: ListOffsetsResponse = await cluster.call(
            request, node=node, timeout_s=left_s, min_version=min_version, max_version=NEWEST_LIST_OFFSETS, lane=lane
        )
        return {tp: Answer(listed.error, listed) for tp, listed in listed_offsets(response).items()}

    answers = await ask_leaders(cluster, at, ask, timeout_s=timeout_s)
    return {tp: answer.value or ListedOffset(-1, error=answer.error) for tp, answer in answers.items()}


async def one_offset(
    cluster: Cluster,
    tp: TopicPartition,
    at: int,
    *,
    replica_id: int = CONSUMER,
    read_committed: bool = False,
    timeout_s: float = _PATIENCE_S,
) -> int:
    """Return one offset of one partition as `list_offsets` does; raises the error that its code stands for."""
    listed = await list_offsets(
        cluster, {tp: at}, replica_id=replica_id, read_committed=read_committed, timeout_s=timeout_s
    )
    what = f"An offset of {tp} could not be listed on the {cluster}"
    codes.check(listed[tp].error, what, right=f"DESCRIBE on TOPIC {tp.topic}")
    return listed[tp].offset


# Reading


async def read_log(
    cluster: Cluster,
    tp: TopicPartition,
    offset: int,
    *,
    max_bytes: int,
    read_committed: bool,
    max_wait_ms: int = 0,
    timeout_s: float = _PATIENCE_S,
    leader: Leader | None = None,
    lane: str = READ_LANE,
) -> LogChunk:
    """Fetch once from `offset` (at least one whole batch, whatever its size, if there is any).

    With `leader` exactly that broker is asked, once, in that epoch; without, the leader is found, and found again
    when it moves. Every code is a value, also 13 (NETWORK_EXCEPTION) for a connection that broke. Readers that wait
    (`max_wait_ms`) hold up whoever shares their `lane`.
    """

    async def ask(
        node: int, asked: Mapping[TopicPartition, tuple[Leader, int]], left_s: float
    ) -> dict[TopicPartition, Answer[LogChunk]]:
        del node
        chunk = await fetch(asked[tp][0], left_s)
        return {tp: Answer(chunk.error, chunk)}

    fetch = partial(
        _fetch,
        cluster,
        tp,
        offset,
        max_bytes=max_bytes,
        read_committed=read_committed,
        max_wait_ms=max_wait_ms,
        lane=lane,
    )
    if leader is None:
        answer = (await ask_leaders(cluster, {tp: offset}, ask, timeout_s=timeout_s))[tp]
        return answer.value or _no_chunk(answer.error)
    try:
        return await fetch(leader, timeout_s)
    except RetryLater:
        return _no_chunk(codes.NETWORK_EXCEPTION)


async def _fetch(
    cluster: Cluster,
    tp: TopicPartition,
    offset: int,
    leader: Leader,
    timeout_s: float,
    *,
    max_bytes: int,
    read_committed: bool,
    max_wait_ms: int,
    lane: str,
) -> LogChunk:
    connection = await cluster.lane(leader.node, lane)
    topic = cluster.topic(tp.topic)
    topic_id = topic.id if topic is not None else NO_ID
    by_id = topic_id != NO_ID and connection.version_of(FetchRequest) >= _FIRST_FETCH_BY_ID
    max_version = None if by_id else _NEWEST_FETCH_BY_NAME
    partition = FetchRequest.FetchTopic.FetchPartition(
        partition=tp.partition,
        current_leader_epoch=leader.epoch,
        fetch_offset=offset,
        partition_max_bytes=max_bytes,
    )
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=int(read_committed),
        topics=[FetchRequest.FetchTopic(topic=tp.topic, topic_id=topic_id, partitions=[partition])],
    )
    wait_s = max(timeout_s, max_wait_ms / 1000 + ANSWER_SLACK_S)
    told = _only_partition(await connection.request(request, timeout_s=wait_s, max_version=max_version))
    if isinstance(told, int):
        return _no_chunk(told)
    if told.preferred_read_replica >= 0:
        told = _only_partition(
            await connection.request(request, timeout_s=wait_s, max_version=_NEWEST_FETCH_FROM_LEADER_ONLY)
        )
    return _no_chunk(told) if isinstance(told, int) else _chunk(told)


_Fetched = FetchResponse.FetchableTopicResponse.PartitionData


def _only_partition(response: FetchResponse) -> "_Fetched | int":
    """Return the one partition that was asked for, or the error of the whole response."""
    if response.error_code:
        return response.error_code
    if not response.responses:
        # A client over its quota is answered with nothing at all (`KafkaApis.handleFetchRequest`).
        return codes.THROTTLING_QUOTA_EXCEEDED
    if len(response.responses) != 1 or len(response.responses[0].partitions) != 1:
        raise ProtocolViolation("A broker answered a Fetch of one partition with none, or with others.")
    return response.responses[0].partitions[0]


def _chunk(told: "_Fetched") -> LogChunk:
    return LogChunk(
        records=memoryview(told.records or b""),
        high_watermark=told.high_watermark,
        last_stable_offset=told.last_stable_offset,
        log_start_offset=told.log_start_offset,
        aborted=tuple(Aborted(a.producer_id, a.first_offset) for a in told.aborted_transactions or ()),
        error=told.error_code,
    )


def _no_chunk(error: int) -> LogChunk:
    return LogChunk(memoryview(b""), -1, -1, -1, (), error)


async def describe_producers(
    cluster: Cluster, tp: TopicPartition, *, timeout_s: float = _PATIENCE_S
) -> tuple[ActiveProducer, ...]:
    """Return what the leader remembers of the producers of a partition (KIP-664; brokers from 2.8 on).

    The request carries no leader epoch: a leader just deposed may answer from its own state. Raises RefreshLeader and
    the like when there is no answer within `timeout_s`, AuthorizationFailed without READ on the topic.
    """

    async def ask(
        node: int, asked: Mapping[TopicPartition, tuple[Leader, None]], left_s: float
    ) -> dict[TopicPartition, Answer[tuple[ActiveProducer, ...]]]:
        topic = DescribeProducersRequest.TopicRequest
        topics = [topic(name=name, partition_indexes=[n for n, _ in parts]) for name, parts in by_topic(asked.items())]
        response: DescribeProducersResponse = await cluster.call(
            DescribeProducersRequest(topics=topics), node=node, timeout_s=left_s
        )
        return {
            TopicPartition(told.name, part.partition_index): Answer(
                part.error_code,
                tuple(
                    ActiveProducer(
                        producer_id=p.producer_id,
                        epoch=p.producer_epoch,
                        last_sequence=p.last_sequence,
                        last_timestamp=p.last_timestamp,
                        coordinator_epoch=p.coordinator_epoch,
                        txn_start_offset=p.current_txn_start_offset,
                    )
                    for p in part.active_producers
                ),
            )
            for told in response.topics
            for part in told.partitions
        }

    answer = (await ask_leaders(cluster, {tp: None}, ask, timeout_s=timeout_s))[tp]
    what = f"The producers of {tp} could not be listed on the {cluster}"
    codes.check(answer.error, what, right=f"READ on TOPIC {tp.topic}")
    return answer.value or ()


# Changing


async def delete_records(
    cluster: Cluster, before: Mapping[TopicPartition, int], *, timeout_s: float = 30.0
) -> dict[TopicPartition, LowWatermark]:
    """Delete each partition's records below an offset (-1: the high watermark), which becomes the log's start.

    Asking twice does no harm, so refusals that pass are asked again. A topic that is compacted only answers 44
    (POLICY_VIOLATION), an offset above the high watermark 1 (OFFSET_OUT_OF_RANGE).
    """

    async def ask(
        node: int, asked: Mapping[TopicPartition, tuple[Leader, int]], left_s: float
    ) -> dict[TopicPartition, Answer[LowWatermark]]:
        topic = DeleteRecordsRequest.DeleteRecordsTopic
        topics = [
            topic(
                name=name,
                partitions=[topic.DeleteRecordsPartition(partition_index=n, offset=o) for n, (_, o) in parts],
            )
            for name, parts in by_topic(asked.items())
        ]
        request = DeleteRecordsRequest(topics=topics, timeout_ms=int(left_s * 1000))
        response: DeleteRecordsResponse = await cluster.call(
            request, node=node, timeout_s=left_s + ANSWER_SLACK_S, lane=WRITE_LANE
        )
        return {
            TopicPartition(told.name, p.partition_index): Answer(
                p.error_code, LowWatermark(p.low_watermark, p.error_code)
            )
            for told in response.topics
            for p in told.partitions
        }

    answers = await ask_leaders(cluster, before, ask, timeout_s=timeout_s)
    return {tp: answer.value or LowWatermark(-1, answer.error) for tp, answer in answers.items()}


async def produce_batch(
    cluster: Cluster,
    tp: TopicPartition,
    batch: bytes,
    *,
    transactional_id: str | None = None,
    acks: int = -1,
    timeout_ms: int = 30_000,
) -> Appended:
    """Append one small batch of the control plane, once; its refusal is a value.

    `acks` is -1 (all in-sync replicas) or 1. Raises ConnectionLost or RequestTimedOut when the outcome is unknown, and
    RefreshLeader when the partition has no leader.
    """
    leader = await cluster.find_leader(tp)
    partition = ProduceRequest.TopicProduceData.PartitionProduceData(index=tp.partition, records=batch)
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[ProduceRequest.TopicProduceData(name=tp.topic, partition_data=[partition])],
    )
    response: ProduceResponse = await cluster.call(
        request,
        node=leader.node,
        timeout_s=timeout_ms / 1000 + ANSWER_SLACK_S,
        max_version=_NEWEST_CLASSIC_PRODUCE,
        lane=WRITE_LANE,
    )
    told = response.responses[0].partition_responses[0]
    if told.error_code in codes.REFRESH:
        cluster.distrust(tp.topic)
    return Appended(told.base_offset, told.error_code, told.error_message or "")
