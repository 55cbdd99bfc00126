"""What a mirror's coordinator does at each refresh beside discovery: growth, configs, group offsets, ACLs.

Each sync stands alone: what fails in one is counted, listed with its reason, and holds up nothing else. What was left
alone is stored as the mirror's SkippedRecord, only when it has changed.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from twinlog.admin import state as admin_state
from twinlog.config.mirror import MirrorConfig
from twinlog.control.commands import Handled
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import MirrorRecord, Skipped, SkippedRecord, TopicRecord
from twinlog.errors import AuthorizationFailed, TwinlogError
from twinlog.service.acls import Acls
from twinlog.service.keeper import Keeper
from twinlog.state.log import StateLog
from twinlog.sync import groups, refresh, share_groups
from twinlog.sync.acls import AclsDone, Giving
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
        self._missing: dict[str, frozenset[str]] = {}
        self._warned: dict[tuple[str, str], str] = {}
        self.acls = Acls(cluster, image, keeper)
        self.topic_metadata_refresh_errors: Counter[str] = Counter()
        self.topic_config_sync_errors: Counter[str] = Counter()
        self.consumer_group_offset_sync_errors: Counter[str] = Counter()
        self.share_group_offset_sync_errors: Counter[str] = Counter()

    @property
    def acl_sync_errors(self) -> Counter[str]:
        """ACLs that could not be made, deleted or given, and syncs that failed as a whole."""
        return self.acls.errors

    def mirror_topic_count(self, mirror: str) -> int:
        """How many topics of a mirror are to be mirrored."""
        return len(self._mirrored(mirror))

    async def run(
        self,
        mirror: MirrorRecord,
        config: MirrorConfig,
        source: Cluster,
        owned: Callable[[], bool],
    ) -> None:
        """Do all syncs once."""
        name = mirror.mirror
        records = self._mirrored(name)
        ours: Mapping[str, TopicInfo] = {}
        sound: set[str] = set()
        told: AclsDone | None = None

        async def topics() -> tuple[Sequence[Skipped], int]:
            nonlocal ours, sound
            theirs, ours, hidden = await self._topics(source, records)
            seen = [record for record in records if record.topic not in hidden]
            skipped, failed = await self._topics_pass(name, seen, theirs, ours, still)
            skipped += [Skipped("right", topic, str(error)) for topic, error in hidden.items()]
            sound = {record.topic for record in records if record.topic in theirs and record.topic in ours}
            sound -= {item.name for item in skipped}
            return skipped, failed

        async def configs() -> tuple[Sequence[Skipped], int]:
            infos = {topic: ours[topic] for topic in sound}
            copying = self._copying(name, sound)
            return await refresh.sync_configs(source, self._cluster, config, infos, copying, still=still)

        def still(topic: str) -> bool:
            # Asked again right before each change: a topic stopped meanwhile is no longer ours to touch, and a worker
            # that froze meanwhile does not know.
            record = self._image.topic(name, topic)
            return owned() and record is not None and record.desired is DesiredState.MIRRORING

        async def offsets() -> tuple[Sequence[Skipped], int]:
            done = await groups.sync(source, self._cluster, config, set(filter(still, sound)), still)
            return done.skipped, done.errors

        async def shares() -> tuple[Sequence[Skipped], int]:
            done = await share_groups.sync(source, self._cluster, config, set(filter(still, sound)), still)
            return done.skipped, done.errors

        async def acls() -> tuple[Sequence[Skipped], int]:
            nonlocal told
            told = await self.acls.sync(name, config, source)
            return told.skipped, told.errors

        skipped = await self._safely("topic", name, self.topic_metadata_refresh_errors, topics)
        if config.configs_sync_enabled:
            skipped += await self._safely("config", name, self.topic_config_sync_errors, configs)
        if config.groups_sync_enabled:
            skipped += await self._safely("group", name, self.consumer_group_offset_sync_errors, offsets)
            skipped += await self._safely("share group", name, self.share_group_offset_sync_errors, shares)
        denials = partial(self.acls.denials.refresh, name, config, owned)
        skipped += await self._safely("deny", name, self.acl_sync_errors, denials)
        if not owned():
            return
        skipped += await self._safely("acl", name, self.acl_sync_errors, acls)
        async with self.acls.storing:
            await self._tell(name, skipped, self.acls.kept(name, told, config))

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
    ) -> tuple[dict[str, TopicInfo], dict[str, TopicInfo], dict[str, TwinlogError]]:
        """The topics of both sides, and why some may not be seen: these are not taken for deleted."""
        names = [record.topic for record in records]
        theirs, not_there = await read_topics(source, names)
        ours, not_here = await read_topics(self._cluster, names)
        return theirs, ours, not_there | not_here

    async def _topics_pass(
        self,
        mirror: str,
        records: Sequence[TopicRecord],
        theirs: Mapping[str, TopicInfo],
        ours: Mapping[str, TopicInfo],
        still: Callable[[str], bool],
    ) -> tuple[list[Skipped], int]:
        grown, told = refresh.topics_plan(records, theirs, ours, self._missing.get(mirror, frozenset()))
        self._missing[mirror] = frozenset(record.topic for record in records if record.topic not in theirs)
        skipped, failed = list(told), 0
        for one in grown:
            if not still(one.record.topic):
                continue
            try:
                record = await refresh.grow(self._cluster, one)
                await admin_state.change(self._cluster, self._state, _raising(one.record, record))
                log.info("mirror %s: topic %s has %d partitions now", mirror, record.topic, record.partitions)
            except TwinlogError as error:
                failed += 1
                skipped.append(Skipped(refresh.TOPIC, one.record.topic, str(error)))
        return skipped, failed

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
            self._warn_once(mirror, kind, str(error))
            return [Skipped("right" if isinstance(error, AuthorizationFailed) else kind, f"{kind} sync", str(error))]
        self._warned.pop((mirror, kind), None)
        errors[mirror] += failed
        return list(skipped)

    def _warn_once(self, mirror: str, kind: str, why: str) -> None:
        """What fails alike at each refresh is listed and counted, but a line in the log only once."""
        if self._warned.get((mirror, kind)) != why:
            self._warned[mirror, kind] = why
            log.warning("mirror %s: %s sync: %s", mirror, kind, why)

    async def _tell(self, mirror: str, skipped: Sequence[Skipped], kept: Giving) -> None:
        """Store what was left alone, and what is held back, where that is news."""
        before = self.acls.stored(mirror) or SkippedRecord(mirror, 0)
        record = replace(
            before,
            at_ms=0,
            items=tuple(skipped[:MOST_SKIPPED]),
            beyond=max(0, len(skipped) - MOST_SKIPPED),
            held=kept.held,
            held_for=kept.held_for,
        )
        if replace(before, at_ms=0) != record and mirror in self._image.mirrors:
            await self.acls.store(record)


def _raising(seen: TopicRecord, grown: TopicRecord) -> Callable[[Image], Handled[None]]:
    """Store the new number of partitions, unless somebody has changed the topic's record meanwhile."""

    def handler(image: Image) -> Handled[None]:
        same = image.topic(seen.mirror, seen.topic) == seen
        return Handled((grown,) if same else (), None)

    return handler
