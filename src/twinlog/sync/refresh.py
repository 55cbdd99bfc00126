"""The configs and partitions of topics that are mirrored already, brought up to date at each refresh."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from twinlog.config.mirror import MirrorConfig
from twinlog.control.records import Skipped, TopicRecord
from twinlog.errors import AuthorizationFailed, TwinlogError
from twinlog.names import ids_differ
from twinlog.sync import configs
from twinlog.sync.configs import ConfigPlan, DestinationDefaults, SourceConfigs
from twinlog.wire.cluster import Cluster, TopicInfo
from twinlog.wire.ops import ConfigEntry, create_partitions

TOPIC, CONFIG = "topic", "config"

HELD_DURING_COPY: Final = frozenset({"segment.ms", "min.cleanable.dirty.ratio", "cleanup.policy"})
"""What a partition's first copy sets for itself, and puts back (`relay.rolling`, `relay.prefix`)."""


@dataclass(frozen=True, slots=True)
class Grown:
    """A topic that has more partitions at the source than are mirrored; `add`: the destination's lacks some, too."""

    record: TopicRecord
    partitions: int
    add: bool


def topics_plan(
    records: Collection[TopicRecord],
    theirs: Mapping[str, TopicInfo],
    ours: Mapping[str, TopicInfo],
    missing_before: Collection[str],
) -> tuple[tuple[Grown, ...], tuple[Skipped, ...]]:
    """Return which mirrored topics have grown, and which no longer are what was started, with the reason.

    `missing_before`: topics that the refresh before did not find at the source either.
    """
    grown: list[Grown] = []
    skipped: list[Skipped] = []
    for record in records:
        reason = _changed(record, theirs.get(record.topic), ours.get(record.topic), record.topic in missing_before)
        if reason:
            skipped.append(Skipped(TOPIC, record.topic, reason))
        elif record.topic in theirs and record.topic in ours:
            there, here = len(theirs[record.topic].partitions), len(ours[record.topic].partitions)
            if there > record.partitions and here <= there:
                grown.append(Grown(record, there, add=here < there))
    return tuple(grown), tuple(skipped)


def are_meant(record: TopicRecord, theirs: TopicInfo | None, ours: TopicInfo | None) -> bool:
    """Whether the topics of both sides are there, and are the ones that were started."""
    if theirs is None or ours is None:
        return False
    differ = ids_differ(record.source_topic_id, theirs.id) or ids_differ(record.destination_topic_id, ours.id)
    return not differ


def _changed(record: TopicRecord, theirs: TopicInfo | None, ours: TopicInfo | None, missing_before: bool) -> str:  # noqa: FBT001  # a fact about the topic
    if theirs is None:
        return "The source topic is deleted." if missing_before else ""
    if ids_differ(record.source_topic_id, theirs.id):
        return (
            f"The source topic was deleted and created again: its id is {theirs.id} and was {record.source_topic_id}. "
            f"Stop it, delete it at the destination, then start it again."
        )
    if ours is None:
        return "The destination topic is deleted. Stop it, then start it again to have it copied anew."
    if ids_differ(record.destination_topic_id, ours.id):
        return (
            f"The destination topic was deleted and created again: its id is {ours.id} and was "
            f"{record.destination_topic_id}. It is left alone. Stop it, delete it, then start it again."
        )
    if len(ours.partitions) > len(theirs.partitions):
        return (
            f"The destination topic has {len(ours.partitions)} partitions and the source {len(theirs.partitions)}: "
            f"somebody added some by hand. They are not mirrored, and partitions cannot be taken away."
        )
    return ""


async def grow(destination: Cluster, grown: Grown) -> TopicRecord:
    """Give the destination topic the partitions that it lacks; returns the record as it is to be stored."""
    if grown.add:
        try:
            await create_partitions(destination, grown.record.topic, grown.partitions)
        except AuthorizationFailed as missing:
            raise AuthorizationFailed(
                f"{missing} The right needed at the destination is ALTER on topic '{grown.record.topic}'."
            ) from missing
    return replace(grown.record, partitions=grown.partitions)


async def sync_configs(
    source: Cluster,
    destination: Cluster,
    config: MirrorConfig,
    topics: Mapping[str, TopicInfo],
    copying: Collection[str],
    *,
    still: Callable[[str], bool] = lambda _topic: True,
) -> tuple[tuple[Skipped, ...], int]:
    """Set what differs on each of the destination's `topics`; returns what was left out, and how many failed.

    `still` says whether a topic is mirrored at this moment, which is asked right before it is changed. `copying`:
    topics of which a partition is not MIRRORING; what a first copy sets for itself is left alone there.
    """
    if not topics:
        return (), 0
    defaults = await configs.read_defaults(destination)
    settings = await configs.read_source(source, topics)
    skipped: list[Skipped] = []
    errors = 0
    for name in sorted(topics):
        try:
            done = await _one(
                destination, config, topics[name], settings[name], defaults, held=name in copying, still=still
            )
        except TwinlogError as error:
            errors += 1
            skipped.append(Skipped(CONFIG, name, str(error)))
            continue
        skipped += [Skipped(CONFIG, f"{name}: {key}", reason) for key, reason in sorted(done.left_out.items())]
        skipped += [Skipped(CONFIG, name, note) for note in done.notes]
    return tuple(skipped), errors


async def configs_behind(
    source: Cluster, destination: Cluster, config: MirrorConfig, topics: Mapping[str, TopicInfo]
) -> dict[str, list[str]]:
    """Return, by topic, the configs that a sync would set at the destination. Raises where they cannot be read."""
    late: dict[str, list[str]] = {}
    defaults = await configs.read_defaults(destination)
    for name, settings in (await configs.read_source(source, topics)).items():
        current, planned = await _planned(destination, config, topics[name], settings, defaults)
        due = {*configs.changes(current, planned), *configs.removals(current, planned)}
        if due:
            late[name] = sorted(due)
    return late


async def _planned(
    destination: Cluster,
    config: MirrorConfig,
    topic: TopicInfo,
    settings: SourceConfigs | AuthorizationFailed,
    defaults: DestinationDefaults,
) -> tuple[Mapping[str, ConfigEntry], ConfigPlan]:
    if isinstance(settings, AuthorizationFailed):
        raise settings
    current = await configs.read_current(destination, topic.name)
    planned = configs.plan(
        settings,
        config,
        defaults,
        replication_factor=min(len(part.replicas) for part in topic.partitions.values()),
        min_insync_replicas=configs.min_insync(current),
    )
    return current, planned


async def _one(
    destination: Cluster,
    config: MirrorConfig,
    topic: TopicInfo,
    settings: SourceConfigs | AuthorizationFailed,
    defaults: DestinationDefaults,
    *,
    held: bool,
    still: Callable[[str], bool],
) -> ConfigPlan:
    current, planned = await _planned(destination, config, topic, settings, defaults)
    if held:
        kept = {key: value for key, value in planned.configs.items() if key not in HELD_DURING_COPY}
        # What the first copy has set for itself it also puts back; until then nothing is taken away.
        planned = replace(planned, configs=kept, covers=None)
    if not still(topic.name):
        return planned
    return await configs.apply(destination, topic.name, planned, current)
