"""What turns the pump: one plan behind another, plans of data alone without waiting for the one before."""

import asyncio
import time
import weakref
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from twinlog.batch.records import Record, encode
from twinlog.batch.scan import Blank
from twinlog.errors import TakeOverAnew
from twinlog.relay.bucket import BURST_S
from twinlog.relay.budget import Budget
from twinlog.relay.decide import Stopped, Terms
from twinlog.relay.filling import Filling
from twinlog.relay.inbox import Inbox
from twinlog.relay.progress import Accepted, Answer, BlankStep, DataStep, Forward, Nudge, Plan, Unknown
from twinlog.relay.pump import PLANS_UNDER_WAY, RUNS_AT_ONCE, Pump, parted
from twinlog.relay.stream import Gate

TURN_BYTES = 65_536


class FakeDestination:
    """Keeps the plans; each `append` waits until it is told what became of it, in order."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self.came = asyncio.Event()
        self.cancelled = 0
        self._answers: list[asyncio.Future[Answer]] = []

    async def append(self, _stream: object, plan: Plan) -> Answer:
        """Take a plan and wait for its answer."""
        self.plans.append(plan)
        self.came.set()
        answer = asyncio.get_running_loop().create_future()
        self._answers.append(answer)
        try:
            return await answer
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    def answer(self, number: int, answer: Answer) -> None:
        """Say what became of plan `number`."""
        self._answers[number].set_result(answer)


class Running:
    """A pump at work on an inbox."""

    def __init__(self, made: Any, **progress: Any) -> None:
        self.destination = FakeDestination()
        self.inbox = Inbox(made.where, 100, budget=Budget(1_000_000).share())
        now_ms = time.time_ns() // 1_000_000
        known = made.progress(100, last_timestamp_ms=now_ms, **progress)
        self.stream = SimpleNamespace(gate=None)
        self.pump = Pump(cast("Any", self.destination), cast("Any", self.stream), known, Terms(), guard_ms=60_000)
        self.task = asyncio.create_task(self.pump.run(self.inbox))

    async def plans(self, count: int) -> list[Plan]:
        """Wait until so many plans were given to the destination; some turns more, and return them."""
        async with asyncio.timeout(5):
            while len(self.destination.plans) < count:
                self.destination.came.clear()
                await self.destination.came.wait()
        for _ in range(10):
            await asyncio.sleep(0)
        return self.destination.plans


async def test_next_plan_is_sent_while_one_is_under_way(made: Any) -> None:
    """It goes on where the one before it ends, and progress moves with each answer."""
    run = Running(made)
    run.inbox.put(made.chunk(100, made.data(100)))
    first = (await run.plans(1))[0]
    run.inbox.put(made.chunk(103, made.data(103)))
    second = (await run.plans(2))[1]
    assert (first.after.position, second.after.position) == (103, 106)
    assert second.after.sequence == first.after.sequence + 3
    assert (run.pump.progress.position, run.pump.appending) == (100, True)
    run.destination.answer(0, Accepted())
    await run.plans(2)
    assert run.pump.progress.position == 103
    run.destination.answer(1, Accepted())
    await run.plans(2)
    assert (run.pump.progress.position, run.pump.appending) == (106, False)
    run.task.cancel()


class Answered(bytearray):
    """A response's buffer that can be referred to weakly."""


async def test_quiet_partition_keeps_nothing_in_memory(made: Any) -> None:
    """A view of a few bytes would keep all of the response that it came in."""
    run = Running(made)
    buffer = Answered(made.data(100))
    run.inbox.put(replace(made.chunk(100), records=memoryview(buffer)))
    kept = weakref.ref(buffer)
    del buffer
    await run.plans(1)
    assert kept() is not None
    run.destination.answer(0, Accepted())
    run.destination.plans.clear()
    await run.plans(0)
    assert kept() is None
    run.task.cancel()


async def test_no_more_plans_are_under_way_than_the_bound(made: Any) -> None:
    """What else was fetched waits."""
    run = Running(made)
    for first in range(100, 112, 3):
        run.inbox.put(made.chunk(first, made.data(first)))
        await run.plans(0)
    assert len(await run.plans(PLANS_UNDER_WAY)) == PLANS_UNDER_WAY
    run.destination.answer(0, Accepted())
    assert len(await run.plans(PLANS_UNDER_WAY + 1)) == PLANS_UNDER_WAY + 1
    run.task.cancel()


async def test_nothing_is_sent_behind_a_failure(made: Any) -> None:
    """The position stays where the last accepted plan ends; the destination's line answers for what was ahead."""
    run = Running(made)
    run.inbox.put(made.chunk(100, made.data(100)))
    await run.plans(1)
    run.inbox.put(made.chunk(103, made.data(103)))
    await run.plans(2)
    run.destination.answer(0, Unknown(100, "no answer"))
    run.destination.answer(1, Unknown(100, "no answer"))
    with pytest.raises(TakeOverAnew):
        await run.task
    assert run.pump.progress.position == 100
    assert len(run.destination.plans) == 2


async def test_blanks_wait_for_all_before_them_and_all_behind_waits_for_them(made: Any) -> None:
    """A marker is the one append that the broker cannot judge."""
    run = Running(made)
    run.inbox.put(made.chunk(100, made.data(100)))
    await run.plans(1)
    run.inbox.put(made.chunk(103, made.data(105), last_stable_offset=108))
    assert len(await run.plans(1)) == 1
    run.destination.answer(0, Accepted())
    plan = (await run.plans(2))[1]
    assert isinstance(plan.steps[0], BlankStep)
    run.inbox.put(made.chunk(108, made.data(108)))
    assert len(await run.plans(2)) == 2
    run.destination.answer(1, Accepted())
    assert (await run.plans(3))[2].after.position == 111
    run.task.cancel()


async def test_a_request_to_stop_goes_before_what_waits_and_behind_what_is_under_way(made: Any) -> None:
    """Nothing is left under way at an end in order."""
    run = Running(made)
    run.inbox.put(made.chunk(100, made.data(100)))
    await run.plans(1)
    run.inbox.nudge(Nudge())
    await run.plans(1)
    assert not run.task.done()
    run.destination.answer(0, Accepted())
    with pytest.raises(Stopped):
        await run.task
    assert run.pump.progress.position == 103


async def test_cancelled_pump_leaves_nothing_running(made: Any) -> None:
    """What is under way is told that nothing may follow it."""
    run = Running(made)
    run.inbox.put(made.chunk(100, made.data(100)))
    await run.plans(1)
    run.inbox.put(made.chunk(103, made.data(103)))
    await run.plans(2)
    run.task.cancel()
    await asyncio.gather(run.task, return_exceptions=True)
    assert run.destination.cancelled == 2


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


async def test_holes_are_filled_and_those_at_the_end_wait(made: Any) -> None:
    """What is held back is neither written nor read again; nothing is waited for in front of it."""
    run = Running(made)
    run.pump.filling = filling = Filling(1_000, roll_ms=1_000, newest_ms=-1, max_batch_bytes=1_000_000)
    await asyncio.sleep(0)
    run.inbox.put(made.chunk(100, made.data(105), last_stable_offset=150))
    first = (await run.plans(1))[0]
    assert isinstance(first.steps[0], DataStep)
    assert (first.steps[0].sends[0].batch.first, first.after.position) == (100, 108)
    run.inbox.put(made.chunk(108, last_stable_offset=110))
    await asyncio.sleep(0.01)
    assert filling.held == Blank(108, 109)
    run.destination.answer(0, Accepted())
    await asyncio.sleep(0.01)
    assert not run.inbox.nudged
    run.inbox.put(made.chunk(110, made.data(112)))
    second = (await run.plans(2))[1]
    assert isinstance(second.steps[0], DataStep)
    assert (second.steps[0].sends[0].batch.first, second.after.position) == (108, 115)
    assert (len(second.steps), second.after.source_epoch) == (1, first.after.source_epoch)
    run.task.cancel()


async def test_nothing_is_joined_while_holes_are_filled(made: Any) -> None:
    """Behind the last of them small batches are joined again."""
    run = Running(made)
    run.pump.join_bytes = 100_000
    run.pump.filling = Filling(106, roll_ms=1_000, newest_ms=-1, max_batch_bytes=1_000_000)
    await asyncio.sleep(0)
    run.inbox.put(made.chunk(100, made.data(100), made.data(103)))
    await run.plans(1)
    run.inbox.put(made.chunk(106, made.data(106), made.data(109)))
    first, second = await run.plans(2)
    assert [[send.batch.first for send in step.sends] for step in data_of(first)] == [[100, 103]]
    assert [[send.batch.first for send in step.sends] for step in data_of(second)] == [[106]]
    run.task.cancel()


async def test_little_is_joined_where_a_rate_is_to_be_kept(made: Any) -> None:
    """Else each partition's turn would be as long as a large batch takes at that rate."""
    run, held = Running(made), True
    throttle = SimpleNamespace(rate=lambda where: TURN_BYTES / BURST_S if held and where == made.where else None)
    run.stream.gate = Gate(cast("Any", throttle), made.where, asyncio.Event())
    run.pump.join_bytes = 10 * TURN_BYTES
    value = bytes(TURN_BYTES // 10)
    many = [encode([Record(at, 1_000_000, None, value, ())], codec=0).raw for at in range(100, 140)]
    run.inbox.put(made.chunk(100, *map(bytes, many[:20])))
    first = (await run.plans(1))[0]
    held = False
    run.inbox.put(made.chunk(120, *map(bytes, many[20:])))
    second = (await run.plans(2))[1]
    sizes = [[send.batch.size for step in data_of(plan) for send in step.sends] for plan in (first, second)]
    assert len(sizes[0]) == 3
    assert max(sizes[0]) <= TURN_BYTES
    assert len(sizes[1]) == 1
    run.task.cancel()


def data_of(plan: Plan) -> list[DataStep]:
    """The steps that write data."""
    return [step for step in plan.steps if isinstance(step, DataStep)]


async def test_what_was_held_back_is_read_again_in_the_next_round(made: Any) -> None:
    """A round that ends drops it, and the place from which the source is read on is the position."""
    run = Running(made)
    run.pump.filling = filling = Filling(1_000, roll_ms=1_000, newest_ms=-1, max_batch_bytes=1_000_000)
    await asyncio.sleep(0)
    run.inbox.put(made.chunk(100, last_stable_offset=110))
    await asyncio.sleep(0.01)
    assert filling.held == Blank(100, 109)
    run.destination.answer(0, Accepted())
    run.inbox.nudge(Nudge())
    with pytest.raises(Stopped):
        await run.task
    assert run.pump.progress.position == 100
    again = asyncio.create_task(run.pump.run(Inbox(made.where, 100, budget=Budget(1_000_000).share())))
    await asyncio.sleep(0)
    assert filling.held is None
    again.cancel()
