"""Transactions in the classic protocol (KIP-98 with KIP-360), and control records written directly.

The versions are held down on purpose: from EndTxn 5, AddPartitionsToTxn 4 and Produce 12 on, the broker takes a
request for the newer protocol (KIP-890), in which epochs move by themselves.
"""

import asyncio
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    WriteTxnMarkersRequest,
)

from twinlog.errors import BrokerError, ConnectionLost, RequestTimedOut, TwinlogError, Unreachable
from twinlog.names import TopicPartition
from twinlog.wire import codes
from twinlog.wire.cluster import CONTROL_LANE, Cluster
from twinlog.wire.messages import Message
from twinlog.wire.ops_log import by_topic
from twinlog.wire.produce import NEWEST_MARKERS, WRITE_TXN_MARKERS, MarkerRun, decode_markers, encode_markers
from twinlog.wire.retry import Attempts, Backoff

_NEWEST_INIT_PRODUCER_ID: Final = 5
_NEWEST_ADD_PARTITIONS: Final = 3
_NEWEST_END_TXN: Final = 4
_FIRST_WITH_PRODUCER: Final = 3  # KIP-360
_OPERATION_NOT_ATTEMPTED: Final = 55  # this partition was in order, another one of the request was not
_PATIENCE_S: Final = 30.0
# Error 51 means mostly that the markers of the transaction before are being written, which takes milliseconds.
TRANSACTION_BACKOFF: Final = Backoff(0.02, 1.0)
_COORDINATOR_MOVED: Final = frozenset({codes.COORDINATOR_NOT_AVAILABLE, codes.NOT_COORDINATOR})


class Producer(NamedTuple):
    """A producer id and its epoch."""

    id: int
    epoch: int


async def init_producer_id(
    cluster: Cluster,
    transactional_id: str | None = None,
    *,
    timeout_ms: int = 60_000,
    producer: Producer | None = None,
    timeout_s: float = _PATIENCE_S,
    lane: str = CONTROL_LANE,
) -> Producer:
    """Get a producer id; with a transactional id this fences its former owner and ends what that left open.

    `timeout_ms` is the transaction timeout. With `producer`, the owner's own id and epoch, only that owner is let in
    (KIP-360); one that was fenced meanwhile gets GiveWay. A lost answer is asked for again, as Kafka's own client
    does. Raises AuthorizationFailed, UnsupportedVersion, and after `timeout_s` what the last attempt raised.
    """
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer.id if producer else -1,
        producer_epoch=producer.epoch if producer else -1,
    )
    response: InitProducerIdResponse = await _ask_coordinator(
        cluster,
        transactional_id,
        request,
        f"A producer id could not be had{_of(transactional_id)} from the {cluster}",
        timeout_s=timeout_s,
        min_version=_FIRST_WITH_PRODUCER if producer else 0,
        max_version=_NEWEST_INIT_PRODUCER_ID,
        ask_again_when_lost=True,
        lane=lane,
    )
    return Producer(response.producer_id, response.producer_epoch)


async def add_partitions(
    cluster: Cluster,
    transactional_id: str,
    producer: Producer,
    partitions: Collection[TopicPartition],
    *,
    timeout_s: float = _PATIENCE_S,
    lane: str = CONTROL_LANE,
) -> None:
    """Make partitions part of the transaction, before anything is written to them.

    Raises GiveWay when fenced, AuthorizationFailed, RefreshLeader (unknown topic), ConnectionLost when the outcome is
    unknown: then the request may still take effect, and only a new epoch (`init_producer_id`) puts an end to that.
    """
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer.id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[
            topic(name=name, partitions=[number for number, _ in numbers])
            for name, numbers in by_topic((tp, None) for tp in partitions)
        ],
    )
    await _ask_coordinator(
        cluster,
        transactional_id,
        request,
        f"{_listed(partitions)} could not be added to a transaction{_of(transactional_id)} on the {cluster}",
        timeout_s=timeout_s,
        max_version=_NEWEST_ADD_PARTITIONS,
        lane=lane,
    )


async def end_txn(
    cluster: Cluster,
    transactional_id: str,
    producer: Producer,
    *,
    commit: bool,
    timeout_s: float = _PATIENCE_S,
    lane: str = CONTROL_LANE,
) -> None:
    """Commit or abort the transaction; when this returns, the outcome is decided and its markers follow.

    Raises as `add_partitions` does. After ConnectionLost the request is not sent again: a late first one could end the
    next transaction. `init_producer_id` with the own id and epoch settles it.
    """
    request = EndTxnRequest(
        transactional_id=transactional_id, producer_id=producer.id, producer_epoch=producer.epoch, committed=commit
    )
    verb = "committed" if commit else "aborted"
    await _ask_coordinator(
        cluster,
        transactional_id,
        request,
        f"A transaction{_of(transactional_id)} could not be {verb} on the {cluster}",
        timeout_s=timeout_s,
        max_version=_NEWEST_END_TXN,
        lane=lane,
    )


async def write_markers(
    cluster: Cluster, node: int, runs: Sequence[MarkerRun], *, lane: str = "markers", timeout_s: float = 30.0
) -> dict[TopicPartition, int]:
    """Write abort markers to the partitions that broker `node` leads, once, and return each partition's code.

    The broker merges the results of one producer id, and of several markers for a partition only the last result is
    told (`KafkaApis.handleWriteTxnMarkersRequest`): a run's first markers may have failed behind a 0.

    Raises RequestTimedOut (the connection is reset) or ConnectionLost when the outcome is unknown. Never send again
    then: a broker cannot tell a marker sent twice from two.
    """
    connection = await cluster.lane(node, lane)
    version = connection.version_of(WriteTxnMarkersRequest, NEWEST_MARKERS)
    answer = connection.submit_frame(
        WRITE_TXN_MARKERS, version, encode_markers(version, runs), lambda body: decode_markers(version, body)
    )
    try:
        async with asyncio.timeout(timeout_s):
            told = await answer
    except TimeoutError:
        connection.reset()
        raise RequestTimedOut(
            f"Broker {node} of the {cluster} did not answer WriteTxnMarkers within {timeout_s:g} s. The connection was "
            f"reset; whether the markers were written is unknown."
        ) from None
    return {TopicPartition(*key): code for key, code in told.items()}


def _right(code: int, key: str | None) -> str:
    """The right that a coordinator misses; it answers 29 for the topics of a transaction."""
    if code == codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        return f"WRITE on TRANSACTIONAL_ID {key}"
    return "WRITE on these TOPICs" if code == codes.TOPIC_AUTHORIZATION_FAILED else ""


async def _ask_coordinator(
    cluster: Cluster,
    key: str | None,
    request: Message,
    what: str,
    *,
    timeout_s: float,
    max_version: int,
    min_version: int = 0,
    ask_again_when_lost: bool = False,
    lane: str,
) -> Message:
    """Send to the coordinator of `key` (None: any broker) until the answer is final.

    14 and 51 mean the same request again, 15 and 16 the coordinator anew, each with backoff and within `timeout_s`.
    """
    attempts = Attempts(timeout_s, backoff=TRANSACTION_BACKOFF)
    refresh = False
    while True:
        try:
            node = await _coordinator(cluster, key, attempts, refresh=refresh)
            response = await cluster.call(
                request,
                node=node,
                timeout_s=attempts.share_s(cluster.request_timeout_s),
                min_version=min_version,
                max_version=max_version,
                lane=lane,
            )
            code = _code_of(response)
            if code not in codes.SAME_AGAIN:
                codes.check(code, what, right=_right(code, key))
                return response
            refresh = code in _COORDINATOR_MOVED
            reason: TwinlogError = BrokerError(
                f"{what} within {timeout_s:g} s ({codes.code_name(code)}, error {code}).",
                code=code,
                name=codes.code_name(code),
            )
        except Unreachable as refused:  # nothing was sent
            refresh, reason = True, refused
        except ConnectionLost as lost:
            if not ask_again_when_lost:
                raise
            refresh, reason = True, lost
        if not await attempts.again():
            raise reason


async def _coordinator(cluster: Cluster, key: str | None, attempts: Attempts, *, refresh: bool) -> int | None:
    if key is None:
        return None
    return await cluster.coordinator(key, "transaction", refresh=refresh, timeout_s=attempts.share_s(attempts.bound_s))


def _code_of(response: "InitProducerIdResponse | EndTxnResponse | AddPartitionsToTxnResponse") -> int:
    """Return the one code that matters: of several partitions the first that says more than "not attempted"."""
    if not isinstance(response, AddPartitionsToTxnResponse):
        return response.error_code
    topics = response.results_by_topic_v3_and_below
    found = [part.partition_error_code for topic in topics for part in topic.results_by_partition]
    told = [code for code in found if code not in (codes.NONE, _OPERATION_NOT_ATTEMPTED)]
    return told[0] if told else max(found, default=codes.NONE)


def _of(transactional_id: str | None) -> str:
    return f" of transactional id {transactional_id!r}" if transactional_id is not None else ""


def _listed(partitions: Collection[TopicPartition]) -> str:
    shown = sorted(partitions)[:3]
    more = len(partitions) - len(shown)
    return ", ".join(map(str, shown)) + (f" and {more} more" if more else "")
