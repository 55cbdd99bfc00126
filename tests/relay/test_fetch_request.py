"""Fetch requests and answers as values."""

from types import SimpleNamespace
from uuid import UUID

import pytest

from twinlog.names import TopicPartition
from twinlog.relay.decide import DIVERGED
from twinlog.relay.fetch_request import (
    COPIED_BYTES,
    chunk_of,
    fetch_request,
    partitions_of,
    records_of,
    redirected,
    refusal_of,
)
from twinlog.relay.fetch_session import Ask, FetchPlan
from twinlog.relay.progress import FetchRefused

ORDERS, BILLS = UUID(int=1), UUID(int=2)


def _ask(position: int, topic_id: UUID) -> Ask:
    return Ask(position, 4, 3, topic_id, 1)


@pytest.mark.parametrize("version", [4, 6, 7, 9, 10, 12, 13, 15, 17])
def test_request_can_be_encoded_for_every_version(version: int) -> None:
    """From the oldest broker with transactions to the newest."""
    asks = {TopicPartition("orders", 0): _ask(5, ORDERS), TopicPartition("bills", 1): _ask(6, BILLS)}
    plan = FetchPlan(99, 3, asks, {TopicPartition("orders", 2): _ask(0, ORDERS)}, full=False)
    request = fetch_request(plan, wait_ms=5, min_bytes=1, max_bytes=1000, partition_max_bytes=100)
    assert len(request.encode(version=version)) > 40
    assert (request.session_id, request.session_epoch, request.isolation_level) == (99, 3, 1)
    assert [(t.topic, t.topic_id, t.partitions) for t in request.forgotten_topics_data] == [("orders", ORDERS, [2])]


def test_order_of_partitions_is_kept() -> None:
    """The broker reads them in this order; only neighbours of one topic share an entry."""
    names = [("orders", 0), ("orders", 3), ("bills", 1), ("orders", 1)]
    asks = {TopicPartition(*name): _ask(0, ORDERS if name[0] == "orders" else BILLS) for name in names}
    request = fetch_request(
        FetchPlan(0, 0, asks, {}, full=True), wait_ms=5, min_bytes=1, max_bytes=9, partition_max_bytes=9
    )
    topics = [(topic.topic, [part.partition for part in topic.partitions]) for topic in request.topics]
    assert topics == [("orders", [0, 3]), ("bills", [1]), ("orders", [1])]


def test_partitions_by_id_get_their_topic_s_name() -> None:
    """Newer answers carry the id alone, older ones the name; an unknown id matches nothing."""
    part = SimpleNamespace(partition_index=3)
    answer = SimpleNamespace(
        responses=[
            SimpleNamespace(topic="", topic_id=ORDERS, partitions=[part]),
            SimpleNamespace(topic="bills", topic_id=None, partitions=[part]),
            SimpleNamespace(topic="", topic_id=UUID(int=9), partitions=[part]),
        ]
    )
    found = partitions_of(answer, {ORDERS: "orders"})
    assert [where for where, _ in found] == [("orders", 3), ("bills", 3), ("", 3)]


def test_refusals_are_values() -> None:
    """An error code, or a diverging epoch (KIP-595); else there is none."""
    none = SimpleNamespace(epoch=-1, end_offset=-1)
    assert refusal_of(SimpleNamespace(error_code=6, diverging_epoch=none)) == FetchRefused(6, "NOT_LEADER_OR_FOLLOWER")
    diverging = SimpleNamespace(error_code=0, diverging_epoch=SimpleNamespace(epoch=2, end_offset=8))
    assert refusal_of(diverging) == FetchRefused(DIVERGED, "8")
    assert refusal_of(SimpleNamespace(error_code=0, diverging_epoch=none)) is None
    assert refusal_of(SimpleNamespace(error_code=0)) is None


def test_redirect_is_told() -> None:
    """Older answers have no such field."""
    assert redirected(SimpleNamespace(preferred_read_replica=2))
    assert not redirected(SimpleNamespace(preferred_read_replica=-1))
    assert not redirected(SimpleNamespace())


def test_small_piece_of_a_large_answer_is_copied() -> None:
    """Else a few bytes that wait would keep megabytes; a large piece stays a view."""
    answer = memoryview(bytearray(10 * COPIED_BYTES))
    small = records_of(SimpleNamespace(records=answer[100:200]))
    assert small.obj is not answer.obj
    assert small == answer[100:200]
    assert records_of(SimpleNamespace(records=answer[: COPIED_BYTES + 1])).obj is answer.obj
    short = memoryview(bytearray(300))
    assert records_of(SimpleNamespace(records=short[:100])).obj is short.obj
    assert records_of(SimpleNamespace(records=None)) == b""


def test_stable_offset_is_at_least_behind_what_came() -> None:
    """It is noted before the log is read, and a transaction may be decided in between."""
    aborted = [SimpleNamespace(producer_id=5, first_offset=7)]
    data = SimpleNamespace(
        high_watermark=90, last_stable_offset=50, log_start_offset=2, aborted_transactions=aborted, records=b"x"
    )
    behind = chunk_of(data, memoryview(b"x"), 40, conclusive=False, tail=(100, 6))
    assert (behind.last_stable_offset, behind.high_watermark, behind.last_epoch) == (100, 100, 6)
    assert [(a.producer_id, a.first_offset) for a in behind.aborted] == [(5, 7)]
    empty = chunk_of(data, memoryview(b""), 40, conclusive=True, tail=None)
    assert (empty.last_stable_offset, empty.high_watermark, empty.last_epoch, empty.conclusive) == (50, 90, -1, True)
