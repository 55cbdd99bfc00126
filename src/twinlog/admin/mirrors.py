"""`MirrorAdmin`: the calls that KIP-1279 adds to Kafka's admin client, for a destination that has never heard of it."""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import UUID

from twinlog.admin import acls, state
from twinlog.admin.live import live_workers, moving
from twinlog.admin.results import (
    CreateMirrorResult,
    DescribeMirrorsResult,
    MoveMirrorTopicsResult,
    StartMirrorTopicsResult,
    StopMirrorTopicsResult,
)
from twinlog.admin.sources import connected
from twinlog.admin.starting import StartRequest, start_topics
from twinlog.admin.stopping import StopManner, move_topics, stop_topics
from twinlog.config.client import ClientSettings
from twinlog.config.mirror import MirrorConfig, check_mirror_name
from twinlog.config.patterns import Patterns
from twinlog.config.secrets import has_reference
from twinlog.control.checks import check_source, find_mirror
from twinlog.control.commands import Alter, Altered, Create, Delete, Deleted, Handled
from twinlog.control.describe import Describe, List, MirrorListing, describe, list_mirrors
from twinlog.control.handle import create
from twinlog.control.handle_mirror import alter, delete
from twinlog.control.handle_topics import pause, recover, resume
from twinlog.control.image import Image
from twinlog.control.lifecycle import PartitionState
from twinlog.control.mirror_configs import MirrorConfigs, describe_configs
from twinlog.control.records import SkippedRecord
from twinlog.errors import BadInput, ClusterMirrorAlreadyExists, ConcurrentChange, InvalidConfig
from twinlog.names import TopicPartition
from twinlog.state.log import StateLog
from twinlog.wire.cluster import Cluster
from twinlog.wire.requirements import WRITING, require

CLIENT_ID = "twinlog-admin"
DESTINATION_LABEL = "destination"
TIMEOUT_S = 30.0


class MirrorAdmin:
    """Manages the mirrors into one destination cluster. Use `connect`, and `close` at the end (or `async with`).

    `timeout_s` bounds the reaching of a cluster, and the wait of a stop. All calls work whether or not a worker runs.
    Every call may raise RetryLater and its kinds (a cluster did not answer), AuthorizationFailed, and
    UnsupportedVersion (a broker too old).
    """

    def __init__(self, cluster: Cluster, *, timeout_s: float = TIMEOUT_S) -> None:
        self._cluster = cluster
        self._timeout_s = timeout_s

    @classmethod
    async def connect(cls, settings: ClientSettings, *, timeout_s: float = TIMEOUT_S) -> Self:
        """Reach the destination. Raises Unreachable after `timeout_s`, AuthenticationFailed, UnsupportedVersion."""
        cluster = await Cluster.connect(settings, client_id=CLIENT_ID, timeout_s=timeout_s, label=DESTINATION_LABEL)
        try:
            await require(cluster, WRITING)
        except BaseException:  # whatever it was, no connection stays behind
            await cluster.close()
            raise
        return cls(cluster, timeout_s=timeout_s)

    async def close(self) -> None:
        """Close all connections."""
        await self._cluster.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"MirrorAdmin({self._cluster})"

    async def create_mirror(
        self,
        mirror: str,
        configs: Mapping[str, str],
        *,
        origin: str = "the mirror's configuration",
        dry_run: bool = False,
    ) -> CreateMirrorResult:
        """Create a mirror from its configs; `origin` names where they come from, in messages.

        The source is asked for its cluster id. Raises ClusterMirrorAlreadyExists, InvalidConfig, InvalidRequest (name,
        or the source is the destination itself), Unreachable.
        """
        check_mirror_name(mirror)
        config = MirrorConfig.from_properties(configs, origin)
        if mirror in (await self._image()).mirrors:
            raise ClusterMirrorAlreadyExists(f"Mirror '{mirror}' already exists")
        source_id, notes = await self._source_id(config)
        check_source(mirror, source_id, self._cluster.cluster_id)
        if dry_run:
            return CreateMirrorResult(mirror, source_id, notes)
        log = await state.open_log(self._cluster, create=True)
        command = Create(mirror, configs, source_id, self._cluster.cluster_id, origin)
        await state.change(self._cluster, log, lambda image: create(image, command))
        return CreateMirrorResult(mirror, source_id, notes)

    async def start_mirror_topics(
        self,
        mirror: str,
        topics: Sequence[str],
        *,
        exclude: Sequence[str] = (),
        topic_ids: Mapping[str, UUID] | None = None,
        replication_factor: int | None = None,
        source_bootstrap: str | None = None,
        must_exist: bool = False,
        dry_run: bool = False,
        start_at: str | None = None,
        salvage_dir: Path | None = None,
        loop_check: bool = True,
    ) -> StartMirrorTopicsResult:
        """Start topics, making those that the destination lacks, and remember the patterns.

        Parameters: `topics` and `exclude` are names and regexes that match whole names; `topic_ids` the ids that named
        topics must have at the source; `replication_factor` that of topics made (None: the destination's default);
        `source_bootstrap` addresses of the source for this call only; `must_exist`, a named topic that the source does
        not have is an error, rather than remembered; `start_at` where the first copy begins: earliest, latest, ms since
        1970 or an ISO 8601 time (None: `mirror.start.offset.spec`); `salvage_dir`, a folder: where the destination
        holds what the source never saw, that is saved there as a file, and the topic is deleted and made anew (None:
        the topic is refused); `loop_check`, ask the clusters beyond the source whether it has the topics from here.

        Raises UnknownClusterMirror, BadInput (a pattern), InvalidRequest (the source is another cluster, or the
        destination itself), UnknownTopicOrPartition, ConcurrentChange. What fails for one topic is in the result.
        """
        request = StartRequest(
            mirror=mirror,
            include=tuple(topics),
            exclude=tuple(exclude),
            topic_ids=topic_ids or {},
            replication_factor=replication_factor,
            source_bootstrap=source_bootstrap,
            must_exist=must_exist,
            dry_run=dry_run,
            start_at=start_at,
            salvage_dir=salvage_dir,
            loop_check=loop_check,
        )
        result = await start_topics(self._cluster, await self._log(), request, timeout_s=self._timeout_s)
        return replace(result, unmatched=_unmatched(request, result))

    async def stop_mirror_topics(
        self,
        mirror: str,
        topics: Sequence[str],
        *,
        wait_s: float | None = None,
        check_lag: bool = False,
        dry_run: bool = False,
    ) -> StopMirrorTopicsResult:
        """Stop topics (names and regexes), keep them from being discovered, and wait for the workers to be done.

        Where no worker is alive the stop is recorded and nothing is waited for. `wait_s`: as `timeout_s` by default.
        `check_lag`: ask both clusters first, and stop none of the topics while any of them lacks records, configs or
        group offsets of its source (in `failed` as MirrorTopicBehind, and in `behind`); the source has to be reachable.

        Raises UnknownClusterMirror, BadInput (a pattern), ConcurrentChange; with `check_lag` also what keeps the source
        from being asked. What fails for one topic is in the result.
        """
        manner = StopManner(
            wait_s=self._timeout_s if wait_s is None else wait_s,
            timeout_s=self._timeout_s,
            check_lag=check_lag,
            dry_run=dry_run,
        )
        return await stop_topics(self._cluster, await self._log(), mirror, topics, manner)

    async def pause_mirror_topics(
        self, mirror: str, topics: Sequence[str], *, wait_s: float | None = None, dry_run: bool = False
    ) -> MoveMirrorTopicsResult:
        """Pause topics (names and regexes), and wait until nothing is appended any more: all partitions PAUSED.

        Where no worker is alive the pause is recorded, nothing is waited for, and `waiting_for` names the partitions.

        Raises UnknownClusterMirror, BadInput (a pattern), ConcurrentChange. What fails for one topic is in the result.
        """
        return await move_topics(
            self._cluster,
            await self._log(),
            mirror,
            topics,
            how=pause,
            until=PartitionState.PAUSED,
            wait_s=self._timeout_s if wait_s is None else wait_s,
            dry_run=dry_run,
        )

    async def resume_mirror_topics(
        self, mirror: str, topics: Sequence[str], *, dry_run: bool = False
    ) -> MoveMirrorTopicsResult:
        """Resume paused topics (names and regexes). Raises as `pause_mirror_topics`."""
        return await move_topics(self._cluster, await self._log(), mirror, topics, how=resume, dry_run=dry_run)

    async def recover_mirror_topics(
        self, mirror: str, topics: Sequence[str], *, dry_run: bool = False
    ) -> MoveMirrorTopicsResult:
        """Try the failed partitions of topics (names and regexes) again, from the state in which each failed.

        Raises as `pause_mirror_topics`.
        """
        return await move_topics(self._cluster, await self._log(), mirror, topics, how=recover, dry_run=dry_run)

    async def add_topics_to_mirror(
        self, topics: Mapping[str, str], *, dry_run: bool = False
    ) -> dict[str, StartMirrorTopicsResult]:
        """Start topics given as {topic: mirror} by name, each of which must exist; returns the results by mirror.

        Raises as `start_mirror_topics`.
        """
        return {
            mirror: await self.start_mirror_topics(mirror, sorted(names), must_exist=True, dry_run=dry_run)
            for mirror, names in _by_mirror(topics).items()
        }

    async def remove_topics_from_mirror(
        self, mirror: str, topics: Sequence[str], *, dry_run: bool = False
    ) -> StopMirrorTopicsResult:
        """The same as `stop_mirror_topics`, by the name that an earlier revision of the KIP gave it."""
        return await self.stop_mirror_topics(mirror, topics, dry_run=dry_run)

    async def alter_mirror(
        self,
        mirror: str,
        configs: Mapping[str, str],
        *,
        removed: Sequence[str] = (),
        origin: str = "the mirror's configuration",
        dry_run: bool = False,
    ) -> Altered:
        """Set and remove configs of a mirror; an active topic that is excluded by them is stopped.

        Raises UnknownClusterMirror, InvalidConfig (key or value, with file and line), ConcurrentChange.
        """
        log, command = await self._log(), Alter(mirror, configs, tuple(removed), origin)
        return await state.change(self._cluster, log, lambda image: alter(image, command), dry_run=dry_run)

    async def delete_mirror(self, mirror: str, *, dry_run: bool = False) -> Deleted:
        """Delete a mirror whose topics are all STOPPED; the topics at the destination stay.

        Raises UnknownClusterMirror, ClusterMirrorNotEmpty, InvalidClusterMirrorState, ConcurrentChange. What others
        are still denied on its topics is taken away before; where that fails, the mirror stays.
        """
        log, command = await self._log(), Delete(mirror)
        allowed: frozenset[str] = frozenset()

        def handler(image: Image) -> Handled[Deleted]:
            done = delete(image, command)
            record = image.skipped.get(done.reply.mirror)
            if not dry_run and record is not None and not allowed.issuperset(record.denied):
                raise ConcurrentChange(f"What mirror '{mirror}' denies others has changed meanwhile. Try again.")
            return done

        if not dry_run:
            allowed = await acls.allow_all(log, delete(await self._image(), command).reply.mirror)
        return await state.change(self._cluster, log, handler, dry_run=dry_run)

    async def skipped(self, mirrors: Collection[str] | None = None) -> tuple[SkippedRecord, ...]:
        """What the last refresh of some mirrors (None: all) left alone, and why.

        Raises UnknownClusterMirror for a mirror that does not exist.
        """
        image = await self._image()
        chosen = sorted(image.mirrors) if mirrors is None else [find_mirror(image, name).mirror for name in mirrors]
        return tuple(image.skipped[name] for name in chosen if name in image.skipped)

    async def last_mirrored_positions(self, source_cluster_id: str) -> dict[TopicPartition, int]:
        """Up to where each partition was mirrored from that cluster (the next offset), as far as it is at rest."""
        return _positions(await self._image(), source_cluster_id)

    async def list_mirrors(self, command: List | None = None) -> tuple[MirrorListing, ...]:
        """Return the mirrors by name, with their active topics."""
        return list_mirrors(await self._image(), command or List())

    async def describe_mirrors(
        self,
        mirrors: Collection[str] | None = None,
        partitions: Collection[TopicPartition] | None = None,
        *,
        failed: bool = False,
        source_cluster_id: str | None = None,
        topics: Sequence[str] = (),
    ) -> DescribeMirrorsResult:
        """Return the partitions of some mirrors (None: all) as the workers last published them.

        With `source_cluster_id`, only of mirrors of that cluster, and up to where each partition was mirrored from it;
        with `topics`, names and regexes, only of topics that they match.

        Raises UnknownClusterMirror for a mirror that does not exist, BadInput (a pattern).
        """
        image = await self._image()
        now_ms = time.time_ns() // 1_000_000
        rows = describe(image, Describe(now_ms, mirrors, partitions, failed))
        if source_cluster_id is not None:
            rows = tuple(row for row in rows if _source_of(image, row.mirror) == source_cluster_id)
        if topics:
            meant = Patterns(tuple(topics))
            rows = tuple(row for row in rows if meant.matches(row.topic))
        ages = [row.figures_age_ms for row in moving(rows)]
        return DescribeMirrorsResult(
            partitions=rows,
            live_workers=len(live_workers(image, now_ms)),
            figures_age_ms=max(ages, default=-1),
            without_figures=ages.count(-1),
            retry_max_attempts={name: _retry_max(image, name) for name in {row.mirror for row in rows}},
            last_mirrored_positions={} if source_cluster_id is None else _positions(image, source_cluster_id),
        )

    async def describe_configs(
        self, mirrors: Collection[str] | None = None, *, source_cluster_id: str | None = None
    ) -> tuple[MirrorConfigs, ...]:
        """Return the configs of some mirrors (None: all), set or default, and the patterns that they remember.

        Of a secret only the reference to it is told. Raises UnknownClusterMirror for a mirror that does not exist.
        """
        return describe_configs(await self._image(), mirrors, source_cluster_id)

    async def _log(self) -> StateLog:
        return await state.open_log(self._cluster, create=False)

    async def _image(self) -> Image:
        return await state.read(await self._log())

    async def _source_id(self, config: MirrorConfig) -> tuple[str, tuple[str, ...]]:
        """Ask the source who it is; secrets that only the worker has are no obstacle."""
        try:
            config.source_settings()
        except InvalidConfig as problem:
            if not any(map(has_reference, config.raw.values())):
                raise
            return "", (f"The source was not contacted, since its secrets are not on this machine: {problem}",)
        async with connected(config, timeout_s=self._timeout_s) as source:
            return source.cluster_id, ()


def _unmatched(request: StartRequest, result: StartMirrorTopicsResult) -> tuple[str, ...]:
    """What was given to start and found no topic, but for entries that the same command excludes."""
    found = {*result.started, *result.already, *result.excluded, *result.failed}
    given = (entry for entry in request.include if entry not in request.exclude)
    return tuple(entry for entry in given if not Patterns((entry,)).select(found))


def _source_of(image: Image, mirror: str) -> str:
    record = image.mirrors.get(mirror)
    return "" if record is None else record.source_cluster_id


def _positions(image: Image, source_cluster_id: str) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.topic, stored.partition): stored.last_mirrored_offset
        for topic in image.all_topics()
        if source_cluster_id and _source_of(image, topic.mirror) == source_cluster_id
        for stored in image.partitions_of(topic.mirror, topic.topic)
        if stored.last_mirrored_offset >= 0
    }


def _by_mirror(topics: Mapping[str, str]) -> dict[str, list[str]]:
    mirrors: dict[str, list[str]] = {}
    for topic, mirror in topics.items():
        mirrors.setdefault(mirror, []).append(topic)
    return mirrors


def _retry_max(image: Image, mirror: str) -> int:
    try:
        config = MirrorConfig.from_properties(find_mirror(image, mirror).configs, mirror)
    except BadInput:
        config = MirrorConfig()
    return config.failed_retry_max_attempts
