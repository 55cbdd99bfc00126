"""Keeping others from writing to mirrored topics by ACLs that deny it to everybody (`mirror.acls.deny.writes`).

A super user is bound by no ACL, so such a DENY leaves twinlog alone only where it is one, at every broker. No broker
tells who is (`super.users` is hidden as a secret would be), but each tells what may be done: so that is tried on a name
that is no topic before it is done to a topic. What twinlog has made is noted with the mirror (`SkippedRecord.denied`)
before it is made, and nothing else is ever deleted here.
"""

from collections.abc import Collection, Iterable
from contextlib import suppress
from itertools import accumulate
from typing import Final

from twinlog.config.acls import ANYONE, Acl, denial
from twinlog.config.mirror import MirrorConfig
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState
from twinlog.control.records import MirrorRecord, Skipped
from twinlog.errors import BadInput, TwinlogError
from twinlog.sync.acl_change import MOST_WATCHED, SEEN_WITHIN_S, change, create
from twinlog.sync.acls import KIND, stopped_topics
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops_acls import delete_acls, describe_acls, topic_rights
from twinlog.wire.ops_configs import describe_configs
from twinlog.wire.retry import Attempts

PROBE: Final = "__twinlog-probe"
"""No topic has this name; a DENY that stays there after a crash binds nobody."""
ALL_OF_THEM: Final = "DENY WRITE"
"""What stands in the list for the ACLs of all topics."""
MOST_DENIED: Final = 100_000
"""Characters of topic names that are noted, beside what is held back in the same record."""
ANSWERS_WITHIN_S: Final = 5.0

_OPEN_WITHOUT: Final = "allow.everyone.if.no.acl.found"
_NOT_SUPER: Final = (
    "Nobody is denied to write: that would bind twinlog, too, unless it logs in as a super user, and {}. Add its "
    "principal to super.users at every broker of the destination, or remove mirror.acls.deny.writes."
)
_LOST: Final = (
    "Taken back: twinlog itself may no longer write to {} at {}. Add its principal to super.users at every broker."
)
_FIRST: Final = (
    f"No ACL is about the topic, and {_OPEN_WITHOUT} is set at the brokers: this one, as the first, would end "
    "everybody's other rights on it, reading among them. Add ACLs for those who are to read; then it is made."
)
_BEYOND: Final = "More topics are denied than can be noted, so this one is not. Add it by hand until the stop."
_NO_AUTHORIZER: Final = "The destination has no authorizer (SECURITY_DISABLED), so nobody can be kept from writing."


# What is to be so


def to_deny(image: Image, mirror: str) -> tuple[str, ...]:
    """Return the topics of a mirror that nobody else is to write to."""
    records = image.topics_of(mirror)
    return tuple(sorted(one.topic for one in records if one.desired is not DesiredState.STOPPED))


def over(image: Image, mirror: str, denied: Iterable[str], *, without_workers: bool = False) -> frozenset[str]:
    """Return those of the denied topics that others may write to again.

    They are stopped, or no longer in the mirror, or the mirror is not to deny anything (any more), or is gone.
    """
    stored = image.mirrors.get(mirror)
    if stored is None or not _asked_for(stored):
        return frozenset(denied)
    known = {one.topic for one in image.topics_of(mirror)}
    stopped = stopped_topics(image, mirror, without_workers=without_workers)
    return frozenset(topic for topic in denied if topic not in known or topic in stopped)


def _asked_for(mirror: MirrorRecord) -> bool:
    try:
        return MirrorConfig.from_properties(mirror.configs, f"mirror {mirror.mirror}").acls_deny_writes
    except BadInput:  # nobody can use them, so what was denied stays until the stop
        return True


def sort_out(
    topics: Collection[str], ours: Collection[Acl], denied: Collection[str], *, open_without: bool
) -> tuple[tuple[str, ...], tuple[Skipped, ...]]:
    """Return the topics of which the destination lacks a DENY that is to be made, and why others are left alone.

    `denied`: all topics of which one is noted as twinlog's; `open_without`: who has no ACL may do everything.
    """
    there = frozenset(ours)
    make: list[str] = []
    skipped: list[Skipped] = []
    for topic in sorted(topics):
        if denial(topic) in there:
            continue
        if open_without and not any(acl.covers("TOPIC", topic) for acl in there):
            skipped.append(Skipped(KIND, str(denial(topic)), _FIRST))
        else:
            make.append(topic)
    known = sum(map(len, set(denied).difference(make)))
    sizes = accumulate(map(len, make), initial=known)
    next(sizes)
    fitting = tuple(topic for topic, size in zip(make, sizes, strict=True) if size <= MOST_DENIED)
    skipped += [Skipped(KIND, str(denial(topic)), _BEYOND) for topic in make[len(fitting) :]]
    return fitting, tuple(skipped)


# With the destination


async def read(cluster: Cluster) -> frozenset[Acl] | None:
    """Return the destination's ACLs; None where it has no authorizer."""
    return await describe_acls(cluster, timeout_s=ANSWERS_WITHIN_S)


def without_authorizer() -> Skipped:
    """Return what is listed for a destination where nobody's rights are checked."""
    return Skipped(KIND, ALL_OF_THEM, _NO_AUTHORIZER)


async def lost(cluster: Cluster, topics: Collection[str]) -> str:
    """Say what twinlog may no longer write to, of topics that are denied to others; "": nothing."""
    watched = sorted(topics)[:MOST_WATCHED]
    for node in sorted(cluster.brokers):
        rights = await topic_rights(cluster, watched, node=node, timeout_s=ANSWERS_WITHIN_S)
        gone = [topic for topic in watched if "WRITE" not in rights.get(topic, frozenset({"WRITE"}))]
        if gone:
            return _LOST.format(f"{gone[0]} and {len(gone) - 1} more" if gone[1:] else gone[0], f"broker {node}")
    return ""


async def trouble(cluster: Cluster) -> str:
    """Say why a DENY for everybody would bind twinlog, too; "": it would not, at any broker.

    Tried on a name that is no topic, so that what it costs is missed by nobody.
    """
    bound = await _bound(cluster)
    if bound:
        return bound
    probe = denial(PROBE)
    refused = await create(cluster, [probe], timeout_s=ANSWERS_WITHIN_S)
    if refused:
        return str(refused[probe])
    try:
        return await _unseen(cluster, probe) or await _bound(cluster)
    finally:
        with suppress(TwinlogError):
            await delete_acls(cluster, [probe], timeout_s=ANSWERS_WITHIN_S)


async def _bound(cluster: Cluster) -> str:
    """Where twinlog may not write to what it has no ACL for."""
    for node in sorted(cluster.brokers):
        rights = await topic_rights(cluster, [PROBE], node=node, timeout_s=ANSWERS_WITHIN_S)
        if PROBE not in rights:
            return f"Nobody is denied to write: broker {node} is too old to tell whether twinlog could still write."
        if "WRITE" not in rights[PROBE]:
            return _NOT_SUPER.format(f"it does not at broker {node}")
    return ""


async def _unseen(cluster: Cluster, acl: Acl) -> str:
    """Wait until every broker goes by an ACL; which does not is said."""
    attempts = Attempts(SEEN_WITHIN_S)
    waiting = sorted(cluster.brokers)
    while True:
        known = [(node, await describe_acls(cluster, node=node, timeout_s=ANSWERS_WITHIN_S)) for node in waiting]
        waiting = [node for node, acls in known if acl not in (acls or ())]
        if not waiting:
            return ""
        if not await attempts.again():
            return f"Nobody is denied to write: broker {waiting[0]} has not learned of an ACL in {SEEN_WITHIN_S:g} s."


async def open_without_acl(cluster: Cluster) -> bool:
    """Whether a broker may let everybody do what no ACL is about: that this is set can be seen, but not to what."""
    names = [str(node) for node in sorted(cluster.brokers)]
    told = await describe_configs(cluster, "broker", names, keys=[_OPEN_WITHOUT], timeout_s=ANSWERS_WITHIN_S)
    entries = [entries[_OPEN_WITHOUT] for entries in told.values() if _OPEN_WITHOUT in entries]
    return any((entry.value or "true").strip().lower() != "false" for entry in entries)


async def deny(cluster: Cluster, topics: Collection[str]) -> tuple[frozenset[str], tuple[Skipped, ...]]:
    """Make the DENYs of topics; returns which topics have none for it, and why."""
    changed = await change(cluster, [denial(topic) for topic in topics], [], topics)
    failed = [Skipped(KIND, str(acl), str(error)) for acl, error in sorted(changed.refused.items())]
    if changed.undone:
        why = _NOT_SUPER.format(f"it lost {changed.lost[0]} by it")
        failed += [Skipped(KIND, str(acl), why) for acl in sorted(changed.undone)]
    without = {acl.name for acl in (*changed.refused, *changed.undone)}
    return frozenset(without), tuple(failed)


async def allow(cluster: Cluster, topics: Collection[str], *, timeout_s: float) -> dict[str, TwinlogError]:
    """Delete the DENYs of topics; returns those of which that failed. One that is gone already is no failure.

    Raises AuthorizationFailed, RetryLater and its kinds.
    """
    refused = await delete_acls(cluster, [denial(topic) for topic in topics], timeout_s=timeout_s)
    return {acl.name: error for acl, error in refused.items()}


def by_hand(topic: str) -> str:
    """Say how an operator deletes the DENY of a topic."""
    return f"kafka-acls.sh --remove --deny-principal '{ANYONE}' --operation Write --topic {topic}"
