"""Starting topics: find them at the source, check, make the destination topics, and only then record the start.

Everything that can refuse a topic comes before anything of it is written. What fails for one topic is a value, and
the others go on.
"""

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from uuid import UUID

from twinlog.admin import beginnings, recreate, state
from twinlog.admin.crossing import undo_crossed
from twinlog.admin.failback import Diverged, find_diverged, refusal, shared_offsets
from twinlog.admin.live import live_workers
from twinlog.admin.loops import find_loops
from twinlog.admin.results import Recreated, StartMirrorTopicsResult
from twinlog.admin.salvage import path_of
from twinlog.admin.sources import check_identity, connected, identified, state_of
from twinlog.admin.twins import check_twins, gone_since, grow_twins, unchecked, unread_state
from twinlog.config.mirror import MirrorConfig
from twinlog.config.patterns import Patterns
from twinlog.control.anew import Anew
from twinlog.control.checks import check_source, find_mirror
from twinlog.control.commands import FoundTopic, Handled, Start, Started
from twinlog.control.handle import start
from twinlog.control.image import Image
from twinlog.control.looked import Looked
from twinlog.control.records import NO_TOPIC_ID, MirrorRecord
from twinlog.control.selection import names_in
from twinlog.errors import (
    AuthorizationFailed,
    InvalidRequest,
    RetryLater,
    TwinlogError,
    UnknownTopicOrPartition,
)
from twinlog.names import TopicPartition
from twinlog.state.log import StateLog
from twinlog.sync import configs as sync_configs
from twinlog.sync import topics as sync_topics
from twinlog.sync.configs import ConfigPlan, DestinationDefaults, SourceConfigs
from twinlog.sync.topics import Span
from twinlog.wire.cluster import Cluster, TopicInfo
from twinlog.wire.metadata import NO_ID
from twinlog.wire.ops import MARKER_RIGHTS, cluster_rights, create_topics
from twinlog.wire.ops_admin import BROKER_DEFAULT

STATE_WITHIN_S = 10.0
SHOWN = 10

AT_ONCE = 16
"""Topics prepared side by side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest:
    """What is to be started; `MirrorAdmin.start_mirror_topics` describes the fields.

    `salvage_dir`: where the tails of diverged topics go before these are recreated; None: they are refused.
    `discovered`: of the topics that are meant only these, which discovery has found; None: all, as a command.
    `anew`: what the only one of these is to have again, whose destination was deleted to be made anew.
    """

    mirror: str
    include: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)
    replication_factor: int | None = None
    source_bootstrap: str | None = None
    must_exist: bool = False
    dry_run: bool = False
    start_at: str | None = None
    salvage_dir: Path | None = None
    loop_check: bool = True
    discovered: frozenset[str] | None = None
    anew: Anew | None = None

    def __post_init__(self) -> None:
        Patterns(self.include)
        Patterns(self.exclude)
        if self.start_at is not None:
            beginnings.parse(self.start_at)
        if self.salvage_dir is not None:
            recreate.check_folder(self.salvage_dir)
        if not self.include:
            raise InvalidRequest("No topics were given to start.")
        for name in self.topic_ids.keys() - self.named:
            raise InvalidRequest(f"A topic id was given for '{name}', which is not among the topics to start by name.")

    @property
    def named(self) -> frozenset[str]:
        """The topics that are meant by name."""
        return names_in(self.include)

    def chosen(self, names: Collection[str]) -> list[str]:
        """The names that are meant."""
        meant = sorted(Patterns(self.include).select(names))
        return [name for name in meant if self.discovered is None or name in self.discovered]

    def from_zero(self, looked: Looked, found: Collection[FoundTopic]) -> set[str]:
        """The topics that begin at their beginning whatever the mirror's spec says, since they were born later."""
        if self.start_at is not None:
            return set()
        named = self.named if self.discovered is None else ()
        return {one.name for one in found if one.name not in named and looked.born_later(one.name, one.source_topic_id)}


async def start_topics(
    cluster: Cluster, log: StateLog, request: StartRequest, *, timeout_s: float
) -> StartMirrorTopicsResult:
    """Carry out a start; `MirrorAdmin.start_mirror_topics` says what it raises."""
    image = await state.load(log)
    mirror = find_mirror(image, request.mirror, "not found or has no configuration")
    config = MirrorConfig.from_properties(mirror.configs, f"the configs of mirror {mirror.mirror}")
    async with connected(config, timeout_s=timeout_s, bootstrap=request.source_bootstrap) as source:
        check_identity(mirror, source, given=request.source_bootstrap)
        check_source(mirror.mirror, source.cluster_id, cluster.cluster_id)
        starting = _Starting(cluster, log, request, source=source, config=config, mirror=mirror)
        return await starting.run(image)


class _Starting:
    """One start command under way."""

    def __init__(
        self,
        cluster: Cluster,
        log: StateLog,
        request: StartRequest,
        *,
        source: Cluster,
        config: MirrorConfig,
        mirror: MirrorRecord,
    ) -> None:
        self._cluster = cluster
        self._log = log
        self._request = request
        self._source = source
        self._config = config
        self._mirror = mirror
        self._failed: dict[str, TwinlogError] = {}
        self._notes: list[str] = []
        self._shared: dict[str, tuple[int, ...]] = {}
        self._recreated: dict[str, Recreated] = {}
        self._workers = 0

    async def run(self, image: Image) -> StartMirrorTopicsResult:
        try:
            return await self._run(image)
        except TwinlogError as error:
            if self._recreated and not self._request.dry_run:
                deleted = "; ".join(f"{name}, its tail is in {one.path}" for name, one in self._recreated.items())
                error.args = (f"{error} Deleted at the destination meanwhile: {deleted}.",)
            raise

    async def _run(self, image: Image) -> StartMirrorTopicsResult:
        theirs = await self._at_source()
        ours = await self._at_destination(theirs)
        found = self._found(theirs, ours)
        there = await state_of(self._source, timeout_s=STATE_WITHIN_S)
        upstream = self._request.loop_check
        loops = await find_loops(self._source, there, self._cluster.cluster_id, theirs, upstream=upstream)
        reverse = loops.ways
        self._notes += loops.notes
        # Judged twice: before anything is made, so that nothing is made for a topic that will be refused, and at last.
        before = await self._judge(found, reverse, commit=False)
        self._must_exist(before)
        self._failed |= before.failed
        self._failed |= {
            name: unchecked(name, loops.unchecked[name])
            for name in before.started
            if name in ours and name in loops.unchecked
        }
        made = await self._prepare((there, image), self._ready(before, theirs), ours)
        if self._request.dry_run:
            return self._result(before)
        await self._check_rights()
        found = tuple(
            replace(
                topic,
                destination_topic_id=made.get(topic.name, topic.destination_topic_id),
                shared_offsets=self._shared.get(topic.name, ()),
            )
            for topic in found
            if topic.name not in self._failed
        )
        later = self._request.from_zero(Looked(image, self._mirror), found)
        asked = {name: info for name, info in theirs.items() if name not in later}
        found = await beginnings.chosen(self._source, found, asked, self._config, self._request.start_at)
        self._failed |= await gone_since(self._cluster, found)
        found = tuple(topic for topic in found if topic.name not in self._failed)
        unstarted = {name: theirs[name].id for name in theirs.keys() & self._failed.keys()}
        judged = await self._judge(found, reverse, commit=True, unstarted=unstarted)
        if isinstance(there, Image):
            sides = (self._source, self._cluster)
            self._failed |= await undo_crossed(sides, self._log, judged, within_s=STATE_WITHIN_S)
        return self._result(judged)

    def _ready(self, judged: Started, theirs: Mapping[str, TopicInfo]) -> list[TopicInfo]:
        return [theirs[name] for name in judged.started if name in theirs and name not in self._failed]

    # Looking

    async def _at_source(self) -> dict[str, TopicInfo]:
        """The topics that are meant and may be mirrored; what is named and may not be has failed."""
        request = self._request
        everything, failed = await sync_topics.read_topics(self._source, None)
        chosen = {name: everything[name] for name in request.chosen(everything)}
        unseen = request.named - everything.keys()
        _, denied = await sync_topics.read_topics(self._source, sorted(unseen))
        failed |= denied
        self._failed |= {name: error for name, error in failed.items() if name in request.named}
        for name, info in list(chosen.items()):
            reason = sync_topics.internal_reason(info)
            if reason is not None:
                del chosen[name]
                self._failed |= {name: InvalidRequest(reason)} if name in request.named else {}
        for name in request.named & sync_topics.INTERNAL.keys() - self._failed.keys():
            self._failed[name] = InvalidRequest(f"Topic '{name}' is never mirrored: {sync_topics.INTERNAL[name]}.")
        return chosen

    async def _at_destination(self, theirs: Mapping[str, TopicInfo]) -> dict[str, TopicInfo]:
        found, failed = await sync_topics.read_topics(self._cluster, sorted(theirs))
        self._failed |= failed
        return found

    def _found(self, theirs: Mapping[str, TopicInfo], ours: Mapping[str, TopicInfo]) -> tuple[FoundTopic, ...]:
        return tuple(
            FoundTopic(
                name=name,
                source_topic_id=info.id,
                partitions=len(info.partitions),
                destination_topic_id=ours[name].id if name in ours else NO_TOPIC_ID,
                expected_id=self._request.topic_ids.get(name),
            )
            for name, info in theirs.items()
            if name not in self._failed
        )

    def _must_exist(self, judged: Started) -> None:
        ids = self._request.topic_ids
        for name in judged.pending:
            if name not in self._failed and (self._request.must_exist or name in ids):
                raise UnknownTopicOrPartition(
                    f"Topic '{name}' does not exist on the {self._source}, or may not be described. "
                    f"Nothing was changed."
                )

    # Judging

    async def _judge(
        self,
        found: tuple[FoundTopic, ...],
        reverse: Mapping[str, str],
        *,
        commit: bool,
        unstarted: Mapping[str, UUID] = MappingProxyType({}),
    ) -> Started:
        # What discovery asks for is in the mirror's lists already; a command's names are remembered if they can start.
        remembered = self._request.discovered is not None
        include = tuple(entry for entry in self._request.include if remembered or entry not in self._failed)
        if not include and not found:
            return Started(self._mirror.mirror, (), (), (), (), (), {})
        command = Start(
            mirror=self._mirror.mirror,
            topics=found,
            include=include,
            exclude=self._request.exclude,
            reverse=reverse,
            unstarted=unstarted,
            anew=min(self._request.discovered or ("",)) if self._request.anew else "",
            discovery=self._request.discovered is not None and self._request.anew is None,
        )
        source_id = self._source.cluster_id if self._request.source_bootstrap is None else ""

        def handler(image: Image) -> Handled[Started]:
            self._workers = len(live_workers(image, time.time_ns() // 1_000_000))
            handled = identified(start(image, command), image, self._mirror.mirror, source_id)
            if not commit:
                return Handled((), handled.reply)
            looked = Looked(image, image.mirrors[self._mirror.mirror])
            beginnings.check_still(found, self._request.from_zero(looked, found))
            return handled

        return await state.change(self._cluster, self._log, handler, dry_run=self._request.dry_run)

    # Making

    async def _prepare(
        self, states: tuple[Image | str, Image], topics: Sequence[TopicInfo], ours: dict[str, TopicInfo]
    ) -> dict[str, UUID]:
        """Make or adjust the destination topics; returns the ids of those that are ready."""
        # Before anything is deleted: what cannot be made anew must stay.
        settings = await self._settings(topics)
        defaults = await sync_configs.read_defaults(self._cluster)
        topics = [topic for topic in topics if topic.name not in self._failed]
        spans = await self._spans(topics, ours)
        both = [(topic, ours[topic.name]) for topic in topics if topic.name in ours]
        for name, diverged in (await find_diverged((self._source, self._cluster), states, both, spans[1])).items():
            await self._diverged(ours, name, diverged, spans[1])
        topics = await self._twins(states, [topic for topic in topics if topic.name not in self._failed], ours, spans)
        if not topics or self._request.dry_run:
            return {}
        gate = asyncio.Semaphore(AT_ONCE)
        together = [topic for topic in topics if topic.name not in ours and topic.name not in self._recreated]
        made = await self._create_together(together, settings, defaults)

        async def one(topic: TopicInfo) -> tuple[str, UUID | None]:
            async with gate:
                return topic.name, await self._one(topic, ours.get(topic.name), settings[topic.name], defaults)

        rest = await asyncio.gather(*(one(topic) for topic in topics if topic.name not in made))
        return made | {name: found for name, found in rest if found is not None}

    async def _settings(self, topics: Sequence[TopicInfo]) -> dict[str, SourceConfigs]:
        """The configs of the source's topics; a topic whose configs may not be read has failed."""
        found = await sync_configs.read_source(self._source, [topic.name for topic in topics])
        refused = {name: read for name, read in found.items() if isinstance(read, TwinlogError)}
        self._failed |= refused
        return {name: read for name, read in found.items() if isinstance(read, SourceConfigs)}

    async def _diverged(
        self,
        ours: dict[str, TopicInfo],
        name: str,
        found: Diverged | TwinlogError,
        spans: Mapping[TopicPartition, Span],
    ) -> None:
        """Fail the topic, or where that is asked for save its tail and delete it; then it is gone from `ours`."""
        folder = self._request.salvage_dir
        if folder is None or isinstance(found, TwinlogError):
            self._failed[name] = found if isinstance(found, TwinlogError) else refusal(found)
            return
        topic = ours[name]
        try:
            recreate.check_possible(topic)
            path = path_of(name, topic.id, folder)
            if not self._request.dry_run:
                path = await recreate.remove(self._cluster, topic, found, spans, folder)
        except TwinlogError as refused:
            self._failed[name] = refused
            return
        factor = min(len(part.replicas) for part in topic.partitions.values())
        self._recreated[name] = Recreated(found.to_save, path, factor)
        del ours[name]

    async def _create_together(
        self,
        topics: Sequence[TopicInfo],
        settings: Mapping[str, SourceConfigs | AuthorizationFailed],
        defaults: DestinationDefaults,
    ) -> dict[str, UUID]:
        """Make many topics by few requests, and return the ids of those that were made.

        One that the destination does not take as it is, is left to be made alone, which tells why or leaves something
        out of its configs.
        """
        factor = self._factor()
        plans = {
            t.name: self._plan(s, defaults, factor) for t in topics if isinstance(s := settings[t.name], SourceConfigs)
        }
        made: dict[str, UUID] = {}
        for some in sync_topics.portions([topic for topic in topics if topic.name in plans]):
            wanted = {topic.name: (len(topic.partitions), plans[topic.name].configs) for topic in some}
            try:
                created = await create_topics(
                    self._cluster, wanted, replication_factor=BROKER_DEFAULT if factor is None else factor
                )
            except TwinlogError:
                return made
            for name, topic in created.items():
                if topic.id != NO_ID:
                    made[name] = topic.id
                    self._note(name, plans[name])
        return made

    def _factor(self, topic: str = "") -> int | None:
        """The replicas asked for, or those that a topic of this name had before; None: the destination's default."""
        former = self._recreated.get(topic)
        asked = self._request.replication_factor
        return former.replication_factor if asked is None and former is not None else asked

    def _plan(self, settings: SourceConfigs, defaults: DestinationDefaults, factor: int | None) -> ConfigPlan:
        wanted = sync_configs.UNKNOWN if factor is None else factor
        planned = sync_configs.plan(settings, self._config, defaults, replication_factor=wanted)
        anew = self._request.anew
        return planned if anew is None else replace(planned, configs={**anew.configs, **planned.configs})

    async def _spans(
        self, topics: Sequence[TopicInfo], ours: Mapping[str, TopicInfo]
    ) -> tuple[Mapping[TopicPartition, Span], Mapping[TopicPartition, Span]]:
        """The destination is asked first: meanwhile the source's logs can only grow."""
        existing = [topic for topic in topics if topic.name in ours]
        destination = await sync_topics.spans(self._cluster, [ours[topic.name] for topic in existing])
        return await sync_topics.spans(self._source, existing), destination

    async def _twins(
        self,
        states: tuple[Image | str, Image],
        topics: Sequence[TopicInfo],
        ours: Mapping[str, TopicInfo],
        spans: tuple[Mapping[TopicPartition, Span], Mapping[TopicPartition, Span]],
    ) -> list[TopicInfo]:
        """The topics whose destination does not exist or can be the twin, which has as many partitions by then."""
        both = [(topic, ours[topic.name]) for topic in topics if topic.name in ours]
        self._shared = shared_offsets((self._source, self._cluster), states, both)
        self._notes += unread_state(states[0], [topic.name for topic, _ in both])
        known = {name for name, offsets in self._shared.items() if max(offsets, default=-1) >= 0}
        self._failed |= check_twins((states[1], self._mirror.mirror), topics, ours, spans, known)
        left = [topic for topic in topics if topic.name not in self._failed]
        notes, refused = await grow_twins(self._cluster, left, ours, dry_run=self._request.dry_run)
        self._notes += notes
        self._failed |= refused
        return [topic for topic in left if topic.name not in refused]

    async def _one(
        self,
        topic: TopicInfo,
        existing: TopicInfo | None,
        settings: SourceConfigs,
        defaults: DestinationDefaults,
    ) -> UUID | None:
        try:
            if existing is None:
                return await self._create(topic, settings, defaults)
            factor = min(len(part.replicas) for part in existing.partitions.values())
            current = await sync_configs.read_current(self._cluster, topic.name)
            planned = sync_configs.plan(
                settings,
                self._config,
                defaults,
                replication_factor=factor,
                min_insync_replicas=sync_configs.min_insync(current),
            )
            self._note(topic.name, await sync_configs.apply(self._cluster, topic.name, planned, current))
            return existing.id
        except TwinlogError as refused:
            self._failed[topic.name] = refused
            return None

    async def _create(self, topic: TopicInfo, settings: SourceConfigs, defaults: DestinationDefaults) -> UUID:
        factor = self._factor(topic.name)
        made, planned = await sync_topics.create(
            self._cluster,
            topic.name,
            partitions=len(topic.partitions),
            replication_factor=factor,
            planned=self._plan(settings, defaults, factor),
        )
        self._note(topic.name, planned)
        return made.id

    def _note(self, topic: str, planned: ConfigPlan) -> None:
        self._notes += [f"Topic '{topic}': {note}" for note in planned.notes]
        for name, reason in sorted(planned.left_out.items()):
            self._notes.append(f"Topic '{topic}': config {name} is left out: {reason.removesuffix('.')}.")

    async def _check_rights(self) -> None:
        try:
            rights = await cluster_rights(self._cluster)
        except RetryLater:
            return
        if rights is not None and not rights & MARKER_RIGHTS:
            self._notes.append(
                "This client has neither ALTER nor CLUSTER_ACTION on the destination cluster. A worker that has "
                "neither cannot mirror topics with blanks (transactional or compacted ones): it fails such a partition."
            )

    def _result(self, judged: Started) -> StartMirrorTopicsResult:
        failed: dict[str, TwinlogError] = {**self._failed, **judged.failed}
        return StartMirrorTopicsResult(
            mirror=judged.mirror,
            started=tuple(name for name in judged.started if name not in failed),
            already=judged.already,
            pending=tuple(name for name in judged.pending if name not in failed),
            excluded=judged.excluded,
            stopped=judged.stopped,
            failed=dict(sorted(failed.items())),
            notes=(*self._notes, *self._without_effect(judged)),
            recreated=self._recreated,
            live_workers=self._workers,
            edits=judged.edits.without(failed),
        )

    def _without_effect(self, judged: Started) -> list[str]:
        if not judged.already or self._request.start_at in {None, beginnings.EARLIEST}:
            return []
        return [f"--start-at has no effect on what is mirrored already: {', '.join(judged.already[:SHOWN])}."]
