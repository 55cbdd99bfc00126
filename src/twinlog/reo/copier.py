"""One step of a copy at work: rounds of what can be read, each ended by writing down what it reached.

Whatever fails ends the round: the stage finds out what its writes came to, and says where each part goes on; nothing is
ever sent again on a guess.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Generic
from uuid import UUID

from twinlog.batch.view import Batch
from twinlog.errors import AuthorizationFailed, BadInput, RetryLater, TwinlogError
from twinlog.names import TopicPartition
from twinlog.relay.decide import Terms, decide
from twinlog.relay.progress import Forward, Refetch, Verdict
from twinlog.reo.lines import Counts, Fact, begins, ends
from twinlog.reo.replicas import Replicas, held
from twinlog.reo.sender import Mark, NotSent, Refusal, Sender
from twinlog.reo.stage import FIRST_PAUSE_S, TOO_FEW_REPLICAS, TOO_LARGE, P, Stage, TakenOver, pause_s, refused
from twinlog.wire import codes
from twinlog.wire.ops import EARLIEST, one_offset

log = logging.getLogger("twinlog.reo")

# What concerns one partition alone: it waits and is tried again, the others go on.
OF_THE_TOPIC: Final = frozenset({codes.TOPIC_AUTHORIZATION_FAILED, codes.INVALID_TIMESTAMP, codes.INVALID_RECORD})
OF_A_PARTITION: Final = TOO_LARGE | TOO_FEW_REPLICAS | OF_THE_TOPIC
ROUND_BYTES: Final = 64 << 20
IDLE_S: Final = 0.01
LOOK_EVERY_S: Final = 5.0
TERMS: Final = Terms()


class Copier(Generic[P]):
    """Copies until told to stop; one object is one owner of its stage's share."""

    def __init__(self, stage: Stage[P]) -> None:
        self.stage = stage
        self.counts = Counts()
        self._holding: Sequence[Replicas] = ()
        self._trouble = f"{stage.name} has not begun"
        self._well_at = time.monotonic()
        self._parts: Sequence[P] = ()
        self._look_at = 0.0
        self._begun = False
        self._sender: Sender | None = None
        self._added: set[TopicPartition] = set()
        self._written: set[TopicPartition] = set()
        self._written_before: set[TopicPartition] = set()
        self._sent = 0
        self._aside: dict[P, str] = {}

    @property
    def name(self) -> str:
        """What the log calls it."""
        return f"{self.stage.name} of share {self.stage.share}"

    @property
    def holdup(self) -> str:
        """Why nothing can be written down at all, where the destination's replicas are the reason."""
        return held(self.stage.transactional_id, self._holding) if self._holding else ""

    @property
    def trouble(self) -> str:
        """Why nothing is copied now; empty where all is well."""
        return f"{self.stage.name}: {self.holdup}" if self.holdup else self._trouble

    def facts(self) -> list[Fact]:
        """Where each part stands."""
        return [
            Fact(
                part.where,
                part.position,
                -1 if part.inbox is None else part.inbox.figures.last_stable_offset,
                part.error or part.complaint or self.holdup,
            )
            for part in self._parts
        ]

    def too_few_replicas(self) -> list[Replicas]:
        """The partitions that it writes to and that have too few replicas in sync, as far as it knows."""
        return list({one.where: one for one in (*self.stage.short.values(), *self._holding)}.values())

    async def run(self, stopping: asyncio.Event) -> None:
        """Copy until `stopping` is set.

        Raises TakenOver where another copy writes now, BadInput for what is refused.
        """
        try:
            await self._rounds(stopping)
        finally:
            log.info("%s ends; positions %s", self.name, ends(self.facts()))

    def close(self) -> None:
        """End all reading."""
        for part in self._parts:
            self._leave(part)

    async def _rounds(self, stopping: asyncio.Event) -> None:
        failures = 0
        while not stopping.is_set():
            try:
                await self._round(stopping)
                failures = 0
                self._all_is_well()
            except (BadInput, TakenOver):
                raise
            except TwinlogError as error:
                self._sender = None
                if not await self._concerns_one(error):
                    failures += 1
                    self._interrupted(error)
                    await _pause(failures, stopping)

    # What holds it

    def quiet_s(self) -> float:
        """For how many seconds longer than a round takes none has ended well."""
        return time.monotonic() - self._well_at - self.stage.settings.commit_interval_ms / 1000

    async def look_for_holdup(self) -> None:
        """Find out whether the destination's replicas are the reason, and say so."""
        before, said = self._well_at, self.holdup
        await self.stage.look_at_replicas()
        holding = await self.stage.what_holds()
        if self._well_at != before:
            return  # it has gone on meanwhile
        self._holding = holding
        told = self.holdup
        if told and told != said:
            log.error("%s: %s", self.name, told)

    def _all_is_well(self) -> None:
        self._trouble, self._well_at = "", time.monotonic()
        if self._holding:
            self._holding = ()
            log.info("%s goes on", self.name)

    def _interrupted(self, error: TwinlogError) -> None:
        self.counts.failures += 1
        self._trouble = f"{self.stage.name}: {error}"
        refused = error.refusal if isinstance(error, NotSent) else None
        short = None if refused is None or refused.target is None else self.stage.short.get(refused.target)
        why = f"{error} {short or self.holdup}".rstrip()
        log.warning("%s was interrupted and goes on from what is written: %s", self.name, why)

    # Beginning, and beginning again

    async def _round(self, stopping: asyncio.Event) -> None:
        if self._begun and time.monotonic() >= self._look_at:
            await self._look()
        if not self._begun:
            await self._begin()
        elif self._sender is None:
            for part in self._parts:
                self._leave(part)
            await self.stage.settle(self._parts)
            await self.stage.look_at_replicas()
            for part in self._parts:
                self._after_trouble(part)
            self._sender = self.stage.sender
        if self.stage.short or self._aside:
            self._set_aside()
        await self._subscribe_due()
        if any(part.inbox is not None and part.inbox.waiting is not None for part in self._parts) or self._untold():
            await self._gathered(stopping)
        else:
            await asyncio.sleep(IDLE_S)

    async def _look(self) -> None:
        """Begin anew where topics or partitions were added or created again meanwhile."""
        self._look_at = time.monotonic() + LOOK_EVERY_S
        await self.stage.look_at_replicas()
        try:
            changed = await self.stage.changed()
        except (BadInput, RetryLater) as problem:
            # Partitions that are gone stop by themselves; the others go on.
            log.warning("the topics are not as they were: %s", problem)
            return
        if changed:
            log.info("topics or partitions have changed; %s begins anew", self.stage.name)
            self._begun = False

    async def _begin(self) -> None:
        for part in self._parts:
            self._leave(part)
        self._parts = ()
        self._aside.clear()
        self._parts = await self.stage.begin()
        await self.stage.look_at_replicas()
        self._sender, self._begun = self.stage.sender, True
        self._look_at = time.monotonic() + LOOK_EVERY_S
        log.info(
            "%s copies %d partitions of the %s to the %s: %s",
            self.name,
            len(self._parts),
            self.stage.reader.cluster,
            self.stage.destination,
            begins(zip(self.facts(), map(self._topic_of, self._parts), strict=True)),
        )

    def _topic_of(self, part: P) -> str:
        target = self.stage.target_of(part)
        return part.target if target is None else target.topic

    def _after_trouble(self, part: P) -> None:
        """What lies before a batch that was refused is copied at once; the batch itself waits for its time."""
        if part.barrier is not None and self.stage.is_before(part, part.barrier):
            part.again_at = 0.0
        else:
            part.barrier = None

    def _set_aside(self) -> None:
        """Leave what goes to a partition with too few replicas: no transaction with that in it could end."""
        for part in self._parts:
            target = self.stage.target_of(part)
            short = None if target is None else self.stage.short.get(target)
            told, before = "" if short is None else f"{part.where}: {short}", self._aside.get(part, "")
            if told and told != before:
                self._leave(part)
                self._aside[part] = told
                part.stop_for(told)
            elif before and not told:
                del self._aside[part]
                part.again_at = 0.0
                part.error = "" if part.error == before else part.error

    # Reading

    async def _subscribe_due(self) -> None:
        now = time.monotonic()
        for part in self._parts:
            if part.inbox is None and part.again_at <= now and part not in self._aside:
                try:
                    part.inbox = await self.stage.reader.subscribe(
                        part.progress(), topic_id=UUID(part.topic_id), destination_leader=0
                    )
                except TwinlogError as error:
                    part.stop_for(str(error))

    def _leave(self, part: P) -> None:
        if part.inbox is not None:
            self.stage.reader.unsubscribe(part.inbox)
            part.inbox = None

    async def _not_forward(self, part: P, verdict: Verdict) -> None:
        """There are no next records to be had: say why, and ask again later."""
        self._leave(part)
        reason = getattr(verdict, "reason", "")
        if isinstance(verdict, Refetch):
            log.info("%s: asking again: %s", part.where, reason)
            part.again_at = time.monotonic() + FIRST_PAUSE_S
            return
        first = -1
        with suppress(TwinlogError):
            first = await one_offset(self.stage.reader.cluster, part.where, EARLIEST)
        if first > part.position:
            reason = self.stage.lacking(part, first)
        if reason:
            part.stop_for(reason)

    # Writing

    async def _gathered(self, stopping: asyncio.Event) -> None:
        """Send on what comes within the commit interval, and write down what that reached."""
        sender = self._sender
        if sender is None:
            return
        interval_s = self.stage.settings.commit_interval_ms / 1000
        ends_at = time.monotonic() + interval_s
        self._written_before, self._written = self._written, set()
        self._added, self._sent = set(), 0
        moved: set[P] = set()
        while True:
            before = self._sent
            for part in self._parts:
                await self._take(sender, part, moved)
            if time.monotonic() >= ends_at or self._sent > ROUND_BYTES or stopping.is_set():
                break
            if self._sent == before:
                await asyncio.sleep(min(IDLE_S, interval_s / 2))
        await self._commit(sender, moved)

    async def _take(self, sender: Sender, part: P, moved: set[P]) -> None:
        """Send on what waits for one part."""
        if part.inbox is None or part.inbox.waiting is None:
            return
        verdict = decide(part.progress(), await part.inbox.get(), TERMS, self.stage.form(part))
        if not isinstance(verdict, Forward):
            await self._not_forward(part, verdict)
            return
        moved.add(part)
        failures = part.failures

        async def put(target: TopicPartition, batch: Batch, mark: Mark, units: int) -> bool:
            if part.barrier is not None and mark.reaches(part.barrier):
                self._halt(part, part.barrier)
                return False
            if target not in self._added:
                refusal = Refusal(codes.NONE, "", part.where, mark, batch.size, units, target)
                self._added |= await self._enlisted(sender, target, refusal)
            self._written.add(target)
            await sender.put(target, batch, source=part.where, mark=mark, units=units)
            self._sent += batch.size
            return True

        await self.stage.forward(part, verdict, put)
        if part.failures > failures:
            self._leave(part)

    async def _enlisted(self, sender: Sender, target: TopicPartition, refusal: Refusal) -> set[TopicPartition]:
        """Make `target` part of the transaction, as if the batch itself were refused where that may not be.

        Raises NotSent with `refusal`, its reason filled in: the other partitions go on.
        """
        if target in self.stage.short:
            await self.stage.look_at_replicas()
        if (short := self.stage.short.get(target)) is not None:
            raise NotSent(str(short), refusal._replace(code=codes.NOT_ENOUGH_REPLICAS, message=str(short)))
        try:
            return await self._together(sender, target)
        except AuthorizationFailed as missing:
            told = refusal._replace(code=codes.TOPIC_AUTHORIZATION_FAILED, message=str(missing))
            raise NotSent(str(missing), told) from missing

    async def _together(self, sender: Sender, target: TopicPartition) -> set[TopicPartition]:
        """Enlist `target`, and with the first one all that the last transaction wrote to.

        Each request for more costs the coordinator a write. Where one may not be written, each is asked for alone.
        """
        if not self._added and self._written_before:
            together = self._written_before - set(self.stage.short) | {target, self.stage.positions.where}
            try:
                await self.stage.enlist(sender.producer, together)
            except AuthorizationFailed:
                self._written_before = set()
            else:
                return together
        await self.stage.enlist(sender.producer, [target])
        return {target}

    def _halt(self, part: P, barrier: Mark) -> None:
        """What stands before the barrier is sent; nothing more of the part until its time comes."""
        self._leave(part)
        self.stage.halt(part, barrier)
        part.barrier = None
        part.again_at = time.monotonic() + pause_s(part.failures)

    async def _commit(self, sender: Sender, moved: set[P]) -> None:
        changed = list(moved | set(self._untold()))
        if not changed:
            return
        # What was sent on is over its trouble; what has stopped since keeps its own.
        over = {part for part in moved if part.inbox is not None}
        errors = {part: part.complaint if part in over else part.error for part in changed}
        await self.stage.commit(sender, self._added, list(errors.items()))
        self.counts.bytes += self._sent
        self.counts.rounds += 1
        for part in changed:
            part.told = errors[part]
        for part in over:
            part.error, part.failures = part.complaint, 0

    def _untold(self) -> list[P]:
        return [part for part in self._parts if part.error != part.told]

    async def _concerns_one(self, error: TwinlogError) -> bool:
        """Whether one partition's batch was refused for what it is; then only that one waits."""
        refusal = error.refusal if isinstance(error, NotSent) else None
        if refusal is None:
            return False
        if refusal.code in TOO_FEW_REPLICAS and refusal.target is not None:
            await self.stage.look_at_replicas()
            short = self.stage.short.get(refusal.target)
            refusal = refusal if short is None else refusal._replace(message=str(short))
        part = next((p for p in self._parts if p.where == refusal.source), None)
        if part is None or refusal.code not in OF_A_PARTITION:
            return False
        if refusal.code in TOO_LARGE and refusal.units > 1:
            part.limit_bytes = max(1, refusal.size // 2)
            return True
        part.barrier = refusal.mark
        part.stop_for(refused(*self.stage.named(part, refusal), refusal))
        return True


async def _pause(failures: int, stopping: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(pause_s(failures)):
            await stopping.wait()
