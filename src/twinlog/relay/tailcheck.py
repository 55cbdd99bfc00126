"""Compares the destination's tail with the source before more is written: data with data, blank with blank."""

from collections.abc import Sequence
from dataclasses import dataclass

from twinlog.batch.compare import differences
from twinlog.batch.scan import Blank, Data, Scan, readable
from twinlog.errors import PartitionFailed, RetryLater
from twinlog.names import TopicPartition
from twinlog.wire.cluster import Cluster
from twinlog.wire.codes import code_name
from twinlog.wire.ops import LogChunk, read_log

READ_BYTES = 4_194_304
SHOWN = 3


@dataclass(frozen=True, slots=True)
class Sides:
    """Both clusters of a partition."""

    source: Cluster
    destination: Cluster


async def check_tail(sides: Sides, where: TopicPartition, first: int, end: int) -> None:
    """Prove that offsets `first` to `end` - 1 hold the same on both sides, as a read_committed reader sees them.

    Raises PartitionFailed with the first differing offset, RetryLater where a side cannot be read just now. A record
    that the source has compacted away meanwhile may still stand at the destination: that is no difference.
    """
    position = first
    while position < end:
        source = await _scan(sides.source, where, position, end=end, side="source")
        destination = await _scan(sides.destination, where, position, end=end, side="destination")
        reached = min(source.next_offset, destination.next_offset, end)
        if source.next_offset <= position:
            raise PartitionFailed(
                f"{where}: the destination ends at {end}, but the source has nothing decided from offset {position} "
                f"on. Either somebody else wrote to the mirror topic, or the source was truncated. Nothing more is "
                f"written. Stop the topic, keep what you need of it, delete the destination topic and start it again.",
            )
        if destination.next_offset <= position:
            raise RetryLater(f"{where}: the destination's log cannot be read at offset {position} below its end {end}")
        _compare(where, source.items, destination.items, (position, reached - 1))
        position = reached


def _compare(
    where: TopicPartition, source: Sequence[Data | Blank], destination: Sequence[Data | Blank], span: tuple[int, int]
) -> None:
    first, last = span
    found = differences(source, destination, first=first, last=last, limit=SHOWN, where=where)
    if found.total:
        shown = "; ".join(str(difference) for difference in found.listed)
        raise PartitionFailed(
            f"{where}: the destination's log differs from the source between offsets {first} and {last} in "
            f"{found.total} places ({shown}). Somebody else wrote to the mirror topic, or one side was changed. "
            f"Nothing more is written. Stop the topic, keep what you need of it, delete the destination topic and "
            f"start it again."
        )


async def _scan(cluster: Cluster, where: TopicPartition, position: int, *, end: int, side: str) -> Scan:
    chunk = await read_log(cluster, where, position, max_bytes=READ_BYTES, read_committed=True)
    if chunk.error:
        raise RetryLater(f"{where}: the {side} answers {code_name(chunk.error)} when read at offset {position}")
    return scan_of(where, chunk, position, end)


def scan_of(where: TopicPartition, chunk: LogChunk, position: int, end: int) -> Scan:
    """What a chunk that was fetched alone says of [position, end): where it has no batch, there are only blanks."""
    stable = min(chunk.last_stable_offset, end)
    scan = readable(
        chunk.records, position=position, stable=chunk.last_stable_offset, aborted=chunk.aborted, where=where
    )
    if scan.next_offset == position and len(chunk.records) == 0 and stable > position:
        return Scan((Blank(position, stable - 1),), stable, 0)
    return scan
