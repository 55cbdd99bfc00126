"""ACLs: what the source lets people do with mirrored topics, they may do at the destination (KIP-1279, ACL sync).

But for writing. As long as a topic is mirrored, what would let somebody change it is held back, and given when it is
stopped. Beyond the KIP, which copies whatever the filter admits:

- an ACL is copied only where it is about something that is mirrored: a topic, a group whose offsets are synced, a
  transactional id of somebody who may write to a mirrored topic;
- what is about every resource of a type, or about the cluster, is copied only where a rule asks for it by name;
- nothing is deleted unless `mirror.acls.sync.mode` is `exact`, and then only what is about nothing else;
- whoever has rights on twinlog's own state keeps what he has.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Final, TypeVar

from twinlog.config.acls import ANYONE, LITERAL, PREFIXED, Acl, denial
from twinlog.config.kinds import AclsSyncMode
from twinlog.config.mirror import MirrorConfig
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import MirrorRecord, Skipped, SkippedRecord, TopicRecord
from twinlog.errors import AuthorizationFailed, UnsupportedVersion
from twinlog.state.topic import STATE_TOPIC
from twinlog.sync.acl_change import change
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops_acls import describe_acls

KIND: Final = "acl"
MOST_HELD: Final = 250_000
"""Characters of what is held back; more would make a record beyond what a broker accepts (1 MiB)."""

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID"
_OPENS: Final = frozenset({"ALL", "WRITE", "DELETE", "ALTER"})
"""On a topic: producing, deleting records or the topic, adding partitions (KIP-1279, section 6)."""
_OPENS_ALL: Final = frozenset({"ALL", "ALTER", "CLUSTER_ACTION"})
"""On the cluster: making ACLs, writing markers."""
_WRITES: Final = frozenset({"ALL", "WRITE"})
_OURS: Final = ((TOPIC, STATE_TOPIC), (GROUP, "twinlog-workers"), (TRANSACTIONAL_ID, "twinlog-admin"))
_BEYOND: Final = "More is held back than can be stored: a stop does not give this one. Add it by hand after the stop."
CUTS: Final = (
    "It would take rights from twinlog itself, as was seen, and was taken back. Give twinlog's principal its rights on "
    "these topics by ACLs of its own; see allow.everyone.if.no.acl.found at the brokers."
)
"""Who reads this in the list of the refresh before does not try it again."""
_ASK: Final = "add a rule such as {} to mirror.acls.include to have it copied"


class Names:
    """A set of names, among which those that an ACL is about are found without looking at each."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._sorted = sorted(set(names))
        self._known = frozenset(self._sorted)

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def __len__(self) -> int:
        return len(self._sorted)

    def without(self, names: Iterable[str]) -> "Names":
        """Return a set that lacks some of the names."""
        return Names(self._known.difference(names))

    def under(self, acl: Acl) -> Sequence[str]:
        """Return the names that the resource name of an ACL is about, whatever its resource type."""
        if acl.everywhere:
            return self._sorted
        if acl.pattern != PREFIXED:
            return [acl.name] if acl.name in self._known else []
        first = bisect_left(self._sorted, acl.name)
        beyond = bisect_left(self._sorted, acl.name + "\U0010ffff", lo=first)
        return self._sorted[first:beyond]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What a plan is about.

    - `mirrored`: the topics that the mirror is to mirror, or that are paused.
    - `closed`: the topics of all mirrors into the destination that nobody else may write to yet.
    - `existing`: all topics of the destination.
    - `own`: the principal that twinlog logs in as at the destination; "" where that cannot be told.
    - `cutting`: ACLs, as texts, that have cost twinlog a right of its own when they were made or deleted.
    - `denied`: topics to which twinlog itself denies others to write (`sync.denials`).
    """

    config: MirrorConfig
    mirrored: Names
    closed: Names
    existing: Names = field(default_factory=Names)
    own: str = ""
    cutting: frozenset[str] = frozenset()
    denied: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class AclPlan:
    """What to make and to delete at the destination, what is held back until a stop, and what is left alone."""

    create: tuple[Acl, ...] = ()
    delete: tuple[Acl, ...] = ()
    held: tuple[Acl, ...] = ()
    held_for: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()


@dataclass(frozen=True, slots=True)
class AclsDone:
    """What one pass came to.

    `authorizers` is false where a side has none, so that nothing was done; `lost` are the rights of twinlog's own for
    which the pass was taken back.
    """

    skipped: tuple[Skipped, ...] = ()
    errors: int = 0
    held: tuple[Acl, ...] = ()
    held_for: tuple[str, ...] = ()
    created: tuple[Acl, ...] = ()
    deleted: tuple[Acl, ...] = ()
    authorizers: bool = True
    lost: tuple[str, ...] = ()


def plan(theirs: Collection[Acl], ours: Collection[Acl], scope: Scope) -> AclPlan:
    """Say what the destination lacks of the source's ACLs, what it must not have yet, and what it has too much."""
    judge = _Judge(theirs, ours, scope)
    create: list[Acl] = []
    held: list[Acl] = []
    skipped: list[Skipped] = []
    for acl in sorted(filter(judge.concerns, theirs)):
        reason = judge.refusal(acl)
        if reason:
            skipped.append(Skipped(KIND, str(acl), reason))
        elif closed := judge.opens(acl):
            held.append(acl)
            if acl not in judge.ours:
                reason = f"Held back, as it lets somebody change {_some(closed)}; it is given when that is stopped."
                skipped.append(Skipped(KIND, str(acl), reason))
        elif acl not in judge.ours:
            create.append(acl)
    surplus = list(filter(judge.surplus, sorted(judge.ours - judge.theirs)))
    delete = tuple(acl for acl in surplus if str(acl) not in scope.cutting)
    skipped += [Skipped(KIND, str(acl), CUTS) for acl in surplus if str(acl) in scope.cutting]
    skipped += judge.openers(without=delete)
    kept = _within(held)
    skipped += [Skipped(KIND, str(acl), _BEYOND) for acl in held[len(kept) :]]
    return AclPlan(tuple(create), delete, kept, _held_for(kept, scope), tuple(skipped))


T = TypeVar("T", Acl, str)


def _within(items: Sequence[T]) -> tuple[T, ...]:
    """As many of them as may be stored."""
    sizes = accumulate(len(str(item)) for item in items)
    return tuple(item for item, size in zip(items, sizes, strict=True) if size <= MOST_HELD)


def _held_for(held: Iterable[Acl], scope: Scope) -> tuple[str, ...]:
    wide = [acl for acl in held if acl.pattern == PREFIXED or acl.everywhere or acl.resource_type != TOPIC]
    return _within(sorted({name for acl in wide for name in _topics_of(acl, scope.mirrored)}))


def _topics_of(acl: Acl, topics: Names) -> Sequence[str]:
    """The topics that somebody could change by an ACL; by one on the cluster all."""
    if acl.resource_type == TOPIC:
        return topics.under(acl)
    return topics.under(replace(acl, name="*", pattern=LITERAL)) if acl.resource_type == CLUSTER else ()


def _some(names: Sequence[str], most: int = 3) -> str:
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


class _Judge:
    """Looks at one ACL after the other."""

    def __init__(self, theirs: Collection[Acl], ours: Collection[Acl], scope: Scope) -> None:
        self.theirs, self.ours = frozenset(theirs), frozenset(ours)
        self._scope = scope
        self._config = scope.config
        writers = (acl for acl in theirs if acl.allows and acl.resource_type == TOPIC and acl.operation in _WRITES)
        self._writers = {acl.principal for acl in writers if self._admitted(acl) and scope.mirrored.under(acl)}
        holders = (acl for acl in ours if acl.allows and acl.operation in _WRITES and acl.covers(TOPIC, STATE_TOPIC))
        self._keepers = {acl.principal for acl in holders} | ({scope.own} if scope.own else set())

    def concerns(self, acl: Acl) -> bool:
        """Whether the filter admits an ACL and it is about something mirrored, or asked for by its type."""
        if not self._admitted(acl):
            return False
        match acl.resource_type:
            case "TOPIC":
                return bool(self._scope.mirrored.under(acl))
            case "GROUP":
                return bool(self._scope.mirrored) and self._syncs_groups_of(acl)
            case "TRANSACTIONAL_ID":
                return acl.principal in self._writers or self._by_type(acl)
            case "CLUSTER":
                return True
        return self._by_type(acl)

    def refusal(self, acl: Acl) -> str:
        """Why an ACL is never copied; "": it may be."""
        if any(text.startswith("UNKNOWN_") for text in (acl.resource_type, acl.pattern, acl.operation, acl.permission)):
            return "This twinlog does not know this kind of ACL; use a newer one."
        if str(acl) in self._scope.cutting and acl not in self.ours and not self._settled(acl):
            return CUTS
        if acl.resource_type == CLUSTER and not self._by_type(acl):
            return f"It is about the whole cluster; {_ASK.format(f'CLUSTER;*;{acl.operation}')}."
        return self._too_much(acl) if acl.allows else self._cuts(acl)

    def _too_much(self, acl: Acl) -> str:
        """Why a right is not copied: it would be about more than what is mirrored."""
        if acl.everywhere and not self._by_name(acl):
            rule = f"{acl.resource_type};[*];{acl.operation};ALLOW;{acl.principal}"
            return f"It is about every {acl.resource_type} of the destination, also others; {_ASK.format(rule)}."
        if not acl.everywhere and any(acl.covers(*resource) for resource in _OURS):
            return "It is about what twinlog keeps its own state by at the destination."
        return ""

    def opens(self, acl: Acl) -> Sequence[str]:
        """The topics that nobody may change yet and that somebody could change by this ACL."""
        if not acl.allows:
            return ()
        opening = _OPENS if acl.resource_type == TOPIC else _OPENS_ALL
        return _topics_of(acl, self._scope.closed) if acl.operation in opening else ()

    def surplus(self, acl: Acl) -> bool:
        """Whether an ACL that only the destination has is to be deleted."""
        if self._config.acls_sync_mode is not AclsSyncMode.EXACT or acl.principal in self._keepers:
            return False
        if not self._admitted(acl) or self._denies_for_us(acl):
            return False
        if acl.everywhere:
            return self._by_name(acl) and self._by_type(acl)
        if any(acl.covers(*resource) for resource in _OURS):
            return False
        if acl.resource_type != TOPIC:
            return self._by_type(acl)
        about = self._scope.existing.under(acl) or self._scope.mirrored.under(acl)
        return bool(about) and all(name in self._scope.mirrored for name in about)

    def openers(self, *, without: Collection[Acl]) -> Iterable[Skipped]:
        """The destination's own ACLs that let somebody else change a topic while it is mirrored."""
        for acl in sorted(self.ours.difference(without)):
            if acl.allows and acl.resource_type == TOPIC and acl.operation in _OPENS:
                open_to = self._open_to(acl)
                if open_to and acl.principal not in self._keepers:
                    yield Skipped(
                        KIND,
                        str(acl),
                        f"The destination has it, and it lets somebody change {_some(open_to)} "
                        "while that is mirrored, which would fail it. Remove it, or add a DENY until the stop.",
                    )

    def _open_to(self, acl: Acl) -> Sequence[str]:
        """The mirrored topics that somebody can change by an ACL of the destination, whatever is denied there."""
        about = self._scope.mirrored.under(acl)
        return [topic for topic in about if denial(topic) not in self.ours] if acl.operation == "WRITE" else about

    def _denies_for_us(self, acl: Acl) -> bool:
        """Whether it keeps others from writing to a mirrored topic, as twinlog would have it."""
        return acl == denial(acl.name) and (self._config.acls_deny_writes or acl.name in self._scope.denied)

    def _admitted(self, acl: Acl) -> bool:
        return any(rule.admits(acl) for rule in self._config.acls_include)

    def _by_type(self, acl: Acl) -> bool:
        return any(rule.resource_type and rule.admits(acl) for rule in self._config.acls_include)

    def _by_name(self, acl: Acl) -> bool:
        return any(rule.names_everything and rule.admits(acl) for rule in self._config.acls_include)

    def _syncs_groups_of(self, acl: Acl) -> bool:
        if acl.everywhere:
            return True
        named = self._config.groups_include.elements if acl.pattern == PREFIXED else ()
        return self._config.syncs_group(acl.name) or any(name.startswith(acl.name) for name in named)

    def _settled(self, acl: Acl) -> bool:
        """Whether the destination has ACLs about all its topics, so that one more right takes none from anybody."""
        topics = self._scope.mirrored.under(acl) if acl.allows and acl.resource_type == TOPIC else ()
        return bool(topics) and all(any(one.covers(TOPIC, topic) for one in self.ours) for topic in topics)

    def _cuts(self, acl: Acl) -> str:
        """Why a DENY is not copied: twinlog could do its work no more."""
        if acl.principal == ANYONE:
            return (
                "It takes the right from everybody, also from twinlog; deny it by hand to those whom it is meant for."
            )
        if acl.principal in self._keepers:
            return "It takes the right from a principal with rights on twinlog's own state."
        if ANYONE in self._keepers and not self._scope.own:
            return "It might take the right from twinlog's own principal, which is not known here; add it by hand."
        return ""


# A stop


@dataclass(frozen=True, slots=True)
class Giving:
    """What a stop gives, and what remains held back after it."""

    create: tuple[Acl, ...]
    held: tuple[Acl, ...]
    held_for: tuple[str, ...]


def due(held: Collection[Acl], held_for: Collection[str], stopped: Collection[str]) -> frozenset[str]:
    """Return those of the stopped topics for which something is held back."""
    named = {acl.name for acl in held if acl.resource_type == TOPIC and acl.pattern == LITERAL}
    return frozenset(topic for topic in stopped if topic in named or topic in held_for)


def give(held: Sequence[Acl], held_for: Collection[str], stopped: Collection[str], closed: Names) -> Giving:
    """Say what to give for topics that are `stopped` now, while others are still `closed`.

    An ACL that is about one that is still closed, too, is given for the stopped topic alone.
    """
    create: list[Acl] = []
    left: list[Acl] = []
    # One that another mirror has closed meanwhile stays as it is.
    done = Names(topic for topic in due(held, held_for, stopped) if topic not in closed)
    for acl in held:
        opened = _topics_of(acl, done)
        if not opened:
            left.append(acl)
        elif not _topics_of(acl, closed):
            create.append(acl)
        else:
            left.append(acl)
            narrow = opened if acl.resource_type == TOPIC else ()
            create += [replace(acl, name=topic, pattern=LITERAL) for topic in narrow]
    return Giving(tuple(dict.fromkeys(create)), tuple(left), tuple(topic for topic in held_for if topic not in done))


def gives(mirror: MirrorRecord) -> bool:
    """Whether the mirror has to do with ACLs at all. Raises InvalidConfig where its configs cannot be read."""
    config = MirrorConfig.from_properties(mirror.configs, f"the configs of mirror {mirror.mirror}")
    return config.acls_sync_mode is not AclsSyncMode.OFF


def still_due(held: Collection[Acl], held_for: Collection[str], stopped: Collection[str]) -> Giving:
    """Return what is held back for topics that are `stopped`, and so is yet to be given."""
    done = Names(due(held, held_for, stopped))
    left = tuple(acl for acl in held if _topics_of(acl, done))
    return Giving((), left, tuple(topic for topic in held_for if topic in done))


def without_given(now: SkippedRecord, before: SkippedRecord, giving: Giving) -> SkippedRecord:
    """Return the record as it is `now`, without what was given of what was held back `before`."""
    given = frozenset(before.held) - frozenset(giving.held)
    over = frozenset(before.held_for) - frozenset(giving.held_for)
    names = {str(acl) for acl in given}
    return replace(
        now,
        items=tuple(item for item in now.items if item.kind != KIND or item.name not in names),
        held=tuple(acl for acl in now.held if acl not in given),
        held_for=tuple(topic for topic in now.held_for if topic not in over),
    )


def stopped_topics(image: Image, mirror: str, *, without_workers: bool = False) -> frozenset[str]:
    """The topics of a mirror that are stopped, and to which nothing is mirrored any more.

    `without_workers`: no worker lives, so that what is to be stopped is, also where no worker has written that down.
    """
    records = image.topics_of(mirror)
    return frozenset(one.topic for one in records if _at_rest(image, one, without_workers=without_workers))


def closed_topics(image: Image, *, without_workers: bool = False) -> Names:
    """The topics of all mirrors that are not `stopped_topics`."""
    records = image.all_topics()
    return Names(one.topic for one in records if not _at_rest(image, one, without_workers=without_workers))


def _at_rest(image: Image, record: TopicRecord, *, without_workers: bool) -> bool:
    if record.desired is not DesiredState.STOPPED:
        return False
    states = (image.state(record.mirror, record.topic, number) for number in range(record.partitions))
    return without_workers or all(state is PartitionState.STOPPED for state in states)


# With the clusters


async def sync(source: Cluster, destination: Cluster, scope: Scope) -> AclsDone:
    """Bring the ACLs of a mirror's topics over. Raises where the ACLs of a side cannot be read at all."""
    if scope.config.acls_sync_mode is AclsSyncMode.OFF or not scope.mirrored:
        return AclsDone()
    theirs, ours = await _look(source, destination)
    if theirs is None or ours is None:
        return AclsDone(_without_authorizer(theirs, ours), authorizers=False)
    planned = plan(theirs, ours, scope)
    topics = {topic for acl in (*planned.create, *planned.delete) for topic in _topics_of(acl, scope.mirrored)}
    changed = await change(destination, planned.create, planned.delete, topics)
    failed = [Skipped(KIND, str(acl), str(error)) for acl, error in sorted(changed.refused.items())]
    undone = [Skipped(KIND, str(acl), CUTS) for acl in sorted(changed.undone)]
    return AclsDone(
        skipped=(*failed, *undone, *planned.skipped),
        errors=len(failed) + len(undone),
        held=planned.held,
        held_for=planned.held_for,
        created=tuple(acl for acl in planned.create if acl not in changed.refused.keys() | changed.undone),
        deleted=tuple(acl for acl in planned.delete if acl not in changed.refused.keys() | changed.undone),
        lost=changed.lost,
    )


async def _look(source: Cluster, destination: Cluster) -> tuple[frozenset[Acl] | None, frozenset[Acl] | None]:
    theirs: frozenset[Acl] | None = frozenset()
    try:
        theirs = await describe_acls(source)
        return theirs, await describe_acls(destination)
    except AuthorizationFailed as missing:
        if theirs is None:  # there is nothing that the right would be for; but there is an authorizer
            return None, frozenset()
        raise AuthorizationFailed(
            f"{missing} Syncing ACLs needs DESCRIBE on CLUSTER at the source and ALTER on CLUSTER at the destination; "
            f"mirror.acls.sync.mode=off does without."
        ) from missing
    except UnsupportedVersion as old:
        raise UnsupportedVersion(f"{old} Set mirror.acls.sync.mode=off: these brokers' ACLs cannot be read.") from old


def _without_authorizer(theirs: Collection[Acl] | None, ours: Collection[Acl] | None) -> tuple[Skipped, ...]:
    """Named where only one side has an authorizer; where neither has, nobody expects ACLs."""
    if theirs is None and ours is None:
        return ()
    side = "source" if theirs is None else "destination"
    return (Skipped(KIND, "all", f"The {side} has no authorizer (SECURITY_DISABLED), so no ACLs are synced."),)
