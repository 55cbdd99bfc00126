"""The life of one mirror partition under one owner: take over, meet the source's log start, then turn the pump.

Probing until both sides agree, then streaming; any surprise goes back to probing.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol
from uuid import UUID

from twinlog.errors import (
    GiveWay,
    LogsDiffer,
    PartitionFailed,
    RefreshLeader,
    RetryLater,
    SourceBehind,
    TakeOverAnew,
    TwinlogError,
)
from twinlog.names import TopicPartition
from twinlog.relay.counts import Counts
from twinlog.relay.decide import ADVICE, TRUNCATED, Stopped, Terms
from twinlog.relay.destination import Destination
from twinlog.relay.fetch import Source
from twinlog.relay.filling import Filling
from twinlog.relay.firstcopy import FirstCopy, Memory
from twinlog.relay.inbox import Inbox, SourceFigures
from twinlog.relay.lease import Lease
from twinlog.relay.prefix import fill_prefix, follow_log_start
from twinlog.relay.progress import Nudge, Progress
from twinlog.relay.pump import Pump
from twinlog.relay.settle import TRUE_END
from twinlog.relay.stream import Gate, Route, Stream, Throttle
from twinlog.relay.tailcheck import Sides
from twinlog.relay.takeover import Bounds, Known, take_over
from twinlog.relay.topic_ids import TopicIds
from twinlog.relay.waiting import cancelled, unless
from twinlog.relay.window import Window

log = logging.getLogger("twinlog.partition")

# Between two attempts at the same trouble: doubled from the first to the last.
FIRST_BACKOFF_S, LAST_BACKOFF_S = 0.2, 5.0
# For how long the source may lack what the destination has, before that is taken for good.
SOURCE_BEHIND_S = 30.0
# For how long an end in order waits for the high watermark; without it the next owner settles.
REST_WITHIN_S = 3.0


class Ledger(Memory, Protocol):
    """What the relay asks the state to remember, each before the thing it is about is done."""

    async def took_producer(self, progress: Progress) -> None:
        """Remember the partition's producer id; nothing has been written under it yet."""

    async def took_spare(self, progress: Progress) -> None:
        """Remember the producer id that takes over when the present one's epochs run out."""

    async def mirroring(self, progress: Progress) -> None:
        """Remember that both sides agree up to `progress.position`."""

    async def before_long_run(self, progress: Progress, epoch: int) -> None:
        """Remember that the partition's own transactional id may have something open."""

    async def fills(self, first: int) -> None:
        """Remember that filler is written below offset `first`, where the log is to start."""

    async def closed_off(self, progress: Progress) -> None:
        """Remember that the partition's own transactional id has nothing open."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What an owner is given with a partition.

    `settle` is false only where the former owner gave the partition up in order. `guard_ms` is for how long the
    destination surely remembers a producer, `apart_s` how far apart two looks are that shall agree on a deletion.
    `start_offset` is where a first copy begins; -1: at the source's beginning. Up to `shared_until` what a first
    takeover finds is recorded to be the source's. Small batches are joined up to `join_bytes`; 0: none.
    """

    where: TopicPartition
    source_topic_id: UUID
    destination_topic_id: UUID
    fill_id: str
    known: Known
    settle: bool
    compacted: bool
    max_batch_bytes: int
    terms: Terms
    guard_ms: int
    apart_s: float = 1.0
    start_offset: int = -1
    shared_until: int = -1
    join_bytes: int = 0


class PartitionRelay:
    """Mirrors one partition until it is stopped, fails, or has to give way."""

    def __init__(
        self,
        claim: Claim,
        *,
        source: Source,
        destination: Destination,
        lease: Lease,
        ledger: Ledger,
        counts: Counts | None = None,
        throttle: Throttle | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.claim = claim
        self._counts = counts or Counts()
        self._throttle = throttle
        self.where = claim.where
        self.figures = SourceFigures()
        # Where the destination's log starts, as it was told last, and where it is to start at least.
        self.destination_start = self.first_offset = -1
        self._known = claim.known
        self._source = source
        self._destination = destination
        self._lease = lease
        self._ledger = ledger
        self._clock = clock
        self._sides = Sides(source.lookups, destination.lookups)
        self._ids = TopicIds(
            self._sides,
            claim.where.topic,
            source=claim.source_topic_id,
            destination=claim.destination_topic_id,
            apart_s=claim.apart_s,
        )
        self._stopping = asyncio.Event()
        self._inbox: Inbox | None = None
        self._pump: Pump | None = None
        self._progress: Progress | None = None
        self._route: Route | None = None
        self._copy = FirstCopy(
            self._sides, self.where, ledger, copy=claim.known.copy, max_batch_bytes=claim.max_batch_bytes
        )
        self._filling: Filling | None = None
        self._behind_since: float | None = None
        # Whether something may still be under way to the destination whose outcome nobody knows.
        self.unsettled = claim.settle

    def __repr__(self) -> str:
        return f"PartitionRelay({self.where} at {self.position})"

    @property
    def position(self) -> int:
        """The offset behind the last one that is known to be in the destination's log; -1 before the takeover."""
        progress = self._pump.progress if self._pump is not None else self._progress
        return -1 if progress is None else progress.position

    @property
    def confirmed(self) -> int:
        """The offset up to which all in-sync replicas of the destination have the log; -1 before the takeover."""
        window = self._window
        return self.position if window is None else min(self.position, window.confirmed)

    @property
    def _window(self) -> Window | None:
        return None if self._route is None else self._route.line.window

    @property
    def progress(self) -> Progress | None:
        """Where it stands; None before the takeover."""
        return self._pump.progress if self._pump is not None else self._progress

    @property
    def streaming_idle(self) -> bool:
        """Whether it streams and nothing is being appended, so that the log end must equal the position."""
        return self._pump is not None and not self._pump.appending and self._inbox is not None

    @property
    def asks_source(self) -> bool:
        """Whether the source owes it an answer: not while what was fetched waits for the destination."""
        return self._inbox is None or self._inbox.has_room

    def stop(self) -> None:
        """Ask it to end in order; what is in flight is awaited."""
        self._stopping.set()
        if self._inbox is not None:
            self._inbox.nudge(Nudge())

    def surprise(self, what: str) -> None:
        """Tell it that the destination is not where it should be: it reads the log again."""
        if self._inbox is not None:
            self._inbox.nudge(Nudge(what))

    async def run(self) -> None:
        """Mirror until stopped; `unsettled` tells whether something may still be under way by then.

        Raises PartitionFailed where it cannot go on, GiveWay where the lease is lost.
        """
        try:
            await self._run()
        finally:
            if self._route is not None:
                self._destination.close_route(self._route)

    async def _run(self) -> None:
        settle, failures = self.claim.settle, 0
        while not self._stopping.is_set():
            before = self.position
            try:
                await self._stream(await self._take_over(settle=settle or self.unsettled))
                return
            except Stopped:
                return
            except SourceBehind as error:
                settle, trouble = True, str(error)
                await self._behind(error)
            except TakeOverAnew as error:
                settle, trouble = error.settle, str(error)
                self.unsettled = self.unsettled or settle
            except (RefreshLeader, RetryLater) as error:
                settle, trouble = True, str(error)
            self._remember()
            failures = 0 if self.position > before >= 0 else failures + 1
            with suppress(Stopped):
                await self._back_off(failures, trouble)

    async def _take_over(self, *, settle: bool) -> Progress:
        await unless(self._stopping, self._ids.check())
        claim = self.claim
        # What a long run has open is aborted now, and its markers come some time after.
        self.unsettled = self.unsettled or self._known.long_runs
        reading = take_over(
            self._sides,
            self.where,
            self._known,
            fill_id=claim.fill_id,
            compacted=claim.compacted,
            settle=settle,
            clock=self._clock,
            start_offset=claim.start_offset,
            shared_until=claim.shared_until,
        )
        try:
            progress, bounds = await unless(self._stopping, reading)
        except LogsDiffer as error:
            raise self._under_lease(self._told_apart(error)) from error
        except PartitionFailed as error:
            raise self._under_lease(error) from error
        self.unsettled = False
        self._counts.takeovers += 1
        # Before the route and its window are gone: until then they say what of the former stream is confirmed.
        self._check_lease()
        self._close_route()
        fresh = self._known.is_new
        if fresh:
            await self._ledger.took_producer(progress)
        self._progress = progress
        self._behind_since = None
        self._remember()
        return await self._meet_start(progress, bounds, fresh=fresh)

    async def _meet_start(self, progress: Progress, bounds: Bounds, *, fresh: bool) -> Progress:
        """Fill up to the source's log start and let the destination's follow; then both sides agree."""
        stream = await self._bind(progress.position)
        if progress.position < bounds.first:
            progress = await self._fill(stream, progress, bounds.first)
        self.first_offset = bounds.first
        if bounds.first > bounds.start:
            await follow_log_start(
                self._sides.destination.cluster, self.where, bounds.first, self.claim.destination_topic_id
            )
        self.destination_start = max(bounds.start, bounds.first)
        self.figures.told_at = time.monotonic()
        self.figures.log_start_offset = bounds.source_start
        self.figures.last_stable_offset = max(self.figures.last_stable_offset, bounds.source_end)
        self.figures.high_watermark = max(self.figures.high_watermark, bounds.source_end)
        self._progress = progress
        self._known = replace(self._known, checked_offset=progress.position, skip_lost=False)
        may_fill = (fresh or not self._copy.copy.over) and self.claim.compacted and self.claim.terms.may_blank
        beginning = self._copy.begin(progress, bounds, may_fill=may_fill)
        self._filling = await unless(self._stopping, beginning)
        if self._copy.copy.over:
            await self._ledger.mirroring(progress)
        return progress

    async def _fill(self, stream: Stream, progress: Progress, first: int) -> Progress:
        """Fill up to `first`; what a next owner has to know of it is stored before."""
        await self._ledger.fills(first)
        self._known = replace(self._known, first_offset=first)
        self._check_lease()
        hidden = self.claim.terms.may_blank
        filled = await fill_prefix(self._destination, stream, progress, first, self._filled, hidden=hidden)
        if filled.closed_off:
            await self._ledger.closed_off(filled.progress)
            self._known = replace(self._known, long_runs=False)
        return filled.progress

    def _filled(self, progress: Progress) -> None:
        """Let the figures show how far a prefix is filled; a worker that stops or loses its lease fills no more."""
        self._progress = progress
        if self._stopping.is_set():
            raise Stopped("asked to stop")
        if not self._lease.valid():
            raise RetryLater(f"{self.where}: the lease ran out while the log's beginning was filled")

    def _confirmed_progress(self) -> Progress | None:
        progress = self.progress
        return None if progress is None else replace(progress, position=self.confirmed)

    async def _bind(self, position: int) -> Stream:
        leader = await self._sides.destination.cluster.find_leader(self.where)
        self._close_route()
        route = self._route = self._destination.open_route(self.where, leader, self._lease, position)
        if route.line.window is not None:
            route.line.window.on_lost = self._lost
        return Stream(
            where=self.where,
            leader=leader,
            lease=self._lease,
            fill_id=self.claim.fill_id,
            compacted=self.claim.compacted,
            max_batch_bytes=self.claim.max_batch_bytes,
            before_long_run=self._before_long_run,
            took_spare=self._took_spare,
            route=route,
            counts=self._counts,
            gate=None if self._throttle is None else Gate(self._throttle, self.where, self._stopping),
        )

    def _close_route(self) -> None:
        if self._route is not None:
            self._destination.close_route(self._route)
            self._route = None

    def _lost(self, reason: str) -> None:
        self.surprise(f"{self.where}: {reason}, and offsets from {self.confirmed} on may not have outlived that")

    async def _come_to_rest(self) -> None:
        """Wait for the high watermark, so that the next owner need not settle."""
        window = self._window
        if window is not None and not await window.drained(REST_WITHIN_S):
            self.unsettled = True

    async def _stream(self, progress: Progress) -> None:
        """Pump, through any trouble that is only the source's, until something else ends it."""
        stream = await self._bind(progress.position)
        claim = self.claim
        pump = self._pump = Pump(self._destination, stream, progress, claim.terms, claim.guard_ms, claim.join_bytes)
        pump.filling = self._filling
        finishing = asyncio.create_task(self._copy.finish(self._confirmed_progress), name=f"first copy {self.where}")
        failures = 0
        try:
            while True:
                before = pump.progress.position
                try:
                    await self._one_subscription(pump, stream)
                except (RefreshLeader, RetryLater) as error:
                    failures = 0 if pump.progress.position > before else failures + 1
                    await self._back_off(failures, str(error))
                    await unless(self._stopping, self._ids.check())
        except Stopped:
            await self._come_to_rest()
            raise
        except PartitionFailed as error:
            raise self._under_lease(error) from error
        finally:
            await cancelled({finishing})
            if self._window is not None and not self._window.empty:
                self.unsettled = True
            self._progress = pump.progress
            self._pump = None

    async def _one_subscription(self, pump: Pump, stream: Stream) -> None:
        if self._stopping.is_set():
            raise Stopped("asked to stop")
        if stream.window is not None and stream.window.lost is not None:
            raise TakeOverAnew(f"{self.where}: {stream.window.lost}")
        subscribing = self._source.subscribe(
            pump.progress,
            topic_id=self.claim.source_topic_id,
            destination_leader=stream.leader.node,
        )
        inbox = await unless(self._stopping, subscribing)
        inbox.figures = self.figures
        self._inbox = inbox
        try:
            if stream.window is not None and stream.window.lost is not None:
                # Lost while it was subscribed, when there was nobody to be told.
                self._lost(stream.window.lost)
            if self._stopping.is_set():
                inbox.nudge(Nudge())
            await pump.run(inbox)
        finally:
            self._inbox = None
            self._source.unsubscribe(inbox)

    async def _took_spare(self, progress: Progress) -> None:
        spare = progress.spare_producer_id
        if spare is not None:
            await self._ledger.took_spare(progress)
            self._known = replace(self._known, spare_producer_id=spare)

    async def _before_long_run(self, epoch: int) -> None:
        progress = self.progress
        if progress is not None:
            await self._ledger.before_long_run(progress, epoch)
        self._known = replace(self._known, long_runs=True, producer_epoch=epoch)

    def _remember(self) -> None:
        """Keep what a later takeover by this same owner needs to know of the producer."""
        progress = self.progress
        if progress is not None:
            self._known = replace(
                self._known,
                producer_id=progress.producer_id,
                producer_epoch=max(progress.spent_epoch, progress.epoch),
            )
            if self._known.checked_offset >= 0:
                self._known = replace(self._known, checked_offset=self.confirmed)

    async def _behind(self, error: SourceBehind) -> None:
        """A new leader of the source may not yet show for a moment what it has; what it has not is never waited for."""
        now = self._clock()
        self._behind_since = now if self._behind_since is None else self._behind_since
        source_end = await self._source_end()
        if 0 <= source_end < self._known.checked_offset and self._is_same_source:
            raise self._under_lease(self._truncated(source_end))
        if now - self._behind_since > SOURCE_BEHIND_S or 0 <= source_end < error.end:
            raise self._under_lease(
                PartitionFailed(
                    f"{error}. Either somebody else wrote to the mirror topic, or the source was truncated. Nothing "
                    f"more is written. Stop the topic, keep what you need of it, delete the destination topic and "
                    f"start it again."
                )
            )

    async def _source_end(self) -> int:
        """Where the log of the source's leader ends, with what is undecided; -1 where that cannot be told."""
        try:
            return await unless(self._stopping, self._sides.source.offset(self.where, TRUE_END))
        except (TwinlogError, Stopped):
            return -1

    @property
    def _is_same_source(self) -> bool:
        """Whether the source's topic is surely the one that was mirrored; brokers before 2.8 have no ids to tell by."""
        return self.claim.source_topic_id.int != 0

    def _told_apart(self, error: LogsDiffer) -> PartitionFailed:
        """It is the source that has changed where it no longer has what the mirror wrote and found equal before."""
        changed = 0 <= error.rewritten_at < self._known.checked_offset and self._is_same_source
        return self._truncated(error.rewritten_at) if changed else error

    def _truncated(self, offset: int) -> PartitionFailed:
        return PartitionFailed(
            f"{self.where}: {TRUNCATED}: it diverges from what was mirrored at offset {offset}, both sides were the "
            f"same up to {self._known.checked_offset}. {ADVICE}"
        )

    def _check_lease(self) -> None:
        if not self._lease.valid():
            raise RetryLater(f"{self.where}: the lease ran out during the takeover")

    def _under_lease(self, error: PartitionFailed) -> Exception:
        """A mismatch seen by a worker that was frozen meanwhile is its own staleness: the next owner decides."""
        if self._lease.valid():
            return error
        return GiveWay(f"{self.where}: a mismatch was seen without a valid lease, so it is not judged here: {error}")

    async def _back_off(self, failures: int, trouble: str) -> None:
        self._counts.retries += 1
        wait_s = min(LAST_BACKOFF_S, FIRST_BACKOFF_S * 2 ** min(failures, 10))
        log.warning("%s; again in %.1f s", trouble, wait_s)
        try:
            async with asyncio.timeout(wait_s):
                await self._stopping.wait()
        except TimeoutError:
            return
        raise Stopped("asked to stop")
