"""An event loop without time: it never waits, it jumps to the next timer, and it runs the same way each time.

Every handle belongs to a *process*, by the context in which it was made. A process can be frozen (its handles, timers
that come due too, are kept back until it thaws) and killed (nothing of it ever runs again), as the kernel does with
SIGSTOP and SIGKILL; the clock goes on meanwhile. What belongs to no process (brokers, the network, the schedule of
faults) always runs.
"""

import asyncio
import contextvars
import heapq
import socket
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from enum import Enum
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

# Nothing here may depend on how far a clock is from zero.
FIRST_S = 1_000.0
# A run that does not come to its end by then has lost its way: a livelock of ours, or of what is tested.
MOST_STEPS, MOST_S = 5_000_000, 3_600.0


class Fate(Enum):
    """What the machine lets a process do."""

    RUNNING = "running"
    FROZEN = "frozen"
    DEAD = "dead"


class Process:
    """One program on some machine; `clock_offset_s` is how far its monotonic clock is from the others'."""

    def __init__(self, name: str, *, clock_offset_s: float = 0.0) -> None:
        self.name = name
        self.clock_offset_s = clock_offset_s
        self.fate = Fate.RUNNING
        self.held: deque[asyncio.Handle] = deque()
        self.held_timers: list[asyncio.TimerHandle] = []

    def __repr__(self) -> str:
        return f"Process({self.name}, {self.fate.value})"


PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("PROCESS", default=None)


class Stuck(Exception):
    """Nothing is left to run, or far too much."""


class SimFuture(asyncio.Future[Any]):
    """A future whose place in a set does not depend on its address."""

    def __init__(self, *, loop: "SimLoop") -> None:
        super().__init__(loop=loop)
        self._hash = next(loop.hashes)

    def __hash__(self) -> int:
        return self._hash


class SimTask(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address."""

    def __init__(self, coro: Coroutine[Any, Any, Any], *, loop: "SimLoop", **options: Any) -> None:
        self._hash = next(loop.hashes)
        super().__init__(coro, loop=loop, **options)

    def __hash__(self) -> int:
        return self._hash


class SimLoop(asyncio.BaseEventLoop):
    """The loop of one simulated world; `run` it once, then `dispose` of it."""

    def __init__(self) -> None:
        super().__init__()
        self.set_debug(False)
        self.steps = 0
        # Of this loop, so that a run does not depend on those before it.
        self.hashes = count(1)
        self.turns = count()
        # Those for the same moment in the order in which they were set.
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self.mistakes: list[str] = []
        self._now_s = FIRST_S
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._note_mistake)

    def __repr__(self) -> str:
        return f"SimLoop({self._now_s - FIRST_S:.3f} s, {self.steps} steps)"

    # Processes

    def context_of(self, process: Process | None) -> contextvars.Context:
        """A context whose handles belong to `process`; None: to nobody, so that they always run."""
        context = contextvars.Context()
        context.run(PROCESS.set, process)
        return context

    def spawn(
        self, process: Process | None, coro: Coroutine[Any, Any, T], *, name: str | None = None
    ) -> "asyncio.Task[T]":
        """Start a task that belongs to `process`, and with it whatever it starts in turn."""
        return self.create_task(coro, name=name, context=self.context_of(process))

    def freeze(self, process: Process) -> None:
        """Stop `process` between two of its steps; one that is under way is its last for now."""
        if process.fate is Fate.RUNNING:
            process.fate = Fate.FROZEN

    def thaw(self, process: Process) -> None:
        """Let `process` go on: first what had arrived for it, then the timers that came due, as a real loop does."""
        if process.fate is not Fate.FROZEN:
            return
        process.fate = Fate.RUNNING
        self._ready.extend(process.held)
        self._ready.extend(sorted(process.held_timers, key=lambda timer: timer.when()))
        process.held.clear()
        process.held_timers.clear()

    def kill(self, process: Process) -> None:
        """End `process` between two of its steps; no `finally` of it runs."""
        process.fate = Fate.DEAD
        process.held.clear()
        process.held_timers.clear()

    # Running

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main`, which belongs to no process, to its end."""
        return self.run_until_complete(self.spawn(None, main, name="main"))

    def dispose(self) -> None:
        """Close the loop and end quietly whatever was frozen, killed or left: nothing of it runs in the world."""
        self._ready.clear()
        self._timers.clear()
        self.close()
        # Their `finally` must find a loop, a closed one: else some of it would go on in a loop of its own.
        asyncio._set_running_loop(self)
        with warnings.catch_warnings(action="ignore"):
            for task in list(self._tasks):
                task._log_destroy_pending = False
                with suppress(BaseException):  # whatever comes of that
                    task.get_coro().close()
            self._tasks.clear()
        asyncio._set_running_loop(None)

    def time(self) -> float:
        """Seconds on the clock that all processes share, but for their offsets."""
        return self._now_s

    def create_future(self) -> SimFuture:
        """Make a future of this loop."""
        return SimFuture(loop=self)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Call something at a moment."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self.turns), timer))
        return timer

    async def getaddrinfo(self, host: Any, port: Any, **_options: Any) -> list[Any]:
        """Every name is its own address."""
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]

    def _run_once(self) -> None:
        ready, timers = self._ready, self._timers
        if not ready:
            self._jump()
        while timers and timers[0][0] <= self._now_s:
            ready.append(heapq.heappop(timers)[2])
        for _ in range(len(ready)):
            self._step(ready.popleft())

    def _jump(self) -> None:
        """Go to the next timer that is not cancelled."""
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not timers or timers[0][0] > FIRST_S + MOST_S or self.steps > MOST_STEPS:
            raise Stuck(f"{self!r} has no end: {len(timers)} timers are left")
        self._now_s = max(self._now_s, timers[0][0])

    def _step(self, handle: asyncio.Handle) -> None:
        if handle.cancelled():
            return
        process = handle._context.get(PROCESS)
        if process is None or process.fate is Fate.RUNNING:
            self.steps += 1
            handle._run()
        elif process.fate is Fate.FROZEN and isinstance(handle, asyncio.TimerHandle):
            process.held_timers.append(handle)
        elif process.fate is Fate.FROZEN:
            process.held.append(handle)

    def _make_task(self, _loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any) -> SimTask:
        task = SimTask(coro, loop=self, **options)
        # Kept until it is over: a killed process's coroutines must not be collected in the middle of a run, since
        # that would run their `finally`.
        self._tasks[task] = None
        task.add_done_callback(self._over, context=self.context_of(None))
        return task

    def _over(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.pop(task, None)

    def _note_mistake(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        places = traceback.extract_tb(error.__traceback__)[-3:] if error is not None else []
        where = ", ".join(f"{Path(place.filename).name}:{place.lineno}" for place in places)
        self.mistakes.append(f"{context.get('message')}: {error!r} at {where}")

    def _write_to_self(self) -> None:
        """Nobody waits for a selector."""

    def _process_events(self, event_list: Any) -> None:
        """No events but timers."""


def sleeping(loop: SimLoop, seconds: float, then: Callable[[], None]) -> asyncio.TimerHandle:
    """Call `then` after so many seconds, as nobody's."""
    return loop.call_later(seconds, then, context=loop.context_of(None))
