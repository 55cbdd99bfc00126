"""What a mirror's coordinator does at each refresh beside discovery: growth, configs, group offsets.

Each sync stands alone: what fails in one is counted, listed with its reason, and holds up nothing else. What was left
alone is stored as the mirror's SkippedRecord, only when it has changed.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

from twinlog.admin import state as admin_state
from twinlog.config.mirror import MirrorConfig
from twinlog.control.commands import Handled
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import MirrorRecord, Skipped, SkippedRecord, TopicRecord
from twinlog.errors import TwinlogError
from twinlog.service.keeper import Keeper
from twinlog.state.log import StateLog
from twinlog.sync import groups, refresh
from twinlog.sync.topics import read_topics
from twinlog.wire.cluster import Cluster, TopicInfo

log = logging.getLogger("twinlog.coordinator")

MOST_SKIPPED = 1_000
"""More would make a record that grows with a cluster's groups; the rest is counted."""


class Coordinator:
    """The syncs of the mirrors whose shard this worker owns; the counters are by mirror."""

    def __init__(self, cluster: Cluster, state: StateLog, image: Image, keeper: Keeper) -> None:
        self._cluster = cluster
        self._state = state
        self._image = image
        self._keeper = keeper
        self._missing: dict[str, frozenset[str]] = {}
        self.topic_metadata_refresh_errors: Counter[str] = Counter()
        self.topic_config_sync_errors: Counter[str] = Counter()
        self.consumer_group_offset_sync_errors: Counter[str] = Counter()

    def mirror_topic_count(self, mirror: str) -> int:
        """How many topics of a mirror are to be mirrored."""
        return len(self._mirrored(mirror))

    async def run(
        self,
        mirror: MirrorRecord,
        config: MirrorConfig,
        source: Cluster,
        changing: asyncio.Lock,
        owned: Callable[[], bool],
    ) -> None:
        """Do all syncs once. `changing` is held while the state is changed as a command does it."""
        name = mirror.mirror
        records = self._mirrored(name)
        theirs, ours = await self._topics(source, records)
        skipped = await self._topics_pass(name, records, theirs, ours, changing)
        sound = {record.topic for record in records if record.topic in theirs and record.topic in ours}
        sound -= {item.name for item in skipped}

        async def configs() -> tuple[Sequence[Skipped], int]:
            topics = {topic: ours[topic] for topic in sound}
            return await refresh.sync_configs(source, self._cluster, config, topics, self._copying(name, sound))

        async def offsets() -> tuple[Sequence[Skipped], int]:
            # Asked again right before: a topic stopped meanwhile is no longer ours to touch.
            topics = sound & {record.topic for record in self._mirrored(name)}
            done = await groups.sync(source, self._cluster, config, topics)
            return done.skipped, done.errors

        if config.configs_sync_enabled:
            skipped += await self._safely("config", name, self.topic_config_sync_errors, configs)
        if config.groups_sync_enabled:
            skipped += await self._safely("group", name, self.consumer_group_offset_sync_errors, offsets)
        if owned():
            await self._tell(name, skipped)

    def _mirrored(self, mirror: str) -> list[TopicRecord]:
        return [record for record in self._image.topics_of(mirror) if record.desired is DesiredState.MIRRORING]

    def _copying(self, mirror: str, topics: set[str]) -> set[str]:
        """The topics of which a partition has not been copied for the first time."""
        return {
            record.topic
            for record in self._mirrored(mirror)
            if record.topic in topics and not all(self._copied(record, number) for number in range(record.partitions))
        }

    def _copied(self, record: TopicRecord, number: int) -> bool:
        stored = self._image.partition(record.mirror, record.topic, number)
        return stored is not None and stored.state is PartitionState.MIRRORING and not stored.configs_before

    async def _topics(
        self, source: Cluster, records: Sequence[TopicRecord]
    ) -> tuple[dict[str, TopicInfo], dict[str, TopicInfo]]:
        names = [record.topic for record in records]
        theirs, _ = await read_topics(source, names)
        ours, _ = await read_topics(self._cluster, names)
        return theirs, ours

    async def _topics_pass(
        self,
        mirror: str,
        records: Sequence[TopicRecord],
        theirs: Mapping[str, TopicInfo],
        ours: Mapping[str, TopicInfo],
        changing: asyncio.Lock,
    ) -> list[Skipped]:
        grown, told = refresh.topics_plan(records, theirs, ours, self._missing.get(mirror, frozenset()))
        self._missing[mirror] = frozenset(record.topic for record in records if record.topic not in theirs)
        skipped = list(told)
        for one in grown:
            try:
                record = await refresh.grow(self._cluster, one)
                async with changing:
                    await admin_state.change(self._cluster, self._state, _raising(one.record, record))
                log.info("mirror %s: topic %s has %d partitions now", mirror, record.topic, record.partitions)
            except TwinlogError as error:
                self.topic_metadata_refresh_errors[mirror] += 1
                skipped.append(Skipped(refresh.TOPIC, one.record.topic, str(error)))
        return skipped

    async def _safely(
        self,
        kind: str,
        mirror: str,
        errors: Counter[str],
        sync: Callable[[], Awaitable[tuple[Sequence[Skipped], int]]],
    ) -> list[Skipped]:
        try:
            skipped, failed = await sync()
        except TwinlogError as error:
            errors[mirror] += 1
            log.warning("mirror %s: %s sync: %s", mirror, kind, error)
            return [Skipped("right", f"{kind} sync", str(error))]
        errors[mirror] += failed
        return list(skipped)

    async def _tell(self, mirror: str, skipped: Sequence[Skipped]) -> None:
        """Store what was left alone, where that is news."""
        items, beyond = tuple(skipped[:MOST_SKIPPED]), max(0, len(skipped) - MOST_SKIPPED)
        before = self._image.skipped.get(mirror)
        known = ((), 0) if before is None else (before.items, before.beyond)
        if known != (items, beyond) and mirror in self._image.mirrors:
            await self._keeper.put(SkippedRecord(mirror, time.time_ns() // 1_000_000, items, beyond))


def _raising(seen: TopicRecord, grown: TopicRecord) -> Callable[[Image], Handled[None]]:
    """Store the new number of partitions, unless somebody has changed the topic's record meanwhile."""

    def handler(image: Image) -> Handled[None]:
        same = image.topic(seen.mirror, seen.topic) == seen
        return Handled((grown,) if same else (), None)

    return handler
