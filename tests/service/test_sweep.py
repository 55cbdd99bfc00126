"""The look at idle partitions."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from twinlog.names import TopicPartition
from twinlog.service import sweep as sweep_module
from twinlog.service.shards import Shards
from twinlog.service.sweep import UNKNOWN_TURNS, Sweep
from twinlog.wire.cluster import Cluster

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Relay:
    """A partition that mirrors, as the sweep sees it."""

    def __init__(self, where: TopicPartition, position: int = 10, *, idle: bool = True) -> None:
        self.where = where
        self.position = position
        self.streaming_idle = idle
        self.destination_start = 0
        self.figures = SimpleNamespace(log_start_offset=0)
        self.surprises: list[str] = []

    def surprise(self, what: str) -> None:
        """Keep what it is told."""
        self.surprises.append(what)


class Ends:
    """Answers with what a test says, and remembers what was asked."""

    def __init__(self, told: dict[TopicPartition, tuple[int, int]]) -> None:
        self.told = told
        self.asked: list[set[TopicPartition]] = []
        self.meanwhile: Any = lambda: None

    async def ask(self, wheres: Any, *, timeout_s: float) -> dict[TopicPartition, tuple[int, int]]:  # noqa: ARG002  # as the real one
        """One turn's answer."""
        self.asked.append(set(wheres))
        self.meanwhile()
        return self.told


def made(*relays: Relay, told: dict[TopicPartition, tuple[int, int]] | None = None) -> tuple[Sweep, Ends]:
    """A sweep over relays whose logs end where `told` says (error, end)."""
    shards = SimpleNamespace(supervisors=[SimpleNamespace(relay=relay) for relay in (*relays, None)])
    sweep = Sweep(cast("Cluster", None), cast("Shards", shards))
    ends = Ends(told or {})
    sweep._log_ends = cast("Any", ends)
    return sweep, ends


async def test_log_that_ends_where_it_should_is_left_alone() -> None:
    """Nothing is said, however often it is looked at."""
    relay = Relay(A)
    sweep, _ = made(relay, told={A: (0, 10)})
    for _ in range(UNKNOWN_TURNS + 1):
        await sweep._ends()
    assert relay.surprises == []


@pytest.mark.parametrize("end", [9, 11])
async def test_log_that_ends_elsewhere_is_a_surprise(end: int) -> None:
    """Both offsets are named."""
    relay, other = Relay(A), Relay(B)
    sweep, _ = made(relay, other, told={A: (0, end), B: (0, 10)})
    await sweep._ends()
    assert relay.surprises == [f"orders-0: the destination ends at {end}, not at 10"]
    assert other.surprises == []


async def test_only_idle_partitions_are_asked_for() -> None:
    """What is being appended moves the end, rightly."""
    sweep, ends = made(Relay(A), Relay(B, idle=False), told={A: (0, 10), B: (0, 99)})
    await sweep._ends()
    assert ends.asked == [{A}]


async def test_nothing_is_asked_when_nothing_is_idle() -> None:
    """No request at all."""
    sweep, ends = made(Relay(B, idle=False))
    await sweep._ends()
    assert ends.asked == []


@pytest.mark.parametrize("what", ["position", "streaming_idle"])
async def test_partition_that_moved_meanwhile_is_not_judged(what: str) -> None:
    """The answer is about another moment than the position."""
    relay = Relay(A)
    sweep, ends = made(relay, told={A: (0, 12)})
    ends.meanwhile = lambda: setattr(relay, what, 12 if what == "position" else False)
    await sweep._ends()
    assert relay.surprises == []


async def test_partition_without_an_answer_is_not_judged() -> None:
    """Its broker is away, or it leads no longer: the relay notices by itself."""
    relay, other = Relay(A), Relay(B)
    sweep, _ = made(relay, other, told={B: (6, -1)})
    for _ in range(UNKNOWN_TURNS + 1):
        await sweep._ends()
    assert relay.surprises == other.surprises == []


async def test_unknown_topic_is_believed_after_some_turns() -> None:
    """A broker that has just started knows it a moment later; one look that finds it makes the count begin anew."""
    relay = Relay(A)
    sweep, ends = made(relay, told={A: (3, -1)})
    for _ in range(UNKNOWN_TURNS - 1):
        await sweep._ends()
    ends.told = {A: (0, 10)}
    await sweep._ends()
    ends.told = {A: (3, -1)}
    for _ in range(UNKNOWN_TURNS - 1):
        await sweep._ends()
    assert relay.surprises == []
    await sweep._ends()
    assert relay.surprises == ["orders-0: the destination does not know this topic"]


async def test_log_start_follows_the_source_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the source has deleted is deleted, never more than has been mirrored."""
    deleted: list[tuple[TopicPartition, int]] = []

    async def follow(_cluster: Any, where: TopicPartition, start: int) -> None:
        deleted.append((where, start))

    monkeypatch.setattr(sweep_module, "follow_log_start", follow)
    relay, ahead = Relay(A), Relay(B)
    relay.figures.log_start_offset, ahead.figures.log_start_offset = 7, 70
    sweep, _ = made(relay, ahead)
    await sweep._starts()
    await sweep._starts()
    assert deleted == [(A, 7), (B, 10)]
    assert relay.destination_start == 7
