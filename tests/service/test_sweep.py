"""The look at idle partitions."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from twinlog.names import TopicPartition
from twinlog.service import sweep as sweep_module
from twinlog.service.shards import Shards
from twinlog.service.sweep import AT_ONCE, UNKNOWN_TURNS, Sweep
from twinlog.wire.cluster import Cluster

MEANT, ANOTHER = UUID(int=5), UUID(int=6)
A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Relay:
    """A partition that mirrors, as the sweep sees it."""

    def __init__(self, where: TopicPartition, position: int = 10, *, idle: bool = True) -> None:
        self.where = where
        self.position = self.confirmed = position
        self.first_offset = -1
        self.streaming_idle = idle
        self.claim = SimpleNamespace(destination_topic_id=MEANT)
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


class Topics:
    """A destination that says how many partitions a topic has."""

    def __init__(self, counts: dict[str, int], topic_id: UUID = MEANT) -> None:
        self.counts = counts
        self.topic_id = topic_id
        self.asked: list[list[str]] = []

    async def topics(self, names: list[str], *, timeout_s: float) -> dict[str, Any]:  # noqa: ARG002  # as the real one
        """One answer."""
        self.asked.append(names)
        return {
            name: SimpleNamespace(partitions=dict.fromkeys(range(count)), id=self.topic_id)
            for name, count in self.counts.items()
        }


@pytest.mark.parametrize(("here", "surprised"), [(2, False), (3, True), (1, False)])
async def test_partitions_added_by_hand_are_a_surprise_for_all_of_the_topic(here: int, *, surprised: bool) -> None:
    """Also for those that are not idle; a topic that still lacks some is the refresh's to complete."""
    relays = [Relay(A), Relay(B, idle=False)]
    supervisors = [SimpleNamespace(relay=relay, topic="orders", mirrored_partitions=2) for relay in (*relays, None)]
    topics = Topics({"orders": here})
    sweep = Sweep(cast("Cluster", topics), cast("Shards", SimpleNamespace(supervisors=supervisors)))
    await sweep._counts()
    assert topics.asked == [["orders"]]
    expected = ["orders: 3 partitions at the destination, and 2 are mirrored"] if surprised else []
    assert [relay.surprises for relay in relays] == [expected] * 2


async def test_a_topic_made_anew_is_a_surprise() -> None:
    """However long its logs are, and also where nothing else tells."""
    relay = Relay(A)
    supervisor = SimpleNamespace(relay=relay, topic="orders", mirrored_partitions=2)
    topics = Topics({"orders": 2}, ANOTHER)
    await Sweep(cast("Cluster", topics), cast("Shards", SimpleNamespace(supervisors=[supervisor])))._counts()
    assert relay.surprises == ["orders: the destination topic has another id than was meant"]


async def test_no_topic_is_asked_for_where_none_is_mirrored() -> None:
    """No request at all."""
    topics = Topics({})
    sweep = Sweep(cast("Cluster", topics), cast("Shards", SimpleNamespace(supervisors=[])))
    await sweep._counts()
    assert topics.asked == []


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


class Followed:
    """What the sweep deletes, and where logs start by then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, sweep: Sweep, **starts: int) -> None:
        self.deleted: list[tuple[TopicPartition, int]] = []
        self.starts = Ends({{"a": A, "b": B}[name]: (0, start) for name, start in starts.items()})
        sweep._log_starts = cast("Any", self.starts)
        monkeypatch.setattr(sweep_module, "follow_log_start", self._follow)
        monkeypatch.setattr(sweep_module, "delete_filler", self._delete)

    async def _follow(self, _cluster: Any, where: TopicPartition, start: int, topic_id: UUID) -> None:
        assert topic_id == MEANT
        self.deleted.append((where, start))
        self.starts.told[where] = (0, start)

    async def _delete(self, _cluster: Any, where: TopicPartition, record: Any, *, within_s: float) -> None:
        assert within_s > 0
        await self._follow(_cluster, where, record.first_offset, MEANT)


async def test_log_start_follows_the_source_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the source has deleted is deleted, never more than has been mirrored."""
    relay, ahead = Relay(A), Relay(B)
    relay.figures.log_start_offset, ahead.figures.log_start_offset = 7, 70
    sweep, _ = made(relay, ahead)
    followed = Followed(monkeypatch, sweep, a=0, b=0)
    await sweep._starts()
    await sweep._starts()
    assert followed.deleted == [(A, 7), (B, 10)]
    assert relay.destination_start == 7


async def test_log_start_that_a_dead_broker_has_forgotten_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where only the destination was to start there; a log that starts later by its own retention is left so."""
    chosen, later = Relay(A), Relay(B)
    chosen.first_offset, later.figures.log_start_offset = 8, 5
    sweep, _ = made(chosen, later)
    followed = Followed(monkeypatch, sweep, a=8, b=9)
    await sweep._starts()
    assert followed.deleted == []
    assert (chosen.destination_start, later.destination_start) == (8, 9)
    followed.starts.told[A] = (0, 0)
    await sweep._starts()
    assert followed.deleted == [(A, 8)]


async def test_only_logs_that_do_not_start_at_the_beginning_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """None starts before 0; and what is not answered is not judged."""
    relay, unanswered = Relay(A), Relay(B)
    unanswered.figures.log_start_offset = 5
    sweep, _ = made(relay, unanswered)
    followed = Followed(monkeypatch, sweep)
    await sweep._starts()
    assert followed.starts.asked == [{B}]
    assert followed.deleted == []


@pytest.mark.parametrize(("start", "deleted"), [(0, True), (50, False), (60, False)])
async def test_filler_that_is_back_in_a_topic_at_rest_is_deleted(
    monkeypatch: pytest.MonkeyPatch, start: int, *, deleted: bool
) -> None:
    """Nobody else would look at it any more."""
    record = SimpleNamespace(topic="orders", partition=0, first_offset=50)
    sweep = Sweep(cast("Cluster", None), cast("Shards", SimpleNamespace(resting=[record])))
    followed = Followed(monkeypatch, sweep, a=start)
    await sweep._rests()
    assert followed.starts.asked == [{A}]
    assert followed.deleted == ([(A, 50)] if deleted else [])


async def test_partitions_that_hang_do_not_wait_for_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each costs its bound, but many at once."""
    records = [SimpleNamespace(topic="orders", partition=number, first_offset=50) for number in range(AT_ONCE + 4)]
    sweep = Sweep(cast("Cluster", None), cast("Shards", SimpleNamespace(resting=records)))
    sweep._log_starts = cast("Any", Ends({TopicPartition("orders", number): (0, 0) for number in range(len(records))}))
    under_way = most = done = 0

    async def hangs(*_: Any, **__: Any) -> None:
        nonlocal under_way, most, done
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.02)
        under_way -= 1
        done += 1

    monkeypatch.setattr(sweep_module, "delete_filler", hangs)
    await sweep._rests()
    assert (most, done) == (AT_ONCE, len(records))


async def test_nobody_is_asked_where_nothing_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request at all."""
    sweep = Sweep(cast("Cluster", None), cast("Shards", SimpleNamespace(resting=[])))
    followed = Followed(monkeypatch, sweep)
    await sweep._rests()
    assert followed.starts.asked == []
