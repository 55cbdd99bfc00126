"""Fetch requests and their answers as the relay's own values; pure."""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, Final
from uuid import UUID

from kafka.protocol.consumer.fetch import FetchRequest, FetchResponse

from twinlog.batch.scan import Aborted
from twinlog.names import TopicPartition
from twinlog.relay.decide import DIVERGED
from twinlog.relay.fetch_session import Ask, FetchPlan
from twinlog.relay.progress import Chunk, FetchRefused
from twinlog.wire.codes import code_name

# 13 brought topic ids; 18 is for followers only. Up to 10 a broker answers from its own log or not at all: with 11 it
# may send a reader to another replica (KIP-392).
FETCH_WITH_IDS, NEWEST_FETCH, NEWEST_WITHOUT_REDIRECTS = 13, 17, 10
# A small piece of a large answer is copied out of it: kept as it is, it would keep all of the answer in memory.
COPIED_BYTES: Final = 262_144
COPIED_PART: Final = 4

PartitionData = FetchResponse.FetchableTopicResponse.PartitionData


def fetch_request(
    plan: FetchPlan, *, wait_ms: int, min_bytes: int, max_bytes: int, partition_max_bytes: int
) -> FetchRequest:
    """Build the request for a plan, read_committed; the order of the partitions is kept, it decides who comes first."""
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=1,
        session_id=plan.session_id,
        session_epoch=plan.epoch,
        topics=[
            FetchRequest.FetchTopic(
                topic=name,
                topic_id=topic_id,
                partitions=[_partition(where, ask, partition_max_bytes) for where, ask in group],
            )
            for (name, topic_id), group in _by_topic(plan.asks)
        ],
        forgotten_topics_data=[
            FetchRequest.ForgottenTopic(
                topic=name, topic_id=topic_id, partitions=[where.partition for where, _ in group]
            )
            for (name, topic_id), group in _by_topic(plan.forget)
        ],
        rack_id="",
    )


def _by_topic(
    asks: Mapping[TopicPartition, Ask],
) -> Iterator[tuple[tuple[str, UUID], Iterator[tuple[TopicPartition, Ask]]]]:
    return groupby(asks.items(), key=lambda item: (item[0].topic, item[1].topic_id))


def _partition(where: TopicPartition, ask: Ask, max_bytes: int) -> Any:  # noqa: ANN401  # made from Kafka's schemas at run time
    return FetchRequest.FetchTopic.FetchPartition(
        partition=where.partition,
        current_leader_epoch=ask.leader_epoch,
        fetch_offset=ask.position,
        last_fetched_epoch=ask.last_fetched_epoch,
        log_start_offset=-1,
        partition_max_bytes=max_bytes,
    )


def partitions_of(answer: FetchResponse, names: Mapping[UUID, str]) -> list[tuple[TopicPartition, PartitionData]]:
    """The partitions that an answer names, in its order; `names` are the topics by id."""
    return [
        (TopicPartition(topic.topic or names.get(topic.topic_id, ""), data.partition_index), data)
        for topic in answer.responses
        for data in topic.partitions
    ]


def redirected(data: PartitionData) -> bool:
    """Whether a selector on the broker sends us to a follower; such an answer says nothing about the log (KIP-392)."""
    return getattr(data, "preferred_read_replica", -1) >= 0


def refusal_of(data: PartitionData) -> FetchRefused | None:
    """The broker's refusal, where it is one."""
    if data.error_code:
        return FetchRefused(data.error_code, code_name(data.error_code))
    diverging = getattr(data, "diverging_epoch", None)
    if diverging is not None and diverging.end_offset >= 0:
        return FetchRefused(DIVERGED, str(diverging.end_offset))
    return None


def records_of(data: PartitionData) -> memoryview:
    """What was fetched; a view of the answer's own buffer unless it is a small part of that."""
    records = memoryview(data.records if data.records is not None else b"")
    if 0 < len(records) <= COPIED_BYTES and len(records) * COPIED_PART < memoryview(records.obj).nbytes:
        return memoryview(bytes(records))
    return records


def chunk_of(
    data: PartitionData, records: memoryview, position: int, *, conclusive: bool, tail: tuple[int, int] | None
) -> Chunk:
    """The answer for one partition; `tail` is (offset behind the last whole batch, its leader epoch).

    The broker notes its last stable offset before it reads (`Partition.fetchRecords`); a transaction that is decided
    in between lets it return more than that, with the aborted ones named.
    """
    stable = data.last_stable_offset if tail is None else max(data.last_stable_offset, tail[0])
    return Chunk(
        position=position,
        records=records,
        aborted=[Aborted(a.producer_id, a.first_offset) for a in data.aborted_transactions or ()],
        high_watermark=max(data.high_watermark, stable),
        last_stable_offset=stable,
        log_start_offset=data.log_start_offset,
        conclusive=conclusive,
        last_epoch=-1 if tail is None else tail[1],
    )
