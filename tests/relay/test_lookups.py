"""How questions about many partitions become one request."""

import asyncio
from typing import Any

import pytest

from twinlog.errors import ConnectionLost, PartitionFailed, RetryLater
from twinlog.names import TopicPartition
from twinlog.relay import lookups as module
from twinlog.relay.lookups import Lookups, Question, unreadable
from twinlog.wire import codes
from twinlog.wire.ops_log import ListedOffset

LATEST = Question(-1)
PARTITIONS = [TopicPartition("orders", n) for n in range(100)]


class _Cluster:
    """Counts what it is asked."""

    def __init__(self) -> None:
        self.described = 0

    async def topics(self, names: list[str]) -> dict[str, str]:
        self.described += 1
        await asyncio.sleep(0.001)
        return {name: f"about {name}" for name in names if name != "unknown"}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The requests for offsets; partition 13 has no leader."""
    requests: list[Any] = []

    async def list_offsets(_cluster: Any, at: Any, **options: Any) -> dict[TopicPartition, ListedOffset]:
        requests.append((dict(at), options))
        return {tp: ListedOffset(-1, error=5) if tp.partition == 13 else ListedOffset(tp.partition) for tp in at}

    monkeypatch.setattr(module, "list_offsets", list_offsets)
    return requests


def _lookups() -> Lookups:
    cluster: Any = _Cluster()
    return Lookups(cluster)


async def test_questions_of_one_moment_are_one_request(asked: list[Any]) -> None:
    """A hundred partitions ask, one request goes out, each gets its own answer."""
    lookups = _lookups()
    wanted = [tp for tp in PARTITIONS if tp.partition != 13]
    offsets = await asyncio.gather(*(lookups.offset(tp, LATEST) for tp in wanted))
    assert offsets == [tp.partition for tp in wanted]
    assert len(asked) == 1


async def test_different_questions_are_not_mixed(asked: list[Any]) -> None:
    """The true end and the high watermark are different requests."""
    lookups = _lookups()
    await asyncio.gather(
        lookups.offset(PARTITIONS[0], LATEST), lookups.offset(PARTITIONS[0], Question(-1, replica_id=-2))
    )
    assert sorted(options["replica_id"] for _, options in asked) == [-2, -1]


async def test_a_later_question_is_asked_anew(asked: list[Any]) -> None:
    """Nothing is remembered: a log end is as of the question."""
    lookups = _lookups()
    await lookups.offset(PARTITIONS[0], LATEST)
    await lookups.offset(PARTITIONS[0], LATEST)
    assert len(asked) == 2


async def test_one_partition_without_an_answer_does_not_hurt_the_others(asked: list[Any]) -> None:
    """A partition without a leader is told so, its neighbours get their offsets."""
    lookups = _lookups()
    results = await asyncio.gather(*(lookups.offset(tp, LATEST) for tp in PARTITIONS[12:15]), return_exceptions=True)
    assert results[0] == 12
    assert isinstance(results[1], RetryLater)
    assert results[2] == 14
    assert len(asked) == 1


async def test_lost_connection_is_told_to_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is left waiting."""

    async def lost(*_: Any, **__: Any) -> Any:
        raise ConnectionLost("gone")

    monkeypatch.setattr(module, "list_offsets", lost)
    lookups = _lookups()
    results = await asyncio.gather(*(lookups.offset(tp, LATEST) for tp in PARTITIONS[:3]), return_exceptions=True)
    assert [type(result) for result in results] == [ConnectionLost] * 3


async def test_one_who_gives_up_does_not_take_the_others_along(asked: list[Any]) -> None:
    """A cancelled question leaves the request to those who still wait."""
    lookups = _lookups()
    first, second = (asyncio.create_task(lookups.offset(tp, LATEST)) for tp in PARTITIONS[:2])
    await asyncio.sleep(0)
    first.cancel()
    assert await second == 1
    assert len(asked) == 1


async def test_a_topic_is_described_once_for_its_partitions() -> None:
    """The description of a topic with a thousand partitions is large; a thousand of them would be too much."""
    cluster = _Cluster()
    lookups = Lookups(cluster)  # type: ignore[arg-type]
    told = await asyncio.gather(*(lookups.topic("orders") for _ in range(50)))
    assert told == ["about orders"] * 50
    assert cluster.described == 1
    assert await lookups.topic("unknown") is None


async def test_closing_ends_what_is_under_way() -> None:
    """No task is left behind."""
    lookups = _lookups()
    waiting = asyncio.create_task(lookups.offset(PARTITIONS[0], LATEST))
    await asyncio.sleep(0)
    await lookups.close()
    await asyncio.gather(waiting, return_exceptions=True)
    assert waiting.done()


def test_missing_right_to_read_is_named_at_once_and_anything_else_passes() -> None:
    """A takeover that waited for the right would be shown as mirroring meanwhile."""
    refused = unreadable(PARTITIONS[3], codes.TOPIC_AUTHORIZATION_FAILED, 20, side="source")
    assert isinstance(refused, PartitionFailed)
    assert refused.retriable
    assert "orders-3: the source cluster refuses the read at offset 20. Grant READ on topic orders" in str(refused)
    passing = unreadable(PARTITIONS[3], codes.NOT_LEADER_OR_FOLLOWER, 20, side="destination")
    assert isinstance(passing, RetryLater)
