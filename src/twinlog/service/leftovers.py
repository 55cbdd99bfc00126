"""What a prefix that was filled may leave to readers once nobody mirrors the partition: cleared up at the destination.

Everything here is bounded, needs no source, and is no reason for a stop to fail.
"""

import asyncio
import logging

from twinlog.control.lifecycle import PartitionState
from twinlog.control.records import NO_TOPIC_ID, PartitionRecord
from twinlog.errors import TwinlogError
from twinlog.names import TopicPartition
from twinlog.relay.prefix import follow_log_start
from twinlog.relay.takeover import abort_long_run
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops import EARLIEST, LATEST, list_offsets

log = logging.getLogger("twinlog.partition")

AT_REST = frozenset({PartitionState.PAUSED, PartitionState.STOPPED, PartitionState.FAILED})
LEFTOVERS_LANE = "leftovers"
# A coordinator that moves needs some seconds; a transaction that is left open ends by its timeout.
ABORT_WITHIN_S = 3.0


async def delete_filler(cluster: Cluster, where: TopicPartition, record: PartitionRecord, *, within_s: float) -> None:
    """Delete what is below the record's first offset, as far as the log goes.

    Only where the topic is surely the one that was meant: somebody may have deleted it and made one of that name.
    """
    try:
        async with asyncio.timeout(within_s):
            if not await _is_meant(cluster, where, record):
                return
            start = (await list_offsets(cluster, {where: EARLIEST}, lane=LEFTOVERS_LANE))[where]
            end = (await list_offsets(cluster, {where: LATEST}, lane=LEFTOVERS_LANE))[where]
            wanted = min(record.first_offset, end.offset)
            if not start.error and not end.error and start.offset < wanted:
                log.info("%s: deleting what fills offsets %d to %d", where, start.offset, wanted - 1)
                await follow_log_start(cluster, where, wanted, record.destination_topic_id)
    except (TwinlogError, TimeoutError) as error:
        log.warning(
            "%s: the filler below offset %d is not deleted: %s",
            where,
            record.first_offset,
            str(error) or "no answer in time",
        )


async def end_open(cluster: Cluster, where: TopicPartition, fill_id: str) -> None:
    """Abort what a former owner may have open, so that nothing is appended for it later."""
    try:
        async with asyncio.timeout(ABORT_WITHIN_S):
            await abort_long_run(cluster, fill_id)
    except (TwinlogError, TimeoutError) as error:
        log.warning("%s: what a former owner may have open is left to its timeout: %s", where, error)


async def _is_meant(cluster: Cluster, where: TopicPartition, record: PartitionRecord) -> bool:
    info = (await cluster.topics([where.topic])).get(where.topic)
    return info is not None and NO_TOPIC_ID != record.destination_topic_id == info.id
