"""What turns the pump: one plan after another, the next made ahead while the one before it is under way."""

import asyncio
import time
from typing import Any, cast

import pytest

from twinlog.batch.scan import Blank
from twinlog.errors import TakeOverAnew
from twinlog.relay import pump as pump_module
from twinlog.relay.decide import Stopped, Terms
from twinlog.relay.inbox import Budget, Inbox
from twinlog.relay.progress import Accepted, Answer, Forward, Nudge, Plan, Unknown
from twinlog.relay.pump import RUNS_AT_ONCE, Pump, parted


class FakeDestination:
    """Keeps the plans; each `append` waits until it is told what became of it."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self.came = asyncio.Event()
        self.answers: asyncio.Queue[Answer] = asyncio.Queue()

    async def append(self, _stream: object, plan: Plan) -> Answer:
        """Take a plan and wait for its answer."""
        self.plans.append(plan)
        self.came.set()
        return await self.answers.get()


class Running:
    """A pump at work on an inbox, and how often it has planned."""

    def __init__(self, made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.destination, self.inbox = FakeDestination(), Inbox(made.where, 100, budget=Budget(1_000_000))
        self.planned = 0
        real = pump_module.rewrite

        def counted(*args: Any, **kwargs: Any) -> Plan:
            self.planned += 1
            return real(*args, **kwargs)

        monkeypatch.setattr(pump_module, "rewrite", counted)
        now_ms = time.time_ns() // 1_000_000
        progress = made.progress(100, last_timestamp_ms=now_ms)
        self.pump = Pump(cast("Any", self.destination), cast("Any", None), progress, Terms(), guard_ms=60_000)
        self.task = asyncio.create_task(self.pump.run(self.inbox))

    async def plans(self, count: int) -> list[Plan]:
        """Wait until so many plans were given to the destination; some turns more, and return them."""
        async with asyncio.timeout(5):
            while len(self.destination.plans) < count:
                self.destination.came.clear()
                await self.destination.came.wait()
        for _ in range(5):
            await asyncio.sleep(0)
        return self.destination.plans


async def test_next_plan_is_made_while_one_is_under_way(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made once, and sent only when the one before it is accepted."""
    run = Running(made, monkeypatch)
    run.inbox.put(made.chunk(100, made.data(100)))
    run.inbox.put(made.chunk(103, made.data(103)))
    assert len(await run.plans(1)) == 1
    assert run.planned == 2
    run.destination.answers.put_nowait(Accepted())
    first, second = await run.plans(2)
    assert (first.after.position, second.after.position, run.planned) == (103, 106, 2)
    assert second.after.sequence == first.after.sequence + 3
    run.task.cancel()


async def test_what_was_made_ahead_is_dropped_after_a_failure(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is sent, and the position stays."""
    run = Running(made, monkeypatch)
    run.inbox.put(made.chunk(100, made.data(100)))
    run.inbox.put(made.chunk(103, made.data(103)))
    await run.plans(1)
    run.destination.answers.put_nowait(Unknown(100, "no answer"))
    with pytest.raises(TakeOverAnew):
        await run.task
    assert len(run.destination.plans) == 1
    assert run.pump.progress.position == 100


async def test_a_nudge_goes_before_what_was_made_ahead(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked to stop, the pump ends behind the plan under way."""
    run = Running(made, monkeypatch)
    run.inbox.put(made.chunk(100, made.data(100)))
    run.inbox.put(made.chunk(103, made.data(103)))
    await run.plans(1)
    run.inbox.nudge(Nudge())
    run.destination.answers.put_nowait(Accepted())
    with pytest.raises(Stopped):
        await run.task
    assert run.pump.progress.position == 103
    assert len(run.destination.plans) == 1


async def test_an_old_plan_is_made_anew(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a producer is still remembered is judged by the time of sending."""
    run = Running(made, monkeypatch)
    run.inbox.put(made.chunk(100, made.data(100)))
    run.inbox.put(made.chunk(103, made.data(103)))
    await run.plans(1)
    monkeypatch.setattr(pump_module, "AHEAD_GOOD_MS", -1)
    run.destination.answers.put_nowait(Accepted())
    assert (await run.plans(2))[1].after.position == 106
    assert run.planned == 3
    run.task.cancel()


def test_many_runs_of_blanks_are_written_in_parts() -> None:
    """Each part is contiguous with the next, and nothing is left out; whoever asks to stop waits for one part only."""
    items = tuple(Blank(2 * n, 2 * n) for n in range(3 * RUNS_AT_ONCE + 7))
    rest: Forward | None = Forward(items, 10_000, 4)
    seen: list[Any] = []
    while rest is not None:
        part, rest = parted(rest)
        assert sum(isinstance(item, Blank) for item in part.items) <= RUNS_AT_ONCE
        seen += part.items
        assert part.next_offset == (10_000 if rest is None else rest.items[0].first)
    assert tuple(seen) == items
    assert part.source_epoch == 4


def test_few_blanks_are_one_part() -> None:
    """The usual case costs nothing."""
    verdict = Forward((Blank(1, 5),), 6)
    assert parted(verdict) == (verdict, None)
