"""Moves one mirror partition from its actual state to the desired one, and writes each state down.

The only writer of the partition's record, as long as its worker holds the lease and the shard.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from twinlog.config.mirror import MirrorConfig
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState, PartitionState, check
from twinlog.control.records import NEVER_RETRY, MirrorRecord, PartitionRecord, TopicRecord, topics_life
from twinlog.errors import BadInput, GiveWay, PartitionFailed, TwinlogError
from twinlog.names import TopicPartition
from twinlog.relay.counts import Counts
from twinlog.relay.decide import Stopped, Terms
from twinlog.relay.destination import Destination
from twinlog.relay.fetch import Source
from twinlog.relay.firstcopy import Peer
from twinlog.relay.lease import Lease
from twinlog.relay.partition import Claim, PartitionRelay
from twinlog.relay.progress import Progress
from twinlog.relay.rolling import Rolling
from twinlog.relay.tailcheck import Sides
from twinlog.relay.takeover import HIGH_WATERMARK, OVERTAKEN, Copy, Known, TopicIds, settled_end
from twinlog.relay.waiting import cancelled, unless
from twinlog.service.facts import FactFinder, Facts
from twinlog.service.keeper import Keeper
from twinlog.service.retries import helped, returns_to, wait_s
from twinlog.service.sources import Sources, same_connection
from twinlog.service.throttle import Throttles

log = logging.getLogger("twinlog.partition")

# A lease that ran out is mostly renewed within a second, and every moment without it is a moment of lag.
LEASE_POLL_S = 0.1
# A mistake of ours is likely to happen again at once: its log lines must not fill a disk.
AFTER_MISTAKE_S = 5.0
# A settle wait takes two seconds; where the destination needs more, its end is not known to stand still.
REST_WITHIN_S = 4.0
# Two refreshes that agree on a deletion are as far apart as the mirror's refreshes, within these bounds.
SHORTEST_APART_S, LONGEST_APART_S = 1.0, 30.0
# By what is desired: the state that is passed through (a crash may have left it so), and where it leads.
RESTS = {
    DesiredState.PAUSED: (PartitionState.PAUSING, PartitionState.PAUSED),
    DesiredState.STOPPED: (PartitionState.STOPPING, PartitionState.STOPPED),
}


STREAMING = {PartitionState.LOG_ALIGNMENT, PartitionState.MIRRORING}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all supervisors of a worker share."""

    image: Image
    keeper: Keeper
    lease: Lease
    sources: Sources
    destination: Destination
    facts: FactFinder
    throttles: Throttles | None = None


class Supervisor:
    """One partition under this worker, from the claim of its shard to its release."""

    def __init__(self, around: Surroundings, key: tuple[str, str, int], *, settle: bool) -> None:
        self.mirror, self.topic, self.partition = key
        self.where = TopicPartition(self.topic, self.partition)
        self.relay: PartitionRelay | None = None
        self.counts = Counts()
        self._around = around
        self._settle = settle
        self._changed = asyncio.Event()
        self._releasing = False
        self._began_at = -1
        self._skip_lost = False
        self._end_is_known = False
        self._configs: Mapping[str, str] = {}
        # The relay and what finishes a first copy may both have something to remember.
        self._writing = asyncio.Lock()
        self.record = self._stored()
        self._task = asyncio.create_task(self._run(), name=f"partition {self.where}")

    def __repr__(self) -> str:
        return f"Supervisor({self.mirror} {self.where}, {self.record.state.name})"

    @property
    def state(self) -> PartitionState:
        """The state written last."""
        return self.record.state

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
        return self._desired() is not DesiredState.MIRRORING or self._source_changed() or self._topics_changed()

    def _topics_changed(self) -> bool:
        topic, record = self._topic_record(), self.record
        ids = (record.source_topic_id, record.destination_topic_id)
        return topic is not None and (topic.source_topic_id, topic.destination_topic_id) != ids

    def _source_changed(self) -> bool:
        mirror = self._around.image.mirrors.get(self.mirror)
        return mirror is not None and not same_connection(self._configs, mirror.configs)

    # Desired and stored

    def _topic_record(self) -> TopicRecord | None:
        return self._around.image.topic(self.mirror, self.topic)

    def _desired(self) -> DesiredState:
        record = self._topic_record()
        return DesiredState.STOPPED if record is None else record.desired

    def _stored(self) -> PartitionRecord:
        """The stored record, or a new one where none is stored or the stored one is about topics that are gone."""
        topic = self._topic_record()
        stored = self._around.image.partition(self.mirror, self.topic, self.partition)
        fresh = PartitionRecord(self.mirror, self.topic, self.partition, PartitionState.UNKNOWN)
        if topic is None:
            return stored or fresh
        ids = (topic.source_topic_id, topic.destination_topic_id)
        if stored is None or (stored.source_topic_id, stored.destination_topic_id) != ids:
            return replace(fresh, source_topic_id=ids[0], destination_topic_id=ids[1])
        return stored

    async def _write(self, state: PartitionState, **changes: object) -> None:
        async with self._writing:
            check(self.record.state, state)
            changed = replace(self.record, state=state, **changes)  # type: ignore[arg-type]  # the record's own names
            if state is not self.record.state:
                log.info("%s of mirror %s: %s", self.where, self.mirror, state.name)
            await self._around.keeper.put(changed)
            self.record = changed

    # The loop

    async def _run(self) -> None:
        while not self._releasing:
            self._changed.clear()
            try:
                if self._desired() is DesiredState.MIRRORING:
                    await self._mirror()
                else:
                    await self._rest()
            except GiveWay as error:
                await self._without_lease(error)
            except Exception:  # a mistake of ours must not end the partition in silence
                log.exception("%s of mirror %s: unexpected error", self.where, self.mirror)
                await self._idle(AFTER_MISTAKE_S)

    async def _mirror(self) -> None:
        self.record = self._current()
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
        topic = self._topic_record()
        if mirror is None or topic is None:
            await self._changed.wait()
            return
        await self._begin()
        self._configs = mirror.configs
        try:
            source = await unless(self._changed, around.sources.get(mirror))
            facts = await unless(self._changed, around.facts.of(self.topic, source.cluster, self._ids(topic, source)))
        except Stopped:
            return
        claim = self._claim(topic, facts)
        # Only the first takeover may do without the settle wait; what comes later has had something in flight.
        self._settle = True
        self._began_at = self.record.checked_offset
        relay = PartitionRelay(
            claim,
            source=source,
            destination=around.destination,
            lease=around.lease,
            ledger=self,
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
        except PartitionFailed:
            self._settle = relay.unsettled
            raise
        finally:
            await cancelled({helped})
            self._keep(relay)
            self.relay = None

    def _claim(self, topic: TopicRecord, facts: Facts) -> Claim:
        return Claim(
            where=self.where,
            source_topic_id=topic.source_topic_id,
            destination_topic_id=topic.destination_topic_id,
            fill_id=f"twinlog-fill-{self.mirror}-{self.topic}-{self.partition}",
            known=self._known(self.record),
            settle=self._settle,
            compacted=facts.compacted,
            max_message_bytes=facts.max_message_bytes,
            terms=Terms(may_blank=facts.may_blank, trust_emptiness=facts.trust_emptiness),
            guard_ms=facts.guard_ms,
            apart_s=self._apart_s(),
            start_offset=topic.start_offsets[self.partition] if self.partition < len(topic.start_offsets) else -1,
        )

    def _ids(self, topic: TopicRecord, source: Source) -> TopicIds:
        sides = Sides(source.lookups, self._around.destination.lookups)
        there, here = topic.source_topic_id, topic.destination_topic_id
        return TopicIds(sides, self.topic, source=there, destination=here, apart_s=self._apart_s())

    def _apart_s(self) -> float:
        refresh_s = self._mirror_config().metadata_refresh_interval_ms / 1000
        return min(LONGEST_APART_S, max(SHORTEST_APART_S, refresh_s))

    def _current(self) -> PartitionRecord:
        """The own record, unless the topic was started anew with other ids meanwhile."""
        topic = self._topic_record()
        if topic is None:
            return self.record
        ids = (topic.source_topic_id, topic.destination_topic_id)
        return self.record if (self.record.source_topic_id, self.record.destination_topic_id) == ids else self._stored()

    async def _begin(self) -> None:
        for passing, there in RESTS.values():
            if self.record.state is passing:
                await self._write(there)
        if self.record.state in {PartitionState.UNKNOWN, PartitionState.STOPPED}:
            await self._write(PartitionState.LOG_ALIGNMENT)

    def _known(self, record: PartitionRecord) -> Known:
        published = self._around.image.published(self.mirror, self.topic, self.partition)
        checked = record.checked_offset
        copy = Copy(record.filled_to, record.last_filling, record.configs_before)
        streamed = record.state is PartitionState.MIRRORING or not copy.over
        if checked >= 0 and published is not None and streamed:
            # Figures of topics that had these names before are about other logs.
            life = topics_life(record.source_topic_id, record.destination_topic_id)
            checked = max(checked, published.figure.destination_end if published.figure.life == life else 0)
        return Known(
            record.producer_id,
            record.producer_epoch,
            record.spare_producer_id,
            checked,
            record.long_runs,
            copy,
            self._skip_lost,
        )

    def _keep(self, relay: PartitionRelay) -> None:
        """Take over into the record what the relay came to know; written with the next state."""
        progress = relay.progress
        if progress is None:
            return
        self._end_is_known = True
        if 0 <= self._began_at < progress.position:
            # The counter of retries is cleared by a successful append.
            self.record = replace(self.record, retry_attempt=0)
        self.record = replace(
            self.record,
            producer_id=progress.producer_id,
            producer_epoch=max(progress.spent_epoch, progress.epoch),
            checked_offset=relay.confirmed if self.record.checked_offset >= 0 else self.record.checked_offset,
            last_mirrored_offset=relay.confirmed,
        )

    async def _rest(self) -> None:
        """Reach PAUSED or STOPPED, and wait there."""
        passing, there = RESTS[self._desired()]
        self.record = self._current()
        if self.record.state is not there:
            if self.record.state is not passing:
                await self._write(passing)
            if there is PartitionState.STOPPED and self.record.configs_before:
                await self._put_configs_back()
            await self._write(there, last_mirrored_offset=await self._end(), error="", retry_attempt=0)
        await self._idle()

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
        if known < 0 or not self._end_is_known:
            # Whoever was here before may have got further than was written down.
            return end
        if end != known:
            log.error(
                "%s: the destination ends at %d, but was mirrored up to %d: somebody else wrote", self.where, end, known
            )
        return known

    async def _come_to_rest(self) -> None:
        """Let arrive what may still be under way, while nothing is sent, so that a successor need not wait for it."""
        if not self._settle:
            return
        try:
            async with asyncio.timeout(REST_WITHIN_S):
                await settled_end(self._around.destination.lookups, self.where, time.monotonic)
            self._settle = False
        except (TimeoutError, TwinlogError) as error:
            log.info("%s: not known to be at rest: %s", self.where, str(error) or f"{REST_WITHIN_S:.0f} s are over")

    async def _idle(self, seconds: float | None = None) -> None:
        """Come to rest, then wait until something has changed, or for so many seconds."""
        with suppress(Stopped, TimeoutError):
            await unless(self._changed, self._come_to_rest())
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def _failed(self, reason: str, *, retriable: bool) -> None:
        topic = self._topic_record()
        before = self.record.state if self.record.state is not PartitionState.FAILED else self.record.previous_state
        log.error("%s of mirror %s: FAILED: %s", self.where, self.mirror, reason)
        await self._write(
            PartitionState.FAILED,
            error=reason,
            retry_attempt=max(0, self.record.retry_attempt) if retriable else NEVER_RETRY,
            previous_state=before,
            # An operator who asked before this cannot have meant it.
            recoveries=self.record.recoveries if topic is None else topic.recoveries,
        )

    async def _tries_again(self) -> bool:
        """Wait until a FAILED partition is to be tried again, and say so; False where something else is wanted."""
        wait = wait_s(self.record, self._mirror_config())
        due, failed_with = time.monotonic() + wait, self._around.image.mirrors.get(self.mirror)
        while True:
            self._changed.clear()
            mirror, topic = self._around.image.mirrors.get(self.mirror), self._topic_record()
            if self._releasing or self._desired() is not DesiredState.MIRRORING or self._topics_changed():
                return False
            if topic is not None and topic.recoveries > self.record.recoveries:
                await self._recover(topic)
                return True
            left = due - time.monotonic()
            cured = mirror is not None and failed_with is not None and self._cured(failed_with, mirror)
            if left <= 0 or cured:
                await self._write(returns_to(self.record), retry_attempt=self.record.retry_attempt + 1)
                return True
            await self._idle(None if left == float("inf") else left)

    def _cured(self, failed_with: MirrorRecord, mirror: MirrorRecord) -> bool:
        """Whether another connection may help, so that a retry need not wait for its time."""
        retriable = self.record.retry_attempt != NEVER_RETRY
        return retriable and not same_connection(failed_with.configs, mirror.configs)

    async def _recover(self, topic: TopicRecord) -> None:
        """An operator asks for another try: the counter begins anew, and what retention took may be left out."""
        self._skip_lost = OVERTAKEN in self.record.error
        log.info("%s of mirror %s: recovers", self.where, self.mirror)
        await self._write(returns_to(self.record), retry_attempt=0, recoveries=topic.recoveries)

    async def _note_help(self, relay: PartitionRelay) -> None:
        """Clear the counter of retries in the state once a retry has helped."""
        if self.record.retry_attempt > 0:
            await helped(relay, lambda: self._began_at)
            await self._write(self.record.state, retry_attempt=0)

    def _mirror_config(self) -> MirrorConfig:
        mirror: MirrorRecord | None = self._around.image.mirrors.get(self.mirror)
        try:
            return MirrorConfig.from_properties(mirror.configs if mirror else {}, self.mirror)
        except BadInput:
            return MirrorConfig()

    async def _without_lease(self, error: GiveWay) -> None:
        lease = self._around.lease
        log.warning("%s of mirror %s: %s", self.where, self.mirror, error)
        self._settle = True
        await asyncio.sleep(LEASE_POLL_S)
        while not lease.valid() and not self._releasing:
            if lease.is_fenced:
                raise error
            await asyncio.sleep(LEASE_POLL_S)

    # What the relay asks to remember (`relay.partition.Ledger`)

    async def took_producer(self, progress: Progress) -> None:
        """Remember the partition's producer id."""
        await self._write(self.record.state, producer_id=progress.producer_id, producer_epoch=progress.epoch)

    async def took_spare(self, progress: Progress) -> None:
        """Remember the producer id that takes over when the present one's epochs run out."""
        await self._write(self.record.state, spare_producer_id=progress.spare_producer_id)

    async def mirroring(self, progress: Progress) -> None:
        """Remember that both sides agree up to the position."""
        await self._agreed(PartitionState.MIRRORING, progress, Copy())

    async def copying(self, progress: Progress, copy: Copy, note: str = "") -> None:
        """Remember what is left of the first copy."""
        await self._agreed(PartitionState.LOG_ALIGNMENT, progress, copy, note)

    async def _agreed(self, state: PartitionState, progress: Progress, copy: Copy, note: str = "") -> None:
        if self._began_at < 0:
            self._began_at = progress.position
        self._skip_lost = False
        await self._write(
            state,
            producer_id=progress.producer_id,
            producer_epoch=max(progress.spent_epoch, progress.epoch),
            checked_offset=progress.position,
            last_mirrored_offset=progress.position,
            error=note,
            filled_to=copy.filled_to,
            last_filling=copy.last_filling,
            configs_before=copy.configs_before,
        )

    def peers(self) -> Sequence[Peer]:
        """The topic's other partitions, as far as they are about the same topics."""
        ids = (self.record.source_topic_id, self.record.destination_topic_id)
        return [
            Peer(Copy(other.filled_to, other.last_filling, other.configs_before), other.state in STREAMING)
            for other in self._around.image.partitions_of(self.mirror, self.topic)
            if other.partition != self.partition and (other.source_topic_id, other.destination_topic_id) == ids
        ]

    async def before_long_run(self, progress: Progress, epoch: int) -> None:
        """Remember that the partition's own transactional id may have something open."""
        await self._write(self.record.state, producer_id=progress.producer_id, producer_epoch=epoch, long_runs=True)
