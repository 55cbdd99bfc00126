"""Moves one mirror partition from its actual state to the desired one, and has each state written down (`ledger`)."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from twinlog.config.mirror import same_connection
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import NEVER_RETRY, MirrorRecord, PartitionRecord, TopicRecord
from twinlog.errors import GiveWay, PartitionFailed, TwinlogError
from twinlog.names import TopicPartition
from twinlog.relay.counts import Counts
from twinlog.relay.decide import Stopped, Terms
from twinlog.relay.destination import Destination
from twinlog.relay.fetch import Source
from twinlog.relay.lease import Lease
from twinlog.relay.own_end import OwnEnd, own_end
from twinlog.relay.partition import Claim, PartitionRelay
from twinlog.relay.rolling import Rolling
from twinlog.relay.settle import HIGH_WATERMARK, settled_end
from twinlog.relay.tailcheck import Sides
from twinlog.relay.takeover import OVERTAKEN
from twinlog.relay.topic_ids import TopicIds
from twinlog.relay.waiting import cancelled, unless
from twinlog.service.facts import FactFinder, Facts
from twinlog.service.keeper import Keeper
from twinlog.service.ledger import PartitionLedger
from twinlog.service.leftovers import delete_filler, end_open
from twinlog.service.retries import helped, returns_to, wait_s
from twinlog.service.sources import Sources
from twinlog.service.throttle import Throttles
from twinlog.wire.ops import describe_producers

log = logging.getLogger("twinlog.partition")

# A lease that ran out is mostly renewed within a second, and every moment without it is a moment of lag.
LEASE_POLL_S = 0.1
# A mistake of ours is likely to happen again at once: its log lines must not fill a disk.
AFTER_MISTAKE_S = 5.0
# A settle wait takes two seconds; where the destination needs more, its end is not known to stand still.
REST_WITHIN_S = 4.0
# For how long a stop waits for the destination to delete filler; the sweep tries again.
CLEAR_UP_WITHIN_S = 3.0
# Where a former owner did not end in order, STOPPED waits longer: behind it applications write, at any offset.
STILL_BEFORE_STOPPED_S, STOPPED_WITHIN_S = 5.0, 10.0
# ... and for so long it is looked after whether something of the former owner's came in spite of that.
WATCHED_S, WATCH_EVERY_S = 60.0, 5.0
# Two refreshes that agree on a deletion are as far apart as the mirror's refreshes, within these bounds.
SHORTEST_APART_S, LONGEST_APART_S = 1.0, 30.0
# By what is desired: the state that is passed through (a crash may have left it so), and where it leads.
RESTS = {
    DesiredState.PAUSED: (PartitionState.PAUSING, PartitionState.PAUSED),
    DesiredState.STOPPED: (PartitionState.STOPPING, PartitionState.STOPPED),
}


async def already() -> None:
    """Nothing has to be waited for."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all supervisors of a worker share.

    `caught_up` waits until the image holds all that was committed before it was called; it raises RetryLater.
    """

    image: Image
    keeper: Keeper
    lease: Lease
    sources: Sources
    destination: Destination
    facts: FactFinder
    throttles: Throttles | None = None
    caught_up: Callable[[], Coroutine[Any, Any, None]] = already


class Supervisor:
    """One partition under this worker, from the claim of its shard to its release."""

    def __init__(self, around: Surroundings, key: tuple[str, str, int], *, settle: bool) -> None:
        self.mirror, self.topic, self.partition = key
        self.where = TopicPartition(self.topic, self.partition)
        self.relay: PartitionRelay | None = None
        self.counts = Counts()
        self._around = around
        self._settle = settle
        # Whether that is about an owner that is gone: nobody knows what it had sent.
        self._owner_lost = settle
        self._changed = asyncio.Event()
        self._releasing = False
        self._end_is_known = False
        self._must_catch_up = False
        self._configs: Mapping[str, str] = {}
        self.ledger = PartitionLedger(around.image, around.keeper, key)
        self._task = asyncio.create_task(self._run(), name=f"partition {self.where}")

    def __repr__(self) -> str:
        return f"Supervisor({self.mirror} {self.where}, {self.record.state.name})"

    @property
    def record(self) -> PartitionRecord:
        """What was written last."""
        return self.ledger.record

    @property
    def state(self) -> PartitionState:
        """The state written last."""
        return self.record.state

    @property
    def mirrored_partitions(self) -> int:
        """How many partitions of the topic are mirrored."""
        topic = self.ledger.topic_record()
        return 0 if topic is None else topic.partitions

    @property
    def ended(self) -> bool:
        """Whether nothing moves the partition any more."""
        return self._task.done()

    def poke(self) -> None:
        """Look at the desired state again."""
        self._changed.set()
        if self.relay is not None and (self._outdated()):
            self.relay.stop()

    async def release(self, within_s: float) -> bool:
        """End in order; True where nothing of ours is under way any more. After `within_s` it is cut off."""
        self._releasing = True
        self._changed.set()
        if self.relay is not None:
            self.relay.stop()
        await asyncio.wait({self._task}, timeout=within_s)
        if not self._task.done():
            log.warning("%s of mirror %s: does not end within %.1f s and is cut off", self.where, self.mirror, within_s)
            await self.cut_off()
            return False
        return not self._task.cancelled() and self._task.exception() is None and not self._settle

    async def cut_off(self) -> None:
        """End at once, whatever is in flight."""
        await cancelled({self._task})

    def _outdated(self) -> bool:
        """Whether the relay does what is no longer wanted, from another source, or for other topics."""
        return (
            self.ledger.desired() is not DesiredState.MIRRORING
            or self._source_changed()
            or self.ledger.topics_changed()
        )

    def _source_changed(self) -> bool:
        mirror = self._around.image.mirrors.get(self.mirror)
        return mirror is not None and not same_connection(self._configs, mirror.configs)

    # The loop

    async def _run(self) -> None:
        while not self._releasing:
            self._changed.clear()
            try:
                if self.ledger.desired() is DesiredState.MIRRORING:
                    await self._mirror()
                else:
                    await self._rest()
            except GiveWay as error:
                await self._without_lease(error)
            except Exception:  # a mistake of ours must not end the partition in silence
                log.exception("%s of mirror %s: unexpected error", self.where, self.mirror)
                await self._idle(AFTER_MISTAKE_S)

    async def _mirror(self) -> None:
        self.ledger.look_again()
        try:
            if self.record.state is PartitionState.FAILED and not await self._tries_again():
                return
            await self._relay_once()
        except PartitionFailed as error:
            await self._failed(str(error), retriable=error.retriable)
        except GiveWay:
            raise
        except TwinlogError as error:
            await self._failed(str(error), retriable=True)
        except Exception as error:  # a mistake of ours must not take the other partitions with it
            log.exception("%s of mirror %s: unexpected error", self.where, self.mirror)
            await self._failed(f"unexpected error, please report it: {error!r}", retriable=False)

    async def _relay_once(self) -> None:
        around = self._around
        mirror = around.image.mirrors.get(self.mirror)
        topic = self.ledger.topic_record()
        if mirror is None or topic is None:
            await self._changed.wait()
            return
        try:
            await self._begin()
            self._configs = mirror.configs
            source = await unless(self._changed, around.sources.get(mirror))
            facts = await unless(self._changed, around.facts.of(self.topic, source.cluster, self._ids(topic, source)))
        except Stopped:
            return
        claim = self._claim(topic, facts)
        # Only the first takeover may do without the settle wait; what comes later has had something in flight.
        self._settle = True
        self.ledger.began_at = self.record.checked_offset
        relay = PartitionRelay(
            claim,
            source=source,
            destination=around.destination,
            lease=around.lease,
            ledger=self.ledger,
            counts=self.counts,
            throttle=around.throttles.of(self.mirror) if around.throttles else None,
        )
        self.relay = relay
        helped = asyncio.create_task(self._note_help(relay), name=f"retried {self.where}")
        try:
            if self._releasing or self._outdated():
                return
            await relay.run()
            self._settle = relay.unsettled
            self._owner_lost = self._owner_lost and relay.unsettled
        except PartitionFailed:
            self._settle = relay.unsettled
            raise
        finally:
            await cancelled({helped})
            self._end_is_known = self._end_is_known or relay.progress is not None
            self.ledger.keep(relay)
            self.relay = None

    def _claim(self, topic: TopicRecord, facts: Facts) -> Claim:
        return Claim(
            where=self.where,
            source_topic_id=topic.source_topic_id,
            destination_topic_id=topic.destination_topic_id,
            fill_id=self._fill_id,
            known=self.ledger.known(),
            settle=self._settle,
            compacted=facts.compacted,
            max_batch_bytes=facts.max_batch_bytes,
            terms=Terms(may_blank=facts.may_blank, trust_emptiness=facts.trust_emptiness),
            guard_ms=facts.guard_ms,
            apart_s=self._apart_s(),
            start_offset=topic.start_offset(self.partition),
            shared_until=topic.shared_until(self.partition),
            join_bytes=min(self.ledger.mirror_config().batch_join_max_bytes, facts.max_batch_bytes),
        )

    def _ids(self, topic: TopicRecord, source: Source) -> TopicIds:
        sides = Sides(source.lookups, self._around.destination.lookups)
        there, here = topic.source_topic_id, topic.destination_topic_id
        return TopicIds(sides, self.topic, source=there, destination=here, apart_s=self._apart_s())

    def _apart_s(self) -> float:
        refresh_s = self.ledger.mirror_config().metadata_refresh_interval_ms / 1000
        return min(LONGEST_APART_S, max(SHORTEST_APART_S, refresh_s))

    async def _begin(self) -> None:
        for passing, there in RESTS.values():
            if self.record.state is passing:
                await self.ledger.write(there)
        rested = self.record.state in {PartitionState.PAUSED, PartitionState.STOPPED}
        self._must_catch_up = self._must_catch_up or rested
        if rested or self.record.state is PartitionState.UNKNOWN:
            await self.ledger.write(PartitionState.LOG_ALIGNMENT)
        if self._must_catch_up:
            # A command that came before that has taken the old state for its answer: it must be heard first.
            await unless(self._changed, self._around.caught_up())
            self._must_catch_up = False

    async def _rest(self) -> None:
        """Reach PAUSED or STOPPED, and wait there."""
        passing, there = RESTS[self.ledger.desired()]
        self.ledger.look_again()
        if self.record.state is not there:
            if self.record.state is not passing:
                # What its worker has published counts only while it mirrors, and it may have died since.
                await self.ledger.write(passing, checked_offset=self.ledger.known().checked_offset)
            if self.record.long_runs and self._settle:
                await end_open(self._around.destination.cluster, self.where, self._fill_id)
            if there is PartitionState.PAUSED and not await self._surely_at_rest():
                return
            if there is PartitionState.STOPPED and self.record.configs_before:
                await self._put_configs_back()
            if self.record.first_offset > 0:
                cluster = self._around.destination.cluster
                await delete_filler(cluster, self.where, self.record, within_s=CLEAR_UP_WITHIN_S)
            in_doubt = self._settle and self._owner_lost and there is PartitionState.STOPPED
            await self.ledger.write(there, last_mirrored_offset=await self._end(), error="", retry_attempt=0)
            if in_doubt:
                await self._watch_for_late_appends()
        await self._idle()

    @property
    def _fill_id(self) -> str:
        # A slash is in no name, so that no two partitions share an id.
        return f"twinlog-fill-{self.mirror}/{self.topic}/{self.partition}"

    async def _watch_for_late_appends(self) -> None:
        """Say so if a request of the former owner's is carried out after STOPPED: it would be in nobody's place."""
        before, until = await self._appended(), time.monotonic() + WATCHED_S
        while before is not None and time.monotonic() < until:
            self._changed.clear()
            if self._releasing or self.ledger.desired() is not DesiredState.STOPPED:
                return
            with suppress(Stopped):
                await unless(self._changed, asyncio.sleep(WATCH_EVERY_S))
            now = await self._appended()
            if now is not None and now - before:
                reason = (
                    f"{self.where}: after it was STOPPED a request of its former worker, which did not end in order, "
                    f"was carried out late: records of the source stand at or behind offset "
                    f"{self.record.last_mirrored_offset} at wrong offsets. Look for them before the topic is used."
                )
                log.error("%s", reason)
                await self.ledger.note(error=reason)
                return

    async def _appended(self) -> frozenset[tuple[int, int, int]] | None:
        """How far the mirror's own producers have got, by the leader's memory; None where that cannot be told."""
        ours = {self.record.producer_id, self.record.spare_producer_id}
        try:
            told = await describe_producers(self._around.destination.cluster, self.where)
        except TwinlogError:
            return None
        return frozenset((one.producer_id, one.epoch, one.last_sequence) for one in told if one.producer_id in ours)

    async def _surely_at_rest(self) -> bool:
        """Wait until nothing of ours can be appended any more; False where something else is wanted meanwhile.

        PAUSED is a promise, so it waits for as long as a lost answer leaves that in doubt. STOPPED does not: a failover
        must not hang on a log that somebody else writes to.
        """
        while self._settle:
            self._end_is_known = False
            try:
                await unless(self._changed, self._come_to_rest())
                await unless(self._changed, asyncio.sleep(LEASE_POLL_S))
            except Stopped:
                return False
        return True

    async def _put_configs_back(self) -> None:
        """A topic that is no mirror any more has its own configs, also where its first copy was not over."""
        try:
            await Rolling(self._around.destination.cluster, self.topic).restore(self.record.configs_before)
        except TwinlogError as error:
            log.warning("%s: the configs of the first copy are left as they are: %s", self.where, error)

    async def _end(self) -> int:
        """The destination's end; what is known of it where the destination does not answer."""
        known = self.record.last_mirrored_offset
        if self._settle:
            # What a former owner had under way may still move it.
            self._end_is_known = False
            await self._come_to_rest()
        try:
            end = await self._around.destination.lookups.offset(self.where, HIGH_WATERMARK)
        except TwinlogError as error:
            log.warning("%s: the destination's end cannot be told: %s", self.where, error)
            return known
        told = True
        if known < 0 or not self._end_is_known:
            known, told = await self._own_end(end)
        if not told:
            log.warning(
                "%s: the destination ends at %d, and was mirrored up to %d at least: who wrote the rest cannot be "
                "told. A start compares it with the source.",
                self.where,
                end,
                known,
            )
        elif end != known >= 0:
            log.error(
                "%s: the destination ends at %d, but was mirrored up to %d: somebody else wrote the rest. A mirror "
                "that is started again compares it with the source, and refuses what that does not have.",
                self.where,
                end,
                known,
            )
        return known

    async def _own_end(self, end: int) -> OwnEnd:
        """Whoever was here before may have got further than was written down, and others may have written behind it."""
        record = self.record
        if record.checked_offset >= end:
            return OwnEnd(end, told=True)
        if record.checked_offset < 0:
            # Nothing that is there was ever found to be the source's.
            return OwnEnd(record.last_mirrored_offset if end else 0, told=True)
        producers = {one for one in (record.producer_id, record.spare_producer_id) if one >= 0}
        found = await own_end(self._around.destination.cluster, self.where, record.checked_offset, end, producers)
        return found._replace(told=found.told and not record.long_runs)

    async def _come_to_rest(self) -> None:
        """Let arrive what may still be under way, while nothing is sent, so that a successor need not wait for it."""
        if not self._settle:
            return
        lost = self._owner_lost and self.record.state is PartitionState.STOPPING
        within_s, still_s = (STOPPED_WITHIN_S, STILL_BEFORE_STOPPED_S) if lost else (REST_WITHIN_S, None)
        try:
            async with asyncio.timeout(within_s):
                await settled_end(self._around.destination.lookups, self.where, time.monotonic, still_s=still_s)
            self._settle = False
        except (TimeoutError, TwinlogError) as error:
            log.info("%s: not known to be at rest: %s", self.where, str(error) or f"{within_s:.0f} s are over")

    async def _idle(self, seconds: float | None = None) -> None:
        """Come to rest, then wait until something has changed, or for so many seconds."""
        with suppress(Stopped, TimeoutError):
            await unless(self._changed, self._come_to_rest())
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def _failed(self, reason: str, *, retriable: bool) -> None:
        topic = self.ledger.topic_record()
        before = self.record.state if self.record.state is not PartitionState.FAILED else self.record.previous_state
        log.error("%s of mirror %s: FAILED: %s", self.where, self.mirror, reason)
        self._around.facts.forget(self.topic)
        await self.ledger.write(
            PartitionState.FAILED,
            error=reason,
            retry_attempt=max(0, self.record.retry_attempt) if retriable else NEVER_RETRY,
            previous_state=before,
            # An operator who asked before this cannot have meant it.
            recoveries=self.record.recoveries if topic is None else topic.recoveries,
        )

    async def _tries_again(self) -> bool:
        """Wait until a FAILED partition is to be tried again, and say so; False where something else is wanted."""
        wait = wait_s(self.record, self.ledger.mirror_config())
        due, failed_with = time.monotonic() + wait, self._around.image.mirrors.get(self.mirror)
        while True:
            self._changed.clear()
            mirror, topic = self._around.image.mirrors.get(self.mirror), self.ledger.topic_record()
            if self._releasing or self.ledger.desired() is not DesiredState.MIRRORING or self.ledger.topics_changed():
                return False
            if topic is not None and topic.recoveries > self.record.recoveries:
                await self._recover(topic)
                return True
            left = due - time.monotonic()
            cured = mirror is not None and failed_with is not None and self._cured(failed_with, mirror)
            if left <= 0 or cured:
                await self.ledger.write(returns_to(self.record), retry_attempt=self.record.retry_attempt + 1)
                return True
            await self._idle(None if left == float("inf") else left)

    def _cured(self, failed_with: MirrorRecord, mirror: MirrorRecord) -> bool:
        """Whether another connection may help, so that a retry need not wait for its time."""
        retriable = self.record.retry_attempt != NEVER_RETRY
        return retriable and not same_connection(failed_with.configs, mirror.configs)

    async def _recover(self, topic: TopicRecord) -> None:
        """An operator asks for another try: the counter begins anew, and what retention took may be left out."""
        self.ledger.skip_lost = OVERTAKEN in self.record.error
        log.info("%s of mirror %s: recovers", self.where, self.mirror)
        await self.ledger.write(returns_to(self.record), retry_attempt=0, recoveries=topic.recoveries)

    async def _note_help(self, relay: PartitionRelay) -> None:
        """Clear the counter of retries in the state once a retry has helped."""
        if self.record.retry_attempt > 0:
            await helped(relay, lambda: self.ledger.began_at)
            await self.ledger.note(retry_attempt=0)

    async def _without_lease(self, error: GiveWay) -> None:
        lease = self._around.lease
        log.warning("%s of mirror %s: %s", self.where, self.mirror, error)
        self._settle = self._owner_lost = True
        await asyncio.sleep(LEASE_POLL_S)
        while not lease.valid() and not self._releasing:
            if lease.is_fenced:
                raise error
            await asyncio.sleep(LEASE_POLL_S)
