"""Commits what this worker wants to be remembered, and by that renews its lease.

One transaction takes all records that wait; where nothing waits, the worker's own record is written once a second. A
commit that stands is good for the lease from the moment when its first attempt began.
"""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Sequence
from typing import Protocol

from twinlog.control.records import Change, ShardRecord, Tombstone, WorkerRecord
from twinlog.control.sharding import partition_of
from twinlog.errors import GiveWay, RefreshLeader, RetryLater, TakeOverAnew, TwinlogError, UnknownOutcome
from twinlog.relay.lease import Lease
from twinlog.state.writer import StateWriter

log = logging.getLogger("twinlog.lease")

# Several renewals fit into a lease, so that one that fails does not cost it.
RENEW_EVERY_S = 1.0
# How long one attempt to get the id's next epoch may take before the next one begins; the lease has run out by then.
REESTABLISH_WITHIN_S = 10.0
BACKOFF_S = 0.2
# Part of the 10 s in which a worker promises to end; a record left behind only grows old.
FAREWELL_WITHIN_S = 1.0


class Publications(Protocol):
    """What a worker says of its partitions with each commit (`figures.Figures`)."""

    fresh: tuple[int, tuple[int, ...]]

    def due(self) -> Sequence[Change]:
        """Records to commit now."""


class Keeper:
    """The only user of this worker's transactional id."""

    def __init__(self, writer: StateWriter, lease: Lease, *, worker: str, figures: Publications) -> None:
        self.worker = worker
        self.lease = lease
        self._writer = writer
        self._figures = figures
        self._started_ms = _wall_ms()
        self._waiting: list[tuple[Sequence[Change], asyncio.Future[None]]] = []
        self._wake = asyncio.Event()
        self._ending = False

    def __repr__(self) -> str:
        return f"Keeper({self.worker}, {self.lease!r}, {len(self._waiting)} waiting)"

    async def put(self, *changes: Change) -> None:
        """Return once `changes` are committed. Raises GiveWay where this worker has been fenced."""
        if self.lease.is_fenced or self._ending:
            raise GiveWay(f"worker {self.worker} has given its lease up")
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((changes, done))
        self._wake.set()
        await done

    async def run(self) -> None:
        """Commit and renew until cancelled; raises GiveWay once another worker has taken the id."""
        try:
            while True:
                began = time.monotonic()
                await self._turn()
                left_s = RENEW_EVERY_S - (time.monotonic() - began)
                await self._sleep(left_s)
        except GiveWay:
            self.lease.fenced()
            raise
        finally:
            self._ending = True
            self._fail_waiting()

    async def farewell(self) -> None:
        """Remove this worker's record, after `run` has ended; where that fails, it only grows old."""
        try:
            async with asyncio.timeout(FAREWELL_WITHIN_S):
                if not self._writer.settled:
                    await self._writer.reestablish(timeout_s=FAREWELL_WITHIN_S)
                await self._writer.commit([Tombstone(("worker", self.worker))])
        except (TwinlogError, TimeoutError) as error:
            log.info("worker %s could not remove its record: %s", self.worker, error)

    async def _sleep(self, seconds: float) -> None:
        """Until something waits, at most `seconds`."""
        try:
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _turn(self) -> None:
        self._wake.clear()
        taken, self._waiting = self._waiting, []
        changes = [change for group, _ in taken for change in group]
        try:
            await self._commit([*changes, *self._figures.due()])
        except BaseException as error:  # also a cancellation: those who wait must hear of it
            for _, done in taken:
                if not done.done():
                    done.set_exception(_passed_on(error))
            raise
        for _, done in taken:
            if not done.done():
                done.set_result(None)

    async def _commit(self, changes: Sequence[Change]) -> None:
        """Commit until it stands. The same records again do no harm: each replaces itself.

        But for shards that were given up: where that stood already, another worker may own them by now, and what lies
        in them is its to write. So nothing in them is said twice; at worst they look held, and the next owner fences
        us.

        Each attempt has a beat of its own: whoever fences us counts the lease from when it saw the beat that stands.
        """
        while True:
            try:
                committed = await self._writer.commit([*changes, self._beat()])
            except (UnknownOutcome, RetryLater, RefreshLeader, TakeOverAnew) as error:
                log.warning("the lease could not be renewed: %s", error)
                if isinstance(error, UnknownOutcome):
                    changes = _sayable_again(changes, self._writer.shards)
                await self._settle()
                continue
            self.lease.renewed(committed.first_attempt_began)
            return

    async def _settle(self) -> None:
        while True:
            await asyncio.sleep(BACKOFF_S)
            try:
                await self._writer.reestablish(timeout_s=REESTABLISH_WITHIN_S)
            except RetryLater as error:
                log.warning("the lease could not be re-established: %s", error)
            else:
                return

    def _beat(self) -> WorkerRecord:
        place = (socket.gethostname(), os.getpid())
        return WorkerRecord(self.worker, *place, self._started_ms, _wall_ms(), *self._figures.fresh)

    def _fail_waiting(self) -> None:
        for _, done in self._waiting:
            if not done.done():
                done.set_exception(GiveWay(f"worker {self.worker} has given its lease up"))
        self._waiting = []


def _sayable_again(changes: Sequence[Change], shards: int) -> list[Change]:
    """Without what lies in shards that are given up in the same breath, but for the worker's own record."""
    given_up = {change.shard for change in changes if isinstance(change, ShardRecord) and not change.held}
    return [
        change for change in changes if isinstance(change, WorkerRecord) or partition_of(change, shards) not in given_up
    ]


def _passed_on(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else GiveWay("the worker is ending")


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
