"""One flight for many passengers: callers that want the same thing at once share one piece of work."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from typing import Any, TypeVar, cast

from twinlog.errors import ConnectionLost

T = TypeVar("T")


class Flights:
    """Runs at most one piece of work for each key; it goes on when a waiting caller is cancelled."""

    def __init__(self, closed_text: str) -> None:
        self._closed_text = closed_text
        self._closed: bool = False
        self._running: dict[Hashable, asyncio.Task[Any]] = {}

    async def join(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Wait for the work under `key`, starting it when none is under way.

        Raises whatever the work raises, and ConnectionLost when `land` ended it.
        """
        if self._closed:
            raise ConnectionLost(self._closed_text)
        task = self._running.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(work())
            self._running[key] = task
            task.add_done_callback(partial(self._landed, key))
        try:
            return cast("T", await asyncio.shield(task))
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if task.cancelled() and not (caller is not None and caller.cancelling()):  # cancelled by `land` alone
                raise ConnectionLost(self._closed_text) from None
            raise

    async def land(self) -> None:
        """Cancel all work, wait for its end, and take no more."""
        self._closed = True
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _landed(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        del self._running[key]
        if not task.cancelled():
            # Asked for, so that a failure whose callers were all cancelled is not reported as forgotten.
            task.exception()
