"""The ACLs that a stop gives: what was held back while its topics were mirrored, with the source down, too.

A worker gives them as well, as soon as it has stopped a topic (`service.acls`); giving twice does no harm. Before that,
what others were denied meanwhile (`sync.denials`) is taken away.
"""

import asyncio
import time
from collections.abc import Collection, Sequence
from dataclasses import replace

from twinlog.admin import state
from twinlog.admin.live import live_workers
from twinlog.admin.results import StopMirrorTopicsResult
from twinlog.control.commands import Handled
from twinlog.control.image import Image
from twinlog.control.records import SkippedRecord
from twinlog.errors import BadInput, TwinlogError
from twinlog.state.log import StateLog
from twinlog.sync import acls, denials
from twinlog.sync.acl_change import create
from twinlog.sync.acls import Giving

GIVE_WITHIN_S = 3.0
ALLOW_ALL_WITHIN_S = 15.0
LOOK_EVERY_S = 0.3
MOST_NOTES = 10


def to_give(image: Image, mirror: str, topics: Sequence[str]) -> tuple[str, ...]:
    """Return what a stop of all partitions of these topics would give, for a dry run."""
    record = image.skipped.get(mirror)
    if record is None or not _gives(image, mirror):
        return ()
    closed = acls.closed_topics(image).without(topics)
    return tuple(map(str, acls.give(record.held, record.held_for, topics, closed).create))


async def give(log: StateLog, image: Image, result: StopMirrorTopicsResult) -> StopMirrorTopicsResult:
    """Give what is held back for the topics of a stop that are stopped by now; a failure is a note in the result.

    `image` is as it was when the wait was over. Where workers live, what they have not stopped yet is left to them.
    """
    result = await _allow(log, image, result)
    record = image.skipped.get(result.mirror)
    if record is None or not record.held or not _gives(image, result.mirror):
        return result
    idle = not live_workers(image, time.time_ns() // 1_000_000)
    stopped = acls.stopped_topics(image, result.mirror, without_workers=idle)
    topics = stopped.intersection((*result.stopped, *result.already))
    giving = acls.give(record.held, record.held_for, topics, acls.closed_topics(image, without_workers=idle))
    if not giving.create:
        return result
    try:
        refused = await create(log.cluster, giving.create, timeout_s=GIVE_WITHIN_S)
    except TwinlogError as error:
        return replace(result, notes=(*result.notes, _not_given(giving, str(error), idle=idle)))
    try:
        await _forget(log, record, giving)
    except TwinlogError as error:
        said = f"Note: the ACLs were given, but that could not be noted, so a worker gives them once more: {error}"
        result = replace(result, notes=(*result.notes, said))
    given = tuple(str(acl) for acl in giving.create if acl not in refused)
    notes = tuple(f"Warning: the ACL '{acl}' was not given: {error}" for acl, error in refused.items())
    return replace(result, acls=given, notes=(*result.notes, *notes))


async def allow_all(log: StateLog, mirror: str) -> frozenset[str]:
    """Allow others to write to whatever a mirror denies them, before it is deleted; returns the topics.

    Workers that live do so within half a second of a stop, and are waited for: what they note must not come behind the
    mirror's end. Raises AuthorizationFailed, RetryLater and its kinds, or why an ACL could not be deleted.
    """
    deadline = time.monotonic() + GIVE_WITHIN_S
    while True:
        image = await state.read(log)
        record = image.skipped.get(mirror)
        denied = frozenset(record.denied if record else ())
        working = live_workers(image, time.time_ns() // 1_000_000)
        if not denied or not working or time.monotonic() > deadline:
            break
        await asyncio.sleep(LOOK_EVERY_S)
    refused = await denials.allow(log.cluster, denied, timeout_s=ALLOW_ALL_WITHIN_S) if denied else {}
    for error in refused.values():
        raise error
    return denied


async def _allow(log: StateLog, image: Image, result: StopMirrorTopicsResult) -> StopMirrorTopicsResult:
    """Take away what others are denied on topics that are stopped by now, as `give` does."""
    record = image.skipped.get(result.mirror)
    if record is None or not record.denied:
        return result
    idle = not live_workers(image, time.time_ns() // 1_000_000)
    topics = denials.over(image, result.mirror, record.denied, without_workers=idle)
    try:
        refused = await denials.allow(log.cluster, topics, timeout_s=GIVE_WITHIN_S) if topics else {}
    except TwinlogError as error:
        refused = dict.fromkeys(topics, error)
    notes = [_still_denied(topic, error, idle=idle) for topic, error in sorted(refused.items())]
    if idle:  # else a worker is about to do the same, and may be about to deny what it does not know to be stopped
        try:
            await _forget_denied(log, result.mirror, topics.difference(refused))
        except TwinlogError as error:
            notes.append(f"Note: that nobody is denied to write any more could not be noted; it does no harm: {error}")
    return replace(result, notes=(*result.notes, *notes[:MOST_NOTES]))


def _still_denied(topic: str, why: TwinlogError, *, idle: bool) -> str:
    what = f"nobody but a super user may write to topic '{topic}' yet, since the ACL that denies it is not deleted"
    if idle:
        return f"Warning: {what}: {why} Delete it by hand, or start a worker: {denials.by_hand(topic)}"
    return f"Note: {what}, which is left to the workers: {why}"


async def _forget_denied(log: StateLog, mirror: str, topics: Collection[str]) -> None:
    def handler(image: Image) -> Handled[None]:
        now = image.skipped.get(mirror)
        left = () if now is None else tuple(topic for topic in now.denied if topic not in topics)
        return Handled(() if now is None or left == now.denied else (replace(now, denied=left),), None)

    if topics:
        await state.change(log.cluster, log, handler)


def _not_given(giving: Giving, why: str, *, idle: bool) -> str:
    what = f"{len(giving.create)} ACL(s) that were held back, the first '{giving.create[0]}'"
    if idle:
        return f"Warning: {what}, were not given: {why} Add them by hand, or start a worker that may."
    return f"Note: {what}, are left to the workers: {why}"


async def _forget(log: StateLog, record: SkippedRecord, giving: Giving) -> None:
    """What was given once is not given again, should somebody take it away later."""

    def handler(image: Image) -> Handled[None]:
        now = image.skipped.get(record.mirror)
        return Handled(() if now is None else (acls.without_given(now, record, giving),), None)

    await state.change(log.cluster, log, handler)


def _gives(image: Image, mirror: str) -> bool:
    stored = image.mirrors.get(mirror)
    if stored is None:
        return False
    try:
        return acls.gives(stored)
    except BadInput:
        return False
