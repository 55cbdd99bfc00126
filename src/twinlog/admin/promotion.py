"""Promotion: whether topics are level with their source, in records, configs and group offsets, before a stop.

Asked of both clusters as they are now, not of what workers published. Groups and configs count only where the mirror
syncs them, and ACLs never: a stop gives those.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from twinlog.admin.sources import check_identity, connected
from twinlog.config.mirror import MirrorConfig
from twinlog.control.checks import check_source
from twinlog.control.image import Image
from twinlog.control.lifecycle import PartitionState
from twinlog.control.records import MirrorRecord, TopicRecord
from twinlog.errors import (
    AuthenticationFailed,
    InvalidConfig,
    MirrorTopicBehind,
    RetryLater,
    UnsupportedVersion,
)
from twinlog.names import TopicPartition, ids_differ
from twinlog.sync import groups
from twinlog.sync.refresh import configs_behind
from twinlog.sync.topics import read_topics
from twinlog.wire.cluster import Cluster, TopicInfo
from twinlog.wire.codes import check
from twinlog.wire.ops import LATEST, list_offsets

SHOWN = 100
"""Partitions, configs or groups of one topic that a message names at most."""

WITHOUT = "A stop without --check-lag works with the source down, and tells the lag as it was last seen."

_LEVEL = frozenset(
    {
        PartitionState.MIRRORING,
        PartitionState.PAUSING,
        PartitionState.PAUSED,
        PartitionState.STOPPING,
        PartitionState.STOPPED,
    }
)
"""States in which a destination that ends where the source does is its twin; LOG_ALIGNMENT has yet to find out."""


@dataclass(slots=True)
class Behind:
    """What a topic's destination still lacks; each list is empty where it lacks nothing of the kind.

    `lags`: offsets, by partition. `undecided`: offsets of the source's open transactions, which no mirror copies before
    they end. `states`: partitions whose state says that the two logs do not agree, or not yet. `configs` and `groups`:
    those that a sync would change. `changed`: why the topic is no longer what was started.
    """

    lags: dict[TopicPartition, int] = field(default_factory=dict)
    undecided: dict[TopicPartition, int] = field(default_factory=dict)
    states: dict[TopicPartition, PartitionState] = field(default_factory=dict)
    configs: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    changed: str = ""

    def __bool__(self) -> bool:
        return bool(self.lags or self.undecided or self.states or self.configs or self.groups or self.changed)

    def __str__(self) -> str:
        parts = [
            self.changed,
            _told("lag", (f"{where} {lag} offset(s)" for where, lag in sorted(self.lags.items()))),
            _told("undecided at the source", (f"{where} {n} offset(s)" for where, n in sorted(self.undecided.items()))),
            _told("state", (f"{where} {state.name}" for where, state in sorted(self.states.items()))),
            _told("configs", self.configs),
            _told("group offsets", self.groups),
        ]
        return "; ".join(filter(None, parts))


def _told(what: str, names: Iterable[str]) -> str:
    everything = list(names)
    more = f" and {len(everything) - SHOWN} more" if len(everything) > SHOWN else ""
    return f"{what}: {', '.join(everything[:SHOWN])}{more}" if everything else ""


def refusal(record: TopicRecord, behind: Behind) -> MirrorTopicBehind:
    """The error of a topic that is behind, with what it lacks."""
    return MirrorTopicBehind(
        f"Topic '{record.topic}' of mirror '{record.mirror}' is behind its source. {behind}. Let the producers at the "
        f"source end, and wait until --describe shows lag 0 and a refresh has passed (resume what is paused), or stop "
        f"it without --check-lag."
    )


async def behind(
    cluster: Cluster, image: Image, mirror: MirrorRecord, topics: Collection[str], *, timeout_s: float
) -> dict[str, Behind]:
    """Return what each of a mirror's topics lacks, for those that lack anything.

    Raises Unreachable, AuthenticationFailed and the like where the source cannot be asked, with what is possible then.
    """
    if not topics:
        return {}
    try:
        config = MirrorConfig.from_properties(mirror.configs, f"the configs of mirror {mirror.mirror}")
        async with connected(config, timeout_s=timeout_s) as source:
            check_identity(mirror, source, given=None)
            return await _Comparing(source, cluster, config).run(image, mirror, topics)
    except (AuthenticationFailed, InvalidConfig, UnsupportedVersion) as problem:
        raise type(problem)(f"{problem} {WITHOUT}") from problem
    except RetryLater as problem:
        raise RetryLater(
            f"The source could not be asked whether the topics are level: {problem} {WITHOUT}"
        ) from problem


async def left_behind(
    cluster: Cluster, mirror: MirrorRecord, ends: Mapping[TopicPartition, int], *, timeout_s: float
) -> dict[TopicPartition, int]:
    """Return how many offsets the source has beyond where stopped partitions end. Raises what `connected` raises."""
    if not ends:
        return {}
    config = MirrorConfig.from_properties(mirror.configs, f"the configs of mirror {mirror.mirror}")
    async with connected(config, timeout_s=timeout_s) as source:
        check_identity(mirror, source, given=None)
        check_source(mirror.mirror, source.cluster_id, cluster.cluster_id)
        told = await list_offsets(source, dict.fromkeys(ends, LATEST))
    for where, one in told.items():
        check(one.error, f"The end of {where} cannot be told at the source")
    return {where: told[where].offset - end for where, end in ends.items() if told[where].offset > end}


def left_at_source(mirror: str, topic: str, left: Mapping[TopicPartition, int]) -> MirrorTopicBehind:
    """The error of a topic that was level when it was looked at, and not any more when it was STOPPED."""
    some = _told("lag", (f"{where} {count} offset(s)" for where, count in sorted(left.items()) if where.topic == topic))
    return MirrorTopicBehind(
        f"Topic '{topic}' of mirror '{mirror}' is STOPPED, but its producers went on. {some}, which only the source "
        f"has. Before anybody writes to the destination, start it again, let the producers at "
        f"the source end, and stop it with --check-lag once more."
    )


class _Comparing:
    """One look at both clusters."""

    def __init__(self, source: Cluster, destination: Cluster, config: MirrorConfig) -> None:
        self._source = source
        self._destination = destination
        self._config = config

    async def run(self, image: Image, mirror: MirrorRecord, topics: Collection[str]) -> dict[str, Behind]:
        theirs, unseen = await read_topics(self._source, sorted(topics))
        ours, hidden = await read_topics(self._destination, sorted(topics))
        for refused in (*unseen.values(), *hidden.values()):
            raise refused
        found = {name: Behind() for name in sorted(topics)}
        for name, one in found.items():
            record = image.topic(mirror.mirror, name)
            if record is not None:
                one.changed = _changed(record, theirs.get(name), ours.get(name))
                one.states = _states(image, record)
        sound = {name: ours[name] for name in found if not found[name].changed}
        await self._lags(found, {name: theirs[name] for name in sound}, sound)
        if self._config.configs_sync_enabled and sound:
            late = await configs_behind(self._source, self._destination, self._config, sound)
            _note(found, late, lambda one, names: one.configs.extend(names))
        if self._config.groups_sync_enabled and sound:
            late = await groups.behind(self._source, self._destination, self._config, sound)
            _note(found, late, lambda one, names: one.groups.extend(names))
        return {name: one for name, one in found.items() if one}

    async def _lags(
        self, found: Mapping[str, Behind], theirs: Mapping[str, TopicInfo], ours: Mapping[str, TopicInfo]
    ) -> None:
        """The destination is asked first: what comes meanwhile counts as missing, never the other way round."""
        here = await _ends(self._destination, ours)
        # In this order, or what is written between two looks would pass for undecided.
        ends = await _ends(self._source, theirs)
        stable = await _ends(self._source, theirs, read_committed=True)
        for where, end in stable.items():
            lag, undecided = end - here.get(where, 0), ends[where] - end
            if lag > 0:
                found[where.topic].lags[where] = lag
            if undecided > 0:
                found[where.topic].undecided[where] = undecided


def _note(
    found: Mapping[str, Behind], late: Mapping[str, list[str]], keep: Callable[[Behind, list[str]], None]
) -> None:
    for topic, names in late.items():
        keep(found[topic], names)


def _states(image: Image, record: TopicRecord) -> dict[TopicPartition, PartitionState]:
    states = {n: image.state(record.mirror, record.topic, n) for n in range(record.partitions)}
    return {TopicPartition(record.topic, n): state for n, state in states.items() if state not in _LEVEL}


def _changed(record: TopicRecord, theirs: TopicInfo | None, ours: TopicInfo | None) -> str:
    for side, info, recorded in (
        ("source", theirs, record.source_topic_id),
        ("destination", ours, record.destination_topic_id),
    ):
        if info is None:
            return f"the topic does not exist at the {side}"
        if ids_differ(recorded, info.id):
            return f"the topic was deleted and created again at the {side}"
    return ""


async def _ends(
    cluster: Cluster, topics: Mapping[str, TopicInfo], *, read_committed: bool = False
) -> dict[TopicPartition, int]:
    asked = [TopicPartition(name, number) for name, info in topics.items() for number in info.partitions]
    told = await list_offsets(cluster, dict.fromkeys(asked, LATEST), read_committed=read_committed)
    for where, one in told.items():
        check(one.error, f"The end of {where} cannot be told on the {cluster}")
    return {where: one.offset for where, one in told.items()}
