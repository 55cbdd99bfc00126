"""The loop under the simulation: no time passes, processes stop and die between two steps, and all is repeatable."""

import asyncio
import time
from collections.abc import Iterator

import pytest
from tests.sim.clocks import WALL_S, simulated
from tests.sim.loop import FIRST_S, PROCESS, Process, SimLoop, Stuck, sleeping

from twinlog.relay.lease import LEASE_S, Lease
from twinlog.service import keeper
from twinlog.wire.retry import Attempts


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    """A loop that is cleared away."""
    loop = SimLoop()
    yield loop
    loop.dispose()


async def ticking(seen: list[float], every_s: float = 1.0) -> None:
    """Note the time, over and over."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(every_s)
        seen.append(round(loop.time() - FIRST_S, 6))


def test_time_jumps(loop: SimLoop) -> None:
    """An hour of sleep takes no time."""
    began = time.monotonic()
    loop.run(asyncio.sleep(3_000))
    assert loop.time() == FIRST_S + 3_000
    assert time.monotonic() - began < 1.0


def test_a_frozen_process_misses_its_timers_and_sees_them_all_at_once_when_it_thaws(loop: SimLoop) -> None:
    """A timer that came due meanwhile runs at the thaw, late, and the clock has gone on."""
    process, seen = Process("worker"), []

    async def main() -> None:
        loop.spawn(process, ticking(seen))
        await asyncio.sleep(2.5)
        loop.freeze(process)
        await asyncio.sleep(10)
        loop.thaw(process)
        await asyncio.sleep(1.5)

    loop.run(main())
    assert seen == [1.0, 2.0, 12.5, 13.5]


def test_what_arrives_for_a_frozen_process_is_seen_before_its_timers(loop: SimLoop) -> None:
    """A real loop looks at its sockets before it looks at its timers: an answer beats the timeout beside it."""
    process, results = Process("worker"), []
    answer = loop.create_future()

    async def asking() -> None:
        async with asyncio.timeout(1.0):
            results.append(await answer)

    async def main() -> None:
        loop.spawn(process, asking())
        await asyncio.sleep(0.5)
        loop.freeze(process)
        await asyncio.sleep(5)
        answer.set_result("late")
        loop.thaw(process)
        await asyncio.sleep(1)

    loop.run(main())
    assert results == ["late"]


def test_nothing_of_a_killed_process_runs_again(loop: SimLoop) -> None:
    """Not even a `finally`, neither in the run nor when it is cleared away."""
    process, seen = Process("worker"), []

    async def holding() -> None:
        try:
            await ticking(seen)
        finally:
            seen.append(-1.0)

    async def main() -> None:
        loop.spawn(process, holding())
        await asyncio.sleep(1.5)
        loop.kill(process)
        await asyncio.sleep(5)
        assert seen == [1.0]

    loop.run(main())
    loop.dispose()
    assert not loop.mistakes


def test_processes_are_inherited_by_what_they_start(loop: SimLoop) -> None:
    """A task of a process's task belongs to that process, and a callback of nobody's to nobody."""
    process, owners = Process("worker"), {}

    async def child() -> None:
        owners["child"] = PROCESS.get()

    async def parent() -> None:
        owners["parent"] = PROCESS.get()
        sleeping(loop, 0.1, lambda: owners.update(outside=PROCESS.get()))
        await asyncio.create_task(child())

    async def main() -> None:
        loop.spawn(process, parent())
        await asyncio.sleep(1)

    loop.run(main())
    assert owners == {"parent": process, "child": process, "outside": None}


def test_a_process_thaws_into_a_lease_that_has_run_out(loop: SimLoop) -> None:
    """The lease of twinlog, on a process's own clock: valid before the freeze, not after it."""
    process, seen = Process("worker", clock_offset_s=77.0), []

    async def owner() -> None:
        lease = Lease(told.monotonic)
        lease.renewed(told.monotonic())
        seen.append(lease.valid())
        await asyncio.sleep(1)
        seen.append(lease.valid())

    async def main() -> None:
        loop.spawn(process, owner())
        await asyncio.sleep(0.5)
        loop.freeze(process)
        await asyncio.sleep(LEASE_S + 1)
        loop.thaw(process)
        await asyncio.sleep(0)

    with simulated(loop, 1) as told:
        loop.run(main())
    assert seen == [True, False]


def test_twinlog_lives_by_simulated_time(loop: SimLoop) -> None:
    """Both ways of reading a clock are caught: through the module, and bound as a default argument."""

    async def retrying() -> tuple[float, bool]:
        attempts = Attempts(1_000.0)
        while attempts.failures < 10:
            await attempts.again()
        return attempts.elapsed_s, await Attempts(0.001).again()

    with simulated(loop, 1):
        elapsed_s, again = loop.run(retrying())
        wall_ms = keeper._wall_ms()
    assert elapsed_s == pytest.approx(loop.time() - FIRST_S)
    assert elapsed_s > 3.0
    assert not again
    assert wall_ms == int((WALL_S + loop.time()) * 1000)
    assert abs(keeper._wall_ms() - time.time() * 1000) < 60_000


def test_sets_of_tasks_have_one_order() -> None:
    """Where code goes through a set of tasks, it does so in the same order in each run."""

    def once() -> list[str]:
        loop = SimLoop()

        async def main() -> list[str]:
            tasks = {asyncio.create_task(asyncio.sleep(9), name=f"t{n}") for n in range(40)}
            return [task.get_name() for task in tasks]

        names = loop.run(main())
        loop.dispose()
        return names

    first = once()
    assert sorted(first) == sorted(f"t{n}" for n in range(40))
    assert once() == first


def test_a_loop_with_nothing_left_to_do_says_so(loop: SimLoop) -> None:
    """A deadlock is an error, not a wait for ever."""

    async def main() -> None:
        await loop.create_future()

    with pytest.raises(Stuck, match="0 timers are left"):
        loop.run(main())


def test_mistakes_in_callbacks_are_kept(loop: SimLoop) -> None:
    """What nobody catches is not lost: the world fails on it."""
    sleeping(loop, 0.1, lambda: 1 // 0)
    loop.run(asyncio.sleep(1))
    assert len(loop.mistakes) == 1
    assert "ZeroDivisionError" in loop.mistakes[0]
