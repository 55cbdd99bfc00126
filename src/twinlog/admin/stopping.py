"""Stopping topics: record it, then wait until the workers report that nothing more will be written."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress

from twinlog.admin import state
from twinlog.admin.live import live_workers
from twinlog.admin.results import StopMirrorTopicsResult
from twinlog.config.patterns import Patterns
from twinlog.control.checks import find_mirror
from twinlog.control.commands import Stop, Stopped
from twinlog.control.handle import stop
from twinlog.control.image import Image
from twinlog.control.lifecycle import PartitionState
from twinlog.control.records import Change
from twinlog.control.selection import names_in
from twinlog.errors import InvalidRequest
from twinlog.names import TopicPartition
from twinlog.state.log import StateLog
from twinlog.wire.cluster import Cluster

LOOK_EVERY_S = 1.0
"""How often it is looked whether a worker is still alive; a worker writes every second."""


async def stop_topics(
    cluster: Cluster, log: StateLog, mirror: str, patterns: Sequence[str], *, wait_s: float
) -> StopMirrorTopicsResult:
    """Carry out a stop; `MirrorAdmin.stop_mirror_topics` says what it raises."""
    if not patterns:
        raise InvalidRequest("No topics were given to stop.")
    named = names_in(patterns)
    expressions = Patterns(tuple(entry for entry in patterns if entry not in named))
    if not log.shards:
        find_mirror(Image(), mirror)
    topics = await cluster.topics(None)
    chosen = tuple(sorted(name for name in topics if name in named or expressions.matches(name)))
    command = Stop(mirror, chosen, tuple(patterns))
    judged = await state.change(cluster, log, lambda image: stop(image, command))
    return await _waited(log, judged, wait_s)


async def _waited(log: StateLog, judged: Stopped, wait_s: float) -> StopMirrorTopicsResult:
    image = await state.load(log)
    topics = (*judged.stopped, *judged.already)
    if live_workers(image, _now_ms()) and _waiting_for(image, judged.mirror, topics):
        await _until_stopped(log, image, judged.mirror, topics, wait_s)
    return StopMirrorTopicsResult(
        mirror=judged.mirror,
        stopped=judged.stopped,
        already=judged.already,
        failed=judged.failed,
        ends=_ends(image, judged.mirror, topics),
        waiting_for=_waiting_for(image, judged.mirror, topics),
        live_workers=len(live_workers(image, _now_ms())),
    )


async def _until_stopped(log: StateLog, image: Image, mirror: str, topics: Sequence[str], wait_s: float) -> None:
    """Follow the state until all partitions are STOPPED, or no worker is left; the image moves with it."""
    done = asyncio.Event()

    def look(changes: Sequence[Change]) -> None:
        if changes and not _waiting_for(image, mirror, topics):
            done.set()

    following = asyncio.create_task(log.follow(image, look), name="follow the state")
    waiting = asyncio.create_task(done.wait(), name="wait for STOPPED")
    try:
        deadline = time.monotonic() + wait_s
        while (left_s := deadline - time.monotonic()) > 0 and live_workers(image, _now_ms()):
            slice_s = min(left_s, LOOK_EVERY_S)
            ended, _ = await asyncio.wait({following, waiting}, timeout=slice_s, return_when=asyncio.FIRST_COMPLETED)
            if following in ended:
                following.result()
            if ended:
                return
    finally:
        for task in (following, waiting):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def _waiting_for(image: Image, mirror: str, topics: Sequence[str]) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic, number)
        for topic in sorted(topics)
        if (record := image.topic(mirror, topic)) is not None
        for number in range(record.partitions)
        if image.state(mirror, topic, number) is not PartitionState.STOPPED
    )


def _ends(image: Image, mirror: str, topics: Sequence[str]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, stored.partition): stored.last_mirrored_offset
        for topic in sorted(topics)
        for stored in image.partitions_of(mirror, topic)
        if stored.state is PartitionState.STOPPED
    }


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
