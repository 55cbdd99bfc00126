"""What the destination's topic holds beyond that which both sides are known to share, and whether the source has it.

A topic that was mirrored the other way (failback), or whose two sides were both mirrored from a third cluster, shares
with its twin all up to the last mirrored offset. What lies beyond that on the side that is to be the destination is
compared with the source; where the source does not have it, it is a diverged tail, which nobody drops unasked.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from twinlog.batch.scan import Data, batches
from twinlog.batch.view import Batch
from twinlog.control.image import Image
from twinlog.control.records import UNKNOWN_OFFSET, PartitionRecord
from twinlog.errors import LogsDiffer, PartitionFailed, RetryLater, SourceBehind
from twinlog.names import TopicPartition
from twinlog.relay.lookups import Lookups
from twinlog.relay.tailcheck import Compacted, Sides, check_tail, scan_of
from twinlog.sync.topics import Span
from twinlog.wire.cluster import Cluster
from twinlog.wire.codes import check
from twinlog.wire.ops import read_log

READ_BYTES = 4_194_304


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


class Shared(NamedTuple):
    """Up to which offset both sides are known to hold the same; -1 for not known.

    `same_way`: it was a mirror from this source that brought it to this destination.
    """

    until: int
    same_way: bool = False


NOTHING_SHARED = Shared(UNKNOWN_OFFSET)


def shared_until(source: Side, destination: Side, where: TopicPartition) -> Shared:
    """Up to where both sides hold the same, by what either has recorded.

    The source's last mirrored offset from the destination itself counts, and the destination's own from the source;
    where both were mirrored from the topic of a third cluster, the lower of the two. Each as far as it was compared: a
    partition that failed, or whose worker died, may end with what somebody else wrote.
    """
    theirs, ours = _by_origin(source, where), _by_origin(destination, where)
    known = [
        Shared(min(max(map(_compared, theirs[one])), max(map(_compared, ours[one]))))
        for one in theirs.keys() & ours.keys()
        if all(one)
    ]
    known += [Shared(_compared(record)) for record in theirs.get((destination.cluster_id, destination.topic_id), ())]
    known += [Shared(_compared(record), same_way=True) for record in ours.get((source.cluster_id, source.topic_id), ())]
    return max(known, default=NOTHING_SHARED)


def _by_origin(side: Side, where: TopicPartition) -> dict[tuple[str, UUID], list[PartitionRecord]]:
    found: dict[tuple[str, UUID], list[PartitionRecord]] = defaultdict(list)
    for record in _records(side, where):
        found[_origin(side.image, record)].append(record)
    return found


def _compared(record: PartitionRecord) -> int:
    """Up to where a partition's record is to be trusted."""
    return min(record.checked_offset, record.last_mirrored_offset)


def _records(side: Side, where: TopicPartition) -> list[PartitionRecord]:
    found = (side.image.partition(topic.mirror, *where) for topic in side.image.mirrors_of(where.topic))
    return [record for record in found if record is not None and record.destination_topic_id == side.topic_id]


def _origin(image: Image, record: PartitionRecord) -> tuple[str, UUID]:
    mirror = image.mirrors.get(record.mirror)
    return ("" if mirror is None else mirror.source_cluster_id, record.source_topic_id)


async def diverged_tails(
    clusters: tuple[Cluster, Cluster], shared: Mapping[TopicPartition, Shared], spans: Mapping[TopicPartition, Span]
) -> list[Tail]:
    """Return the tails that the source does not have, of partitions that share something (`shared`).

    `clusters` are source and destination, `spans` the destination's. Raises RetryLater where a side cannot be read.
    """
    tails = []
    for where, known in sorted(shared.items()):
        if where in spans and 0 <= known.until < spans[where].end:
            first = await _first_difference(clusters, where, known, spans[where])
            tails += [] if first is None else [await tail_of(clusters[1], where, first, spans[where].end)]
    return tails


async def _first_difference(
    clusters: tuple[Cluster, Cluster], where: TopicPartition, shared: Shared, span: Span
) -> int | None:
    """From where on the destination has something else than the source; None where it has not."""
    source, destination = clusters
    first = max(shared.until, span.start)
    chunk = await read_log(destination, where, span.end - 1, max_bytes=1, read_committed=True)
    check(chunk.error, f"{where} could not be read on the {destination}")
    # Of undecided records, whatever becomes of them, a marker follows that the source does not have.
    end = min(chunk.last_stable_offset, span.end)
    # What a mirror has written may have been compacted away at one side only. What applications have written behind
    # the end of a mirror is their own, also where the other side has a hole by now.
    compacted = Compacted(None) if shared.same_way else None
    try:
        await check_tail(Sides(Lookups(source), Lookups(destination)), where, first, end, compacted=compacted)
    except LogsDiffer as differ:
        return max(first, differ.offset)
    except SourceBehind as behind:
        return max(first, min(behind.source_end, end))
    except PartitionFailed:
        return first
    return None if end == span.end else max(first, end)


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
