"""Waiting that is called off when somebody asks to stop, and the ending of tasks."""

import asyncio
from collections.abc import Collection, Coroutine
from typing import Any, TypeVar

from twinlog.relay.decide import Stopped

T = TypeVar("T")

# Under Python 3.11 a task may survive a cancellation that meets a timeout; it is repeated until the task is over.
CANCEL_AGAIN_S = 0.5


async def unless(asked: asyncio.Event, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`; once `asked` is set, `work` is cancelled and Stopped raised.

    For what sends nothing to a mirror partition's log: a cluster that is away may take long to be given up.
    """
    working = asyncio.create_task(work)
    waiting = asyncio.create_task(asked.wait())
    try:
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
    finally:
        waiting.cancel()
        await cancelled({working})
    raise Stopped("asked to stop")


def may_be_left(task: "asyncio.Task[Any]") -> None:
    """Let the error of a task that several wait for be nobody's trouble where all of them have given up by then."""
    task.add_done_callback(lambda done: done.cancelled() or done.exception())


async def cancelled(tasks: Collection["asyncio.Task[Any]"]) -> None:
    """Cancel `tasks` and wait until all of them are over; what came of them is left for the caller to ask."""
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=CANCEL_AGAIN_S)
