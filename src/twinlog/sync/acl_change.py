"""Changes a cluster's ACLs, and takes back what turns out to cost twinlog a right of its own.

Whom brokers see as twinlog, and why it may do what it does, cannot always be told from ACLs: it may be a super user, or
one of everybody where `allow.everyone.if.no.acl.found` is set, which the first ACL about a resource ends. But a broker
tells what may be done, before and after.
"""

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from twinlog.config.acls import Acl
from twinlog.errors import BrokerError, TwinlogError
from twinlog.wire import codes
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops_acls import create_acls, delete_acls, describe_acls, topic_rights
from twinlog.wire.ops_admin import cluster_rights
from twinlog.wire.retry import Attempts

PATIENCE_S: Final = 15.0
SEEN_WITHIN_S: Final = 5.0
"""A controller answers when it has decided; brokers learn of it within milliseconds, when all is well."""
MOST_WATCHED: Final = 1_000
"""Topics whose rights are compared; more would make an answer of megabytes."""


@dataclass(frozen=True, slots=True)
class Changed:
    """What became of the entries: which were refused, and which were taken back, with the rights that they cost."""

    refused: Mapping[Acl, TwinlogError] = field(default_factory=dict)
    undone: frozenset[Acl] = frozenset()
    lost: tuple[str, ...] = ()


async def change(cluster: Cluster, made: Collection[Acl], deleted: Collection[Acl], topics: Collection[str]) -> Changed:
    """Make ACLs, then delete others, so that nobody is without a right that he is to have.

    `topics`: those on which twinlog's own rights must stay as they are; on the cluster they must where an ACL is about
    that. Raises AuthorizationFailed, RetryLater and its kinds.
    """
    if not made and not deleted:
        return Changed()
    watched = sorted(topics)[:MOST_WATCHED]
    about_all = any(acl.resource_type == "CLUSTER" for acl in (*made, *deleted))
    before = await _rights(cluster, watched, about_all=about_all)
    refused = await create(cluster, made)
    there = frozenset(made).difference(refused)
    try:
        refused |= await delete_acls(cluster, deleted) if deleted else {}
        gone = frozenset(deleted).difference(refused)
        await _seen(cluster, there, gone)
        lost = before - await _rights(cluster, watched, about_all=about_all)
    except TwinlogError:
        # What they cost twinlog is not known, and the next look would take that for how it was before.
        with suppress(TwinlogError):
            await delete_acls(cluster, there)
        raise
    if not lost:
        return Changed(refused)
    if there:
        await delete_acls(cluster, there)
    await create(cluster, gone)
    await _seen(cluster, gone, there)
    return Changed(refused, there | gone, tuple(sorted(f"{right} on {name}" for name, right in lost)))


async def create(
    cluster: Cluster, wanted: Collection[Acl], *, timeout_s: float = PATIENCE_S
) -> dict[Acl, TwinlogError]:
    """Make ACLs; returns those that were refused. Without an authorizer nobody lacks them, and nothing is refused.

    Raises AuthorizationFailed, RetryLater and its kinds.
    """
    refused = await create_acls(cluster, wanted, timeout_s=timeout_s) if wanted else {}
    return {acl: error for acl, error in refused.items() if not _needless(error)}


def _needless(error: TwinlogError) -> bool:
    return isinstance(error, BrokerError) and error.code == codes.SECURITY_DISABLED


async def _rights(cluster: Cluster, topics: Collection[str], *, about_all: bool) -> frozenset[tuple[str, str]]:
    """What twinlog may do, as far as the brokers tell."""
    told = await topic_rights(cluster, topics) if topics else {}
    rights = {(f"topic {name}", right) for name, some in told.items() for right in some}
    on_cluster = await cluster_rights(cluster) if about_all else None
    return frozenset(rights | {("the cluster", right) for right in on_cluster or ()})


async def _seen(cluster: Cluster, there: frozenset[Acl], gone: frozenset[Acl]) -> None:
    """Wait until a broker goes by the change."""
    attempts = Attempts(SEEN_WITHIN_S)
    while True:
        found = await describe_acls(cluster) or frozenset()
        if (there <= found and not gone & found) or not await attempts.again():
            return
