"""What is stored of one partition, and what is wanted of it: the only writer of its record while its worker owns it."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import fields, replace

from twinlog.config.mirror import MirrorConfig
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState, PartitionState, check
from twinlog.control.records import MirrorRecord, PartitionRecord, TopicRecord, topics_life
from twinlog.errors import BadInput
from twinlog.names import TopicPartition
from twinlog.relay.firstcopy import Peer
from twinlog.relay.partition import PartitionRelay
from twinlog.relay.progress import Progress
from twinlog.relay.takeover import Copy, Known
from twinlog.service.keeper import Keeper

log = logging.getLogger("twinlog.partition")

STREAMING = {PartitionState.LOG_ALIGNMENT, PartitionState.MIRRORING}


class PartitionLedger:
    """The record of a partition, as read at first and as written since (`relay.partition.Ledger`).

    `began_at`: the offset up to which both sides agreed when the present run began; -1 while that is not known.
    `skip_lost`: an operator has said that what retention deleted before it was mirrored may be left out.
    """

    def __init__(self, image: Image, keeper: Keeper, key: tuple[str, str, int]) -> None:
        self._key = self.mirror, self.topic, self.partition = key
        self.where = TopicPartition(self.topic, self.partition)
        self._image = image
        self._keeper = keeper
        self.began_at = -1
        self.skip_lost = False
        # The relay and what finishes a first copy may both have something to remember.
        self._writing = asyncio.Lock()
        self._storing: asyncio.Task[None] | None = None
        self.record = self._stored()

    def __repr__(self) -> str:
        return f"PartitionLedger({self.mirror} {self.where}, {self.record.state.name})"

    # What is wanted

    def topic_record(self) -> TopicRecord | None:
        """What is stored of the topic."""
        return self._image.topic(self.mirror, self.topic)

    def mirror_record(self) -> MirrorRecord | None:
        """What is stored of the mirror."""
        return self._image.mirrors.get(self.mirror)

    def mirror_config(self) -> MirrorConfig:
        """The mirror's configs; defaults where they cannot be read."""
        mirror = self.mirror_record()
        try:
            return MirrorConfig.from_properties(mirror.configs if mirror else {}, self.mirror)
        except BadInput:
            return MirrorConfig()

    def desired(self) -> DesiredState:
        """The state that is desired of the topic; STOPPED where it is in the mirror no more."""
        record = self.topic_record()
        return DesiredState.STOPPED if record is None else record.desired

    def topics_changed(self) -> bool:
        """Whether the record is about other topics than are meant now."""
        topic = self.topic_record()
        return topic is not None and topic.ids != self.record.ids

    # What is stored

    def look_again(self) -> None:
        """Keep the record, unless the topic was started anew with other ids meanwhile."""
        if self.topics_changed():
            self.record = self._stored()

    def _stored(self) -> PartitionRecord:
        """The stored record, or a new one where none is stored or the stored one is about topics that are gone."""
        topic = self.topic_record()
        stored = self._image.partition(*self._key)
        fresh = PartitionRecord(*self._key, PartitionState.UNKNOWN)
        if topic is None:
            return stored or fresh
        if stored is None or stored.ids != topic.ids:
            source, destination = topic.ids
            return replace(fresh, source_topic_id=source, destination_topic_id=destination)
        return stored

    async def note(self, **changes: object) -> None:
        """Store what changes in the state as it is by then; returns once that is committed."""
        await self._write(None, changes)

    async def write(self, state: PartitionState, **changes: object) -> None:
        """Store a state and what changes with it; returns once that is committed."""
        await self._write(state, changes)

    async def _write(self, state: PartitionState | None, changes: dict[str, object]) -> None:
        """Cancelled before it is its turn, nothing is written; later, what is written is taken over all the same.

        The keeper has been asked before a cancellation is heard of, and so before the partition can be given up: a task
        takes its first step before whoever made it is woken again.
        """
        await self._writing.acquire()
        try:
            # Only now, since another write may have moved it while this one waited.
            state = self.record.state if state is None else check(self.record.state, state)
            changed = replace(self.record, state=state, **changes)  # type: ignore[arg-type]  # the record's own names
            if state is not self.record.state:
                log.info("%s of mirror %s: %s", self.where, self.mirror, state.name)
        except BaseException:  # whatever it is, others may write
            self._writing.release()
            raise
        self._storing = asyncio.create_task(self._store(self.record, changed), name=f"store {self.where}")
        self._storing.add_done_callback(_seen)
        await asyncio.shield(self._storing)

    async def _store(self, before: PartitionRecord, changed: PartitionRecord) -> None:
        try:
            await self._keeper.put(changed)
            self.record = _taken_over(self.record, before, changed)
        finally:
            self._writing.release()

    def known(self) -> Known:
        """What a takeover has to know of what was there before."""
        record = self.record
        published = self._image.published(*self._key)
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
            # A recover that was begun goes on, whoever does it.
            self.skip_lost or record.first_offset > record.checked_offset >= 0,
            record.first_offset,
        )

    def keep(self, relay: PartitionRelay) -> None:
        """Take over into the record what the relay came to know; written with the next state."""
        progress = relay.progress
        if progress is None:
            return
        if 0 <= self.began_at < progress.position:
            # The counter of retries is cleared by a successful append.
            self.record = replace(self.record, retry_attempt=0)
        self.record = replace(
            self.record,
            producer_id=progress.producer_id,
            producer_epoch=max(progress.spent_epoch, progress.epoch),
            checked_offset=relay.confirmed if self.record.checked_offset >= 0 else self.record.checked_offset,
            last_mirrored_offset=relay.confirmed,
        )

    # What the relay asks to remember

    async def took_producer(self, progress: Progress) -> None:
        """Remember the partition's producer id."""
        await self.note(producer_id=progress.producer_id, producer_epoch=progress.epoch)

    async def took_spare(self, progress: Progress) -> None:
        """Remember the producer id that takes over when the present one's epochs run out."""
        await self.note(spare_producer_id=progress.spare_producer_id)

    async def fills(self, first: int) -> None:
        """Remember that filler is written below offset `first`, where the log is to start."""
        await self.note(first_offset=first)

    async def closed_off(self, progress: Progress) -> None:
        """Remember that the partition's own transactional id has nothing open."""
        await self.note(producer_epoch=max(progress.spent_epoch, progress.epoch), long_runs=False)

    async def mirroring(self, progress: Progress) -> None:
        """Remember that both sides agree up to the position."""
        await self._agreed(PartitionState.MIRRORING, progress, Copy())

    async def copying(self, progress: Progress, copy: Copy, note: str = "") -> None:
        """Remember what is left of the first copy."""
        await self._agreed(PartitionState.LOG_ALIGNMENT, progress, copy, note)

    async def _agreed(self, state: PartitionState, progress: Progress, copy: Copy, note: str = "") -> None:
        if self.began_at < 0:
            self.began_at = progress.position
        self.skip_lost = False
        await self.write(
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
        return [
            Peer(Copy(other.filled_to, other.last_filling, other.configs_before), other.state in STREAMING)
            for other in self._image.partitions_of(self.mirror, self.topic)
            if other.partition != self.partition and other.ids == self.record.ids
        ]

    async def before_long_run(self, progress: Progress, epoch: int) -> None:
        """Remember that the partition's own transactional id may have something open."""
        await self.note(producer_id=progress.producer_id, producer_epoch=epoch, long_runs=True)


def _taken_over(now: PartitionRecord, before: PartitionRecord, changed: PartitionRecord) -> PartitionRecord:
    """What is remembered once `changed` is stored; what came to be known meanwhile (`keep`) is newer than that."""
    if now is before:
        return changed
    if now.ids != changed.ids:
        return now
    names = [one.name for one in fields(changed) if getattr(now, one.name) == getattr(before, one.name)]
    return replace(now, **{name: getattr(changed, name) for name in names})


def _seen(task: "asyncio.Task[None]") -> None:
    """Look at what came of a write whose caller was cancelled; nobody else would."""
    if not task.cancelled():
        task.exception()
