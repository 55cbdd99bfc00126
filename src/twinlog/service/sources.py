"""The source clusters of this worker's mirrors, each connected once."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from twinlog.admin.sources import SOURCE_LABEL
from twinlog.config.mirror import MirrorConfig, filters_only_change
from twinlog.control.records import MirrorRecord
from twinlog.errors import BadInput, PartitionFailed
from twinlog.relay.fetch import FetchSettings, Source
from twinlog.relay.inbox import Budget
from twinlog.wire.cluster import Cluster

log = logging.getLogger("twinlog.sources")

CONNECT_WITHIN_S = 20.0


@dataclass(frozen=True, slots=True)
class _Connected:
    configs: Mapping[str, str]
    source: Source


class Sources:
    """Connects to a mirror's source at first use, and anew when the mirror's configs have changed."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._connected: dict[str, _Connected] = {}
        self._retired: list[Source] = []
        self._locks: dict[str, asyncio.Lock] = {}

    async def get(self, mirror: MirrorRecord) -> Source:
        """The source of `mirror`.

        Raises Unreachable, AuthenticationFailed and the like where there is no connection; PartitionFailed where the
        cluster behind the addresses is another one, or the configs cannot be used by this worker.
        """
        async with self._locks.setdefault(mirror.mirror, asyncio.Lock()):
            known = self._connected.get(mirror.mirror)
            if known is not None and same_connection(known.configs, mirror.configs):
                return known.source
            source = await self._connect(mirror)
            if known is not None:
                # Relays that still read from it are about to be told; it is closed with the worker.
                self._retired.append(known.source)
            self._connected[mirror.mirror] = _Connected(mirror.configs, source)
            return source

    async def _connect(self, mirror: MirrorRecord) -> Source:
        try:
            config = MirrorConfig.from_properties(mirror.configs, f"the configs of mirror {mirror.mirror}")
            settings = config.source_settings()
        except BadInput as error:
            raise PartitionFailed(f"mirror {mirror.mirror}: {error}", retriable=True) from error
        client_id = f"mirror-src-admin-{mirror.mirror}"
        cluster = await Cluster.connect(settings, client_id=client_id, timeout_s=CONNECT_WITHIN_S, label=SOURCE_LABEL)
        if mirror.source_cluster_id and cluster.cluster_id != mirror.source_cluster_id:
            await cluster.close()
            raise PartitionFailed(
                f"mirror {mirror.mirror}: behind {mirror.configs.get('bootstrap.servers')} is now cluster "
                f"{cluster.cluster_id}, not {mirror.source_cluster_id} as when the mirror was created. Nothing more "
                f"is written. Correct the addresses, or delete the mirror and create it for the new cluster."
            )
        log.info("mirror %s: connected to source cluster %s", mirror.mirror, cluster.cluster_id)
        fetch = FetchSettings(
            wait_max_ms=config.fetch_wait_max_ms,
            min_bytes=config.fetch_min_bytes,
            partition_max_bytes=config.fetch_max_bytes,
            response_max_bytes=config.fetch_response_max_bytes,
            timeout_ms=config.socket_timeout_ms,
            backoff_ms=config.fetch_backoff_ms,
        )
        return Source(cluster, mirror=mirror.mirror, settings=fetch, budget=self._budget)

    async def close(self) -> None:
        """End all connections to sources."""
        for source in [*(connected.source for connected in self._connected.values()), *self._retired]:
            await source.close()
        self._connected.clear()
        self._retired.clear()


def same_connection(old: Mapping[str, str], new: Mapping[str, str]) -> bool:
    """Whether a change of a mirror's configs leaves the connection to its source alone, as that of a filter does."""
    if old == new:
        return True
    try:
        return filters_only_change(
            MirrorConfig.from_properties(old, "the old configs"), MirrorConfig.from_properties(new, "the new configs")
        )
    except BadInput:
        return False
