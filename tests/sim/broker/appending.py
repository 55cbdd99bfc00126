"""Appending at a leader: Produce, and the markers of WriteTxnMarkers, with their waiting for followers.

Rules: `ReplicaManager.appendRecords`, `DelayedProduce`, `KafkaApis.handleWriteTxnMarkersRequest` of Apache Kafka.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from kafka.protocol.producer import ProduceResponse, WriteTxnMarkersResponse
from tests.sim.broker.asks import Ask
from tests.sim.broker.log import Appended, control_batch
from tests.sim.broker.node import SimBroker
from tests.sim.broker.producers import Origin
from tests.sim.broker.refusals import Refused
from tests.sim.broker.validate import one_batch
from tests.sim.broker.verifying import verify

from twinlog.batch.view import Batch
from twinlog.names import TopicPartition
from twinlog.wire import codes

ALL, LEADER = -1, 1


@dataclass(slots=True)
class Result:
    """What becomes of one partition's append; `code` is None while followers are awaited."""

    code: int | None
    appended: Appended | None = None
    why: str = ""
    log_start: int = -1


class Marker(NamedTuple):
    """A control record for one partition."""

    where: TopicPartition
    producer_id: int
    epoch: int
    coordinator_epoch: int
    commit: bool


def append(
    broker: SimBroker, where: TopicPartition, batch: Batch, *, origin: Origin, acks: int, verified: bool = False
) -> Result:
    """Append one batch at the leader, and say whether that is all."""
    try:
        replica = broker.replica(where)
        replica.check()
        if acks == ALL and len(replica.assigned.isr) < min(replica.rules.min_isr, len(replica.assigned.replicas)):
            raise Refused(codes.NOT_ENOUGH_REPLICAS, f"in sync are {replica.assigned.isr}")
        appended = replica.log.append_as_leader(
            batch,
            epoch=replica.assigned.epoch,
            origin=origin,
            rules=replica.rules,
            now_ms=broker.cluster.wall_ms(),
            verified=verified,
        )
    except Refused as refused:
        held = broker.replicas.get(where)
        return Result(refused.code, why=refused.why, log_start=held.log.start if held else -1)
    if appended.fresh:
        broker.cluster.note_append(replica, replica.log.batches[-1])
        broker.replication.changed(replica)
    return Result(None if acks == ALL else codes.NONE, appended, log_start=replica.log.start)


def _settle(broker: SimBroker, where: TopicPartition, result: Result) -> None:
    """Finish what waits for followers, if they are there, or if this broker does not lead any more."""
    if result.code is not None or result.appended is None:
        return
    replica = broker.replicas.get(where)
    if replica is None or not replica.leads:
        result.code = codes.NOT_LEADER_OR_FOLLOWER
    elif replica.log.high_watermark > result.appended.last_offset:
        enough = len(replica.assigned.isr) >= min(replica.rules.min_isr, len(replica.assigned.replicas))
        result.code = codes.NONE if enough else codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def when_settled(
    broker: SimBroker,
    results: list[tuple[TopicPartition, Result]],
    done: Callable[[], None],
    *,
    timeout_s: float,
) -> None:
    """Call `done` once each result has a code; after `timeout_s` that is 7 (REQUEST_TIMED_OUT) for what still waits."""

    def attempt() -> bool:
        for where, result in results:
            _settle(broker, where, result)
        if any(result.code is None for _, result in results):
            return False
        done()
        return True

    def give_up() -> None:
        for _, result in results:
            if result.code is None:
                result.code = codes.REQUEST_TIMED_OUT
        done()

    broker.waiting.wait({where: None for where, _ in results}, attempt, give_up, most_s=timeout_s)


# Produce


def produce(broker: SimBroker, ask: Ask) -> None:
    """Answer a Produce request."""
    asked = ask.message
    if asked.acks not in (ALL, LEADER):
        raise AssertionError(f"Produce with acks={asked.acks} is not simulated")
    items = [
        (TopicPartition(topic.name, part.index), part.records)
        for topic in asked.topic_data
        for part in topic.partition_data
    ]

    def go_on(verdicts: dict[TopicPartition, int]) -> None:
        _append_all(broker, ask, items, verdicts)

    if asked.transactional_id is None:
        go_on({})
    else:
        verify(broker, asked.transactional_id, items, go_on)


def _append_all(
    broker: SimBroker,
    ask: Ask,
    items: list[tuple[TopicPartition, Any]],
    verdicts: dict[TopicPartition, int],
) -> None:
    results = [(where, _produce_one(broker, ask, where, records, verdicts)) for where, records in items]
    when_settled(
        broker,
        results,
        lambda: ask.reply(_produced(results)),
        timeout_s=ask.message.timeout_ms / 1000,
    )


def _produce_one(
    broker: SimBroker, ask: Ask, where: TopicPartition, records: Any, verdicts: dict[TopicPartition, int]
) -> Result:
    try:
        batch = one_batch(records)
    except Refused as refused:
        return Result(refused.code, why=refused.why)
    if verdicts.get(where):
        return Result(verdicts[where], why="the coordinator does not know this partition as part of the transaction")
    return append(broker, where, batch, origin=Origin.CLIENT, acks=ask.message.acks, verified=where in verdicts)


def _produced(results: list[tuple[TopicPartition, Result]]) -> ProduceResponse:
    topic_kind = ProduceResponse.TopicProduceResponse
    topics: dict[str, list[Any]] = {}
    for where, result in results:
        place = result.appended if result.code == codes.NONE else None
        entry = topic_kind.PartitionProduceResponse(
            index=where.partition,
            error_code=result.code,
            base_offset=place.base_offset if place else -1,
            log_append_time_ms=place.log_append_time if place else -1,
            log_start_offset=result.log_start,
            record_errors=[],
            error_message=(result.why or None) if result.code == codes.INVALID_RECORD else None,
        )
        topics.setdefault(where.topic, []).append(entry)
    responses = [topic_kind(name=name, partition_responses=parts) for name, parts in topics.items()]
    return ProduceResponse(throttle_time_ms=0, responses=responses)


# WriteTxnMarkers


def write_markers(broker: SimBroker, ask: Ask) -> None:
    """Answer a client's WriteTxnMarkers request."""
    markers = [
        Marker(
            TopicPartition(topic.name, partition),
            entry.producer_id,
            entry.producer_epoch,
            entry.coordinator_epoch,
            entry.transaction_result,
        )
        for entry in ask.message.markers
        for topic in entry.topics
        for partition in topic.partition_indexes
    ]
    append_markers(broker, markers, lambda codes_of: ask.reply(_marked(markers, codes_of)))


def append_markers(broker: SimBroker, markers: list[Marker], done: Callable[[list[int]], None]) -> None:
    """Append each marker, and call `done` with their codes once all are final."""
    results = [(marker.where, _append_marker(broker, marker)) for marker in markers]
    when_settled(
        broker,
        results,
        lambda: done([result.code or 0 for _, result in results]),
        timeout_s=broker.cluster.settings.request_timeout_s,
    )


def _append_marker(broker: SimBroker, marker: Marker) -> Result:
    if marker.where not in broker.replicas:
        return Result(codes.UNKNOWN_TOPIC_OR_PARTITION)
    batch = control_batch(
        marker.producer_id,
        marker.epoch,
        commit=marker.commit,
        coordinator_epoch=marker.coordinator_epoch,
        now_ms=broker.cluster.wall_ms(),
    )
    return append(broker, marker.where, batch, origin=Origin.COORDINATOR, acks=ALL)


def _marked(markers: list[Marker], codes_of: list[int]) -> WriteTxnMarkersResponse:
    """One entry a producer id; of several results for one partition the last remains."""
    merged: dict[int, dict[TopicPartition, int]] = {}
    for marker, code in zip(markers, codes_of, strict=True):
        merged.setdefault(marker.producer_id, {})[marker.where] = code
    result = WriteTxnMarkersResponse.WritableTxnMarkerResult
    topic_kind = result.WritableTxnMarkerTopicResult
    entries = []
    for producer_id, by_partition in merged.items():
        topics: dict[str, list[Any]] = {}
        for where, code in by_partition.items():
            part = topic_kind.WritableTxnMarkerPartitionResult(partition_index=where.partition, error_code=code)
            topics.setdefault(where.topic, []).append(part)
        entries.append(
            result(
                producer_id=producer_id,
                topics=[topic_kind(name=name, partitions=parts) for name, parts in topics.items()],
            )
        )
    return WriteTxnMarkersResponse(markers=entries)
