"""Meets a log that is to start above 0: filler up to its first offset, then DeleteRecords.

The filler is blanks, so that nobody who reads with `read_committed` ever sees it: while it is written, where it stays
since that was cut short, and where a broker that died has forgotten that it was deleted. It goes in runs, each one
aborted transaction of the partition's own (`longrun`), and behind each an owner may end. Where the right for that is
missing it is plain data of the partition's own producer; a takeover goes on where the log ends in either case.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from twinlog.batch.blank import filler_batch
from twinlog.errors import PartitionFailed, RetryLater
from twinlog.names import TopicPartition, ids_differ
from twinlog.relay.confirm import confirm
from twinlog.relay.destination import Destination
from twinlog.relay.longrun import FILLER_KEY, records_a_batch
from twinlog.relay.progress import LAST_GOOD_EPOCH, BlankStep, DataStep, Plan, Progress, Refused, Send
from twinlog.relay.stream import Stream
from twinlog.wire.cluster import Cluster
from twinlog.wire.codes import (
    POLICY_VIOLATION,
    TOPIC_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    code_name,
)
from twinlog.wire.ops import alter_configs, delete_records, describe_configs

log = logging.getLogger("twinlog.prefix")

# For as long as the prefix is deleted. Should the worker be killed right then, the topic keeps them: it goes on being
# compacted, and nothing is deleted by its age or size.
DELETE_TOO = {"cleanup.policy": "compact,delete", "retention.ms": "-1", "retention.bytes": "-1"}
# Partitions of one topic do this one after the other; some dozens are done within a few seconds.
POLICY_ATTEMPTS, POLICY_PAUSE_S = 20, 0.25
# Offsets of a run, which nothing interrupts: some seconds. Shorter ones than the second go faster as markers.
MOST_A_RUN, AT_ONCE_FROM = 5_000_000, 1_000
# Each run takes an epoch, and none are to be spent that later blanks need: enough for 80 billion offsets.
MOST_EPOCHS = LAST_GOOD_EPOCH // 2
# A billion offsets take minutes.
SAY_EVERY_S = 5.0


class Filled(NamedTuple):
    """Where the partition stands; `closed_off`: its own transactional id was used, and has nothing open any more."""

    progress: Progress
    closed_off: bool


async def fill_prefix(
    destination: Destination,
    stream: Stream,
    progress: Progress,
    start: int,
    moved: Callable[[Progress], None] = lambda _: None,
    *,
    hidden: bool = True,
) -> Filled:
    """Bring the destination's log end to `start`, its first offset to be.

    `moved` is told of each run. `hidden`: blanks may be written. Nothing is deleted here. Raises what `confirm` raises
    where an append does not succeed, and what `moved` raises.
    """
    if progress.position >= start:
        return Filled(progress, closed_off=False)
    first, began, closed_off = progress.position, time.monotonic(), False
    log.info("%s: filling offsets %d to %d, which are not copied", stream.where, first, start - 1)
    said = began
    while progress.position < start:
        plan = (
            _run(progress, start) if hidden and progress.spent_epoch < MOST_EPOCHS else _plain(stream, progress, start)
        )
        answer = await destination.append(stream, plan)
        if isinstance(answer, Refused) and answer.code == TRANSACTIONAL_ID_AUTHORIZATION_FAILED and hidden:
            log.warning("%s: filler is readable until it is deleted: %s", stream.where, answer.message)
            hidden = False
            continue
        progress = confirm(progress, plan, answer)
        closed_off = closed_off or any(isinstance(step, BlankStep) and step.at_once for step in plan.steps)
        moved(progress)
        if time.monotonic() - said >= SAY_EVERY_S:
            said = time.monotonic()
            left_s = (start - progress.position) * (said - began) / (progress.position - first)
            log.info("%s: filled to offset %d of %d, %.0f s to go", stream.where, progress.position, start, left_s)
    return Filled(progress, closed_off)


def _run(progress: Progress, start: int) -> Plan:
    """The next run of blanks."""
    count = min(MOST_A_RUN, start - progress.position)
    epoch = progress.marker_epoch()
    step = BlankStep(
        progress.position,
        count,
        progress.producer_id,
        epoch,
        probe=progress.first_marker,
        at_once=count >= AT_ONCE_FROM,
    )
    return Plan((step,), progress.behind_blanks(epoch, progress.position + count - 1, time.time_ns() // 1_000_000))


def _plain(stream: Stream, progress: Progress, start: int) -> Plan:
    """The next batch of filler that is data."""
    count = min(records_a_batch(stream.max_batch_bytes), start - progress.position)
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
    return Plan((DataStep((Send(batch, barrier=True, acks_all=True),)),), after)


async def follow_log_start(cluster: Cluster, where: TopicPartition, start: int, topic_id: UUID) -> None:
    """Delete the destination's records below `start`, as the source has.

    Requests name the topic; that it is still the one with this id is looked at right before. A topic that is only
    compacted refuses DeleteRecords (error 44): for that moment it may delete as well, though nothing by itself. Raises
    RetryLater where it cannot be done just now, PartitionFailed where a right is missing.
    """
    error = 0
    for _ in range(POLICY_ATTEMPTS):
        await _check_meant(cluster, where, topic_id)
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


async def _check_meant(cluster: Cluster, where: TopicPartition, topic_id: UUID) -> None:
    info = (await cluster.topics([where.topic])).get(where.topic)
    if info is None or ids_differ(topic_id, info.id):
        raise RetryLater(f"{where}: the topic with id {topic_id} is not there any more; nothing is deleted")


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
