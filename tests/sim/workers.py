"""Worker processes of the simulation: the real service, each in a process that can be frozen and killed.

Only group membership is not the real one (it is librdkafka's, in a thread of its own): `Group` tells each worker what
it gains and loses, as a group would, and as no group should. The protocol must not depend on it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from random import Random
from typing import Any

from tests.sim.loop import PROCESS, Fate, Process, SimLoop

from twinlog.config.client import ClientSettings
from twinlog.errors import GiveWay, RefreshLeader, RetryLater, TakeOverAnew, TwinlogError
from twinlog.service.worker import AGAIN_AFTER_S, Worker

log = logging.getLogger("twinlog.sim")

# A member that says nothing for so long is taken for dead; real groups take 6 s at the least.
SESSION_S = 4.0
HAND_OVER_WITHIN_S = 20.0


class WorkerProcess(Process):
    """A process in which a worker runs, and the group that it finds at its destination."""

    def __init__(self, name: str, group: "Group", *, clock_offset_s: float = 0.0) -> None:
        super().__init__(name, clock_offset_s=clock_offset_s)
        self.group = group


class Member:
    """Stands in for `service.membership.Membership` in one worker."""

    def __init__(
        self,
        _settings: ClientSettings,
        *,
        on_gained: Callable[[Collection[int]], None],
        on_taken: Callable[[Collection[int]], Awaitable[None]],
        client_id: str,
    ) -> None:
        process = PROCESS.get()
        assert isinstance(process, WorkerProcess)
        self.process = process
        self.client_id = client_id
        self.shards: set[int] = set()
        self.left = False
        self._on_gained = on_gained
        self._on_taken = on_taken
        self._group = process.group
        self._ended = asyncio.get_running_loop().create_future()

    def start(self) -> None:
        """Join the group."""
        self._group.join(self)

    async def leave(self) -> None:
        """Leave the group."""
        self.left = True
        self._group.leave(self)

    async def watch(self) -> None:
        """Nothing ends this membership but its worker."""
        await self._ended

    def give(self, shards: Collection[int]) -> None:
        """Say that `shards` are this worker's from now on."""
        self.shards.update(shards)
        log.info("group: %s gets %s", self.process.name, sorted(shards))
        self._in_process(lambda: self._on_gained(sorted(shards)))

    def take(self, shards: Collection[int]) -> "asyncio.Task[None]":
        """Say that `shards` are no longer this worker's; the task ends once it has given them up."""
        self.shards.difference_update(shards)
        log.info("group: %s shall give up %s", self.process.name, sorted(shards))
        return self._group.loop.spawn(self.process, self._take(sorted(shards)), name="hand over")

    async def _take(self, shards: Collection[int]) -> None:
        try:
            await self._on_taken(shards)
        except TwinlogError as error:
            log.info("shards were not handed over: %s", error)

    def _in_process(self, call: Callable[[], None]) -> None:
        loop = self._group.loop
        loop.call_soon(call, context=loop.context_of(self.process))


class Group:
    """Shares the shards among the members that it believes to be alive."""

    def __init__(self, loop: SimLoop, rng: Random, shards: int) -> None:
        self.loop = loop
        self.members: list[Member] = []
        self._rng = rng
        self._shards = shards
        self._moving: set[asyncio.Task[None]] = set()

    def join(self, member: Member) -> None:
        """Let a new member take its share."""
        self.members.append(member)
        self.rebalance()

    def leave(self, member: Member) -> None:
        """Share out what a member had; also what the group does with one that it takes for dead."""
        if member in self.members:
            self.members.remove(member)
            member.shards.clear()
            self.rebalance()

    def expel(self, process: Process) -> None:
        """Take the members of a process for dead; one that lives hears of it when it runs again, and joins anew."""
        for member, had in self.drop(process):
            self.tell(member, had)

    def drop(self, process: Process) -> list[tuple[Member, set[int]]]:
        """Take the members of a process for dead, without their knowing; returns what each had."""
        dropped = [(member, set(member.shards)) for member in self.members if member.process is process]
        for member, _ in dropped:
            self.leave(member)
        return dropped

    def tell(self, member: Member, had: set[int]) -> None:
        """Let a member that was taken for dead hear of it."""
        if member.process.fate is not Fate.DEAD:
            self._note(self._rejoin(member, had))

    def rebalance(self) -> None:
        """Even the shares out; what moves is taken before it is given, or not, as chance will have it."""
        if not self.members:
            return
        owners = {shard: member for member in self.members for shard in member.shards}
        most = -(-self._shards // len(self.members))
        for shard in range(self._shards):
            owner = owners.get(shard)
            if owner is None or len(owner.shards) > most:
                least = min(self.members, key=lambda member: len(member.shards))
                if least is not owner:
                    self.move(shard, owner, least)

    def shuffle(self) -> None:
        """Move a shard for no reason."""
        shard = self._rng.randrange(self._shards)
        owner = next((member for member in self.members if shard in member.shards), None)
        others = [member for member in self.members if member is not owner]
        if others:
            self.move(shard, owner, self._rng.choice(others))

    def move(self, shard: int, owner: Member | None, to: Member) -> None:
        """Give `shard` to `to`, once its owner has handed it over; seldom at once, as no group should."""
        if owner is None:
            to.give([shard])
            return
        handing_over = owner.take([shard])
        to.shards.add(shard)
        patience_s = 0.0 if self._rng.random() < 0.2 else HAND_OVER_WITHIN_S
        self._note(self._give(shard, to, handing_over, patience_s))

    async def _give(self, shard: int, to: Member, handing_over: "asyncio.Task[None]", patience_s: float) -> None:
        await asyncio.wait({handing_over}, timeout=patience_s)
        if to in self.members and shard in to.shards:
            to.give([shard])

    async def _rejoin(self, member: Member, had: set[int]) -> None:
        taken = member.take(had)
        while not taken.done() and member.process.fate is not Fate.DEAD:
            await asyncio.wait({taken}, timeout=HAND_OVER_WITHIN_S)
        if taken.done() and not member.left:
            self.join(member)

    def _note(self, coro: Any) -> None:
        task = self.loop.spawn(None, coro, name="group")
        self._moving.add(task)
        task.add_done_callback(self._moving.discard)


class SimWorker:
    """One worker process; its program is `service.worker`'s, without the signals."""

    def __init__(self, loop: SimLoop, process: WorkerProcess, settings: ClientSettings) -> None:
        self.process = process
        self._loop = loop
        self._settings = settings
        self._stopping = asyncio.Event()
        self.task = loop.spawn(process, self._main(), name=process.name)

    def __repr__(self) -> str:
        return f"SimWorker({self.process})"

    @property
    def running(self) -> bool:
        """Whether its process runs and its program has not been told to end."""
        return self.process.fate is Fate.RUNNING and not self.task.done() and not self._stopping.is_set()

    def stop(self) -> None:
        """As SIGTERM does: end in order."""
        self._loop.call_soon(self._stopping.set, context=self._loop.context_of(self.process))

    async def _main(self) -> None:
        while not self._stopping.is_set():
            try:
                await Worker(self._settings).run(self._stopping)
            except (GiveWay, RetryLater, RefreshLeader, TakeOverAnew) as error:
                log.info("%s begins anew: %s", self.process.name, error)
                await asyncio.sleep(AGAIN_AFTER_S)
