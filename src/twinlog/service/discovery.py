"""Finds topics at the source that a mirror's patterns ask for and that were created after the start.

Done by the worker that owns the mirror's shard, each `mirror.metadata.refresh.interval.ms`; what is found is started
as the start command would. Where a topic begins is `mirror.start.offset.spec`'s to say only of what is found by the
first look for the mirror's patterns (`control.looked`).
"""

import asyncio
import logging
import time
from functools import partial

from twinlog.admin.starting import StartRequest, start_topics
from twinlog.config.mirror import MirrorConfig
from twinlog.control.image import Image
from twinlog.control.looked import Looked
from twinlog.control.records import MirrorRecord
from twinlog.control.sharding import mirror_shard
from twinlog.errors import TwinlogError
from twinlog.relay.waiting import cancelled
from twinlog.service.anew import Renewal
from twinlog.service.coordinator import Coordinator
from twinlog.service.shards import Shards
from twinlog.service.sources import Sources
from twinlog.state.log import StateLog
from twinlog.sync.topics import internal_reason, read_topics
from twinlog.wire.cluster import Cluster

log = logging.getLogger("twinlog.discovery")

LOOK_EVERY_S = 0.5
START_WITHIN_S = 30.0


class Discovery:
    """Refreshes the mirrors whose coordinator this worker is."""

    def __init__(
        self,
        state: StateLog,
        image: Image,
        shards: Shards,
        sources: Sources,
        coordinator: Coordinator | None = None,
    ) -> None:
        self.coordinator = coordinator
        self._state = state
        self._image = image
        self._shards = shards
        self._sources = sources
        self._renewal = Renewal(state, image)
        self.errors: dict[str, int] = {}
        self._due: dict[str, float] = {}
        self._told: dict[str, str] = {}
        self._refreshing: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Refresh each mirror when it is due, until cancelled.

        Each on its own: a source that is down holds up only its own mirror, for as long as connecting is tried.
        """
        giving = {asyncio.create_task(self.coordinator.acls.keep_giving(self.owns))} if self.coordinator else set()
        try:
            while True:
                await asyncio.sleep(LOOK_EVERY_S)
                for mirror in filter(self._is_due, list(self._image.mirrors.values())):
                    refreshing = self._refresh_safely(mirror)
                    self._refreshing[mirror.mirror] = asyncio.create_task(refreshing, name=f"discover {mirror.mirror}")
        finally:
            await cancelled({*giving, *self._refreshing.values()})

    def _is_due(self, mirror: MirrorRecord) -> bool:
        name = mirror.mirror
        if not self.owns(name):
            return False
        before = self._refreshing.get(name)
        return (before is None or before.done()) and time.monotonic() >= self._due.get(name, 0.0)

    def owns(self, mirror: str) -> bool:
        """Whether this worker is the mirror's coordinator at this moment."""
        return self._shards.leased and mirror_shard(mirror, self._state.shards) in self._shards.owned

    async def _refresh_safely(self, mirror: MirrorRecord) -> None:
        name = mirror.mirror
        interval_s = MirrorConfig().metadata_refresh_interval_ms / 1000
        try:
            config = MirrorConfig.from_properties(mirror.configs, f"the configs of mirror {name}")
            interval_s = config.metadata_refresh_interval_ms / 1000
            trouble = await self._refresh(mirror, config)
        except TwinlogError as error:
            trouble = str(error)
            self.errors[name] = self.errors.get(name, 0) + 1
        except Exception:  # a mistake of ours must end neither the worker nor other mirrors' discovery
            log.exception("mirror %s: discovery: unexpected error", name)
            trouble = ""
            self.errors[name] = self.errors.get(name, 0) + 1
        if trouble and self._told.get(name) != trouble:
            log.warning("mirror %s: discovery: %s", name, trouble)
        self._told[name] = trouble
        self._due[name] = time.monotonic() + interval_s

    async def _refresh(self, mirror: MirrorRecord, config: MirrorConfig) -> str:
        """Start what is new, then sync; returns what could not be started and why."""
        source = await self._sources.get(mirror)
        trouble = await self._renewal.run(mirror, config, source.cluster)
        if config.topics_include.elements:
            trouble = "; ".join(filter(None, (trouble, await self._discover(mirror, config, source.cluster))))
        if self.coordinator is not None:
            owned = partial(self.owns, mirror.mirror)
            await self.coordinator.run(mirror, config, source.cluster, owned)
        return trouble

    async def _discover(self, mirror: MirrorRecord, config: MirrorConfig, source: Cluster) -> str:
        found, _ = await read_topics(source, None)
        new = [
            name
            for name, info in found.items()
            if config.mirrors_topic(name)
            and self._image.topic(mirror.mirror, name) is None
            and internal_reason(info) is None
        ]
        if not new and Looked(self._image, mirror).complete:
            return ""
        include = tuple(config.topics_include.elements)
        request = StartRequest(mirror=mirror.mirror, include=include, discovered=frozenset(new))
        result = await start_topics(self._state.cluster, self._state, request, timeout_s=START_WITHIN_S)
        if result.started:
            log.info("mirror %s: found and started %s", mirror.mirror, ", ".join(result.started))
        return "; ".join(f"{name}: {error}" for name, error in result.failed.items())
