"""What the destination's topic holds beyond that which both sides are known to share, and whether the source has it.

A topic that was mirrored the other way (failback), or whose two sides were both mirrored from a third cluster, shares
with its twin all up to the last mirrored offset. What lies beyond that on the side that is to be the destination is
compared with the source; where the source does not have it, it is a diverged tail, which nobody drops unasked.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from twinlog.batch.scan import Data, batches
from twinlog.batch.view import Batch
from twinlog.control.image import Image
from twinlog.control.records import UNKNOWN_OFFSET, PartitionRecord
from twinlog.errors import PartitionFailed, RetryLater, SourceBehind
from twinlog.names import TopicPartition
from twinlog.relay.lookups import Lookups
from twinlog.relay.tailcheck import Compacted, Sides, check_tail, scan_of
from twinlog.sync.topics import Span
from twinlog.wire.cluster import Cluster
from twinlog.wire.codes import check
from twinlog.wire.ops import read_log

READ_BYTES = 4_194_304

MOST_COMPARED = 100_000
"""Offsets behind the last comparison that a start reads; more is left to the worker, which compares in any case."""


@dataclass(frozen=True, slots=True)
class Side:
    """One cluster, what its state says, and the topic as it is there now."""

    cluster_id: str
    image: Image
    topic_id: UUID


@dataclass(frozen=True, slots=True)
class Tail:
    """What only the destination has: offsets `first` to `end` - 1.

    `records` are those a read_committed consumer finds; `undecided` those in transactions that nobody has ended.
    """

    where: TopicPartition
    first: int
    end: int
    records: int = 0
    undecided: int = 0

    def __str__(self) -> str:
        told = f"{self.where} offsets {self.first} to {self.end - 1} ({self.records} committed records"
        return f"{told}, {self.undecided} in undecided transactions)" if self.undecided else f"{told})"


def shared_until(source: Side, destination: Side, where: TopicPartition) -> int:
    """Up to which offset both sides are known to hold the same, by what either has recorded; -1 for not known.

    The source's last mirrored offset counts: from the destination itself, or from the topic of a third cluster that
    the destination was mirrored from, too. So does the destination's own, from the source, as far as it was compared: a
    partition that failed may end with what somebody else wrote.
    """
    ours = {_origin(destination.image, record) for record in _records(destination, where)}
    meant = {origin for origin in ours if all(origin)} | {(destination.cluster_id, destination.topic_id)}
    known = [
        record.last_mirrored_offset for record in _records(source, where) if _origin(source.image, record) in meant
    ]
    itself = (source.cluster_id, source.topic_id)
    known += [
        _compared(record) for record in _records(destination, where) if _origin(destination.image, record) == itself
    ]
    return max(known, default=UNKNOWN_OFFSET)


def _compared(record: PartitionRecord) -> int:
    """Up to where a partition's own record is to be trusted."""
    checked, end = record.checked_offset, record.last_mirrored_offset
    return checked if 0 <= checked < end <= checked + MOST_COMPARED else end


def _records(side: Side, where: TopicPartition) -> list[PartitionRecord]:
    found = (side.image.partition(topic.mirror, *where) for topic in side.image.mirrors_of(where.topic))
    return [record for record in found if record is not None and record.destination_topic_id == side.topic_id]


def _origin(image: Image, record: PartitionRecord) -> tuple[str, UUID]:
    mirror = image.mirrors.get(record.mirror)
    return ("" if mirror is None else mirror.source_cluster_id, record.source_topic_id)


async def diverged_tails(
    clusters: tuple[Cluster, Cluster], shared: Mapping[TopicPartition, int], spans: Mapping[TopicPartition, Span]
) -> list[Tail]:
    """Return the tails that the source does not have, of partitions that share something (`shared`).

    `clusters` are source and destination, `spans` the destination's. Raises RetryLater where a side cannot be read.
    """
    return [
        await tail_of(clusters[1], where, max(first, spans[where].start), spans[where].end)
        for where, first in sorted(shared.items())
        if where in spans and 0 <= first < spans[where].end and not await _same(clusters, where, first, spans[where])
    ]


async def _same(clusters: tuple[Cluster, Cluster], where: TopicPartition, first: int, span: Span) -> bool:
    source, destination = clusters
    chunk = await read_log(destination, where, span.end - 1, max_bytes=1, read_committed=True)
    check(chunk.error, f"{where} could not be read on the {destination}")
    if chunk.last_stable_offset < span.end:
        return False  # undecided records: whatever becomes of them, a marker follows that the source does not have
    sides = Sides(Lookups(source), Lookups(destination))
    try:
        # What only one side has compacted away is no divergence; in other topics the worker's comparison is stricter.
        await check_tail(sides, where, max(first, span.start), span.end, compacted=Compacted(None))
    except (PartitionFailed, SourceBehind):
        return False
    return True


async def tail_of(cluster: Cluster, where: TopicPartition, first: int, end: int) -> Tail:
    """Look at offsets `first` to `end` - 1 of a log, and count what is there. Raises RetryLater."""
    committed, position, stable = 0, first, end
    while position < end:
        chunk = await read_log(cluster, where, position, max_bytes=READ_BYTES, read_committed=True)
        check(chunk.error, f"{where} could not be read at offset {position} on the {cluster}")
        stable = min(chunk.last_stable_offset, end)
        if position >= stable:
            break
        scan = scan_of(where, chunk, position, end)
        if scan.next_offset == position:
            raise RetryLater(f"{where}: nothing came from the {cluster} at offset {position}, below its end {end}")
        committed += _within(
            (item.batch for item in scan.items if isinstance(item, Data) and isinstance(item.batch, Batch)), first, end
        )
        position = scan.next_offset
    return Tail(where, first, end, committed, await _undecided(cluster, where, stable, end))


async def _undecided(cluster: Cluster, where: TopicPartition, first: int, end: int) -> int:
    count, position = 0, first
    while position < end:
        chunk = await read_log(cluster, where, position, max_bytes=READ_BYTES, read_committed=False)
        check(chunk.error, f"{where} could not be read at offset {position} on the {cluster}")
        read = [batch for batch in batches(chunk.records, where) if isinstance(batch, Batch)]
        if not read or read[-1].next_offset <= position:
            break
        count += _within((batch for batch in read if not batch.control), first, end)
        position = read[-1].next_offset
    return count


def _within(found: Iterable[Batch], first: int, end: int) -> int:
    """Records at offsets `first` to `end` - 1; in a batch with holes inside, at most so many."""
    return sum(
        min(batch.count, min(batch.next_offset, end) - max(batch.base_offset, first))
        for batch in found
        if batch.next_offset > first and batch.base_offset < end
    )
