"""Waits until a destination log stands still: what was under way to it has arrived, or is lost for good."""

import asyncio
from collections.abc import Callable

from twinlog.errors import RetryLater
from twinlog.names import TopicPartition
from twinlog.relay.lookups import Lookups, Question
from twinlog.wire.ops import DEBUGGER, LATEST

# What a former owner or a lost connection had under way must have arrived, or be lost for good, by then.
SETTLE_S = 2.0
# A log that moves for longer has another writer, or brokers in trouble: begin again, and say so.
SETTLE_WITHIN_S = 20.0
POLL_S = 0.1
# An answer later than this says that the broker was busy or frozen: what it holds back may still come.
PROMPT_S = 1.0
HIGH_WATERMARK, TRUE_END = Question(LATEST), Question(LATEST, replica_id=DEBUGGER)


async def settled_end(
    cluster: Lookups,
    where: TopicPartition,
    clock: Callable[[], float],
    *,
    still_s: float | None = None,
    within_s: float | None = None,
) -> int:
    """The log's end, once it has stood still for `still_s` (`SETTLE_S`) with the high watermark at it.

    Raises RetryLater after `within_s` (`SETTLE_WITHIN_S`), or where an end cannot be told.
    """
    within_s = SETTLE_WITHIN_S if within_s is None else within_s
    try:
        async with asyncio.timeout(within_s):
            return await _stood_still(cluster, where, clock, SETTLE_S if still_s is None else still_s, within_s)
    except TimeoutError:
        raise _moves(where, within_s) from None


async def _stood_still(
    cluster: Lookups, where: TopicPartition, clock: Callable[[], float], still_s: float, within_s: float
) -> int:
    began = since = clock()
    seen = -1
    while clock() - began < within_s:
        asked = clock()
        end, mark = await asyncio.gather(cluster.offset(where, TRUE_END), cluster.offset(where, HIGH_WATERMARK))
        now = clock()
        if end != seen or mark != end or now - asked > PROMPT_S:
            seen, since = end, now
        elif now - since >= still_s:
            return end
        await asyncio.sleep(POLL_S)
    raise _moves(where, within_s)


def _moves(where: TopicPartition, within_s: float) -> RetryLater:
    return RetryLater(f"{where}: the destination's log end does not come to rest within {within_s:.0f} s")
