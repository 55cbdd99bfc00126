"""Reaching a mirror's source from where a command runs, and what the source says against mirroring it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from twinlog.config.bootstrap import parse_bootstrap
from twinlog.config.mirror import MirrorConfig
from twinlog.control.commands import Handled, Started
from twinlog.control.image import Image
from twinlog.control.records import MirrorRecord
from twinlog.errors import AuthorizationFailed, BadInput, InvalidRequest, UnsupportedVersion
from twinlog.state.log import StateLog
from twinlog.wire.cluster import Cluster
from twinlog.wire.requirements import READING, require

SOURCE_LABEL = "source"
CLIENT_ID = "mirror-src-admin"

_UNREADABLE = (AuthorizationFailed, UnsupportedVersion, BadInput)


@asynccontextmanager
async def connected(config: MirrorConfig, *, timeout_s: float, bootstrap: str | None = None) -> AsyncIterator[Cluster]:
    """Connect to the source; references to secrets are looked up here. `bootstrap` replaces the mirror's addresses.

    Raises InvalidConfig (a reference leads nowhere on this machine), Unreachable, AuthenticationFailed,
    UnsupportedVersion (its brokers are too old to be read).
    """
    settings = config.source_settings()
    if bootstrap is not None:
        settings = replace(settings, bootstrap=parse_bootstrap(bootstrap))
    cluster = await Cluster.connect(settings, client_id=CLIENT_ID, timeout_s=timeout_s, label=SOURCE_LABEL)
    try:
        await require(cluster, READING)
        yield cluster
    finally:
        await cluster.close()


def check_identity(mirror: MirrorRecord, cluster: Cluster, *, given: str | None) -> None:
    """The cluster reached is the one that the mirror was created for. `given`: the addresses of the command."""
    if mirror.source_cluster_id and cluster.cluster_id and cluster.cluster_id != mirror.source_cluster_id:
        where = given or mirror.configs.get("bootstrap.servers", "")
        raise InvalidRequest(
            f"Behind {where} is cluster {cluster.cluster_id}, and mirror '{mirror.mirror}' mirrors cluster "
            f"{mirror.source_cluster_id}. Correct the addresses, or create another mirror for that cluster."
        )


async def state_of(cluster: Cluster, *, timeout_s: float) -> Image | str:
    """Return what another cluster's own state says, empty where it has none; or why it may not be read.

    Raises RetryLater for what passes by itself.
    """
    try:
        async with asyncio.timeout(timeout_s):
            log = await StateLog.open(cluster, create=False)
            return await log.load(timeout_s=timeout_s)
    except (*_UNREADABLE, TimeoutError) as reason:
        return str(reason) or f"no answer within {timeout_s:g} s."


def identified(handled: Handled[Started], image: Image, mirror: str, source_cluster_id: str) -> Handled[Started]:
    """Write down the source cluster's id with the start, where it was not known when the mirror was created."""
    records = list(handled.records)
    record = next((r for r in records if isinstance(r, MirrorRecord)), image.mirrors[mirror])
    if record.source_cluster_id or not source_cluster_id:
        return handled
    rest = [r for r in records if r is not record]
    return Handled((replace(record, source_cluster_id=source_cluster_id), *rest), handled.reply)
