"""Meets a log that is to start above 0: filler up to its first offset, then DeleteRecords.

Filler below the log start is read by nobody, since it is deleted before the partition counts as mirroring. It
is plain idempotent data of the partition's own producer, so a takeover in the middle goes on where the log ends.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from twinlog.batch.blank import filler_batch
from twinlog.errors import PartitionFailed, RetryLater
from twinlog.names import TopicPartition
from twinlog.relay.confirm import confirm
from twinlog.relay.destination import Destination
from twinlog.relay.longrun import FILLER_KEY, records_a_batch
from twinlog.relay.progress import DataStep, Plan, Progress, Send
from twinlog.relay.stream import Stream
from twinlog.wire.cluster import Cluster
from twinlog.wire.codes import POLICY_VIOLATION, TOPIC_AUTHORIZATION_FAILED, code_name
from twinlog.wire.ops import alter_configs, delete_records, describe_configs

log = logging.getLogger("twinlog.prefix")

# For as long as the prefix is deleted. Should the worker be killed right then, the topic keeps them: it goes on being
# compacted, and nothing is deleted by its age or size.
DELETE_TOO = {"cleanup.policy": "compact,delete", "retention.ms": "-1", "retention.bytes": "-1"}
# Partitions of one topic do this one after the other; some dozens are done within a few seconds.
POLICY_ATTEMPTS, POLICY_PAUSE_S = 20, 0.25
# A billion offsets take minutes.
SAY_EVERY_S = 5.0


async def fill_prefix(
    destination: Destination,
    stream: Stream,
    progress: Progress,
    start: int,
    moved: Callable[[Progress], None] = lambda _: None,
) -> Progress:
    """Bring the destination's log end to `start`, its first offset to be, and return where it stands.

    `moved` is told of each batch. Nothing is deleted here. Raises what `confirm` raises where an append does not
    succeed, and what `moved` raises.
    """
    if progress.position >= start:
        return progress
    first, began = progress.position, time.monotonic()
    log.info("%s: filling offsets %d to %d, which are not copied", stream.where, first, start - 1)
    said = began
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
        plan = Plan((DataStep((Send(batch, barrier=True, acks_all=True),)),), after)
        progress = confirm(progress, plan, await destination.append(stream, plan))
        moved(progress)
        if time.monotonic() - said >= SAY_EVERY_S:
            said = time.monotonic()
            left_s = (start - progress.position) * (said - began) / (progress.position - first)
            log.info("%s: filled to offset %d of %d, %.0f s to go", stream.where, progress.position, start, left_s)
    return progress


async def follow_log_start(cluster: Cluster, where: TopicPartition, start: int) -> None:
    """Delete the destination's records below `start`, as the source has.

    A topic that is only compacted refuses DeleteRecords (error 44): for that moment it may delete as well, though
    nothing by itself. Raises RetryLater where it cannot be done just now, PartitionFailed where a right is missing.
    """
    error = 0
    for _ in range(POLICY_ATTEMPTS):
        error = await _delete(cluster, where, start)
        if error == POLICY_VIOLATION:
            error = await _delete_from_compacted(cluster, where, start)
        if error == TOPIC_AUTHORIZATION_FAILED:
            raise PartitionFailed(
                f"{where}: the destination refuses to delete records below {start}, which the source does not have. "
                f"Grant DELETE on topic {where.topic} to the worker's principal; it is tried again by itself.",
                retriable=True,
            )
        if not error:
            return
        await asyncio.sleep(POLICY_PAUSE_S)
    raise RetryLater(f"{where}: records below {start} cannot be deleted just now: {code_name(error)}")


async def _delete(cluster: Cluster, where: TopicPartition, start: int) -> int:
    return (await delete_records(cluster, {where: start}))[where].error


async def _delete_from_compacted(cluster: Cluster, where: TopicPartition, start: int) -> int:
    """Let the topic delete for a moment.

    Where another partition's relay does so just now, the configs are left alone, for they are not the topic's own.
    """
    entries = (await describe_configs(cluster, "topic", [where.topic], keys=list(DELETE_TOO)))[where.topic]
    if "delete" in str(entries["cleanup.policy"].value):
        return POLICY_VIOLATION
    before = {name: str(entry.value) for name, entry in entries.items() if entry.overridden}
    await alter_configs(cluster, "topic", where.topic, set_to=DELETE_TOO)
    try:
        return await _delete(cluster, where, start)
    finally:
        added = [name for name in DELETE_TOO if name not in before]
        await alter_configs(cluster, "topic", where.topic, set_to=before, delete=added)
