"""Group offsets once more at a stop, so that they are as of the stop and not of the last refresh before it.

Done by the worker that owns the mirror's shard, for topics that were MIRRORING, within a bound and only while the
source answers. It holds up no STOPPED. That it is over is stored with the mirror (`SkippedRecord.last_synced`), which
the stop command waits for: whoever starts consumers at the destination then finds the offsets there.

It is done behind STOPPED, when the destination's logs have their ends, so that no offset is kept short of those. By
then applications may be at work there: nothing is set back, whatever the mirror's configs say of refreshes.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from twinlog.config.mirror import MirrorConfig
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import Change, SkippedRecord, TopicRecord
from twinlog.errors import TwinlogError, Unreachable
from twinlog.relay.waiting import cancelled
from twinlog.service.acls import Acls
from twinlog.service.sources import Sources
from twinlog.sync import groups, share_groups
from twinlog.sync.refresh import are_meant
from twinlog.sync.topics import read_topics
from twinlog.wire.cluster import Cluster

log = logging.getLogger("twinlog.coordinator")

WITHIN_S = 3.0
"""For all of it; a stop command waits for it about as long (`admin.stopping`)."""
ANSWERS_WITHIN_S = 1.0
"""A source that does not answer within this is taken for down: then a stop must not take longer."""
REST_WITHIN_S = 1.5
"""For so long the partitions are waited for."""
TOGETHER_S, POLL_S = 0.05, 0.05
"""What is stopped by one command comes in within the first of these."""
MOST_NAMED = 1_000
"""Topics named in the record, which must not grow with a cluster."""
MOST_TOLD = 5
"""Groups named in one line of the log."""


class LastOffsets:
    """Takes notice of stops, and syncs the groups of what was stopped."""

    def __init__(self, cluster: Cluster, image: Image, acls: Acls, sources: Sources) -> None:
        self._cluster = cluster
        self._image = image
        self._acls = acls
        self._sources = sources
        self._mirroring = {
            (one.mirror, one.topic) for one in image.all_topics() if one.desired is DesiredState.MIRRORING
        }
        self._due: dict[str, set[str]] = {}
        self._wake = asyncio.Event()
        self._running: dict[str, asyncio.Task[None]] = {}

    def __repr__(self) -> str:
        return f"LastOffsets({len(self._mirroring)} topics MIRRORING, {len(self._due)} mirrors due)"

    def changed(self, changes: Sequence[Change]) -> None:
        """Something was written to the state: topics that were MIRRORING may be stopped."""
        for change in changes:
            if not isinstance(change, TopicRecord):
                continue
            key = (change.mirror, change.topic)
            if change.desired is DesiredState.MIRRORING:
                self._mirroring.add(key)
            elif key in self._mirroring:
                self._mirroring.discard(key)
                if change.desired is DesiredState.STOPPED:
                    self._due.setdefault(change.mirror, set()).add(change.topic)
                    self._wake.set()

    async def run(self, owns: Callable[[str], bool]) -> None:
        """Sync what was stopped, until cancelled; mirrors side by side, of one mirror one stop after another."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                await asyncio.sleep(TOGETHER_S)
                for mirror in list(self._due):
                    before = self._running.get(mirror)
                    if before is None or before.done():
                        topics = self._due.pop(mirror)
                        if owns(mirror):
                            work = self._safely(mirror, topics, partial(owns, mirror))
                            self._running[mirror] = asyncio.create_task(work, name=f"last offsets of {mirror}")
                    else:
                        self._wake.set()
        finally:
            await cancelled(list(self._running.values()))

    async def _safely(self, mirror: str, topics: Collection[str], owned: Callable[[], bool]) -> None:
        try:
            if await self._wanted(mirror, topics, owned):
                await self._tell(mirror, topics)
        except TwinlogError as error:
            log.warning("mirror %s: that the last group offsets were synced could not be stored: %s", mirror, error)
        except Exception:  # a mistake of ours must not keep other mirrors from theirs
            log.exception("mirror %s: last group offsets: unexpected error", mirror)

    async def _wanted(self, mirror: str, topics: Collection[str], owned: Callable[[], bool]) -> bool:
        """Sync; False where the mirror syncs no groups. What goes wrong is said here, and is no reason to wait."""
        record = self._image.mirrors.get(mirror)
        if record is None:
            return False
        named = ", ".join(sorted(topics)[:5])
        try:
            config = MirrorConfig.from_properties(record.configs, f"the configs of mirror {mirror}")
            if not config.groups_sync_enabled:
                return False
            async with asyncio.timeout(WITHIN_S):
                await self._sync(mirror, config, topics, owned)
        except (TwinlogError, TimeoutError) as error:
            log.warning(
                "mirror %s: %s stopped; the group offsets there may be as of the last refresh, since they could not be "
                "synced once more within %.0f s: %s",
                mirror,
                named,
                WITHIN_S,
                str(error) or "no answer in time",
            )
        return True

    async def _sync(
        self, mirror: str, config: MirrorConfig, topics: Collection[str], owned: Callable[[], bool]
    ) -> None:
        source = self._sources.connected.get(mirror)
        if source is None:
            raise Unreachable(self._sources.trouble(mirror) or "there is no connection to the source")
        async with asyncio.timeout(ANSWERS_WITHIN_S):
            theirs, _ = await read_topics(source.cluster, sorted(topics))
        ours, _ = await read_topics(self._cluster, sorted(topics))
        records = [record for topic in sorted(topics) if (record := self._image.topic(mirror, topic)) is not None]
        meant = {one.topic for one in records if are_meant(one, theirs.get(one.topic), ours.get(one.topic))}
        with suppress(TimeoutError):  # what is not STOPPED by then has the offsets that its log has room for
            async with asyncio.timeout(REST_WITHIN_S):
                while not self._at_rest(mirror, topics):  # noqa: ASYNC110  # the image is changed elsewhere
                    await asyncio.sleep(POLL_S)

        def still(topic: str) -> bool:
            # Started again meanwhile, it is for the refresh; in another mirror, it is none of ours; and a worker that
            # froze meanwhile knows of neither.
            known = self._image.topic(mirror, topic) is not None
            return owned() and known and self._image.active_in(topic) is None

        forward = replace(config, groups_sync_backwards=False)
        for kind, sync in (("group", groups.sync), ("share group", share_groups.sync)):
            done = await sync(source.cluster, self._cluster, forward, meant, still)
            if done.synced:
                log.info("mirror %s: offsets of %d %ss were brought over at a stop", mirror, len(done.synced), kind)
            if done.errors:
                failed = "; ".join(f"{one.name}: {one.reason}" for one in done.skipped[:MOST_TOLD])
                log.warning("mirror %s: %d %ss failed at a stop: %s", mirror, done.errors, kind, failed)

    def _at_rest(self, mirror: str, topics: Collection[str]) -> bool:
        """Whether all partitions are STOPPED."""
        return all(
            self._image.state(mirror, topic, number) is PartitionState.STOPPED
            for topic in topics
            if (record := self._image.topic(mirror, topic)) is not None
            for number in range(record.partitions)
        )

    async def _tell(self, mirror: str, topics: Collection[str]) -> None:
        async with self._acls.storing:
            if mirror in self._image.mirrors:
                before = self._acls.stored(mirror) or SkippedRecord(mirror, 0)
                named, now_ms = tuple(sorted(topics)[:MOST_NAMED]), time.time_ns() // 1_000_000
                await self._acls.store(replace(before, last_synced=named, last_synced_ms=now_ms))
