"""The life of one mirror partition under one owner: take over, meet the source's log start, then turn the pump.

Probing until both sides agree, then streaming; any surprise goes back to probing.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol
from uuid import UUID

from twinlog.errors import GiveWay, PartitionFailed, RefreshLeader, RetryLater, TakeOverAnew
from twinlog.names import TopicPartition
from twinlog.relay.decide import Stopped, Terms
from twinlog.relay.destination import Destination, Stream
from twinlog.relay.fetch import Source
from twinlog.relay.inbox import Inbox, SourceFigures
from twinlog.relay.lease import Lease
from twinlog.relay.prefix import fill_prefix, follow_log_start
from twinlog.relay.progress import Nudge, Progress
from twinlog.relay.pump import Pump
from twinlog.relay.tailcheck import Sides
from twinlog.relay.takeover import Bounds, Known, TopicIds, take_over

log = logging.getLogger("twinlog.partition")

# Between two attempts at the same trouble: doubled from the first to the last.
FIRST_BACKOFF_S, LAST_BACKOFF_S = 0.2, 5.0


class Ledger(Protocol):
    """What the relay asks the state to remember, each before the thing it is about is done."""

    async def took_producer(self, progress: Progress) -> None:
        """Remember the partition's producer id; nothing has been written under it yet."""

    async def mirroring(self, progress: Progress) -> None:
        """Remember that both sides agree up to `progress.position`."""

    async def before_long_run(self, progress: Progress, epoch: int) -> None:
        """Remember that the partition's own transactional id may have something open."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What an owner is given with a partition.

    `settle` is false only where the former owner gave the partition up in order. `guard_ms` is for how long the
    destination surely remembers a producer.
    """

    where: TopicPartition
    source_topic_id: UUID
    destination_topic_id: UUID
    fill_id: str
    known: Known
    settle: bool
    compacted: bool
    max_message_bytes: int
    terms: Terms
    guard_ms: int


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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.claim = claim
        self.where = claim.where
        self.figures = SourceFigures()
        self.destination_start = -1
        self._known = claim.known
        self._source = source
        self._destination = destination
        self._lease = lease
        self._ledger = ledger
        self._clock = clock
        self._sides = Sides(source.cluster, destination.cluster)
        self._ids = TopicIds(
            self._sides, claim.where.topic, source=claim.source_topic_id, destination=claim.destination_topic_id
        )
        self._stopping = asyncio.Event()
        self._inbox: Inbox | None = None
        self._pump: Pump | None = None
        self._progress: Progress | None = None
        self.trouble = ""

    def __repr__(self) -> str:
        return f"PartitionRelay({self.where} at {self.position})"

    @property
    def position(self) -> int:
        """The offset behind the last one that is known to be in the destination's log; -1 before the takeover."""
        progress = self._pump.progress if self._pump is not None else self._progress
        return -1 if progress is None else progress.position

    @property
    def progress(self) -> Progress | None:
        """Where it stands; None before the takeover."""
        return self._pump.progress if self._pump is not None else self._progress

    @property
    def streaming_idle(self) -> bool:
        """Whether it streams and nothing is being appended, so that the log end must equal the position."""
        return self._pump is not None and not self._pump.appending and self._inbox is not None

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
        """Mirror until stopped (returns with nothing in flight).

        Raises PartitionFailed where it cannot go on, GiveWay where the lease is lost.
        """
        settle, failures = self.claim.settle, 0
        while not self._stopping.is_set():
            before = self.position
            try:
                await self._stream(await self._take_over(settle=settle))
                return
            except Stopped:
                return
            except TakeOverAnew as error:
                settle, trouble = error.settle, str(error)
            except (RefreshLeader, RetryLater) as error:
                settle, trouble = True, str(error)
            self._remember()
            failures = 0 if self.position > before >= 0 else failures + 1
            await self._back_off(failures, trouble)

    async def _take_over(self, *, settle: bool) -> Progress:
        await self._ids.check()
        claim = self.claim
        try:
            progress, bounds = await take_over(
                self._sides, self.where, self._known, fill_id=claim.fill_id, settle=settle, clock=self._clock
            )
        except PartitionFailed as error:
            raise self._under_lease(error) from error
        self._check_lease()
        if self._known.is_new:
            await self._ledger.took_producer(progress)
        self._progress = progress
        self._remember()
        progress = await self._meet_start(progress, bounds)
        self.trouble = ""
        return progress

    async def _meet_start(self, progress: Progress, bounds: Bounds) -> Progress:
        """Fill up to the source's log start and let the destination's follow; then both sides agree."""
        stream = await self._bind()
        progress = await fill_prefix(self._destination, stream, progress, bounds.source_start)
        if bounds.source_start > bounds.start:
            await follow_log_start(self._sides.destination, self.where, bounds.source_start)
        self.destination_start = max(bounds.start, bounds.source_start)
        self.figures.log_start_offset = bounds.source_start
        self.figures.last_stable_offset = max(self.figures.last_stable_offset, bounds.source_end)
        self.figures.high_watermark = max(self.figures.high_watermark, bounds.source_end)
        self._progress = progress
        self._known = replace(self._known, checked_offset=progress.position)
        await self._ledger.mirroring(progress)
        return progress

    async def _bind(self) -> Stream:
        leader = await self._sides.destination.find_leader(self.where)
        return Stream(
            where=self.where,
            leader=leader,
            lease=self._lease,
            fill_id=self.claim.fill_id,
            compacted=self.claim.compacted,
            max_message_bytes=self.claim.max_message_bytes,
            before_long_run=self._before_long_run,
        )

    async def _stream(self, progress: Progress) -> None:
        """Pump, through any trouble that is only the source's, until something else ends it."""
        stream = await self._bind()
        claim = self.claim
        pump = self._pump = Pump(self._destination, stream, progress, claim.terms, claim.guard_ms)
        failures = 0
        try:
            while True:
                before = pump.progress.position
                try:
                    await self._one_subscription(pump, stream)
                except (RefreshLeader, RetryLater) as error:
                    failures = 0 if pump.progress.position > before else failures + 1
                    await self._back_off(failures, str(error))
                    await self._ids.check()
        except PartitionFailed as error:
            raise self._under_lease(error) from error
        finally:
            self._progress = pump.progress
            self._pump = None

    async def _one_subscription(self, pump: Pump, stream: Stream) -> None:
        if self._stopping.is_set():
            raise Stopped("asked to stop")
        inbox = await self._source.subscribe(
            self.where,
            pump.progress.position,
            topic_id=self.claim.source_topic_id,
            destination_leader=stream.leader.node,
        )
        inbox.figures = self.figures
        self._inbox = inbox
        try:
            if self._stopping.is_set():
                inbox.nudge(Nudge())
            await pump.run(inbox)
        finally:
            self._inbox = None
            self._source.unsubscribe(inbox)

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

    def _check_lease(self) -> None:
        if not self._lease.valid():
            raise RetryLater(f"{self.where}: the lease ran out during the takeover")

    def _under_lease(self, error: PartitionFailed) -> Exception:
        """A mismatch seen by a worker that was frozen meanwhile is its own staleness: the next owner decides."""
        if self._lease.valid():
            return error
        return GiveWay(f"{self.where}: a mismatch was seen without a valid lease, so it is not judged here: {error}")

    async def _back_off(self, failures: int, trouble: str) -> None:
        wait_s = min(LAST_BACKOFF_S, FIRST_BACKOFF_S * 2 ** min(failures, 10))
        self.trouble = trouble
        log.warning("%s; again in %.1f s", trouble, wait_s)
        try:
            async with asyncio.timeout(wait_s):
                await self._stopping.wait()
        except TimeoutError:
            return
        raise Stopped("asked to stop")
