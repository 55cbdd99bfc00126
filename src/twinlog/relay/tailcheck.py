"""Compares the destination's tail with the source before more is written: data with data, blank with blank."""

from collections.abc import Sequence
from dataclasses import dataclass

from twinlog.batch.compare import differences, unmatched
from twinlog.batch.scan import Blank, Data, Scan, batches, readable
from twinlog.batch.view import Batch
from twinlog.errors import PartitionFailed, RetryLater, SourceBehind
from twinlog.names import TopicPartition
from twinlog.relay.lookups import Lookups
from twinlog.wire.cluster import Cluster
from twinlog.wire.codes import code_name
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


async def check_tail(
    sides: Sides, where: TopicPartition, first: int, end: int, *, compacted: Compacted | None = None
) -> int:
    """Prove that offsets `first` to `end` - 1 hold the same on both sides, as a read_committed reader sees them.

    Returns the leader epoch of the last batch that the source has there; -1 for none. Raises PartitionFailed with the
    first differing offset, SourceBehind where the source does not reach that far, RetryLater where a side cannot be
    read.
    """
    position, epoch = first, -1
    while position < end:
        source, last = await _scan(sides.source.cluster, where, position, end=end, side="source")
        destination, _ = await _scan(sides.destination.cluster, where, position, end=end, side="destination")
        reached = min(source.next_offset, destination.next_offset, end)
        if source.next_offset <= position:
            raise SourceBehind(where, position, end)
        if destination.next_offset <= position:
            raise RetryLater(f"{where}: the destination's log cannot be read at offset {position} below its end {end}")
        _compare(where, source.items, destination.items, (position, reached - 1), compacted=compacted)
        position = reached
        epoch = last
    return epoch


def _compare(
    where: TopicPartition,
    source: Sequence[Data | Blank],
    destination: Sequence[Data | Blank],
    span: tuple[int, int],
    *,
    compacted: Compacted | None,
) -> None:
    first, last = span
    found = differences(source, destination, first=first, last=last, limit=SHOWN, where=where)
    if not found.total or (compacted and _only_compacted(source, destination, span, compacted)):
        return
    shown = "; ".join(str(difference) for difference in found.listed)
    raise PartitionFailed(
        f"{where}: the destination's log differs from the source between offsets {first} and {last} in "
        f"{found.total} places ({shown}). Somebody else wrote to the mirror topic, or one side was changed. "
        f"Nothing more is written. Stop the topic, keep what you need of it, delete the destination topic and "
        f"start it again."
    )


def _only_compacted(
    source: Sequence[Data | Blank], destination: Sequence[Data | Blank], span: tuple[int, int], compacted: Compacted
) -> bool:
    left = unmatched(source, destination, first=span[0], last=span[1])
    if left.source.keys() & left.destination.keys():
        return False
    if not left.destination or compacted.producers is None:
        return True
    batches = [item.batch for item in destination if isinstance(item, Data)]
    return all(isinstance(batch, Batch) and batch.producer_id in compacted.producers for batch in batches)


async def _scan(cluster: Cluster, where: TopicPartition, position: int, *, end: int, side: str) -> tuple[Scan, int]:
    chunk = await read_log(cluster, where, position, max_bytes=READ_BYTES, read_committed=True)
    if chunk.error:
        raise RetryLater(f"{where}: the {side} answers {code_name(chunk.error)} when read at offset {position}")
    return scan_of(where, chunk, position, end), _epoch_before(chunk, where, end)


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
