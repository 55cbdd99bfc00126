"""What holds for the offsets of groups of every kind: which group is left alone, and what is said of it."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from twinlog.config.mirror import MirrorConfig
from twinlog.control.records import Skipped
from twinlog.names import TopicPartition
from twinlog.sync.topics import Span, read_topics, spans
from twinlog.wire import codes
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops_groups import Committed, ListedGroup

KIND: Final = "group"
AT_ONCE: Final = 16
"""Groups looked at side by side."""
PASS_S: Final = 60.0
"""For so long a pass begins with groups; several refreshes, if they are short, but never without end."""
MOST_NAMED: Final = 5
"""Partitions or topics named in one reason; the rest is counted."""

MEMBERS: Final = frozenset({22, 25, 27, codes.NON_EMPTY_GROUP, 79, 113})
"""ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, ..., MEMBER_ID_REQUIRED, STALE_MEMBER_EPOCH."""
HAS_MEMBERS: Final = "It has members at the destination, and they commit for themselves."
RIGHTS: Final = (
    "Needed are DESCRIBE on the group at the source, and READ on the group and on its topics at the destination."
)
_WITHOUT_MEMBERS: Final = frozenset({"", "Empty", "Dead"})


@dataclass(frozen=True, slots=True)
class Sides:
    """What one pass works on: both clusters, the mirror's config, and the topics that are mirrored.

    `still` says whether a topic is mirrored at this moment, which is asked right before anything is committed.
    """

    source: Cluster
    destination: Cluster
    config: MirrorConfig
    topics: Collection[str]
    still: Callable[[str], bool] = lambda _topic: True

    def mirrors(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether some of these belong to a mirrored topic."""
        return any(tp.topic in self.topics for tp in partitions)

    async def logs(self) -> dict[TopicPartition, Span]:
        """The destination's logs of the mirrored topics, as far as they can be looked at."""
        found, _ = await read_topics(self.destination, sorted(self.topics))
        return await spans(self.destination, list(found.values()))


@dataclass(frozen=True, slots=True)
class GroupsDone:
    """What one pass came to: the groups that were given offsets, what was left alone, and how many failed."""

    synced: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    errors: int = 0


@dataclass(frozen=True, slots=True)
class Told:
    """What came of one group: whether it was given offsets, why it or a part of it was left alone, whether it failed.

    `concerned` is False for a group that has no offset in a mirrored topic.
    """

    group: str
    synced: bool = False
    reason: str = ""
    failed: bool = False
    concerned: bool = True


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


async def each(
    groups: Collection[str],
    one: Callable[[str], Awaitable[Told]],
    *,
    within_s: float = PASS_S,
    clock: Callable[[], float] = time.monotonic,
) -> list[Told]:
    """Do `one` for each group, some side by side; those that are not begun in time wait for the next refresh.

    Brokers that do not answer cost some seconds for each group, and a pass must end.
    """
    gate = asyncio.Semaphore(AT_ONCE)
    began = clock()

    async def gated(group: str) -> Told:
        async with gate:
            if clock() - began < within_s:
                return await one(group)
        return Told(group, reason=f"It was not reached within {within_s:g} s: brokers answer late.", failed=True)

    return await asyncio.gather(*map(gated, groups))


def away(nodes: Mapping[int, Exception]) -> list[Skipped]:
    """Name the source's brokers whose groups are not known this time."""
    return [Skipped(KIND, f"of broker {node}", str(error)) for node, error in sorted(nodes.items())]


def summed(told: Iterable[Told]) -> GroupsDone:
    """Put together what came of each group; those that were left alone as a whole come first."""
    told = sorted(told, key=lambda one: (one.synced, one.group))
    return GroupsDone(
        synced=tuple(one.group for one in told if one.synced),
        skipped=tuple(Skipped(KIND, one.group, one.reason) for one in told if one.reason),
        errors=sum(one.failed for one in told),
    )


def refusal(group: str, at_source: ListedGroup, at_destination: ListedGroup | None) -> str:
    """Why a group is not synced at all; empty: it may be."""
    if at_source.kind not in {"consumer", "share"}:
        return f"It is a {at_source.kind} group at the source; only consumer groups and share groups are synced."
    if at_destination is None:
        return ""
    if clashes(at_source, at_destination):
        return clash(group, at_source.kind, at_destination.kind)
    if at_destination.state not in _WITHOUT_MEMBERS:
        return f"It has members at the destination (state {at_destination.state}), and they commit for themselves."
    return ""


def clashes(at_source: ListedGroup, at_destination: ListedGroup | None) -> bool:
    """Whether a name means another kind of group at the destination."""
    return at_destination is not None and at_destination.kind != at_source.kind


def clash(group: str, kind: str, other: str) -> str:
    """Say that a name means another kind of group at the destination, as the KIP calls it, and the two ways out."""
    return (
        f"GroupIdNotFoundException: {group!r} is a {kind} group at the source and a {other} group at the destination. "
        f"Delete the {other} group at the destination, or add the name to mirror.groups.exclude."
    )


def answer(group: str, kind: str, other: str, told: Mapping[TopicPartition, int]) -> tuple[str, bool]:
    """Return what the destination's answer to a commit means: a reason (empty: all was taken), and whether it failed.

    `other` names what the group may be where the broker knows it under another kind.
    """
    bad = {tp: code for tp, code in told.items() if code}
    if not bad:
        return "", False
    tp, code = min(bad.items())
    if code in MEMBERS:
        return HAS_MEMBERS, False
    if code == codes.GROUP_ID_NOT_FOUND:
        return clash(group, kind, other), True
    rest = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
    return f"The destination refused its offset for {tp}{rest} ({codes.code_name(code)}, error {code}).", True


def unread(partitions: Iterable[TopicPartition]) -> str:
    """Name partitions whose log could not be looked at; empty for none."""
    names = named(partitions)
    return names and f"{names}: the log at the destination could not be read this time."


def named(things: Iterable[object]) -> str:
    """The first few of some things, and how many more there are."""
    names = sorted(map(str, things))
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
