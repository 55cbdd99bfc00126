"""Where a mirror's own writing ends in a log that others may have written to since.

Asked for where the mirror's last owner has died: what it came to know of the end died with it, and a topic that was
stopped meanwhile may have been written to by applications before another worker looks at it.
"""

import asyncio
import logging
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from twinlog.batch.scan import batches
from twinlog.batch.view import Batch
from twinlog.errors import TwinlogError
from twinlog.names import TopicPartition
from twinlog.wire.cluster import Cluster
from twinlog.wire.codes import check
from twinlog.wire.ops import EARLIEST, list_offsets, read_log

log = logging.getLogger("twinlog.own_end")

READ_BYTES: Final = 4_194_304
WITHIN_S: Final = 3.0
"""What is written between two publications of an owner's position, read at the rate of a slow disk."""


class OwnEnd(NamedTuple):
    """Where the mirror's writing ends; without `told` it may have written more."""

    offset: int
    told: bool


async def own_end(cluster: Cluster, where: TopicPartition, first: int, end: int, producers: AbstractSet[int]) -> OwnEnd:
    """The offset behind the last batch of `producers` below `end`; at least `first`, up to which all is the mirror's.

    What cannot be read in time, and blanks that were written under a transaction of their own, count as not the
    mirror's: this end is compared with, so too low costs a longer comparison, and too high somebody's records.
    """
    found = position = first
    told = True
    try:
        async with asyncio.timeout(WITHIN_S):
            start = (await list_offsets(cluster, {where: EARLIEST}))[where]
            check(start.error, f"the start of {where} cannot be told on the {cluster}")
            position = max(first, start.offset)
            while position < end:
                chunk = await read_log(cluster, where, position, max_bytes=READ_BYTES, read_committed=False)
                check(chunk.error, f"{where} could not be read at offset {position} on the {cluster}")
                read = [batch for batch in batches(chunk.records, where) if isinstance(batch, Batch)]
                if not read or read[-1].next_offset <= position:
                    told = False
                    break
                ours = [batch.next_offset for batch in read if batch.producer_id in producers]
                found = max(found, *ours) if ours else found
                position = read[-1].next_offset
    except (TimeoutError, TwinlogError) as error:
        why = str(error) or f"not read within {WITHIN_S:.0f} s"
        log.warning("%s: from offset %d on it cannot be told what the mirror wrote: %s", where, position, why)
        told = False
    return OwnEnd(min(found, end), told)
