"""How high watermarks are asked for, and what becomes of a leader that is none any more; the brokers are played."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse

from twinlog.errors import ConnectionLost
from twinlog.names import TopicPartition
from twinlog.relay import watermarks as module
from twinlog.relay.watermarks import Watermarks
from twinlog.relay.window import Window
from twinlog.wire import codes
from twinlog.wire.metadata import Leader, PartitionInfo, TopicInfo

ORDERS, BILLS = TopicPartition("orders", 0), TopicPartition("bills", 1)


class FakeCluster:
    """Answers ListOffsets with the marks that the test sets, and Metadata with its leaders."""

    def __init__(self) -> None:
        self.marks: dict[TopicPartition, int | Exception] = {}
        self.errors: dict[TopicPartition, int] = {}
        self.leaders: dict[TopicPartition, Leader] = {}
        self.asked: list[tuple[int, ListOffsetsRequest]] = []
        self.metadata = 0
        self._node = 0

    async def lane(self, node: int, _name: str) -> "FakeCluster":
        """The broker itself."""
        self._node = node
        return self

    async def request(self, request: ListOffsetsRequest, **_: Any) -> ListOffsetsResponse:
        """Answer with marks and errors; an exception stands for a broken connection."""
        self.asked.append((self._node, request))
        topics = []
        for topic in request.topics:
            parts = [self._part(TopicPartition(topic.name, p.partition_index)) for p in topic.partitions]
            topics.append(ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=parts))
        return ListOffsetsResponse(topics=topics)

    def _part(self, where: TopicPartition) -> Any:
        mark = self.marks.get(where, -1)
        if isinstance(mark, Exception):
            raise mark
        kind = ListOffsetsResponse.ListOffsetsTopicResponse.ListOffsetsPartitionResponse
        return kind(partition_index=where.partition, error_code=self.errors.get(where, 0), timestamp=-1, offset=mark)

    async def topics(self, names: set[str], **_: Any) -> dict[str, TopicInfo]:
        """Who leads."""
        self.metadata += 1
        return {
            where.topic: TopicInfo(
                where.topic, codes_id(), 0, False, {where.partition: PartitionInfo(*leader, (1, 2), (1, 2), 0)}
            )
            for where, leader in self.leaders.items()
            if where.topic in names
        }


def codes_id() -> Any:
    """Any topic id."""
    from uuid import UUID  # noqa: PLC0415

    return UUID(int=1)


@pytest.fixture
async def watched() -> AsyncIterator[tuple[Watermarks, FakeCluster]]:
    """Watermarks over a fake cluster, ended with the test."""
    cluster = FakeCluster()
    marks = Watermarks(cluster)  # type: ignore[arg-type]
    yield marks, cluster
    await marks.close()


def _window(marks: Watermarks, where: TopicPartition, node: int = 1) -> Window:
    window = Window(where, Leader(node, 5), 0)
    marks.watch(window)
    return window


async def test_nobody_is_asked_while_nothing_is_unconfirmed(watched: Any) -> None:
    """An idle partition costs nothing."""
    marks, cluster = watched
    _window(marks, ORDERS)
    await asyncio.sleep(0.05)
    assert cluster.asked == []


@pytest.mark.timeout(5)
async def test_partitions_of_one_leader_share_a_question_with_its_epoch(watched: Any) -> None:
    """One request a broker, and each partition names the epoch that its stream is bound to."""
    marks, cluster = watched
    windows = [_window(marks, where) for where in (ORDERS, BILLS)]
    cluster.marks = {ORDERS: 10, BILLS: 20}
    for window, behind in zip(windows, (10, 20), strict=True):
        window.sent(behind, 100)
    assert await asyncio.gather(*(window.drained(2) for window in windows)) == [True, True]
    node, request = cluster.asked[-1]
    assert node == 1
    assert {(t.name, p.partition_index, p.current_leader_epoch) for t in request.topics for p in t.partitions} == {
        ("orders", 0, 5),
        ("bills", 1, 5),
    }


@pytest.mark.timeout(5)
@pytest.mark.parametrize("error", [codes.NOT_LEADER_OR_FOLLOWER, codes.FENCED_LEADER_EPOCH])
async def test_a_leader_that_says_it_is_none_is_lost(watched: Any, error: int) -> None:
    """What it alone had may be gone."""
    marks, cluster = watched
    window = _window(marks, ORDERS)
    cluster.errors = {ORDERS: error}
    window.sent(10, 100)
    assert not await window.drained(2)
    assert window.lost is not None
    assert codes.code_name(error) in window.lost


@pytest.mark.timeout(5)
async def test_a_mark_that_stands_still_makes_another_broker_be_asked(
    watched: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that was cut off from its cluster does not know that it leads no more."""
    monkeypatch.setattr(module, "STILL_S", 0.05)
    marks, cluster = watched
    cluster.marks, cluster.leaders = {ORDERS: 0}, {ORDERS: Leader(1, 5)}
    window = _window(marks, ORDERS)
    window.sent(10, 100)
    await asyncio.sleep(0.4)
    assert cluster.metadata >= 1
    assert window.lost is None
    cluster.leaders = {ORDERS: Leader(2, 6)}
    assert not await window.drained(2)
    assert window.lost == "the leader is now broker 2 in epoch 6"


@pytest.mark.timeout(5)
async def test_trouble_with_the_connection_is_no_verdict(watched: Any) -> None:
    """It is asked again, on a new connection."""
    marks, cluster = watched
    cluster.marks = {ORDERS: ConnectionLost("reset")}
    window = _window(marks, ORDERS)
    window.sent(10, 100)
    await asyncio.sleep(0.15)
    assert window.lost is None
    cluster.marks = {ORDERS: 10}
    assert await window.drained(2)


async def test_forgotten_windows_are_not_asked_for(watched: Any) -> None:
    """A stream that has ended is nobody's concern."""
    marks, cluster = watched
    window = _window(marks, ORDERS)
    marks.forget(window)
    window.sent(10, 100)
    await asyncio.sleep(0.05)
    assert cluster.asked == []
