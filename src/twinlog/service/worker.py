"""A worker process: everything that is started and falls to its share runs here, until it is told to end."""

import asyncio
import logging
import signal
import socket
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from twinlog.admin.mirrors import DESTINATION_LABEL
from twinlog.config.client import ClientSettings
from twinlog.control.records import Change
from twinlog.errors import (
    AuthenticationFailed,
    AuthorizationFailed,
    BadInput,
    GiveWay,
    RefreshLeader,
    RetryLater,
    TakeOverAnew,
    TwinlogError,
)
from twinlog.relay.budget import Budget
from twinlog.relay.destination import Destination
from twinlog.relay.lease import Lease
from twinlog.relay.waiting import cancelled
from twinlog.service.catchup import CatchUp
from twinlog.service.coordinator import Coordinator
from twinlog.service.discovery import Discovery
from twinlog.service.facts import FactFinder
from twinlog.service.figures import Figures
from twinlog.service.http import Endpoints, HttpServer, listening
from twinlog.service.keeper import FAREWELL_WITHIN_S, Keeper
from twinlog.service.last_offsets import LastOffsets
from twinlog.service.logs import TEXT, set_up_logging
from twinlog.service.membership import LEAVE_WITHIN_S, Membership
from twinlog.service.metrics import View
from twinlog.service.shards import RELEASE_WITHIN_S, SAID_WITHIN_S, Shards, lease_id
from twinlog.service.sources import Sources
from twinlog.service.supervisor import Surroundings
from twinlog.service.sweep import Sweep
from twinlog.service.throttle import Throttles
from twinlog.state.log import StateLog
from twinlog.state.writer import StateWriter
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops import has_authorizer
from twinlog.wire.requirements import WRITING, require

log = logging.getLogger("twinlog.worker")

# Fetched and not yet appended, over all partitions: enough to keep two brokers busy, far below the memory we promise.
BUFFER_BYTES = 32 * 1_048_576
CONNECT_WITHIN_S = 30.0
# Pause before the next incarnation: what ended the last one (a fence, brokers that are away) is seldom over at once.
AGAIN_AFTER_S = 1.0
# A renewal that hangs is given up after this and settled anew; the lease has run out by then, so nothing is sent
# meanwhile. Below the 15 s after which the coordinator aborts the transaction by itself.
COMMIT_WITHIN_S = 10.0
# From SIGTERM to the end of the process 10 s are promised. Handing everything over has a bound for each step: the
# partitions, the word about them, the group, the worker's record. What hangs after that is cut off.
END_WITHIN_S, CANCEL_WITHIN_S = RELEASE_WITHIN_S + SAID_WITHIN_S + LEAVE_WITHIN_S + FAREWELL_WITHIN_S, 0.5
# What may pass once a worker has served: credentials (BadInput: their files) and rights are about to be renewed.
_LIVED_THROUGH = (AuthenticationFailed, AuthorizationFailed, BadInput, GiveWay, RetryLater, RefreshLeader, TakeOverAnew)
_CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", None)


def lease_clock() -> float:
    """Seconds on a monotonic clock that is read anew at each call, and that goes on while the machine is suspended.

    The event loop's own clock is no substitute: uvloop's stands still within one turn of the loop.
    """
    return time.clock_gettime(_CLOCK) if _CLOCK is not None else time.monotonic()


class Worker:
    """One incarnation of a worker: one lease, one membership. A worker that was fenced begins a new one."""

    def __init__(self, settings: ClientSettings, endpoints: Endpoints | None = None) -> None:
        self.id = uuid.uuid4().hex[:12]
        self.served = False
        self._settings = settings
        self._endpoints = endpoints or Endpoints()

    async def run(self, stopping: asyncio.Event) -> None:
        """Run until `stopping` is set.

        Raises GiveWay where another worker has fenced this one, UnsupportedVersion where the brokers are too old.
        """
        addresses = ",".join(f"{host}:{port}" for host, port in self._settings.bootstrap)
        self._endpoints.waits_for = f"not connected to the destination cluster at {addresses} yet"
        log.info("connecting to the destination cluster at %s, for %.0f s at most", addresses, CONNECT_WITHIN_S)
        cluster = await Cluster.connect(
            self._settings,
            client_id=f"twinlog-worker-{self.id}",
            timeout_s=CONNECT_WITHIN_S,
            label=DESTINATION_LABEL,
        )
        try:
            await require(cluster, WRITING)
            await self._serve(cluster, stopping)
        finally:
            await cluster.close()

    async def _serve(self, cluster: Cluster, stopping: asyncio.Event) -> None:
        state = await StateLog.open(cluster, create=True)
        image = await state.load(to_stable=True)
        await _tell_of_rights(cluster)
        lease = Lease(lease_clock)
        writer = StateWriter(cluster, state, lease_id(self.id), commit_timeout_s=COMMIT_WITHIN_S, clock=lease_clock)
        await writer.fence()
        figures = Figures(self.id, state.shards)
        keeper = Keeper(writer, lease, worker=self.id, figures=figures)
        sources, destination = Sources(Budget(BUFFER_BYTES)), Destination(cluster)
        facts, throttles = FactFinder(cluster), Throttles(image)
        around = Surroundings(
            image, keeper, lease, sources, destination, facts, throttles, caught_up=CatchUp(state, image)
        )
        shards = figures.shards = Shards(state, around, worker=self.id)
        shards.sightings.note(image.workers.values())
        membership = Membership(
            self._settings, on_gained=shards.gained, on_taken=shards.taken, client_id=f"twinlog-worker-{self.id}"
        )
        coordinator = Coordinator(cluster, state, image, keeper)
        discovery = Discovery(state, image, shards, sources, coordinator)
        last_offsets = LastOffsets(cluster, image, coordinator.acls, sources)
        view = View(self.id, cluster.cluster_id, image, lease, shards, sources, discovery, destination)
        tasks = {
            asyncio.create_task(view.watch(), name="look at the partitions"),
            asyncio.create_task(keeper.run(), name="lease"),
            asyncio.create_task(state.follow(image, partial(_heard, shards, last_offsets)), name="follow the state"),
            asyncio.create_task(membership.watch(), name="membership"),
            asyncio.create_task(Sweep(cluster, shards).run(), name="sweep"),
            asyncio.create_task(discovery.run(), name="discovery"),
            asyncio.create_task(last_offsets.run(discovery.owns), name="last offsets"),
        }
        log.info("worker %s runs on cluster %s, %d shards", self.id, cluster.cluster_id, state.shards)
        self._endpoints.view = view
        self.served = True
        membership.start()
        try:
            await _until_first(tasks, stopping)
            await shards.release_all()
        finally:
            self._endpoints.view, self._endpoints.waits_for = None, "the worker is ending, or about to begin anew"
            await shards.cut_off()
            await membership.leave()
            await _ended(tasks)
            if not lease.is_fenced:
                await keeper.farewell()
            await destination.close()
            await sources.close()
            log.info("worker %s has ended", self.id)


def _heard(shards: Shards, last_offsets: LastOffsets, changes: Sequence[Change]) -> None:
    """Pass on what was written to the state."""
    shards.changed(changes)
    last_offsets.changed(changes)


async def _tell_of_rights(cluster: Cluster) -> None:
    """Say at start where a stock broker cannot keep anybody from writing to a mirrored topic."""
    if not await has_authorizer(cluster):
        log.warning(
            "cluster %s has no authorizer: nobody is kept from writing to mirrored topics. A foreign write is "
            "noticed, and fails its partition.",
            cluster.cluster_id,
        )


async def _until_first(tasks: set["asyncio.Task[None]"], stopping: asyncio.Event) -> None:
    """Return when `stopping` is set; a task that ends by itself has failed, and its error is raised."""
    waiting = asyncio.create_task(stopping.wait(), name="stop")
    try:
        done, _ = await asyncio.wait({*tasks, waiting}, return_when=asyncio.FIRST_COMPLETED)
        for task in done - {waiting}:
            task.result()
    finally:
        waiting.cancel()


async def _ended(tasks: set["asyncio.Task[None]"]) -> None:
    await cancelled(tasks)
    for task in tasks:
        with suppress(asyncio.CancelledError, TwinlogError):
            task.result()


async def _run(settings: ClientSettings, at: socket.socket | None) -> int:
    endpoints = Endpoints()
    server = HttpServer(endpoints, at) if at is not None else None
    try:
        return await _incarnations(settings, endpoints)
    finally:
        if server is not None:
            await server.close()


async def _incarnations(settings: ClientSettings, endpoints: Endpoints) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    served = False  # what fails from the start is a mistake; credentials refused later may be about to be renewed
    while not stopping.is_set():
        worker = Worker(settings, endpoints)
        try:
            await _run_until_told(worker, stopping)
        except _LIVED_THROUGH as error:
            served = served or worker.served
            if not served:
                raise
            log.warning("worker %s was ended by trouble and begins anew: %s", worker.id, error)
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), AGAIN_AFTER_S)
    return 0


async def _run_until_told(worker: Worker, stopping: asyncio.Event) -> None:
    """Run `worker`; told to end, it may do so in order for `END_WITHIN_S`, if it has got anything to hand over."""
    running = asyncio.create_task(worker.run(stopping), name="worker")
    told = asyncio.create_task(stopping.wait(), name="told to end")
    await asyncio.wait({running, told}, return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    if worker.served and not running.done():
        await asyncio.wait({running}, timeout=END_WITHIN_S)
    while not running.done():
        log.warning("what runs here could not be handed over in order, and is cut off")
        running.cancel()
        await asyncio.wait({running}, timeout=CANCEL_WITHIN_S)
    if not running.cancelled():
        running.result()


def run_worker(
    settings: ClientSettings, *, verbose: bool, http: str | None = None, log_format: str = TEXT, log_level: str = ""
) -> int:
    """Run a worker in the foreground until SIGTERM or SIGINT; returns the exit code.

    `http` is the HOST:PORT to serve metrics and health at. Raises BadInput where that cannot be listened at.
    """
    set_up_logging(level=log_level or ("DEBUG" if verbose else "INFO"), form=log_format)
    at = listening(http) if http is not None else None
    try:
        import uvloop  # noqa: PLC0415  # absent on platforms without it
    except ImportError:
        runner = asyncio.Runner()
    else:
        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    with runner:
        return runner.run(_run(settings, at))
