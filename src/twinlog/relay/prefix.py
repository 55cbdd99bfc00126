"""Meets a source log that starts above 0: filler up to its first offset, then DeleteRecords.

Filler below the source's log start is read by nobody, since it is deleted before the partition counts as mirroring. It
is plain idempotent data of the partition's own producer, so a takeover in the middle goes on where the log ends.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from twinlog.batch.blank import filler_batch
from twinlog.errors import RetryLater
from twinlog.names import TopicPartition
from twinlog.relay.confirm import confirm
from twinlog.relay.destination import Destination, Stream
from twinlog.relay.longrun import FILLER_KEY, records_a_batch
from twinlog.relay.progress import DataStep, Plan, Progress, Send
from twinlog.wire.cluster import Cluster
from twinlog.wire.codes import code_name
from twinlog.wire.ops import alter_configs, delete_records, describe_configs

log = logging.getLogger("twinlog.prefix")

POLICY_VIOLATION = 44
# Only for as long as the prefix is deleted: retention must not touch the other partitions meanwhile.
DELETE_ONLY = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


async def fill_prefix(destination: Destination, stream: Stream, progress: Progress, start: int) -> Progress:
    """Bring the destination's log end to `start`, the source's log start, and return where it stands.

    Nothing is deleted here. Raises what `confirm` raises where an append does not succeed.
    """
    if progress.position >= start:
        return progress
    log.info("%s: filling offsets %d to %d, which the source no longer has", stream.where, progress.position, start - 1)
    while progress.position < start:
        count = min(records_a_batch(stream.max_message_bytes), start - progress.position)
        batch = filler_batch(
            count,
            producer_id=progress.producer_id,
            epoch=progress.epoch,
            sequence=progress.sequence,
            transactional=False,
            timestamp_ms=0,
            key=FILLER_KEY if stream.compacted else None,
            first=progress.position,
        )
        after = progress.behind_data(count, progress.position + count - 1, 0)
        plan = Plan((DataStep((Send(batch, barrier=True),)),), after)
        progress = confirm(progress, plan, await destination.append(stream, plan))
    return progress


async def follow_log_start(cluster: Cluster, where: TopicPartition, start: int) -> None:
    """Delete the destination's records below `start`, as the source has.

    A topic that is only compacted refuses DeleteRecords (error 44): its cleanup.policy is `delete` for that moment.
    Raises RetryLater where it cannot be done just now.
    """
    error = await _delete(cluster, where, start)
    if error == POLICY_VIOLATION:
        async with _delete_policy(cluster, where.topic):
            error = await _delete(cluster, where, start)
    if error:
        raise RetryLater(f"{where}: records below {start} cannot be deleted just now: {code_name(error)}")


async def _delete(cluster: Cluster, where: TopicPartition, start: int) -> int:
    return (await delete_records(cluster, {where: start}))[where].error


@asynccontextmanager
async def _delete_policy(cluster: Cluster, topic: str) -> AsyncIterator[None]:
    entries = (await describe_configs(cluster, "topic", [topic], keys=list(DELETE_ONLY)))[topic]
    before = {name: str(entry.value) for name, entry in entries.items() if entry.overridden}
    await alter_configs(cluster, "topic", topic, set_to=DELETE_ONLY)
    try:
        yield
    finally:
        await alter_configs(cluster, "topic", topic, set_to=before, delete=[n for n in DELETE_ONLY if n not in before])
