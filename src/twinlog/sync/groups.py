"""Committed offsets of consumer groups: what the source has, within what the destination's logs hold (KIP-1279).

While a topic is mirrored the source's value counts, also where it goes backwards; once it is stopped nothing is
touched. A group that has members at the destination, or whose name means something else there, is left alone.
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from twinlog.config.mirror import MirrorConfig
from twinlog.control.records import Skipped
from twinlog.errors import AuthorizationFailed, TwinlogError
from twinlog.names import TopicPartition
from twinlog.sync.topics import Span, read_topics, spans
from twinlog.wire import codes
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops_groups import Committed, ListedGroup, commit_offsets, committed_offsets, list_groups

KIND: Final = "group"
AT_ONCE: Final = 16
"""Groups looked at side by side."""

_LIVE: Final = frozenset({22, 25, 27, 79, 113})
"""ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED, STALE_MEMBER_EPOCH."""
_EMPTY_STATES: Final = frozenset({"", "Empty", "Dead"})


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """What to commit for one group; `unread`: partitions whose log at the destination could not be looked at."""

    commits: Mapping[TopicPartition, Committed]
    unread: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupsDone:
    """What one pass came to: the groups that were given offsets, what was left alone, and how many failed."""

    synced: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    errors: int = 0


def clamp(wanted: Committed, log: Span) -> Committed:
    """Keep an offset within a log; one that had to be moved loses its note, which belonged to the other offset."""
    offset = max(log.start, min(wanted.offset, log.end))
    return wanted if offset == wanted.offset else Committed(offset)


def plan(
    theirs: Mapping[TopicPartition, Committed],
    ours: Mapping[TopicPartition, Committed],
    logs: Mapping[TopicPartition, Span],
    topics: Collection[str],
) -> GroupPlan:
    """Return what a group lacks at the destination, of the partitions of `topics` alone."""
    wanted = {tp: committed for tp, committed in theirs.items() if tp.topic in topics}
    unread = tuple(sorted(tp for tp in wanted if tp not in logs))
    clamped = {tp: clamp(committed, logs[tp]) for tp, committed in wanted.items() if tp in logs}
    return GroupPlan({tp: committed for tp, committed in clamped.items() if ours.get(tp) != committed}, unread)


def refusal(group: str, at_source: ListedGroup, at_destination: ListedGroup | None) -> str | None:
    """Why a group is not synced at all; None: it may be."""
    if at_source.kind != "consumer":
        return f"It is a {at_source.kind} group at the source; only consumer groups are synced."
    if at_destination is None:
        return None
    if at_destination.kind != "consumer":
        return _clash(group, at_destination.kind)
    if at_destination.state not in _EMPTY_STATES:
        return f"It has members at the destination (state {at_destination.state}), and they commit for themselves."
    return None


def _clash(group: str, kind: str) -> str:
    return (
        f"GroupIdNotFoundException: {group!r} is a consumer group at the source and a {kind} group at the destination. "
        f"Delete or rename the {kind} group at the destination, or add the name to mirror.groups.exclude."
    )


async def sync(source: Cluster, destination: Cluster, config: MirrorConfig, topics: Collection[str]) -> GroupsDone:
    """Bring the groups' offsets of mirrored `topics` over. Raises where groups cannot be listed at all."""
    if not topics:
        return GroupsDone()
    theirs, ours, logs = await _look(source, destination, topics)
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(group: str) -> tuple[str, str | None, bool]:
        async with gate:
            return await _one(source, destination, theirs[group], ours.get(group), logs=logs, topics=topics)

    told = await asyncio.gather(*(one(group) for group in sorted(theirs) if config.syncs_group(group)))
    return GroupsDone(
        synced=tuple(group for group, reason, _ in told if reason == ""),
        skipped=tuple(Skipped(KIND, group, reason) for group, reason, _ in told if reason),
        errors=sum(failed for _, _, failed in told),
    )


async def behind(
    source: Cluster, destination: Cluster, config: MirrorConfig, topics: Collection[str]
) -> dict[str, list[str]]:
    """Return, by topic, the groups whose offsets at the destination are not what a sync would make them.

    Groups that no sync would touch are left out. Raises as `sync` does, also for a single group.
    """
    late: dict[str, list[str]] = {}
    if not topics:
        return late
    theirs, ours, logs = await _look(source, destination, topics)
    for group in sorted(filter(config.syncs_group, theirs)):
        if refusal(group, theirs[group], ours.get(group)) is None:
            planned = await _planned(source, destination, group, logs, topics)
            for topic in sorted({tp.topic for tp in planned.commits}):
                late.setdefault(topic, []).append(group)
    return late


async def _look(
    source: Cluster, destination: Cluster, topics: Collection[str]
) -> tuple[dict[str, ListedGroup], dict[str, ListedGroup], dict[TopicPartition, Span]]:
    theirs = await list_groups(source)
    ours = await list_groups(destination)
    found, _ = await read_topics(destination, sorted(topics))
    return theirs, ours, await spans(destination, list(found.values()))


async def _planned(
    source: Cluster,
    destination: Cluster,
    group: str,
    logs: Mapping[TopicPartition, Span],
    topics: Collection[str],
) -> GroupPlan:
    theirs = await committed_offsets(source, group)
    if not any(tp.topic in topics for tp in theirs):
        return GroupPlan({})
    return plan(theirs, await committed_offsets(destination, group), logs, topics)


async def _one(
    source: Cluster,
    destination: Cluster,
    theirs: ListedGroup,
    ours: ListedGroup | None,
    *,
    logs: Mapping[TopicPartition, Span],
    topics: Collection[str],
) -> tuple[str, str | None, bool]:
    """Sync one group; returns its name, why it was left alone ("": synced, None: nothing to do), whether it failed."""
    group = theirs.id
    reason = refusal(group, theirs, ours)
    if reason is not None:
        return group, reason, False
    try:
        planned = await _planned(source, destination, group, logs, topics)
        if not planned.commits:
            return group, _unread(planned), False
        told = await commit_offsets(destination, group, planned.commits)
    except AuthorizationFailed as missing:
        return group, f"{missing} Needed are DESCRIBE at the source, READ at the destination, on the group.", True
    except TwinlogError as error:
        return group, str(error), True
    bad = next((code for code in told.values() if code), codes.NONE)
    return group, _answer(group, bad) or _unread(planned) or "", bool(bad) and bad not in _LIVE


def _unread(planned: GroupPlan) -> str | None:
    if not planned.unread:
        return None
    return f"{', '.join(map(str, planned.unread[:5]))}: the log at the destination could not be read this time."


def _answer(group: str, code: int) -> str:
    if code == codes.NONE:
        return ""
    if code in _LIVE:
        return "It has members at the destination, and they commit for themselves."
    if code == codes.GROUP_ID_NOT_FOUND:
        return _clash(group, "share or streams")
    return f"The destination refused its offsets ({codes.code_name(code)}, error {code})."
