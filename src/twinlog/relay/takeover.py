"""Finds out where the destination's log really ends and under which (producer id, epoch, sequence) it goes on.

The log is the only truth about progress. What the state remembers of a partition is used for three things only: to
know that the topic is the one that was meant, where the tail check may begin, and which producer a log that retention
has emptied had.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from twinlog.batch.edit import next_sequence
from twinlog.batch.scan import batches
from twinlog.batch.view import Batch
from twinlog.errors import PartitionFailed, RetryLater, SourceBehind, UnsupportedVersion
from twinlog.names import TopicPartition
from twinlog.relay.beginning import Place, beginning
from twinlog.relay.lookups import Lookups, Question, unreadable
from twinlog.relay.progress import LAST_GOOD_EPOCH, Progress
from twinlog.relay.settle import HIGH_WATERMARK, POLL_S, SETTLE_WITHIN_S, TRUE_END, settled_end
from twinlog.relay.tailcheck import Compacted, Sides, check_tail
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops import (
    EARLIEST,
    LATEST,
    ActiveProducer,
    Producer,
    describe_producers,
    init_producer_id,
    read_log,
)

log = logging.getLogger("twinlog.takeover")

LOG_START = Question(EARLIEST)
LAST_STABLE = Question(LATEST, read_committed=True)
# What the reason of such a failure contains: a recover then leaves out what is lost.
OVERTAKEN = "retention overtook the mirror"
# A former owner's first run of blanks, one epoch up, may not have arrived yet: it has to be fenced by ours.
EPOCHS_SKIPPED = 2


@dataclass(frozen=True, slots=True)
class Copy:
    """What is left of a partition's first copy whose holes were filled (`firstcopy`).

    `filled_to`: filling records may be below this offset; -1: none are left. `last_filling`: the last of them; -1 while
    that is not settled. `configs_before`: configs of the topic that are to be put back; empty: nothing is left to do.
    """

    filled_to: int = -1
    last_filling: int = -1
    configs_before: str = ""

    @property
    def over(self) -> bool:
        """Whether nothing is left of it."""
        return self.filled_to < 0 and not self.configs_before


@dataclass(frozen=True, slots=True)
class Known:
    """What the state remembers of a partition; -1 for nothing.

    `spare_producer_id` is the one that takes over when the first one's epochs run out: from then on either may be at
    the log's end. `checked_offset` is where the tail check may begin (below it, it was made before). `long_runs` says
    that the partition's own transactional id may have something open. `copy` is what is left of the first copy.
    `skip_lost`: an operator has said that what retention deleted before it was mirrored may be left out.
    `first_offset`: where the log is to begin, as was decided before filler was written below it.
    """

    producer_id: int = -1
    producer_epoch: int = -1
    spare_producer_id: int = -1
    checked_offset: int = -1
    long_runs: bool = False
    copy: Copy = Copy()
    skip_lost: bool = False
    first_offset: int = -1

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever written to this partition by a mirror."""
        return self.producer_id < 0

    @property
    def producers(self) -> frozenset[int]:
        """The producer ids that a mirror has written this partition under; no batch without one is ours."""
        return frozenset(one for one in (self.producer_id, self.spare_producer_id) if one >= 0)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Log starts and ends of both sides; the source's end is its last stable offset.

    `chosen` is where the destination is to begin although the source begins before; -1 where nothing was chosen.
    """

    source_start: int
    source_end: int
    start: int
    end: int
    chosen: int = -1

    @property
    def first(self) -> int:
        """The first offset that the destination is to have."""
        return max(self.source_start, self.chosen)


async def _settle(sides: Sides, where: TopicPartition, clock: Callable[[], float]) -> None:
    """Let the destination come to rest.

    Where it does not, what lies beyond all that the source has is a foreign writer's.
    """
    try:
        await settled_end(sides.destination, where, clock)
    except RetryLater:
        end, source_end = await asyncio.gather(
            sides.destination.offset(where, TRUE_END), sides.source.offset(where, TRUE_END)
        )
        if end > source_end:
            raise PartitionFailed(
                f"{where}: the destination ends at {end} and goes on growing, while the source ends at "
                f"{source_end}. Somebody else writes to the mirror topic. Nothing more is written. Stop the topic, "
                f"remove the other writer, delete the destination topic and start it again."
            ) from None
        raise


async def bounds_of(sides: Sides, where: TopicPartition) -> Bounds:
    """Where both logs start and end just now."""
    source_start, source_end, start, end = await asyncio.gather(
        sides.source.offset(where, LOG_START),
        sides.source.offset(where, LAST_STABLE),
        sides.destination.offset(where, LOG_START),
        sides.destination.offset(where, TRUE_END),
    )
    return Bounds(source_start, source_end, start, end)


async def take_over(
    sides: Sides,
    where: TopicPartition,
    known: Known,
    *,
    fill_id: str,
    compacted: bool,
    settle: bool,
    clock: Callable[[], float],
    start_offset: int = -1,
    shared_until: int = -1,
) -> tuple[Progress, Bounds]:
    """Read where the destination ends, prove that its tail is the source's, and say how to go on.

    Raises PartitionFailed where the destination is not what it should be, RetryLater and RefreshLeader where it cannot
    be told just now.
    """
    filler = await abort_long_run(sides.destination.cluster, fill_id) if known.long_runs else None
    if settle or filler is not None:
        await _settle(sides, where, clock)
    bounds = await bounds_of(sides, where)
    while await sides.destination.offset(where, HIGH_WATERMARK) < bounds.end:
        # Given up in order, and yet not all of it is on the other replicas: a leader's death may still take it away.
        await _settle(sides, where, clock)
        bounds = await bounds_of(sides, where)
    _refuse_wrong(where, known, bounds)
    bounds = await _with_chosen(sides.destination.cluster, where, known, bounds, start_offset)
    if bounds.source_end < bounds.end > bounds.first or bounds.source_end < bounds.chosen:
        raise SourceBehind(where, bounds.source_end, max(bounds.end, bounds.chosen))
    last = await _last_batch(sides.destination.cluster, where, bounds)
    # Also where all was checked before, the last batch is compared: the source may have lost it and grown again.
    first = min(max(known.checked_offset, 0), bounds.end if last is None else last.base_offset)
    span = (max(first, bounds.start, bounds.first), bounds.end)
    epoch = await _checked(sides, where, known, span, compacted=compacted, shared_until=shared_until)
    progress = await _resume(sides.destination, where, known, last, end=bounds.end, filler=filler)
    log.info("%s: goes on at offset %d (source %d to %d)", where, bounds.end, bounds.source_start, bounds.source_end)
    return replace(progress, source_epoch=epoch), bounds


async def _checked(
    sides: Sides, where: TopicPartition, known: Known, span: tuple[int, int], *, compacted: bool, shared_until: int
) -> int:
    """Compare a span of both logs; returns the leader epoch of the last batch that the source has there.

    Of a compacted topic one side may lack what the other still has: of what the mirror wrote, or where it has not
    written yet, of what is recorded to be shared. A record behind that never went through the other side.
    """
    first, end = span
    if not compacted:
        return await check_tail(sides, where, first, end, own=known.producers)
    if not known.is_new:
        return await check_tail(sides, where, first, end, compacted=Compacted(known.producers), own=known.producers)
    between = min(max(first, shared_until), end)
    epoch = await check_tail(sides, where, first, between, compacted=Compacted(None))
    return epoch if between == end else await check_tail(sides, where, between, end)


async def _with_chosen(
    cluster: Cluster, where: TopicPartition, known: Known, bounds: Bounds, start_offset: int
) -> Bounds:
    if known.first_offset >= 0:
        return replace(bounds, chosen=known.first_offset)
    if start_offset < 0:
        return bounds
    place = Place(bounds.source_start, bounds.source_end, bounds.start, bounds.end)
    agreed = known.checked_offset >= 0
    chosen = await beginning(cluster, where, start_offset, place, producers=known.producers, agreed=agreed)
    return replace(bounds, chosen=chosen)


def _refuse_wrong(where: TopicPartition, known: Known, bounds: Bounds) -> None:
    advice = "Stop the topic, keep what you need of it, delete the destination topic and start it again."
    if known.is_new and bounds.end > 0 and bounds.end < bounds.source_start:
        raise PartitionFailed(
            f"{where}: the destination topic already holds offsets {bounds.start} to {bounds.end - 1}, which the "
            f"source (from {bounds.source_start} on) does not have. Nothing is written. {advice}"
        )
    if bounds.end < known.checked_offset:
        raise PartitionFailed(
            f"{where}: the destination ends at {bounds.end}, but had been mirrored to {known.checked_offset}: "
            f"{known.checked_offset - bounds.end} offsets are lost there. Nothing more is written. {advice}"
        )
    if known.checked_offset >= 0 and bounds.source_start > bounds.end and not known.skip_lost:
        raise PartitionFailed(
            f"{where}: {OVERTAKEN}. It wants offset {bounds.end}, the source now starts at "
            f"{bounds.source_start}: {bounds.source_start - bounds.end} offsets were deleted before they were "
            f"mirrored. Run --recover to go on from offset {bounds.source_start}: offsets stay the source's, and the "
            f"destination's log, too, starts there from then on. To keep what the destination has, stop the topic."
        )


async def abort_long_run(cluster: Cluster, fill_id: str) -> Producer:
    """Fence and abort what a former owner may have open, and wait until its markers are written."""
    deadline = time.monotonic() + SETTLE_WITHIN_S
    while True:
        try:
            return await init_producer_id(cluster, fill_id)
        except RetryLater:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(POLL_S)


async def _resume(
    destination: Lookups,
    where: TopicPartition,
    known: Known,
    last: Batch | None,
    *,
    end: int,
    filler: Producer | None,
) -> Progress:
    """How the log goes on. Every owner that stands at this end has to come to the same (producer id, epoch, sequence).

    Else a former owner's batch that is still under way would not be recognised as the one that we send.
    """
    if known.is_new:
        # Whoever wrote what is there (an adopted topic), its producer ids are not ours to use.
        fresh = await init_producer_id(destination.cluster)
        return Progress(where, end, fresh.id, epoch=0, sequence=0, spent_epoch=0, data_timestamp_ms=_stamp(last))
    if last is not None and last.producer_id in known.producers and (filler is None or last.producer_id != filler.id):
        return (_behind_marker if last.control else _behind_data)(where, end, last, known)
    active = None if end == 0 else await _active(destination, where, known, end)
    if filler is None and (end == 0 or (last is not None and active is None)):
        # Nothing of ours was ever written: an adopted topic, or an empty one. The first owner's first batch is ours.
        return _without_log(where, end, known, last, epoch=0, sequence=0)
    if active is not None and filler is None and active.last_sequence >= 0:
        # An emptied log; or one that others went on with while it was not mirrored.
        sequence = next_sequence(active.last_sequence, 1)
        return _without_log(where, end, known, last, epoch=active.epoch, sequence=sequence)
    if active is not None and filler is None and last is not None:
        return _without_log(where, end, known, last, epoch=active.epoch + 1, sequence=0)
    # A long run that was interrupted, behind which no data of ours can be; or an emptied log that ended with blanks.
    floor = known.producer_epoch if active is None else max(known.producer_epoch, active.epoch)
    return _without_log(where, end, known, last, epoch=floor + 1, sequence=0)


def _without_log(
    where: TopicPartition, end: int, known: Known, last: Batch | None, *, epoch: int, sequence: int
) -> Progress:
    """Where a partition stands whose log does not end with a batch of its own producer."""
    spent = max(_skipping(max(known.producer_epoch, epoch - 1)), epoch)
    return Progress(
        where, end, known.producer_id, epoch=epoch, sequence=sequence, spent_epoch=spent, data_timestamp_ms=_stamp(last)
    )


def _spent(last: Batch, known: Known) -> int:
    """Above the highest epoch in the log or, as far as is known, ever sent: a marker may still be under way.

    The epochs skipped are stored before the first run of the new owner is sent, so that the next one skips that, too.
    """
    known_epoch = known.producer_epoch if last.producer_id == known.producer_id else 0
    return _skipping(max(last.producer_epoch, known_epoch))


def _skipping(spent: int) -> int:
    """Skip some epochs, but not near their end: takeovers alone must never use them up."""
    return spent + EPOCHS_SKIPPED if spent < LAST_GOOD_EPOCH else spent


def _behind_data(where: TopicPartition, end: int, last: Batch, known: Known) -> Progress:
    return Progress(
        where,
        end,
        last.producer_id,
        epoch=last.producer_epoch,
        # By its span: a cleaner may have thinned it (`DefaultRecordBatch.lastSequence`).
        sequence=next_sequence(last.base_sequence, last.last_offset_delta + 1),
        spent_epoch=_spent(last, known),
        last_timestamp_ms=last.max_timestamp,
        before_timestamp_ms=last.max_timestamp,
        data_timestamp_ms=last.max_timestamp,
    )


def _behind_marker(where: TopicPartition, end: int, last: Batch, known: Known) -> Progress:
    return Progress(
        where,
        end,
        last.producer_id,
        epoch=last.producer_epoch + 1,
        sequence=0,
        spent_epoch=_spent(last, known),
        last_timestamp_ms=last.max_timestamp,
        before_timestamp_ms=last.max_timestamp,
    )


async def _last_batch(cluster: Cluster, where: TopicPartition, bounds: Bounds) -> Batch | None:
    if bounds.end <= bounds.start:
        return None
    chunk = await read_log(cluster, where, bounds.end - 1, max_bytes=65_536, read_committed=False)
    if chunk.error:
        raise unreadable(where, chunk.error, bounds.end - 1, side="destination")
    found = None
    for batch in batches(chunk.records, where):
        found = batch
    if found is not None and found.next_offset > bounds.end:
        raise RetryLater(f"{where}: the destination's log has grown beyond {bounds.end} while it was read")
    return found if isinstance(found, Batch) else None


async def _active(destination: Lookups, where: TopicPartition, known: Known, end: int) -> ActiveProducer | None:
    """What the leader remembers of our producer, where the log itself no longer tells; None for nothing.

    The end is looked at once more behind it, since the two answers belong together only if nothing came in between.
    """
    try:
        active = await describe_producers(destination.cluster, where)
    except UnsupportedVersion:
        return None
    if await destination.offset(where, TRUE_END) != end:
        raise RetryLater(f"{where}: the destination's log has grown beyond {end} while its producers were looked up")
    return next((producer for producer in active if producer.producer_id == known.producer_id), None)


def _stamp(last: Batch | None) -> int | None:
    return None if last is None or last.control else last.max_timestamp
