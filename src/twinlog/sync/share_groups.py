"""Start offsets of share groups: what the source has, within what the destination's logs hold (KIP-1279, KIP-932).

A share group's start offset is the first record that it has not done with. What it has already done with behind that
one is not known to the destination, so it gets those records again. A phase of its own, so that no group is taken for
one of another kind.
"""

import contextlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from twinlog.config.mirror import MirrorConfig
from twinlog.errors import AuthorizationFailed, BrokerError, RetryLater, TwinlogError, UnsupportedVersion
from twinlog.names import TopicPartition
from twinlog.sync.group_rules import (
    RIGHTS,
    GroupsDone,
    Sides,
    Told,
    answer,
    away,
    clashes,
    each,
    named,
    refusal,
    summed,
    unread,
)
from twinlog.sync.topics import Span
from twinlog.wire import codes
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops_groups import ListedGroup, list_groups
from twinlog.wire.ops_share import alter_share_start_offsets, share_start_offsets

SHARE: Final = "share"


@dataclass(frozen=True, slots=True)
class SharePlan:
    """Where one group is to begin; `unread` and `ahead` as in `groups.GroupPlan`."""

    starts: Mapping[TopicPartition, int]
    unread: tuple[TopicPartition, ...] = ()
    ahead: tuple[TopicPartition, ...] = ()

    @property
    def left(self) -> str:
        """Why a part of the group is left alone; empty: nothing is."""
        ahead = f"{named(self.ahead)}: ahead at the destination, and not set back." if self.ahead else ""
        return " ".join(filter(None, (unread(self.unread), ahead)))


@dataclass(frozen=True, slots=True)
class _Seen:
    theirs: Mapping[str, ListedGroup]
    ours: Mapping[str, ListedGroup]
    logs: Mapping[TopicPartition, Span]


def plan(
    theirs: Mapping[TopicPartition, int],
    ours: Mapping[TopicPartition, int],
    logs: Mapping[TopicPartition, Span],
    topics: Collection[str],
    *,
    backwards: bool = True,
) -> SharePlan:
    """Return where a group is to begin at the destination and does not, of the partitions of `topics` alone."""
    wanted = {tp: start for tp, start in theirs.items() if tp.topic in topics}
    kept = {tp: max(logs[tp].start, min(start, logs[tp].end)) for tp, start in wanted.items() if tp in logs}
    ahead = {tp for tp, start in kept.items() if not backwards and ours.get(tp, start) > start}
    return SharePlan(
        {tp: start for tp, start in kept.items() if ours.get(tp) != start and tp not in ahead},
        unread=tuple(sorted(wanted.keys() - logs.keys())),
        ahead=tuple(sorted(ahead)),
    )


async def sync(
    source: Cluster,
    destination: Cluster,
    config: MirrorConfig,
    topics: Collection[str],
    still: Callable[[str], bool] = lambda _topic: True,
) -> GroupsDone:
    """Let share groups begin at the destination where they stand at the source, in mirrored `topics`.

    `still` as in `groups.sync`. Nothing is done where the source has no share groups. Raises as that does.
    """
    sides = Sides(source, destination, config, topics, still)
    lost: dict[int, RetryLater] = {}
    seen = await _look(sides, lost) if topics else None
    if seen is None:
        return GroupsDone(skipped=tuple(away(lost)), errors=len(lost))
    done = summed(await each(seen.theirs, lambda group: _one(sides, seen, group)))
    return GroupsDone(done.synced, (*away(lost), *done.skipped), done.errors + len(lost))


async def behind(sides: Sides) -> dict[str, list[str]]:
    """Return, by topic, the share groups that a sync would move. Raises as `sync` does, also for a single group."""
    late: dict[str, list[str]] = {}
    seen = await _look(sides)
    if seen is None:
        return late
    for group, theirs in seen.theirs.items():
        if refusal(group, theirs, seen.ours.get(group)):
            continue
        with contextlib.suppress(UnsupportedVersion):  # no sync can move it
            planned = await _planned(sides, seen, group)
            for topic in sorted({tp.topic for tp in planned.starts}):
                late.setdefault(topic, []).append(group)
    return late


async def _look(sides: Sides, lost: dict[int, RetryLater] | None = None) -> _Seen | None:
    """Look at both sides, as `groups` does; None where the source has no share group that the filters let in."""
    listed = await list_groups(sides.source, types=[SHARE], away=lost)
    wanted = sorted(filter(sides.config.syncs_group, listed))
    theirs = {group: listed[group] for group in wanted if listed[group].kind == SHARE}
    return _Seen(theirs, await list_groups(sides.destination), await sides.logs()) if theirs else None


async def _planned(sides: Sides, seen: _Seen, group: str) -> SharePlan:
    theirs = await share_start_offsets(sides.source, group)
    if not sides.mirrors(theirs):
        return SharePlan({})
    ours = await _begun(sides.destination, group)
    return plan(theirs, ours, seen.logs, sides.topics, backwards=sides.config.groups_sync_backwards)


async def _begun(destination: Cluster, group: str) -> Mapping[TopicPartition, int]:
    """Where a group begins at the destination; asked also of one that is not listed, since brokers may be too old."""
    try:
        return await share_start_offsets(destination, group)
    except BrokerError as error:
        if error.code != codes.GROUP_ID_NOT_FOUND:
            raise
        return {}


async def _one(sides: Sides, seen: _Seen, group: str) -> Told:
    at_destination = seen.ours.get(group)
    reason = refusal(group, seen.theirs[group], at_destination)
    if reason:
        return Told(group, reason=reason, failed=clashes(seen.theirs[group], at_destination))
    try:
        planned = await _planned(sides, seen, group)
        starts = {tp: one for tp, one in planned.starts.items() if sides.still(tp.topic)}
        if not starts:
            return Told(group, reason=planned.left)
        told = await alter_share_start_offsets(sides.destination, group, starts)
    except UnsupportedVersion as error:
        return Told(group, reason=f"It is a share group, and not both sides can tell and set where such begin: {error}")
    except AuthorizationFailed as missing:
        return Told(group, reason=f"{missing} {RIGHTS}", failed=True)
    except TwinlogError as error:
        return Told(group, reason=str(error), failed=True)
    reason, failed = answer(group, SHARE, "consumer or streams", told)
    return Told(group, synced=not reason, reason=reason or planned.left, failed=failed)
