"""Compares the destination's tail with the source before more is written: data with data, blank with blank."""

from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from twinlog.batch.compare import Unmatched, differences, unmatched
from twinlog.batch.fill import is_filling
from twinlog.batch.scan import Blank, Data, Scan, batches, readable
from twinlog.batch.view import Batch
from twinlog.errors import LogsDiffer, RetryLater, SourceBehind
from twinlog.names import TopicPartition
from twinlog.relay.lookups import Lookups, unreadable
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops import LogChunk, read_log

# Read of each side at a time; of that, only batches that differ are decoded.
READ_BYTES = 4_194_304
# Differences that a message names; the count tells the rest.
SHOWN = 3


@dataclass(frozen=True, slots=True)
class Sides:
    """Both clusters of a partition."""

    source: Lookups
    destination: Lookups


@dataclass(frozen=True, slots=True)
class Compacted:
    """What is no difference in a compacted topic: a record that one side has compacted away and the other not yet.

    A record that only the destination has must be in a batch of one of `producers`, the mirror's own; None: of anyone,
    in a topic that was not written by a mirror before.
    """

    producers: frozenset[int] | None


class _Read(NamedTuple):
    """What one side says of a range: what a reader finds, and the leader epoch of the batch before its end.

    `hidden` are the offsets, in order, at which something stands that no reader sees: markers and aborted records.
    """

    scan: Scan
    epoch: int
    hidden: Sequence[Blank]


async def check_tail(
    sides: Sides,
    where: TopicPartition,
    first: int,
    end: int,
    *,
    compacted: Compacted | None = None,
    own: frozenset[int] = frozenset(),
) -> int:
    """Prove that offsets `first` to `end` - 1 hold the same on both sides, as a read_committed reader sees them.

    Returns the leader epoch of the last batch that the source has there; -1 for none. Raises LogsDiffer with the first
    differing offset, SourceBehind where the source does not reach that far, RetryLater where a side cannot be
    read. `own`: the producer ids that the mirror wrote the destination under; by these it is told who was changed.
    """
    position, epoch = first, -1
    while position < end:
        source = await _read(sides.source.cluster, where, position, end=end, side="source")
        destination = await _read(sides.destination.cluster, where, position, end=end, side="destination")
        reached = min(source.scan.next_offset, destination.scan.next_offset, end)
        if source.scan.next_offset <= position:
            raise SourceBehind(where, position, end)
        if destination.scan.next_offset <= position:
            raise RetryLater(f"{where}: the destination's log cannot be read at offset {position} below its end {end}")
        _compare(
            where,
            source.scan.items,
            destination.scan.items,
            (position, reached - 1),
            compacted=compacted,
            hidden=(source.hidden, destination.hidden),
            own=own,
        )
        position, epoch = reached, source.epoch
    return epoch


def _compare(
    where: TopicPartition,
    source: Sequence[Data | Blank],
    destination: Sequence[Data | Blank],
    span: tuple[int, int],
    *,
    compacted: Compacted | None,
    hidden: tuple[Sequence[Blank], Sequence[Blank]] = ((), ()),
    own: frozenset[int] = frozenset(),
) -> None:
    first, last = span
    found = differences(source, destination, first=first, last=last, limit=SHOWN, where=where)
    if not found.total or (compacted and _only_compacted(source, destination, span, compacted, hidden=hidden)):
        return
    shown = "; ".join(str(difference) for difference in found.listed)
    left = unmatched(source, destination, first=first, last=last, where=where)
    raise LogsDiffer(
        f"{where}: the destination's log differs from the source between offsets {first} and {last} in "
        f"{found.total} places ({shown}). Somebody else wrote to the mirror topic, or one side was changed. "
        f"Nothing more is written. Stop the topic, keep what you need of it, delete the destination topic and "
        f"start it again.",
        offset=min((*left.source, *left.destination)),
        rewritten_at=_rewritten_at(left, destination, own),
    )


def _rewritten_at(left: Unmatched, destination: Sequence[Data | Blank], own: frozenset[int]) -> int:
    """The first offset at which the source has another record than the one that the mirror wrote there; -1: none.

    What others wrote to the destination is no such record, nor is one that only has another time, which a broker may
    have given it; nor one that the source has elsewhere: it may be the destination's log that began again.
    """
    ours = [
        item.batch
        for item in destination
        if isinstance(item, Data)
        and isinstance(item.batch, Batch)
        and item.batch.producer_id in own
        and not item.batch.log_append_time
    ]
    bases = [batch.base_offset for batch in ours]
    elsewhere = {record[1:] for record in left.source.values()}
    for offset in sorted(left.source.keys() & left.destination.keys()):
        theirs, written = left.source[offset], left.destination[offset]
        at = bisect_right(bases, offset) - 1
        by_us = at >= 0 and offset <= ours[at].last_offset
        if by_us and written[2:] != theirs[2:] and written[1:] not in elsewhere:
            return offset
    return -1


def _only_compacted(
    source: Sequence[Data | Blank],
    destination: Sequence[Data | Blank],
    span: tuple[int, int],
    compacted: Compacted,
    *,
    hidden: tuple[Sequence[Blank], Sequence[Blank]],
) -> bool:
    left = unmatched(source, destination, first=span[0], last=span[1])
    at_source, at_destination = hidden
    # The cleaner leaves holes. Where one side has a marker or an aborted record, a record of the other one is surplus,
    # or has been overtaken by a surplus marker; but for one that fills a blank until the cleaner has gone over it.
    surplus = [offset for offset, record in left.destination.items() if not is_filling(record)]
    overlaid = _any_in(left.source.keys(), at_destination) or _any_in(surplus, at_source)
    if overlaid or left.source.keys() & left.destination.keys():
        return False
    if not left.destination or compacted.producers is None:
        return True
    batches = [item.batch for item in destination if isinstance(item, Data)]
    return all(isinstance(batch, Batch) and batch.producer_id in compacted.producers for batch in batches)


def _any_in(offsets: Collection[int], spans: Sequence[Blank]) -> bool:
    firsts = [span.first for span in spans]
    places = ((offset, bisect_right(firsts, offset) - 1) for offset in offsets)
    return any(at >= 0 and offset <= spans[at].last for offset, at in places)


async def _read(cluster: Cluster, where: TopicPartition, position: int, *, end: int, side: str) -> _Read:
    chunk = await read_log(cluster, where, position, max_bytes=READ_BYTES, read_committed=True)
    if chunk.error:
        raise unreadable(where, chunk.error, position, side=side)
    scan = scan_of(where, chunk, position, end)
    return _Read(scan, _epoch_before(chunk, where, end), _hidden(chunk, where, scan))


def _hidden(chunk: LogChunk, where: TopicPartition, scan: Scan) -> list[Blank]:
    seen = {item.batch.base_offset for item in scan.items if isinstance(item, Data) and isinstance(item.batch, Batch)}
    return [
        Blank(batch.base_offset, batch.last_offset)
        for batch in batches(chunk.records, where, check=False)
        if isinstance(batch, Batch) and batch.count and batch.base_offset not in seen
    ]


def _epoch_before(chunk: LogChunk, where: TopicPartition, end: int) -> int:
    """The leader epoch of the batch that holds offset `end` - 1; -1 where there is none."""
    for batch in batches(chunk.records, where, check=False):
        if batch.last_offset >= end - 1:
            return batch.leader_epoch if isinstance(batch, Batch) and batch.base_offset < end else -1
    return -1


def scan_of(where: TopicPartition, chunk: LogChunk, position: int, end: int) -> Scan:
    """What a chunk that was fetched alone says of [position, end): where it has no batch, there are only blanks."""
    stable = min(chunk.last_stable_offset, end)
    scan = readable(
        chunk.records, position=position, stable=chunk.last_stable_offset, aborted=chunk.aborted, where=where
    )
    if scan.next_offset == position and len(chunk.records) == 0 and stable > position:
        return Scan((Blank(position, stable - 1),), stable, 0)
    return scan
