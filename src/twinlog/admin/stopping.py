"""Stopping and pausing: record it, then wait until the workers report that nothing more will be written."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from twinlog.admin import acls, promotion, state
from twinlog.admin.live import live_workers
from twinlog.admin.results import MoveMirrorTopicsResult, StopMirrorTopicsResult
from twinlog.config.patterns import Patterns
from twinlog.control.checks import find_mirror
from twinlog.control.commands import Handled, Moved, OnTopics, Stop, Stopped
from twinlog.control.describe import lag_between
from twinlog.control.handle import stop
from twinlog.control.image import Image
from twinlog.control.lifecycle import PartitionState
from twinlog.control.records import UNKNOWN_OFFSET, Change
from twinlog.control.selection import names_in
from twinlog.errors import ClusterMirrorError, InvalidRequest
from twinlog.names import TopicPartition
from twinlog.state.log import StateLog
from twinlog.wire.cluster import Cluster

LOOK_EVERY_S = 1.0
"""How often it is looked whether a worker is still alive; a worker writes every second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopManner:
    """How to stop: seconds to wait for the workers, and to reach the source where the lag is to be checked before."""

    wait_s: float
    timeout_s: float = 0.0
    check_lag: bool = False
    dry_run: bool = False


async def stop_topics(
    cluster: Cluster, log: StateLog, mirror: str, patterns: Sequence[str], manner: StopManner
) -> StopMirrorTopicsResult:
    """Carry out a stop; `MirrorAdmin.stop_mirror_topics` says what it raises."""
    command = Stop(mirror, await _chosen(cluster, log, mirror, patterns, "stop"), tuple(patterns))
    if manner.check_lag:
        refused = await _not_level(cluster, await state.load(log), command, manner.timeout_s)
        if refused is not None:
            return refused
    dry_run, wait_s = manner.dry_run, manner.wait_s
    judged = await state.change(cluster, log, lambda image: stop(image, command), dry_run=dry_run)
    if dry_run:
        given = acls.to_give(await state.load(log), judged.mirror, judged.stopped)
        return StopMirrorTopicsResult(judged.mirror, judged.stopped, judged.already, judged.failed, acls=given)
    return await _waited(log, judged, wait_s)


async def move_topics(
    cluster: Cluster,
    log: StateLog,
    mirror: str,
    patterns: Sequence[str],
    *,
    how: Callable[[Image, OnTopics], Handled[Moved]],
    until: PartitionState | None = None,
    wait_s: float = 0.0,
    dry_run: bool = False,
) -> MoveMirrorTopicsResult:
    """Pause, resume or recover topics by `how`, and wait until all their partitions are in the state `until`."""
    chosen = await _chosen(cluster, log, mirror, patterns, how.__name__)
    command = OnTopics(mirror, chosen, tuple(patterns))
    judged = await state.change(cluster, log, lambda image: how(image, command), dry_run=dry_run)
    if dry_run:
        return MoveMirrorTopicsResult(judged.mirror, judged.moved, judged.already, judged.failed)
    image = await state.load(log)
    topics = (*judged.moved, *judged.already)
    if until is not None and live_workers(image, _now_ms()) and _waiting_for(image, mirror, topics, until):
        await _until(log, image, mirror, topics, there=until, wait_s=wait_s)
    return MoveMirrorTopicsResult(
        mirror=judged.mirror,
        moved=judged.moved,
        already=judged.already,
        failed=judged.failed,
        waiting_for=() if until is None else _waiting_for(image, mirror, topics, until),
        live_workers=len(live_workers(image, _now_ms())),
    )


async def _chosen(cluster: Cluster, log: StateLog, mirror: str, patterns: Sequence[str], verb: str) -> tuple[str, ...]:
    """The destination's topics that are meant."""
    if not patterns:
        raise InvalidRequest(f"No topics were given to {verb}.")
    named = names_in(patterns)
    expressions = Patterns(tuple(entry for entry in patterns if entry not in named))
    if not log.shards:
        find_mirror(Image(), mirror)
    topics = await cluster.topics(None)
    return tuple(sorted(name for name in topics if name in named or expressions.matches(name)))


async def _not_level(cluster: Cluster, image: Image, command: Stop, timeout_s: float) -> StopMirrorTopicsResult | None:
    """Why a promotion is refused as a whole; None: every topic of it is level, or stopped already.

    Never in part: the patterns, which a stop remembers, are about all of them.
    """
    judged = stop(image, command).reply
    mirror = find_mirror(image, command.mirror)
    late = await promotion.behind(cluster, image, mirror, judged.stopped, timeout_s=timeout_s)
    failed: dict[str, ClusterMirrorError] = dict(judged.failed)
    for name, lacking in late.items():
        record = image.topic(mirror.mirror, name)
        if record is not None:
            failed[name] = promotion.refusal(record, lacking)
    if not failed:
        return None
    level = tuple(name for name in judged.stopped if name not in late)
    return StopMirrorTopicsResult(mirror.mirror, already=judged.already, failed=failed, behind=late, level=level)


async def _waited(log: StateLog, judged: Stopped, wait_s: float) -> StopMirrorTopicsResult:
    image = await state.load(log)
    topics, there = (*judged.stopped, *judged.already), PartitionState.STOPPED
    if live_workers(image, _now_ms()) and _waiting_for(image, judged.mirror, topics, there):
        await _until(log, image, judged.mirror, topics, there=there, wait_s=wait_s)
    result = StopMirrorTopicsResult(
        mirror=judged.mirror,
        stopped=judged.stopped,
        already=judged.already,
        failed=judged.failed,
        ends=_ends(image, judged.mirror, topics),
        waiting_for=_waiting_for(image, judged.mirror, topics, there),
        live_workers=len(live_workers(image, _now_ms())),
        lags=_lags(image, judged.mirror, topics),
    )
    return await acls.give(log, image, result)


async def _until(
    log: StateLog, image: Image, mirror: str, topics: Sequence[str], *, there: PartitionState, wait_s: float
) -> None:
    """Follow the state until all partitions are `there`, or no worker is left; the image moves with it."""
    done = asyncio.Event()

    def look(changes: Sequence[Change]) -> None:
        if changes and not _waiting_for(image, mirror, topics, there):
            done.set()

    following = asyncio.create_task(log.follow(image, look), name="follow the state")
    waiting = asyncio.create_task(done.wait(), name=f"wait for {there.name}")
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


def _waiting_for(image: Image, mirror: str, topics: Sequence[str], there: PartitionState) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic, number)
        for topic in sorted(topics)
        if (record := image.topic(mirror, topic)) is not None
        for number in range(record.partitions)
        if image.state(mirror, topic, number) is not there
    )


def _ends(image: Image, mirror: str, topics: Sequence[str]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, stored.partition): stored.last_mirrored_offset
        for topic in sorted(topics)
        for stored in image.partitions_of(mirror, topic)
        if stored.state is PartitionState.STOPPED
    }


def _lags(image: Image, mirror: str, topics: Sequence[str]) -> dict[TopicPartition, int]:
    """How far each partition was behind when its source was last looked at."""
    lags: dict[TopicPartition, int] = {}
    for topic in sorted(topics):
        for stored in image.partitions_of(mirror, topic):
            published = image.published(mirror, topic, stored.partition)
            seen = UNKNOWN_OFFSET if published is None else published.figure.source_stable_offset
            lag = lag_between(seen, stored.last_mirrored_offset)
            if lag != UNKNOWN_OFFSET:
                lags[TopicPartition(topic, stored.partition)] = lag
    return lags


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
