"""Where a partition's twin begins when its mirror was told to leave out what lies before an offset.

The chosen offset counts only where the destination had nothing: what it has already is never deleted for it. Whether
it counted then is read from the log itself, so nothing has to be remembered of it.
"""

from collections.abc import Collection
from typing import NamedTuple

from twinlog.batch.blank import MAX_FILLER, filler
from twinlog.batch.scan import batches
from twinlog.batch.view import Batch
from twinlog.names import TopicPartition
from twinlog.relay.longrun import FILLER_KEY, NULL_KEY
from twinlog.relay.lookups import unreadable
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops import read_log


class Place(NamedTuple):
    """Log starts and ends of both sides, as `takeover.Bounds` has them."""

    source_start: int
    source_end: int
    start: int
    end: int


async def beginning(
    cluster: Cluster, where: TopicPartition, chosen: int, at: Place, *, producers: Collection[int], agreed: bool
) -> int:
    """The offset that the destination's log is to begin at: the source's log start, or `chosen` where that counts.

    `chosen` is -1 for none; what is undecided at the source is never left out. It counts where the destination is
    empty and both sides never `agreed` before, and where the destination begins with filler of one of `producers`: the
    filling was cut short, or a broker that died has forgotten that it was deleted. Raises RetryLater where the
    destination cannot be read just now.
    """
    wanted = min(chosen, at.source_end)
    if wanted <= max(at.source_start, at.start):
        return at.source_start
    if at.start == at.end:
        return at.source_start if agreed else wanted
    return wanted if await _is_filler(cluster, where, at.start, producers) else at.source_start


async def _is_filler(cluster: Cluster, where: TopicPartition, offset: int, producers: Collection[int]) -> bool:
    chunk = await read_log(cluster, where, offset, max_bytes=65_536, read_committed=False)
    if chunk.error:
        raise unreadable(where, chunk.error, offset, side="destination")
    first = next(iter(batches(chunk.records, where)), None)
    return isinstance(first, Batch) and first.producer_id in producers and _holds_filler(first)


def _holds_filler(batch: Batch) -> bool:
    if batch.max_timestamp != 0 or not 1 <= batch.count <= MAX_FILLER:
        return False
    return any(bytes(batch.body) == filler(batch.count, key=key) for key in (NULL_KEY, FILLER_KEY))
