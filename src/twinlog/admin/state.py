"""The state as admin commands use it; a missing right is named here, since only here it is known what it is for."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from twinlog.control.commands import Handled
from twinlog.control.image import Image
from twinlog.errors import AuthorizationFailed, ClusterMirrorAuthorizationFailed, RetryLater
from twinlog.state.log import StateLog
from twinlog.state.topic import STATE_TOPIC
from twinlog.state.transact import ADMIN_ID, transact
from twinlog.wire.cluster import Cluster

R = TypeVar("R")

LOOK_WITHIN_S = 2.0
"""A live worker's commit takes some milliseconds; a state of thousands of partitions is read within a second."""

READING = f"DESCRIBE, DESCRIBE_CONFIGS and READ on topic {STATE_TOPIC}"
CREATING = f"CREATE on topic {STATE_TOPIC} (or on the cluster)"
CHANGING = f"READ and WRITE on topic {STATE_TOPIC}, DESCRIBE and WRITE on transactional id {ADMIN_ID}"


async def open_log(cluster: Cluster, *, create: bool) -> StateLog:
    """As `StateLog.open`."""
    with _needing(f"{READING}, {CREATING}" if create else READING):
        return await StateLog.open(cluster, create=create)


async def load(log: StateLog) -> Image:
    """As `StateLog.load`."""
    with _needing(READING):
        return await log.load()


async def read(log: StateLog) -> Image:
    """The state for whoever only looks at it: to its end, or, where something holds that up, as far as it is decided.

    A worker that died in the middle of a commit holds up all that was written since, for up to 25 s where no other
    worker is left to fence it. What is read then is as old as its last sign of life, which the figures' age tells.
    """
    with _needing(READING):
        try:
            return await log.load(timeout_s=LOOK_WITHIN_S)
        except RetryLater:
            return await log.load(to_stable=True)


async def change(
    cluster: Cluster, log: StateLog, handler: Callable[[Image], Handled[R]], *, dry_run: bool = False
) -> R:
    """As `transact`; a dry run only judges, by the state as it is, and needs no right to change it."""
    if dry_run:
        return handler(await load(log)).reply
    with _needing(CHANGING):
        async with log.changing:
            return await transact(cluster, log, handler)


@contextmanager
def _needing(rights: str) -> Iterator[None]:
    try:
        yield
    except AuthorizationFailed as missing:
        raise ClusterMirrorAuthorizationFailed(
            f"{missing} The rights needed at the destination are {rights}."
        ) from missing
