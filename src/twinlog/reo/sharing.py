"""Several instances at one copy: Kafka's group membership deals the shares out, the transactional ids fence them.

A share is a partition of the topic of positions, so the group subscribes to that topic. An instance that lost a share
without noticing can still write to the proxy topic, where nothing is lost by it, but nowhere else.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Any, Final, Protocol

from twinlog.relay.waiting import cancelled
from twinlog.reo.copier import Copier
from twinlog.reo.stage import TakenOver
from twinlog.reo.watching import watch

log = logging.getLogger("twinlog.reo")

# Longer than a member that fell silent is kept in the group: by then this instance knows whether the share is its own.
AGAIN_AFTER_S: Final = 8.0
# A transaction under way is ended within this, or is left to whoever comes next.
HAND_OVER_WITHIN_S: Final = 15.0


class Member(Protocol):
    """One instance in the group."""

    def start(self) -> None:
        """Join."""

    async def leave(self) -> None:
        """Leave at once."""

    async def watch(self) -> None:
        """Wait until cancelled; raises what ended the membership."""


class Join(Protocol):
    """Makes a member of `group` that divides the partitions of `topic` on the destination."""

    def __call__(
        self,
        *,
        group: str,
        topic: str,
        on_gained: Callable[[Collection[int]], None],
        on_taken: Callable[[Collection[int]], Awaitable[None]],
    ) -> Member:
        """Make it; nothing is joined yet."""


class Board:
    """The copiers that are at work in this process, for whoever asks how it goes."""

    def __init__(self) -> None:
        self.copiers: list[Copier[Any]] = []
        self.waits_for = "the clusters have not been reached"


async def work(copier: Copier[Any], stopping: asyncio.Event, board: Board) -> None:
    """Run one copier to its end."""
    board.copiers.append(copier)
    watching = asyncio.create_task(watch(copier))
    try:
        await copier.run(stopping)
    finally:
        await cancelled({watching})
        board.copiers.remove(copier)
        copier.close()


class Crew:
    """What one instance has of one stage: a copier for each share that the group gives it."""

    def __init__(self, make: Callable[[int], Copier[Any]], board: Board) -> None:
        self._make = make
        self._board = board
        self._tasks: dict[int, tuple[asyncio.Task[None], asyncio.Event]] = {}
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, join: Join, *, group: str, topic: str, stopping: asyncio.Event) -> None:
        """Be a member until `stopping` is set; raises what ends a copier for good."""
        member = join(group=group, topic=topic, on_gained=self._gained, on_taken=self._taken)
        member.start()
        waiting: set[asyncio.Task[Any]] = {
            asyncio.create_task(member.watch()),
            asyncio.create_task(stopping.wait()),
            asyncio.create_task(_outcome(self._failed)),
        }
        try:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await self._taken(list(self._tasks))
            await member.leave()
            await cancelled(waiting)

    def _gained(self, shares: Collection[int]) -> None:
        for share in shares:
            if share not in self._tasks:
                ending = asyncio.Event()
                task = asyncio.create_task(self._serve(share, ending), name=f"share {share}")
                self._tasks[share] = task, ending
        log.info("the group gave this instance the shares %s", sorted(shares))

    async def _taken(self, shares: Collection[int]) -> None:
        leaving = {self._tasks.pop(share) for share in shares if share in self._tasks}
        if not leaving:
            return
        for _, ending in leaving:
            ending.set()
        tasks = {task for task, _ in leaving}
        await asyncio.wait(tasks, timeout=HAND_OVER_WITHIN_S)
        await cancelled(tasks)

    async def _serve(self, share: int, ending: asyncio.Event) -> None:
        try:
            while not ending.is_set():
                try:
                    await work(self._make(share), ending, self._board)
                except TakenOver as taken:
                    log.warning("share %d: %s", share, taken)
                    with suppress(TimeoutError):
                        async with asyncio.timeout(AGAIN_AFTER_S):
                            await ending.wait()
        except Exception as error:  # noqa: BLE001  # whatever it is, the instance must end with it and say so
            if not self._failed.done():
                self._failed.set_exception(error)


async def _outcome(failed: "asyncio.Future[None]") -> None:
    await failed
