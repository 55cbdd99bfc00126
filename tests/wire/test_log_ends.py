"""The true ends of many logs, by hand-made bytes."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, cast
from uuid import UUID

import pytest
from kafka.protocol.consumer import ListOffsetsResponse

from twinlog.errors import ConnectionLost, UnsupportedVersion
from twinlog.names import TopicPartition
from twinlog.wire.cluster import Cluster, Leader
from twinlog.wire.log_ends import LogEnds, decode_log_ends, encode_log_ends
from twinlog.wire.metadata import TopicInfo
from twinlog.wire.ops_log import DEBUGGER, EARLIEST, LATEST, list_offsets_request

A, B, C = TopicPartition("orders", 0), TopicPartition("orders", 11), TopicPartition("bills", 2)


def answer(*told: tuple[TopicPartition, int, int], version: int = 5) -> memoryview:
    """A response as a broker encodes it, from partition, error and offset."""
    topic = ListOffsetsResponse.ListOffsetsTopicResponse
    topics = [
        topic(
            name=where.topic,
            partitions=[
                topic.ListOffsetsPartitionResponse(
                    partition_index=where.partition, error_code=error, timestamp=-1, offset=offset, leader_epoch=3
                )
            ],
        )
        for where, error, offset in told
    ]
    return memoryview(ListOffsetsResponse(throttle_time_ms=0, topics=topics).encode(version=version))


@pytest.mark.parametrize("version", [4, 5])
def test_request_is_the_library_s_to_the_byte(version: int) -> None:
    """In both versions that are used."""
    asked = {A: Leader(1, 4), B: Leader(1, 5), C: Leader(1, 6)}
    expected = list_offsets_request({tp: (leader, LATEST) for tp, leader in asked.items()}, replica_id=DEBUGGER)
    assert encode_log_ends((tp, leader.epoch) for tp, leader in asked.items()) == expected.encode(version=version)


def test_log_starts_are_asked_for_as_a_consumer_does() -> None:
    """The debugging id is for ends only: a deposed leader must not tell of a start that is none."""
    expected = list_offsets_request({A: (Leader(1, 4), EARLIEST)})
    assert encode_log_ends([(A, 4)], EARLIEST) == expected.encode(version=5)


@pytest.mark.parametrize("version", [4, 5])
def test_answer_is_read(version: int) -> None:
    """Errors and offsets, found by the partition."""
    ends = decode_log_ends(answer((A, 0, 70), (B, 6, -1), (C, 0, 2**40), version=version))
    assert {where: ends[where] for where in (A, B, C)} == {A: (0, 70), B: (6, -1), C: (0, 2**40)}


def test_no_other_bytes_are_taken_for_an_answer() -> None:
    """Cut anywhere, or with something behind it, it raises."""
    whole = answer((A, 0, 70), (C, 0, 5))
    for size in range(len(whole)):
        with pytest.raises(Exception, match=r".+"):
            decode_log_ends(whole[:size])
    with pytest.raises(ValueError, match="bytes"):
        decode_log_ends(memoryview(bytes(whole) + b"\0"))


class Brokers:
    """A cluster whose brokers answer what a test says; also the connection to each."""

    def __init__(self, leaders: dict[TopicPartition, Leader], told: dict[str, TopicInfo] | None = None) -> None:
        self.leaders = leaders
        self.told = told or {}
        self.bodies: list[bytes] = []
        self.distrusted: list[str] = []
        self.asked_topics: list[set[str]] = []
        self.resets = 0
        self.version = 5
        self.peer = "test broker"
        self.reply: Callable[[], Any] = lambda: memoryview(b"")

    def leader(self, where: TopicPartition) -> Leader | None:
        """As the cluster's cache."""
        return self.leaders.get(where)

    async def topics(self, names: set[str], *, timeout_s: float) -> dict[str, TopicInfo]:  # noqa: ARG002  # as the cluster's
        """As the cluster's question."""
        self.asked_topics.append(names)
        return self.told

    def distrust(self, topic: str) -> None:
        """As the cluster's."""
        self.distrusted.append(topic)

    async def lane(self, node: int, name: str) -> "Brokers":  # noqa: ARG002  # as the cluster's
        """One connection for all."""
        return self

    def version_of(self, request: Any, max_version: int) -> int:  # noqa: ARG002  # as the connection's
        """What both sides have."""
        return min(self.version, max_version)

    def submit_frame(self, api_key: int, version: int, chunks: Any, decode: Any) -> "asyncio.Future[Any]":  # noqa: ARG002  # as the connection's
        """Answered at once, never (None), or with an error."""
        self.bodies.append(b"".join(chunks))
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        told = self.reply()
        if isinstance(told, Exception):
            future.set_exception(told)
        elif told is not None:
            future.set_result(decode(told))
        return future

    def reset(self) -> None:
        """As the connection's."""
        self.resets += 1


def log_ends(brokers: Brokers) -> LogEnds:
    """The subject."""
    return LogEnds(cast("Cluster", brokers), lane="sweep")


async def test_same_question_is_the_same_bytes() -> None:
    """They are made once, and anew when a leader's epoch changes."""
    brokers = Brokers({A: Leader(1, 4), C: Leader(1, 4)})
    brokers.reply = lambda: answer((A, 0, 7), (C, 0, 8))
    asker = log_ends(brokers)
    for _ in range(2):
        assert await asker.ask([A, C], timeout_s=1) == {A: (0, 7), C: (0, 8)}
    brokers.leaders[A] = Leader(1, 5)
    await asker.ask([A, C], timeout_s=1)
    first, second, third = brokers.bodies
    assert first == second == encode_log_ends([(A, 4), (C, 4)])
    assert third == encode_log_ends([(A, 5), (C, 4)])


async def test_what_is_told_again_is_read_once_and_what_changes_is_read() -> None:
    """An answer in the same bytes is the same answer; one end that moves is another."""
    brokers = Brokers({A: Leader(1, 4), B: Leader(1, 4)})
    asker, found = log_ends(brokers), []
    for end in (7, 7, 8, 7):
        brokers.reply = partial(answer, (A, 0, end), (B, 0, 70))
        found.append(await asker.ask([A, B], timeout_s=1))
    assert found == [{A: (0, end), B: (0, 70)} for end in (7, 7, 8, 7)]
    found[-1].clear()
    assert await asker.ask([A, B], timeout_s=1) == {A: (0, 7), B: (0, 70)}


async def test_each_leader_is_asked_for_its_own() -> None:
    """Two brokers, two requests."""
    brokers = Brokers({A: Leader(1, 4), C: Leader(2, 4)})
    brokers.reply = lambda: answer((A, 0, 7)) if len(brokers.bodies) == 1 else answer((C, 0, 8))
    assert await log_ends(brokers).ask([A, C], timeout_s=1) == {A: (0, 7), C: (0, 8)}


async def test_leader_that_leads_no_longer_is_distrusted() -> None:
    """Its code is handed on, and the next call looks for the leader."""
    brokers = Brokers({A: Leader(1, 4)})
    brokers.reply = lambda: answer((A, 6, -1))
    assert await log_ends(brokers).ask([A], timeout_s=1) == {A: (6, -1)}
    assert brokers.distrusted == ["orders"]


async def test_unknown_leader_is_looked_for_and_left_out_meanwhile() -> None:
    """Once a call, however many partitions lack theirs."""
    brokers = Brokers({C: Leader(1, 4)})
    brokers.reply = lambda: answer((C, 0, 8))
    assert await log_ends(brokers).ask([A, B, C], timeout_s=1) == {C: (0, 8)}
    assert brokers.asked_topics == [{"orders"}]


async def test_topic_that_the_cluster_does_not_know_is_told() -> None:
    """As the leader itself would: code 3."""
    brokers = Brokers({}, {"orders": TopicInfo("orders", UUID(int=1), 3, internal=False, partitions={})})
    assert await log_ends(brokers).ask([A], timeout_s=1) == {A: (3, -1)}


async def test_broker_that_does_not_answer_is_left_out_and_reset() -> None:
    """Whatever it says later must not be taken for the answer to another question."""
    brokers = Brokers({A: Leader(1, 4)})
    brokers.reply = lambda: None
    assert await log_ends(brokers).ask([A], timeout_s=0.02) == {}
    assert brokers.resets == 1


async def test_broken_connection_is_no_answer() -> None:
    """It is opened anew at the next call."""
    brokers = Brokers({A: Leader(1, 4)})
    brokers.reply = lambda: ConnectionLost("cut")
    assert await log_ends(brokers).ask([A], timeout_s=1) == {}


async def test_broker_without_epochs_is_refused_in_words() -> None:
    """Without the leader's epoch a deposed leader would tell its own log's end."""
    brokers = Brokers({A: Leader(1, 4)})
    brokers.version = 3
    with pytest.raises(UnsupportedVersion, match=r"up to version 3, version 4 is needed. Use brokers of Kafka 2.1"):
        await log_ends(brokers).ask([A], timeout_s=1)
