"""How the keeper renews the lease by committing what waits; the state is played by the test."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from twinlog.control.lifecycle import PartitionState
from twinlog.control.records import Change, PartitionRecord, ShardRecord, WorkerRecord
from twinlog.control.sharding import shard_of
from twinlog.errors import GiveWay, RetryLater, UnknownOutcome
from twinlog.relay.lease import LEASE_S, Lease
from twinlog.service import keeper as module
from twinlog.service.keeper import Keeper
from twinlog.state.writer import Committed


class FakeWriter:
    """Commits into a list; errors are handed out one by one first."""

    shards = 50

    def __init__(self) -> None:
        self.commits: list[list[Change]] = []
        self.errors: list[Exception] = []
        self.settled = 0
        self.began = 50.0

    async def commit(self, changes: Sequence[Change]) -> Committed:
        """Commit, or raise what is next."""
        await asyncio.sleep(0)
        if self.errors:
            raise self.errors.pop(0)
        self.commits.append(list(changes))
        return Committed(self.began)

    async def reestablish(self, *, timeout_s: float) -> None:
        """Count."""
        del timeout_s
        self.settled += 1


class Quiet:
    """Figures that have not changed."""

    fresh = (7, (3, 4))

    def due(self) -> Sequence[Change]:
        """Nothing."""
        return ()


class _Bench:
    """A keeper with its parts."""

    def __init__(self) -> None:
        self.now = 50.0
        self.writer = FakeWriter()
        self.lease = Lease(lambda: self.now)
        self.keeper = Keeper(self.writer, self.lease, worker="w1", figures=Quiet())  # type: ignore[arg-type]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> _Bench:
    """A keeper whose waits are short."""
    monkeypatch.setattr(module, "BACKOFF_S", 0.001)
    return _Bench()


async def _running(bench: _Bench) -> "asyncio.Task[None]":
    task = asyncio.create_task(bench.keeper.run())
    await asyncio.sleep(0.01)
    return task


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_renewal_counts_from_when_it_began(bench: _Bench) -> None:
    """The first turn makes the lease valid, from the commit's beginning on."""
    task = await _running(bench)
    assert bench.lease.remaining_s() == pytest.approx(LEASE_S)
    beat = bench.writer.commits[0][-1]
    assert isinstance(beat, WorkerRecord)
    assert (beat.fresh_ms, beat.fresh_shards) == Quiet.fresh
    await _end(task)


async def test_what_waits_is_committed_together(bench: _Bench) -> None:
    """A thousand partitions that change at once are one transaction, not a thousand."""
    task = await _running(bench)
    before = len(bench.writer.commits)
    await asyncio.gather(*(bench.keeper.put(ShardRecord(n, "w1")) for n in range(50)))
    assert len(bench.writer.commits) - before <= 2
    assert sum(len(commit) - 1 for commit in bench.writer.commits[before:]) == 50
    await _end(task)


async def test_put_returns_only_after_the_commit(bench: _Bench) -> None:
    """What the relay asks to remember is remembered before the thing itself is done."""
    task = await _running(bench)
    record = ShardRecord(3, "w1")
    await bench.keeper.put(record)
    assert any(record in commit for commit in bench.writer.commits)
    await _end(task)


async def test_what_was_asked_first_is_committed_first_even_if_nobody_waits_for_it(bench: _Bench) -> None:
    """The word that a shard is given up comes behind all that its partitions, which were cut off, asked for."""
    asked = asyncio.create_task(bench.keeper.put(ShardRecord(3, "w1")))
    await asyncio.sleep(0)
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    last = asyncio.create_task(bench.keeper.put(ShardRecord(3, "w1", unsettled=True)))
    await asyncio.sleep(0)
    task = await _running(bench)
    await last
    committed = [change for commit in bench.writer.commits for change in commit if isinstance(change, ShardRecord)]
    assert committed == [ShardRecord(3, "w1"), ShardRecord(3, "w1", unsettled=True)]
    await _end(task)


async def test_unknown_outcome_is_settled_and_committed_again(bench: _Bench) -> None:
    """The same records again do no harm, and the lease is renewed only by what stands."""
    task = await _running(bench)
    bench.writer.errors = [UnknownOutcome("no answer"), UnknownOutcome("no answer")]
    await bench.keeper.put(ShardRecord(3, "w1"))
    assert bench.writer.settled == 2
    await _end(task)


async def test_what_may_have_been_given_up_is_not_said_again(bench: _Bench) -> None:
    """It may stand already, and another worker own the shard by now: that one's claim must not be overwritten."""
    ours = PartitionRecord("m", "orders", 0, PartitionState.MIRRORING)
    shard = shard_of("m", "orders", 0, 50)
    task = await _running(bench)
    bench.writer.commits.clear()
    bench.writer.errors = [UnknownOutcome("no answer")]
    await bench.keeper.put(ours, ShardRecord(shard, "w1", released=True), ShardRecord((shard + 1) % 50, "w1"))
    (commit,) = bench.writer.commits
    assert [change for change in commit if not isinstance(change, WorkerRecord)] == [
        ShardRecord((shard + 1) % 50, "w1")
    ]
    await _end(task)


async def test_what_certainly_does_not_stand_is_said_again(bench: _Bench) -> None:
    """Before the end of a transaction is asked for, nobody can have read it."""
    task = await _running(bench)
    bench.writer.commits.clear()
    bench.writer.errors = [RetryLater("not done in time")]
    await bench.keeper.put(ShardRecord(3, "w1", released=True))
    assert ShardRecord(3, "w1", released=True) in bench.writer.commits[0]
    await _end(task)


async def test_fenced_worker_gives_way_for_good(bench: _Bench) -> None:
    """Whoever waits is told, the lease is gone, and nothing is taken any more."""
    task = await _running(bench)
    bench.writer.errors = [GiveWay("fenced")]
    with pytest.raises(GiveWay):
        await bench.keeper.put(ShardRecord(3, "w1"))
    with pytest.raises(GiveWay):
        await task
    assert bench.lease.is_fenced
    with pytest.raises(GiveWay):
        await bench.keeper.put(ShardRecord(4, "w1"))


async def test_ending_leaves_nobody_waiting(bench: _Bench) -> None:
    """A put that no turn takes any more is answered, not forgotten."""
    task = await _running(bench)
    await _end(task)
    with pytest.raises(GiveWay):
        await asyncio.wait_for(bench.keeper.put(ShardRecord(3, "w1")), 1)


class _LostAnswer:
    """Commits everything, and loses the first answer."""

    shards = 50

    def __init__(self) -> None:
        self.commits: list[list[Change]] = []

    async def commit(self, changes: Sequence[Change]) -> Committed:
        self.commits.append(list(changes))
        if len(self.commits) == 1:
            raise UnknownOutcome("no answer")
        return Committed(0.0)

    async def reestablish(self, *, timeout_s: float) -> None:
        del timeout_s


@pytest.mark.timeout(10)
async def test_renewal_after_a_lost_answer_is_a_new_beat(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease counts from the later attempt: with the beat of the first, which was seen long ago, it looks over."""
    monkeypatch.setattr(module, "BACKOFF_S", 0.05)
    writer: Any = _LostAnswer()
    running = asyncio.create_task(Keeper(writer, Lease(lambda: 0.0), worker="w1", figures=Quiet()).run())
    await asyncio.sleep(0.3)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    first, second = ([c for c in commit if isinstance(c, WorkerRecord)] for commit in writer.commits[:2])
    assert first[0].beat_ms < second[0].beat_ms
