"""When a FAILED partition is tried again by itself: the backoff of KIP-1279, as values.

The counter is the stored one (`PartitionRecord.retry_attempt`), so a new owner goes on counting where the former was.
"""

import asyncio
import random
import time
from collections.abc import Callable

from twinlog.config.mirror import MirrorConfig
from twinlog.control.lifecycle import PartitionState
from twinlog.control.records import NEVER_RETRY, PartitionRecord
from twinlog.relay.partition import PartitionRelay

# Beyond so many retries the wait has long reached its maximum; it keeps the power small.
MOST_DOUBLINGS = 30
JITTER = 0.2
# How often a partition that was retried is looked at, whether that has helped; and for how long one to which nothing
# comes must stand where its source ends, until it counts as helped.
HELPED_POLL_S, HELPED_AFTER_S = 0.5, 10.0
# What a retry returns to as it was; from anything else the logs are aligned first.
RETURNED_TO = frozenset({PartitionState.LOG_ALIGNMENT, PartitionState.MIRRORING})


def wait_s(record: PartitionRecord, config: MirrorConfig, *, spread: Callable[[], float] = random.random) -> float:
    """For how long a FAILED partition waits before the next retry; infinite where only an operator can help."""
    attempt = record.retry_attempt
    if attempt == NEVER_RETRY or attempt >= config.failed_retry_max_attempts:
        return float("inf")
    ceiling_ms = config.failed_retry_max_backoff_ms
    wait_ms = min(ceiling_ms, config.failed_retry_initial_backoff_ms * 2 ** min(attempt, MOST_DOUBLINGS))
    return float(wait_ms * (1 - JITTER + 2 * JITTER * spread()) / 1000)


def returns_to(record: PartitionRecord) -> PartitionState:
    """The state that a retry or a recover of a FAILED partition returns to."""
    previous = record.previous_state
    return previous if previous in RETURNED_TO else PartitionState.LOG_ALIGNMENT


async def helped(relay: PartitionRelay, began_at: Callable[[], int]) -> None:
    """Wait until a retry has helped: something was appended behind `began_at` (-1: not known yet).

    Where nothing comes from the source, it has helped once the partition has stood level for a while.
    """
    level_since = None
    while True:
        await asyncio.sleep(HELPED_POLL_S)
        now, position, began = time.monotonic(), relay.confirmed, began_at()
        level = relay.streaming_idle and position >= relay.figures.last_stable_offset >= 0
        level_since = (now if level_since is None else level_since) if level else None
        if 0 <= began < position or (level_since is not None and now - level_since >= HELPED_AFTER_S):
            return
