"""How an admin command changes the mirrors: fence, read to the end, judge, commit.

Two commands at once are serialised by Kafka's own fencing: the later fence shuts the earlier command out, whose
commit then fails as a whole; and what was committed before the fence is read by whoever fenced. No command ever
judges by what another has changed meanwhile.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from twinlog.control.commands import Handled
from twinlog.control.image import Image
from twinlog.control.records import Change
from twinlog.errors import ConcurrentChange, GiveWay, TwinlogError, UnknownOutcome
from twinlog.state.log import LOAD_TIMEOUT_S, StateLog
from twinlog.state.writer import COMMIT_TIMEOUT_S, StateWriter
from twinlog.wire.cluster import Cluster

ADMIN_ID = "twinlog-admin"

MOST_TRIES = 3
"""After a commit that is known not to stand; each lost answer is a broker that just failed, so a few are plenty."""

CLEAN_UP_TIMEOUT_S = 5.0

R = TypeVar("R")


async def transact(
    cluster: Cluster,
    log: StateLog,
    handler: Callable[[Image], Handled[R]],
    *,
    transactional_id: str = ADMIN_ID,
    load_timeout_s: float = LOAD_TIMEOUT_S,
    commit_timeout_s: float = COMMIT_TIMEOUT_S,
) -> R:
    """Run a command on the current image and commit its records; return its reply once they stand.

    A command without records commits nothing. A lost answer is settled, not guessed: the log is read again, and the
    command repeated only if it is known not to have taken effect.

    Raises ConcurrentChange when another command came in between, whatever `handler` raises, and RetryLater when a
    cluster did not do its part in time (nothing was changed).
    """
    writer = StateWriter(cluster, log, transactional_id, commit_timeout_s=commit_timeout_s)
    await writer.fence()
    for _ in range(MOST_TRIES):
        handled = handler(await log.load(timeout_s=load_timeout_s))
        try:
            await writer.commit(handled.records)
        except GiveWay as fenced:
            raise ConcurrentChange(
                "Another command changed the mirrors at the same moment, and this one was withdrawn. Run it again."
            ) from fenced
        except UnknownOutcome as lost:
            if not await _settled(writer, log, handled.records, lost, load_timeout_s):
                continue
        except TwinlogError:
            with suppress(TwinlogError):  # else the open transaction would hold up readers until it times out
                await writer.reestablish(timeout_s=CLEAN_UP_TIMEOUT_S)
            raise
        return handled.reply
    raise UnknownOutcome(
        f"The command was not carried out: the answer to its commit was lost {MOST_TRIES} times. Try again later."
    )


async def _settled(
    writer: StateWriter, log: StateLog, records: Sequence[Change], lost: UnknownOutcome, load_timeout_s: float
) -> bool:
    """Find out whether a commit of unknown outcome stands."""
    try:
        await writer.reestablish()
        image = await log.load(timeout_s=load_timeout_s)
    except GiveWay as fenced:
        raise ConcurrentChange(
            "The answer to this command was lost, and another command came in between, so it may or may not have taken "
            "effect. Look with --list and --describe, and run it again if need be."
        ) from fenced
    except TwinlogError as unknown:
        raise UnknownOutcome(
            f"It is not known whether this command took effect; look with --list and --describe. {unknown}"
        ) from lost
    final = {record.key: record for record in records}
    return all(image.holds(record) for record in final.values())
