"""Looks at a compacted source partition before it is copied: whether its holes are worth filling, and how far.

The answer is a blank at the source, as near to its end as a few looks find one; what lies behind is written with
markers. Nothing depends on its being the last one.
"""

from dataclasses import dataclass

from twinlog.batch.scan import Blank
from twinlog.errors import TwinlogError
from twinlog.names import TopicPartition
from twinlog.relay.decide import sendable
from twinlog.relay.tailcheck import scan_of
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops import read_log

# Read at a time, and looks at most: enough to halve the span of any log down to one such piece.
LOOK_BYTES, MOST_LOOKS = 262_144, 24
# As many runs of blanks go as markers within the time that a cleaner needs to look at the topic at all.
WORTH_RUNS = 2_000
SEAM_LANE = "seam"


@dataclass(frozen=True, slots=True)
class Seam:
    """A blank at the source, the time of the first batch, and how many runs of blanks lie in front, roughly."""

    at: int
    oldest_ms: int
    runs: int


@dataclass(frozen=True, slots=True)
class _Look:
    """What lies from an offset on: the next offset, the last blank (None: there is none), runs of blanks, a time."""

    next_offset: int
    blank: int | None
    runs: int
    first_ms: int


async def find_seam(source: Cluster, where: TopicPartition, start: int, end: int) -> Seam | None:
    """Look for a blank near `end`, the source's last stable offset; None where filling is not worth it.

    A source that does not answer just now, or not as it should, is no error here.
    """
    if end - start < 2 * WORTH_RUNS:
        return None
    first = await _look(source, where, start, end)
    if first is None or first.runs == 0:
        return None
    at, low, high = first.blank, first.next_offset, end
    for _ in range(MOST_LOOKS):
        middle = (low + high) // 2
        look = await _look(source, where, middle, end) if low < high else None
        if look is None:
            break
        if look.blank is None:
            high = middle
        else:
            at, low = look.blank, look.next_offset
    if at is None:
        return None
    runs = first.runs * (at - start) // max(1, first.next_offset - start)
    return Seam(at, first.first_ms, runs) if runs >= WORTH_RUNS else None


async def _look(source: Cluster, where: TopicPartition, position: int, end: int) -> _Look | None:
    try:
        chunk = await read_log(source, where, position, max_bytes=LOOK_BYTES, read_committed=True, lane=SEAM_LANE)
        if chunk.error or not len(chunk.records):
            return None
        scan = scan_of(where, chunk, position, end)
        items = sendable(scan.items, position, where)
    except TwinlogError:
        return None
    if scan.next_offset <= position:
        return None
    blanks = [item for item in items if isinstance(item, Blank) and item.first < end]
    times = [item.max_timestamp for item in items if not isinstance(item, Blank)]
    return _Look(scan.next_offset, blanks[-1].first if blanks else None, len(blanks), times[0] if times else -1)
