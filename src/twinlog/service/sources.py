"""The source clusters of this worker's mirrors, each connected once."""

import asyncio
import logging
import random
from collections.abc import Mapping
from dataclasses import dataclass

from twinlog.admin.sources import SOURCE_LABEL
from twinlog.config.mirror import MirrorConfig, same_connection
from twinlog.control.records import MirrorRecord
from twinlog.errors import BadInput, PartitionFailed
from twinlog.relay.budget import Budget
from twinlog.relay.fetch import FetchSettings, Source
from twinlog.relay.waiting import cancelled, may_be_left
from twinlog.wire.cluster import Cluster
from twinlog.wire.retry import Backoff

log = logging.getLogger("twinlog.sources")

CONNECT_WITHIN_S = 20.0
# Between two attempts at a source that is down. Connecting itself is tried for as long as above, with a backoff of its
# own; this is for sources that refuse at once.
BACKOFF = Backoff(0.5, 10.0)


@dataclass(slots=True)
class _Attempt:
    """One connecting for all who want it; `failures` counts those in a row before it, `reason` is the last one's."""

    configs: Mapping[str, str]
    failures: int
    task: asyncio.Task[Source]
    reason: str = ""

    @property
    def failed(self) -> bool:
        """Whether it is over without a source."""
        return self.task.done() and (self.task.cancelled() or self.task.exception() is not None)


class Sources:
    """Connects to a mirror's source at first use, and anew when the mirror's configs have changed.

    Whoever asks while a connection is being made shares it, or its failure. After failures the next attempt waits, and
    all who ask meanwhile wait for that one: a source that is down is asked once for a thousand partitions.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._attempts: dict[str, _Attempt] = {}
        self._retired: list[_Attempt] = []

    async def get(self, mirror: MirrorRecord) -> Source:
        """The source of `mirror`.

        Raises Unreachable, AuthenticationFailed and the like where there is no connection; PartitionFailed where the
        cluster behind the addresses is another one, or the configs cannot be used by this worker.
        """
        attempt = self._attempts.get(mirror.mirror)
        if attempt is None or attempt.failed or not same_connection(attempt.configs, mirror.configs):
            attempt = self._begin(mirror, attempt)
        return await asyncio.shield(attempt.task)

    def _begin(self, mirror: MirrorRecord, before: _Attempt | None) -> _Attempt:
        failures, reason = 0, ""
        if before is not None and not before.failed:
            # Relays that still read from it are about to be told; it is closed with the worker.
            self._retired.append(before)
        elif before is not None and same_connection(before.configs, mirror.configs):
            failures = before.failures + 1
            reason = "" if before.task.cancelled() else str(before.task.exception())
        task = asyncio.create_task(self._connect_after(failures, mirror), name=f"source of {mirror.mirror}")
        may_be_left(task)
        attempt = self._attempts[mirror.mirror] = _Attempt(mirror.configs, failures, task, reason)
        return attempt

    async def _connect_after(self, failures: int, mirror: MirrorRecord) -> Source:
        if failures:
            await asyncio.sleep(BACKOFF.wait_s(failures, random.random()))  # noqa: S311  # spreads retries, guards nothing
        return await self._connect(mirror)

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
            fetchers=config.num_replica_fetchers,
            receive_buffer_bytes=config.socket_receive_buffer_bytes,
        )
        return Source(cluster, mirror=mirror.mirror, settings=fetch, budget=self._budget)

    @property
    def connected(self) -> Mapping[str, Source]:
        """The sources that a connection was made to, by mirror."""
        attempts = self._attempts.items()
        return {mirror: one.task.result() for mirror, one in attempts if one.task.done() and not one.failed}

    def trouble(self, mirror: str) -> str:
        """Why there is no connection to the source of `mirror`; "" where there is one, or nobody has asked for it."""
        attempt = self._attempts.get(mirror)
        if attempt is None or (attempt.task.done() and not attempt.failed):
            return ""
        if not attempt.task.done():
            return attempt.reason or f"mirror {mirror}: no connection to its source yet"
        return str(attempt.task.exception()) if not attempt.task.cancelled() else ""

    async def close(self) -> None:
        """End all connections to sources, and attempts under way."""
        attempts = [*self._attempts.values(), *self._retired]
        self._attempts.clear()
        self._retired.clear()
        await cancelled([attempt.task for attempt in attempts])
        for attempt in attempts:
            if not attempt.failed:
                await attempt.task.result().close()
