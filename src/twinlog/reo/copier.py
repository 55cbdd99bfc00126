"""One copy at work: transactions of what the source has, each with the positions it reaches.

Whatever fails ends the transaction: the own transactional id is initialised anew, which settles its outcome, and the
positions are read again. They tell where to go on; nothing is ever sent again on a guess.
"""

import asyncio
import logging
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final
from uuid import UUID

from twinlog.batch.view import Batch
from twinlog.errors import BadInput, GiveWay, TwinlogError
from twinlog.names import TopicPartition
from twinlog.relay.budget import Budget
from twinlog.relay.decide import Terms, decide
from twinlog.relay.fetch import FetchSettings, Source
from twinlog.relay.inbox import Inbox
from twinlog.relay.progress import Forward, Progress, Refetch, Verdict
from twinlog.reo.plan import Shape, pieces, wanted
from twinlog.reo.positions import Place, Position, Positions, encoded
from twinlog.reo.sender import NotSent, Refusal, Sender
from twinlog.reo.settings import ReoSettings
from twinlog.reo.topics import Route, routes, starts
from twinlog.wire import codes
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops import EARLIEST, Producer, add_partitions, end_txn, init_producer_id, one_offset

log = logging.getLogger("twinlog.reo")

TOO_LARGE: Final = frozenset({codes.MESSAGE_TOO_LARGE, codes.RECORD_LIST_TOO_LARGE})
# What concerns one partition alone: it waits and is tried again, the others go on.
OF_A_PARTITION: Final = TOO_LARGE | {
    codes.NOT_ENOUGH_REPLICAS,
    codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    codes.TOPIC_AUTHORIZATION_FAILED,
    codes.INVALID_TIMESTAMP,
    codes.INVALID_RECORD,
}
FIRST_PAUSE_S: Final = 0.2
MOST_PAUSE_S: Final = 10.0
PRODUCE_WITHIN_S: Final = 30.0
TRANSACTION_BYTES: Final = 64 << 20
IDLE_S: Final = 0.01
LOOK_EVERY_S: Final = 5.0
TERMS: Final = Terms()


class TakenOver(GiveWay):
    """Another copy writes under the transactional id now, or the destination ended what this one left open."""


@dataclass(slots=True, eq=False)
class Part:
    """A source partition and where its copy stands; `error` is why it waits until `again_at` (monotonic seconds).

    `barrier` is the source offset of a batch that was refused: what lies before it is copied and committed first.
    """

    where: TopicPartition
    route: Route
    place: Place
    shape: Shape
    position: int = 0
    epoch: int = -1
    inbox: Inbox | None = None
    limit_bytes: int | None = None
    barrier: int | None = None
    error: str = ""
    told: str = ""
    failures: int = 0
    again_at: float = 0.0

    def progress(self) -> Progress:
        """As the reading of the source wants it."""
        return Progress(self.where, self.position, -1, 0, 0, 0, source_epoch=self.epoch)

    def record(self) -> Position:
        """As it is written down."""
        return Position(
            self.position, self.epoch, self.route.target, self.route.target_id, int(time.time() * 1000), self.error
        )

    def stop_for(self, error: str) -> None:
        """Wait, longer each time, before the next attempt."""
        if error != self.error:
            log.error("%s stops and is tried again: %s", self.where, error)
        self.error = error
        self.failures += 1
        self.again_at = time.monotonic() + _pause_s(self.failures)


class Copier:
    """Copies until told to stop; one object is one owner of the transactional id."""

    def __init__(self, settings: ReoSettings, source: Cluster, destination: Cluster) -> None:
        self._settings = settings
        self._destination = destination
        self._origin = source
        self._positions = Positions(destination, settings.positions_topic)
        self._source = Source(
            source,
            mirror=settings.application,
            settings=FetchSettings(min_bytes=settings.fetch_min_bytes),
            budget=Budget(settings.buffer_bytes),
        )
        self._parts: list[Part] = []
        self._routes: list[Route] = []
        self._look_at = 0.0
        self._producer: Producer | None = None
        self._sender: Sender | None = None

    async def run(self, stopping: asyncio.Event) -> None:
        """Copy until `stopping` is set.

        Raises TakenOver where another copy writes now, BadInput for what is refused.
        """
        failures = 0
        while not stopping.is_set():
            try:
                await self._round(stopping)
                failures = 0
            except (BadInput, TakenOver):
                raise
            except TwinlogError as error:
                self._sender = None
                if not self._concerns_one(error):
                    failures += 1
                    log.warning("a transaction was given up and begins again: %s", error)
                    await _pause(failures, stopping)

    async def close(self) -> None:
        """End all reading."""
        for part in self._parts:
            self._leave(part)
        await self._source.close()

    # Beginning, and beginning again

    async def _round(self, stopping: asyncio.Event) -> None:
        if time.monotonic() >= self._look_at:
            await self._look()
        if self._producer is None:
            await self._begin()
        elif self._sender is None:
            await self._recover(self._producer)
        await self._subscribe_due()
        if any(part.inbox is not None and part.inbox.waiting is not None for part in self._parts) or self._untold():
            await self._transaction(stopping)
        else:
            await asyncio.sleep(IDLE_S)

    async def _look(self) -> None:
        """Begin anew where topics or partitions were added or created again meanwhile."""
        self._look_at = time.monotonic() + LOOK_EVERY_S
        if self._producer is None:
            return
        try:
            found = await routes(self._settings, self._origin, self._destination)
        except BadInput as problem:
            # Partitions that are gone stop by themselves; the others go on.
            log.warning("the topics are not as they were: %s", problem)
            return
        if found != self._routes:
            log.info("topics or partitions have changed; beginning anew")
            self._producer = self._sender = None

    async def _begin(self) -> None:
        for part in self._parts:
            self._leave(part)
        settings, source, destination = self._settings, self._origin, self._destination
        found = await routes(settings, source, destination)
        await self._positions.ensure(settings.replication_factor)
        # From here on nobody else's transaction can change the positions.
        producer = await init_producer_id(
            destination, settings.transactional_id, timeout_ms=settings.transaction_timeout_ms
        )
        await self._positions.refresh()
        parts: list[Part] = []
        for route in found:
            begins = await starts(settings, route, self._positions.known, source, destination)
            parts += [self._part(route, where, *begin) for where, begin in begins.items()]
        self._parts, self._routes, self._producer = parts, found, producer
        self._sender = self._new_sender(producer)
        unknown = [part for part in parts if self._positions.known.get(part.place) is None or settings.start_from]
        if unknown:
            await self._commit(self._sender, set(), unknown)
        # It was said for what is lost now, not for what may be lost one day.
        self._settings = replace(settings, start_from=None)
        log.info("%s copies %d partitions", settings.transactional_id, len(parts))

    def _part(self, route: Route, where: TopicPartition, position: int, epoch: int) -> Part:
        settings, cluster = self._settings, self._origin.cluster_id
        shape = Shape(
            partitions=route.target_partitions if settings.partitioning == "key" else 0,
            origin=cluster if settings.provenance else "",
            cut=self._destination.cluster_id if settings.provenance else "",
        )
        place = Place(settings.application, cluster, route.topic, route.topic_id, where.partition)
        return Part(where, route, place, shape, position, epoch)

    def _new_sender(self, producer: Producer) -> Sender:
        return Sender(self._destination, self._settings.transactional_id, producer, timeout_s=PRODUCE_WITHIN_S)

    async def _recover(self, producer: Producer) -> None:
        """Settle what the last transaction came to, and go on from what is committed."""
        settings = self._settings
        try:
            producer = await init_producer_id(
                self._destination,
                settings.transactional_id,
                timeout_ms=settings.transaction_timeout_ms,
                producer=producer,
            )
        except GiveWay as fenced:
            raise TakenOver(
                f"Another copy has begun to write as {settings.transactional_id} and goes on, or this one paused for "
                f"longer than transaction-timeout-ms; this one stops. What it had not committed was not copied by it, "
                f"and nothing is doubled. Run one copy of {settings.application}. ({fenced})"
            ) from fenced
        self._producer = producer
        await self._positions.refresh()
        for part in self._parts:
            self._leave(part)
            known = self._positions.known.get(part.place)
            if known is None:
                raise BadInput(
                    f"{part.where}: its position is gone from {settings.positions_topic}. Nothing more is copied; say "
                    f"with start-from where to begin anew."
                )
            if known.target_id != part.route.target_id:
                raise BadInput(
                    f"{part.where}: its position belongs to another topic {known.target} on the destination."
                )
            part.position, part.epoch, part.told = known.next_offset, known.epoch, known.error
            if part.barrier is not None and part.position < part.barrier:
                part.again_at = 0.0
            else:
                part.barrier = None
        self._sender = self._new_sender(producer)

    # Reading the source

    async def _subscribe_due(self) -> None:
        now = time.monotonic()
        for part in self._parts:
            if part.inbox is None and part.again_at <= now:
                try:
                    part.inbox = await self._source.subscribe(
                        part.progress(), topic_id=UUID(part.route.topic_id), destination_leader=0
                    )
                except TwinlogError as error:
                    part.stop_for(str(error))

    def _leave(self, part: Part) -> None:
        if part.inbox is not None:
            self._source.unsubscribe(part.inbox)
            part.inbox = None

    async def _not_forward(self, part: Part, verdict: Verdict) -> None:
        """The source has no next records to give: say why, and ask again later."""
        self._leave(part)
        reason = getattr(verdict, "reason", "")
        if isinstance(verdict, Refetch):
            log.info("%s: asking the source again: %s", part.where, reason)
            part.again_at = time.monotonic() + FIRST_PAUSE_S
            return
        first = -1
        with suppress(TwinlogError):
            first = await one_offset(self._origin, part.where, EARLIEST)
        if first > part.position:
            reason = (
                f"{part.where}: the source deleted offsets {part.position} to {first - 1} (retention) before they were "
                f"copied. Nothing is skipped by itself: start again with start-from earliest to go on at {first}."
            )
        part.stop_for(reason)

    # Writing

    async def _transaction(self, stopping: asyncio.Event) -> None:
        sender = self._sender
        if sender is None:
            return
        ends_at = time.monotonic() + self._settings.commit_interval_ms / 1000
        added: set[TopicPartition] = set()
        moved: set[Part] = set()
        sent = 0
        while True:
            took = 0
            for part in self._parts:
                took += await self._take(sender, part, added, moved)
            sent += took
            if time.monotonic() >= ends_at or sent > TRANSACTION_BYTES or stopping.is_set():
                break
            if not took:
                await asyncio.sleep(min(IDLE_S, self._settings.commit_interval_ms / 2000))
        changed = moved | set(self._untold())
        if changed:
            await self._commit(sender, added, changed, moved)

    async def _take(self, sender: Sender, part: Part, added: set[TopicPartition], moved: set[Part]) -> int:
        """Send on what waits for one partition; returns how many bytes that were."""
        if part.inbox is None or part.inbox.waiting is None:
            return 0
        form = partial(wanted, shape=part.shape, exact=part.limit_bytes is not None)
        verdict = decide(part.progress(), await part.inbox.get(), TERMS, form)
        if not isinstance(verdict, Forward):
            await self._not_forward(part, verdict)
            return 0
        moved.add(part)
        sent = 0
        for batch in verdict.items:
            if isinstance(batch, Batch):
                if not await self._put(sender, part, batch, added):
                    return sent
                sent += batch.size
        part.position, part.epoch = verdict.next_offset, verdict.source_epoch
        return sent

    async def _put(self, sender: Sender, part: Part, batch: Batch, added: set[TopicPartition]) -> bool:
        """Send one batch; False where the barrier stands before its end, and nothing more of the partition is sent."""
        for piece in pieces(batch, part.where, part.shape, limit_bytes=part.limit_bytes):
            if part.barrier is not None and piece.first >= part.barrier:
                self._leave(part)
                part.position, part.epoch, part.barrier = part.barrier, -1, None
                part.again_at = time.monotonic() + _pause_s(part.failures)
                return False
            target = TopicPartition(part.route.target, piece.partition)
            if target not in added:
                await add_partitions(self._destination, self._settings.transactional_id, sender.producer, [target])
                added.add(target)
            await sender.put(target, piece.batch, source=part.where, first=piece.first)
        return True

    async def _commit(
        self, sender: Sender, added: set[TopicPartition], changed: Collection[Part], moved: Collection[Part] = ()
    ) -> None:
        """Write the positions of `changed` behind their records, and commit both."""
        settings = self._settings
        where = self._positions.where
        if where not in added:
            await add_partitions(self._destination, settings.transactional_id, sender.producer, [where])
        # What was sent on is over its trouble; what has stopped since keeps its own.
        over = {part for part in moved if part.inbox is not None}
        positions = {
            part.place: replace(part.record(), error="") if part in over else part.record() for part in changed
        }
        await sender.put(where, encoded(positions), source=None, first=-1)
        await sender.flush()
        await end_txn(self._destination, settings.transactional_id, sender.producer, commit=True)
        for part in changed:
            part.told = positions[part.place].error
        for part in over:
            part.error, part.failures = "", 0

    def _untold(self) -> list[Part]:
        return [part for part in self._parts if part.error != part.told]

    def _concerns_one(self, error: TwinlogError) -> bool:
        """Whether one partition's batch was refused for what it is; then only that one waits."""
        refusal = error.refusal if isinstance(error, NotSent) else None
        part = next((p for p in self._parts if refusal is not None and p.where == refusal.source), None)
        if refusal is None or part is None or refusal.code not in OF_A_PARTITION:
            return False
        if refusal.code in TOO_LARGE and refusal.records > 1:
            part.limit_bytes = max(1, refusal.size // 2)
            return True
        part.barrier = refusal.first
        part.stop_for(_refused(part, refusal))
        return True


def _refused(part: Part, refusal: Refusal) -> str:
    name = codes.code_name(refusal.code)
    what = (
        f"the destination topic {part.route.target} refuses the batch of {refusal.records} records and {refusal.size} "
    )
    advice = "raise its max.message.bytes" if refusal.code in TOO_LARGE else "mend what the destination names"
    return (
        f"{part.where}: {what}bytes from source offset {refusal.first} on ({name}) {refusal.message}. Nothing is "
        f"skipped: {advice}, and it goes on by itself."
    )


def _pause_s(failures: int) -> float:
    return float(min(MOST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(failures, 10)))


async def _pause(failures: int, stopping: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(_pause_s(failures)):
            await stopping.wait()
