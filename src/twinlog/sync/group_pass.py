"""One pass over the groups of one kind: look at both sides, compare, and commit what the destination lacks.

What differs from kind to kind is how offsets are read and written (`Kind`); the rules are `group_rules`.
"""

from collections.abc import Awaitable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from twinlog.control.records import Skipped
from twinlog.errors import AuthorizationFailed, RetryLater, TwinlogError, UnsupportedVersion
from twinlog.names import TopicPartition
from twinlog.sync.group_rules import (
    KIND,
    RIGHTS,
    GroupPlan,
    GroupsDone,
    Sides,
    Told,
    answer,
    away,
    clashes,
    each,
    plan,
    refusal,
    summed,
)
from twinlog.sync.topics import Span
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops_groups import Committed, ListedGroup, list_groups

Offsets = Mapping[TopicPartition, Committed]


class Kind(Protocol):
    """How the offsets of one kind of group are read and written.

    `others` names what else a group of that name may be. `types` are what brokers are asked for. `optional`: why groups
    of brokers that are too old for it are left alone; "": that is a failure. `rare`: mostly there are none, and then
    the destination is not asked, nor is it worth a word.
    """

    name: str
    others: str
    types: tuple[str, ...]
    optional: str
    rare: bool

    def takes(self, group: ListedGroup) -> bool:
        """Whether a group of the source is for this pass."""
        ...

    async def many(self, cluster: Cluster, groups: Collection[ListedGroup], /) -> Mapping[str, Offsets]:
        """Return the offsets of as many of the groups as tell them at once."""
        ...

    async def read(self, cluster: Cluster, group: str) -> Offsets:
        """Return a group's offsets."""
        ...

    async def read_here(self, cluster: Cluster, group: str, *, listed: bool) -> Offsets:
        """Return its offsets at the destination, which may not list it."""
        ...

    async def write(self, cluster: Cluster, group: str, offsets: Offsets) -> Mapping[TopicPartition, int]:
        """Commit; returns each partition's code."""
        ...


@dataclass(frozen=True, slots=True)
class Seen:
    """Both sides at one look: the groups, their offsets as far as they were told at once, the destination's logs.

    `listed`: how many groups the source has.
    """

    listed: int
    theirs: Mapping[str, ListedGroup]
    ours: Mapping[str, ListedGroup]
    offsets: tuple[Mapping[str, Offsets], Mapping[str, Offsets]]
    logs: Mapping[TopicPartition, Span]


async def sync(kind: Kind, sides: Sides) -> GroupsDone:
    """Bring the groups' offsets of mirrored topics over, as long as each is `still` mirrored.

    Raises where the groups of no source broker, or of some destination broker, can be listed.
    """
    if not sides.topics:
        return GroupsDone()
    lost: dict[int, RetryLater] = {}
    seen = await _look(kind, sides, lost)

    def one(group: str) -> Awaitable[Told]:
        return _one(kind, sides, seen, group)

    told = await each(seen.theirs, one)
    done = summed(told)
    nothing = "" if lost or kind.rare else _nothing(seen, told)
    more = [Skipped(KIND, "*", nothing)] if nothing else away(lost)
    return GroupsDone(done.synced, (*more, *done.skipped), done.errors + len(lost))


async def behind(kind: Kind, sides: Sides) -> dict[str, list[str]]:
    """Return, by topic, the groups that a sync would move. Raises as `sync` does, also for a single group."""
    late: dict[str, list[str]] = {}
    seen = await _look(kind, sides)
    for group, theirs in seen.theirs.items():
        if refusal(group, theirs, seen.ours.get(group)):
            continue
        try:
            planned = await _planned(kind, sides, seen, group)
        except UnsupportedVersion:
            if not kind.optional:
                raise
            continue  # no sync can move it
        for topic in sorted({tp.topic for tp in planned.commits}) if planned else ():
            late.setdefault(topic, []).append(group)
    return late


async def _look(kind: Kind, sides: Sides, lost: dict[int, RetryLater] | None = None) -> Seen:
    """Look at both sides. The source's offsets come before the destination's logs, which only grow.

    With `lost`, source brokers that cannot be asked are put there, else they are an error. The destination must be
    known as a whole: nothing is committed on a guess.
    """
    listed = await list_groups(sides.source, types=kind.types, away=lost)
    wanted = sorted(filter(sides.config.syncs_group, listed))
    theirs = {group: listed[group] for group in wanted if kind.takes(listed[group])}
    if kind.rare and not theirs:
        return Seen(len(listed), theirs, {}, ({}, {}), {})
    ours = await list_groups(sides.destination)
    asked = [one for group, one in theirs.items() if not refusal(group, one, ours.get(group))]
    there = await kind.many(sides.source, asked)
    concerned = {one.id for one in asked if sides.mirrors(there.get(one.id, ()))}
    here = await kind.many(sides.destination, [one for group, one in ours.items() if group in concerned])
    return Seen(len(listed), theirs, ours, (there, here), await sides.logs())


async def _planned(kind: Kind, sides: Sides, seen: Seen, group: str) -> GroupPlan | None:
    """What one group lacks; None for one that has nothing in a mirrored topic."""
    there, here = seen.offsets
    theirs = there[group] if group in there else await kind.read(sides.source, group)
    if not sides.mirrors(theirs):
        return None
    if group in here:
        ours = here[group]
    else:
        ours = await kind.read_here(sides.destination, group, listed=group in seen.ours)
    return plan(theirs, ours, seen.logs, sides.topics, backwards=sides.config.groups_sync_backwards)


async def _one(kind: Kind, sides: Sides, seen: Seen, group: str) -> Told:
    at_destination = seen.ours.get(group)
    reason = refusal(group, seen.theirs[group], at_destination)
    if reason:
        return Told(group, reason=reason, failed=clashes(seen.theirs[group], at_destination))
    try:
        planned = await _planned(kind, sides, seen, group)
        if planned is None:
            return Told(group, concerned=False)
        commits = {tp: one for tp, one in planned.commits.items() if sides.still(tp.topic)}
        if not commits:
            return Told(group, reason=planned.left)
        told = await kind.write(sides.destination, group, commits)
    except AuthorizationFailed as missing:
        return Told(group, reason=f"{missing} {RIGHTS}", failed=True)
    except TwinlogError as error:
        spared = kind.optional if isinstance(error, UnsupportedVersion) else ""
        return Told(group, reason=f"{spared}: {error}" if spared else str(error), failed=not spared)
    reason, failed = answer(group, kind.name, kind.others, told)
    return Told(group, synced=not reason, reason=reason or planned.left, failed=failed)


def _nothing(seen: Seen, told: Collection[Told]) -> str:
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
