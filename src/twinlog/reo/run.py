"""Runs a copy, or says where it stands."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import Any, Final

from twinlog.config.client import ClientSettings
from twinlog.errors import BadInput
from twinlog.relay.budget import Budget
from twinlog.relay.fetch import FetchSettings, Source
from twinlog.relay.waiting import cancelled
from twinlog.reo.copier import Copier
from twinlog.reo.direct import Direct
from twinlog.reo.first_stage import FirstStage
from twinlog.reo.second_stage import SecondStage
from twinlog.reo.settings import Mode, ReoSettings
from twinlog.reo.sharing import Board, Crew, Join, work
from twinlog.reo.stage import Sides, Stage
from twinlog.wire.cluster import Cluster

log = logging.getLogger("twinlog.reo")

CONNECT_WITHIN_S: Final = 60.0
# A transaction under way is ended within this; what is not is aborted by whoever comes next.
END_WITHIN_S: Final = 20.0


class Step(Enum):
    """A step that a process may run, as the names of clients and groups spell it."""

    DIRECT = "0"
    FIRST = "1"
    SECOND = "2"


STAGES: Final[dict[Step, type[Stage[Any]]]] = {
    Step.DIRECT: Direct,
    Step.FIRST: FirstStage,
    Step.SECOND: SecondStage,
}


async def copy(
    settings: ReoSettings, stopping: asyncio.Event, *, join: Join | None = None, board: Board | None = None
) -> None:
    """Copy until `stopping` is set; raises what the copiers raise, and Unreachable for a cluster that is away.

    `join` makes members of the group in which instances share the work; it is needed where shares is above 1.
    """
    board = board or Board()
    if settings.shares > 1 and join is None:
        raise BadInput("shares is above 1, but there is no group to share in.")
    async with AsyncExitStack() as stack:
        sides = await connected(settings, stack)
        board.waits_for = ""
        readers = _readers(sides, Budget(settings.buffer_bytes))
        for reader in readers.values():
            stack.push_async_callback(reader.close)
        await sides.positions().ensure(settings.replication_factor)
        own = asyncio.Event()
        crews = [_Makers(step, sides, reader) for step, reader in readers.items()]
        tasks = {asyncio.create_task(_stage(crew, own, join, board)) for crew in crews}
        told = asyncio.create_task(stopping.wait())
        try:
            await asyncio.wait({*tasks, told}, return_when=asyncio.FIRST_COMPLETED)
            own.set()
            await asyncio.wait(tasks, timeout=END_WITHIN_S)
        finally:
            await cancelled({*tasks, told})
        for task in tasks:
            if not task.cancelled():
                task.result()


def steps_of(settings: ReoSettings) -> tuple[Step, ...]:
    """What this process runs."""
    if settings.mode is Mode.DIRECT:
        return (Step.DIRECT,)
    return (Step.FIRST, Step.SECOND) if settings.stage is None else (Step(str(settings.stage)),)


def _readers(sides: Sides, budget: Budget) -> dict[Step, Source]:
    """What each stage reads from; all shares of a stage read together."""
    made: dict[Step, Source] = {}
    for step in steps_of(sides.settings):
        cluster = sides.destination if step is Step.SECOND else sides.source
        if cluster is None:
            raise BadInput("The source cluster is not configured; only the second stage can do without.")
        settings = FetchSettings(min_bytes=1 if step is Step.SECOND else sides.settings.fetch_min_bytes)
        name = f"{sides.settings.application}-{step.value}"
        made[step] = Source(cluster, mirror=name, settings=settings, budget=budget)
    return made


class _Makers:
    """Makes the copiers of one stage, a new one each time that this instance gets a share."""

    def __init__(self, step: Step, sides: Sides, reader: Source) -> None:
        self.settings = sides.settings
        self.group = f"{self.settings.application}-1" if step is Step.FIRST else self.settings.application
        self._stage = STAGES[step]
        self._sides = sides
        self._reader = reader
        self._stages: dict[int, Stage[Any]] = {}

    def copier(self, share: int) -> Copier[Any]:
        """Make one; once a share has begun here, what it then finds is copied from its beginning."""
        last = self._stages.get(share)
        settings = self.settings if last is None else last.settings
        stage = self._stages[share] = self._stage(replace(self._sides, settings=settings, share=share), self._reader)
        return Copier(stage)


async def _stage(makers: _Makers, stopping: asyncio.Event, join: Join | None, board: Board) -> None:
    """Run one stage: all of it, or what the group gives of it."""
    settings = makers.settings
    if join is None or settings.shares == 1:
        await work(makers.copier(0), stopping, board)
        return
    crew = Crew(makers.copier, board)
    await crew.run(join, group=makers.group, topic=settings.positions_topic, stopping=stopping)


async def connected(settings: ReoSettings, stack: AsyncExitStack) -> Sides:
    """Meet the clusters; `stack` closes them."""
    connect: Callable[[ClientSettings, str], Any] = partial(_connect, settings.application, stack)
    source = None if settings.source is None else await connect(settings.source, "source")
    destination = await connect(settings.destination, "destination")
    return Sides(settings, source, destination)


async def _connect(application: str, stack: AsyncExitStack, settings: ClientSettings, label: str) -> Cluster:
    client_id = settings.client_id or f"twinlog-reo-{application}"
    cluster = await Cluster.connect(settings, client_id=client_id, timeout_s=CONNECT_WITHIN_S, label=label)
    stack.push_async_callback(cluster.close)
    return cluster
