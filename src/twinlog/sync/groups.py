"""Committed offsets of consumer groups: what the source has, within what the destination's logs hold (KIP-1279).

While a topic is mirrored the source's value counts, also where it goes backwards; once it is stopped nothing is
touched. A group that has members at the destination, or whose name means something else there, is left alone.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from twinlog.config.mirror import MirrorConfig
from twinlog.control.records import Skipped
from twinlog.errors import AuthorizationFailed, RetryLater, TwinlogError
from twinlog.names import TopicPartition
from twinlog.sync import share_groups
from twinlog.sync.group_rules import (
    KIND,
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
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops_groups import (
    Committed,
    ListedGroup,
    commit_offsets,
    committed_at,
    committed_offsets,
    list_groups,
)


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """What to commit for one group, and what not.

    `unread`: partitions whose log at the destination could not be looked at; `ahead`: those that stay as they are since
    the destination is ahead of the source; `others`: topics of the group that are not mirrored.
    """

    commits: Mapping[TopicPartition, Committed]
    unread: tuple[TopicPartition, ...] = ()
    ahead: tuple[TopicPartition, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def left(self) -> str:
        """Why a part of the group is left alone; empty: nothing is."""
        parts = [unread(self.unread)]
        if self.ahead:
            parts.append(f"{named(self.ahead)}: ahead at the destination, and not set back.")
        if self.others:
            parts.append(f"Its offsets in topics that are not mirrored here are left alone: {named(self.others)}.")
        return " ".join(filter(None, parts))


def clamp(wanted: Committed, log: Span) -> Committed:
    """Keep an offset within a log; one that had to be moved loses its note, which belonged to the other offset."""
    offset = max(log.start, min(wanted.offset, log.end))
    return wanted if offset == wanted.offset else Committed(offset)


def plan(
    theirs: Mapping[TopicPartition, Committed],
    ours: Mapping[TopicPartition, Committed],
    logs: Mapping[TopicPartition, Span],
    topics: Collection[str],
    *,
    backwards: bool = True,
) -> GroupPlan:
    """Return what a group lacks at the destination, of the partitions of `topics` alone.

    `backwards`: set back what is ahead at the destination.
    """
    wanted = {tp: committed for tp, committed in theirs.items() if tp.topic in topics}
    others = sorted({tp.topic for tp in theirs} - {tp.topic for tp in wanted}) if wanted else ()
    clamped = {tp: clamp(committed, logs[tp]) for tp, committed in wanted.items() if tp in logs}
    ahead = {
        tp for tp, committed in clamped.items() if not backwards and tp in ours and ours[tp].offset > committed.offset
    }
    return GroupPlan(
        {tp: committed for tp, committed in clamped.items() if ours.get(tp) != committed and tp not in ahead},
        unread=tuple(sorted(wanted.keys() - logs.keys())),
        ahead=tuple(sorted(ahead)),
        others=tuple(others),
    )


@dataclass(frozen=True, slots=True)
class _Seen:
    """Both sides at one look: the groups, their offsets as far as they were told at once, the destination's logs."""

    listed: int
    theirs: Mapping[str, ListedGroup]
    ours: Mapping[str, ListedGroup]
    offsets: tuple[Mapping[str, Mapping[TopicPartition, Committed]], Mapping[str, Mapping[TopicPartition, Committed]]]
    logs: Mapping[TopicPartition, Span]


async def sync(
    source: Cluster,
    destination: Cluster,
    config: MirrorConfig,
    topics: Collection[str],
    still: Callable[[str], bool] = lambda _topic: True,
) -> GroupsDone:
    """Bring the groups' offsets of mirrored `topics` over, as long as each is `still` mirrored.

    Raises where the groups of no source broker, or of some destination broker, can be listed.
    """
    if not topics:
        return GroupsDone()
    sides = Sides(source, destination, config, topics, still)
    lost: dict[int, RetryLater] = {}
    seen = await _look(sides, lost)
    told = await each(seen.theirs, lambda group: _one(sides, seen, group))
    done = summed(told)
    nothing = "" if lost else _nothing(seen, told)
    more = [Skipped(KIND, "*", nothing)] if nothing else away(lost)
    return GroupsDone(done.synced, (*more, *done.skipped), done.errors + len(lost))


async def behind(
    source: Cluster, destination: Cluster, config: MirrorConfig, topics: Collection[str]
) -> dict[str, list[str]]:
    """Return, by topic, the groups whose offsets at the destination are not what a sync would make them.

    Share groups count, too; groups that no sync would touch are left out. Raises as `sync` does, also for a single
    group.
    """
    late: dict[str, list[str]] = {}
    if not topics:
        return late
    sides = Sides(source, destination, config, topics)
    seen = await _look(sides)
    for group, theirs in seen.theirs.items():
        if not refusal(group, theirs, seen.ours.get(group)):
            planned = await _planned(sides, seen, group)
            for topic in sorted({tp.topic for tp in planned.commits}) if planned else ():
                late.setdefault(topic, []).append(group)
    for topic, groups in (await share_groups.behind(sides)).items():
        late[topic] = sorted([*late.get(topic, []), *groups])
    return late


async def _look(sides: Sides, lost: dict[int, RetryLater] | None = None) -> _Seen:
    """Look at both sides. The source's offsets come before the destination's logs, which only grow.

    With `lost`, source brokers that cannot be asked are put there, else they are an error. The destination must be
    known as a whole: nothing is committed on a guess.
    """
    listed = await list_groups(sides.source, away=lost)
    ours = await list_groups(sides.destination)
    wanted = sorted(filter(sides.config.syncs_group, listed))
    theirs = {group: listed[group] for group in wanted if listed[group].kind != "share"}
    asked = [one for group, one in theirs.items() if not refusal(group, one, ours.get(group))]
    there = await committed_at(sides.source, asked)
    concerned = {one.id for one in asked if sides.mirrors(there.get(one.id, ()))}
    here = await committed_at(sides.destination, [one for group, one in ours.items() if group in concerned])
    return _Seen(len(listed), theirs, ours, (there, here), await sides.logs())


async def _planned(sides: Sides, seen: _Seen, group: str) -> GroupPlan | None:
    """What one group lacks; None for one that has nothing in a mirrored topic."""
    there, here = seen.offsets
    theirs = there[group] if group in there else await committed_offsets(sides.source, group)
    if not sides.mirrors(theirs):
        return None
    ours: Mapping[TopicPartition, Committed] = {}
    if group in seen.ours:  # a group that the destination does not list has committed nothing there
        ours = here[group] if group in here else await committed_offsets(sides.destination, group)
    return plan(theirs, ours, seen.logs, sides.topics, backwards=sides.config.groups_sync_backwards)


async def _one(sides: Sides, seen: _Seen, group: str) -> Told:
    at_destination = seen.ours.get(group)
    reason = refusal(group, seen.theirs[group], at_destination)
    if reason:
        return Told(group, reason=reason, failed=clashes(seen.theirs[group], at_destination))
    try:
        planned = await _planned(sides, seen, group)
        if planned is None:
            return Told(group, concerned=False)
        commits = {tp: one for tp, one in planned.commits.items() if sides.still(tp.topic)}
        if not commits:
            return Told(group, reason=planned.left)
        told = await commit_offsets(sides.destination, group, commits)
    except AuthorizationFailed as missing:
        return Told(group, reason=f"{missing} {RIGHTS}", failed=True)
    except TwinlogError as error:
        return Told(group, reason=str(error), failed=True)
    reason, failed = answer(group, "consumer", "share or streams", told)
    return Told(group, synced=not reason, reason=reason or planned.left, failed=failed)


def _nothing(seen: _Seen, told: Collection[Told]) -> str:
    """Say why no group at all is synced, which may be a mistake; empty: some are, or each has a reason of its own."""
    if not seen.listed:
        return (
            "The source lists no group: it has none, or this principal may not see them (DESCRIBE on the groups, or on "
            "the cluster)."
        )
    if not told:
        return f"None of the source's {seen.listed} groups passes mirror.groups.include and mirror.groups.exclude."
    if any(one.concerned for one in told):
        return ""
    return f"None of the {len(told)} groups that pass the filters has an offset in a topic that is mirrored."
