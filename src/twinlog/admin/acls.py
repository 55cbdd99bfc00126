"""The ACLs that a stop gives: what was held back while its topics were mirrored, with the source down, too.

A worker gives them as well, as soon as it has stopped a topic (`service.acls`); giving twice does no harm.
"""

import time
from collections.abc import Sequence
from dataclasses import replace

from twinlog.admin import state
from twinlog.admin.live import live_workers
from twinlog.admin.results import StopMirrorTopicsResult
from twinlog.control.commands import Handled
from twinlog.control.image import Image
from twinlog.control.records import SkippedRecord
from twinlog.errors import BadInput, TwinlogError
from twinlog.state.log import StateLog
from twinlog.sync import acls
from twinlog.sync.acl_change import create
from twinlog.sync.acls import Giving

GIVE_WITHIN_S = 3.0


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
