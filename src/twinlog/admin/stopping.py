"""Stopping and pausing: record it, then wait until the workers report that nothing more will be written."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from uuid import UUID

from twinlog.admin import acls, promotion, state
from twinlog.admin.live import live_workers
from twinlog.admin.results import MoveMirrorTopicsResult, StopMirrorTopicsResult
from twinlog.config.mirror import MirrorConfig
from twinlog.config.patterns import Patterns
from twinlog.control.checks import find_mirror
from twinlog.control.commands import Handled, Moved, OnTopics, Stop, Stopped
from twinlog.control.describe import lag_between
from twinlog.control.handle import stop
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import UNKNOWN_OFFSET, Change
from twinlog.errors import BadInput, ClusterMirrorError, InvalidRequest, TwinlogError
from twinlog.names import TopicPartition
from twinlog.state.log import StateLog
from twinlog.wire.cluster import Cluster

LOOK_EVERY_S = 1.0
"""How often it is looked whether a worker is still alive; a worker writes every second."""

GROUPS_WITHIN_S = 3.0
"""For so long it is waited, behind STOPPED, for the groups to be synced once more; no worker takes longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopManner:
    """How to stop: seconds to wait for the workers, and to reach the source where the lag is to be checked before."""

    wait_s: float
    timeout_s: float = 0.0
    check_lag: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class _GroupsDue:
    """Topics whose groups a worker syncs once more when they are stopped, and when it did so last before."""

    topics: frozenset[str] = frozenset()
    before_ms: int = 0

    def over(self, image: Image, mirror: str) -> bool:
        """Whether that is done for what was stopped at once; of very many topics the worker names some only."""
        if not self.topics:
            return True
        record = image.skipped.get(mirror)
        if record is None or record.last_synced_ms == self.before_ms:
            return False
        return not self.topics.isdisjoint(record.last_synced)


async def stop_topics(
    cluster: Cluster, log: StateLog, mirror: str, patterns: Sequence[str], manner: StopManner
) -> StopMirrorTopicsResult:
    """Carry out a stop; `MirrorAdmin.stop_mirror_topics` says what it raises."""
    chosen = await _chosen(cluster, log, mirror, patterns, "stop")
    command = Stop(mirror, tuple(chosen), tuple(patterns), chosen)
    if manner.check_lag:
        refused = await _not_level(cluster, await state.load(log), command, manner.timeout_s)
        if refused is not None:
            return refused
    dry_run, wait_s = manner.dry_run, manner.wait_s
    due = _GroupsDue()

    def handler(image: Image) -> Handled[Stopped]:
        nonlocal due
        handled = stop(image, command)
        due = _groups_due(image, mirror, handled.reply.stopped)
        return handled

    judged = await state.change(cluster, log, handler, dry_run=dry_run)
    if dry_run:
        image = await state.load(log)
        given = acls.to_give(image, judged.mirror, judged.stopped)
        result = StopMirrorTopicsResult(
            judged.mirror,
            judged.stopped,
            judged.already,
            judged.failed,
            ends=_ends(image, judged.mirror, judged.already),
            acls=given,
            edits=judged.edits,
        )
    else:
        result = await _waited(log, judged, wait_s, due)
    return await _looked_again(cluster, log, result, manner.timeout_s) if manner.check_lag else result


async def _looked_again(
    cluster: Cluster, log: StateLog, result: StopMirrorTopicsResult, timeout_s: float
) -> StopMirrorTopicsResult:
    """Say what was written at the source between the check and the stop: nobody else would.

    Also of topics that are STOPPED already: who repeats a promotion until it is granted must not be told that it is.
    """
    ends = {where: end for where, end in result.ends.items() if end >= 0}
    try:
        mirror = find_mirror(await state.load(log), result.mirror)
        left = await promotion.left_behind(cluster, mirror, ends, timeout_s=timeout_s)
    except TwinlogError as unknown:
        note = f"The source could not be asked once more whether something was written since the check: {unknown}"
        return replace(result, notes=(*result.notes, note))
    late = {topic: promotion.left_at_source(result.mirror, topic, left) for topic in {where.topic for where in left}}
    return replace(result, failed={**result.failed, **late}, lags={**result.lags, **left})


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
    command = OnTopics(mirror, tuple(chosen), tuple(patterns), chosen)
    judged = await state.change(cluster, log, lambda image: how(image, command), dry_run=dry_run)
    if dry_run:
        return MoveMirrorTopicsResult(judged.mirror, judged.moved, judged.already, judged.failed)
    image = await state.load(log)
    topics = (*judged.moved, *judged.already)
    if until is not None and live_workers(image, _now_ms()):
        await _until(log, image, lambda: not _waiting_for(image, mirror, topics, until), wait_s)
    return MoveMirrorTopicsResult(
        mirror=judged.mirror,
        moved=judged.moved,
        already=judged.already,
        failed=judged.failed,
        waiting_for=() if until is None else _waiting_for(image, mirror, topics, until),
        live_workers=len(live_workers(image, _now_ms())),
    )


async def _chosen(cluster: Cluster, log: StateLog, mirror: str, patterns: Sequence[str], verb: str) -> dict[str, UUID]:
    """The destination's topics that are meant, by name, and their ids."""
    if not patterns:
        raise InvalidRequest(f"No topics were given to {verb}.")
    meant = Patterns(tuple(patterns))
    if not log.shards:
        find_mirror(Image(), mirror)
    topics = await cluster.topics(None)
    return {name: topics[name].id for name in meant.select(sorted(topics))}


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


async def _waited(log: StateLog, judged: Stopped, wait_s: float, due: _GroupsDue) -> StopMirrorTopicsResult:
    image = await state.load(log)
    topics, there = (*judged.stopped, *judged.already), PartitionState.STOPPED
    if live_workers(image, _now_ms()):
        began = time.monotonic()
        await _until(log, image, lambda: not _waiting_for(image, judged.mirror, topics, there), wait_s)
        left_s = min(GROUPS_WITHIN_S, wait_s - (time.monotonic() - began))
        await _until(log, image, lambda: due.over(image, judged.mirror), left_s)
    result = StopMirrorTopicsResult(
        mirror=judged.mirror,
        stopped=judged.stopped,
        already=judged.already,
        failed=judged.failed,
        ends=_ends(image, judged.mirror, topics),
        waiting_for=_waiting_for(image, judged.mirror, topics, there),
        live_workers=len(live_workers(image, _now_ms())),
        lags=_lags(image, judged.mirror, topics),
        edits=judged.edits,
    )
    return await acls.give(log, image, result)


def _groups_due(image: Image, mirror: str, stopped: Sequence[str]) -> _GroupsDue:
    record, configs = image.skipped.get(mirror), image.mirrors[mirror].configs
    topics = (image.topic(mirror, name) for name in stopped if _syncs_groups(configs))
    return _GroupsDue(
        frozenset(one.topic for one in topics if one is not None and one.desired is DesiredState.MIRRORING),
        0 if record is None else record.last_synced_ms,
    )


def _syncs_groups(configs: Mapping[str, str]) -> bool:
    try:
        return MirrorConfig.from_properties(configs, "the configs of the mirror").groups_sync_enabled
    except BadInput:  # no worker can use them either
        return False


async def _until(log: StateLog, image: Image, there: Callable[[], bool], wait_s: float) -> None:
    """Follow the state until all is `there`, or no worker is left; the image moves with it."""
    if there():
        return
    done = asyncio.Event()

    def look(changes: Sequence[Change]) -> None:
        if changes and there():
            done.set()

    following = asyncio.create_task(log.follow(image, look), name="follow the state")
    waiting = asyncio.create_task(done.wait(), name="wait for the state")
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
