"""The configs of a destination topic: what the source sets, and what a twin needs whatever the source sets.

Synced are the source topic's own overrides but for those that `mirror.topic.properties.exclude` matches. Above them
stand the necessities: without any of them the destination would refuse batches, or store them changed.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from twinlog.config.mirror import MirrorConfig
from twinlog.errors import AuthorizationFailed, BadInput, InvalidConfig
from twinlog.state.topic import STATE_TOPIC
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops import ConfigEntry, alter_configs, describe_configs

LONG_MAX: Final = 2**63 - 1
UNKNOWN: Final = -1

COMPRESSION = "compression.type"
TIMESTAMP_TYPE = "message.timestamp.type"
TIMESTAMP_BEFORE = "message.timestamp.before.max.ms"
TIMESTAMP_AFTER = "message.timestamp.after.max.ms"
TIMESTAMP_DIFFERENCE = "message.timestamp.difference.max.ms"
"""What stood for both of them in brokers before 3.6 (KIP-937)."""
MAX_MESSAGE_BYTES = "max.message.bytes"
MIN_INSYNC_REPLICAS = "min.insync.replicas"
DEFAULT_REPLICATION_FACTOR = "default.replication.factor"

# One answer describes about 40 configs a topic; this keeps it far below what a connection accepts as a frame.
TOPICS_A_REQUEST: Final = 200


@dataclass(frozen=True, slots=True)
class SourceConfigs:
    """What a source topic sets itself, and its effective limit on a batch's size (which a broker may have set)."""

    overrides: Mapping[str, str]
    max_message_bytes: int


@dataclass(frozen=True, slots=True)
class DestinationDefaults:
    """What a new topic gets at the destination.

    `known`: the names of the configs that its brokers have (empty: not told). The numbers are UNKNOWN (-1) where the
    brokers may not be asked.
    """

    known: frozenset[str] = frozenset()
    replication_factor: int = UNKNOWN
    min_insync_replicas: int = UNKNOWN


@dataclass(frozen=True, slots=True)
class ConfigPlan:
    """What to set on a destination topic; `needed` names those without which it would be no twin.

    `left_out` maps a config that the destination does not take to the reason, `notes` are sentences for the operator.
    `covers` says which others are the source's to set, and so not to stay; None: all others are left alone.
    """

    configs: Mapping[str, str]
    needed: frozenset[str]
    left_out: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    covers: Callable[[str], bool] | None = None

    @property
    def optional(self) -> dict[str, str]:
        """The configs that may be left out."""
        return {name: value for name, value in self.configs.items() if name not in self.needed}

    def without(self, refused: Mapping[str, str]) -> "ConfigPlan":
        """The same plan with some configs left out; `refused` gives the reasons."""
        kept = {name: value for name, value in self.configs.items() if name not in refused}
        return replace(self, configs=kept, left_out={**self.left_out, **refused})


def plan(
    source: SourceConfigs,
    config: MirrorConfig,
    destination: DestinationDefaults,
    *,
    replication_factor: int = UNKNOWN,
    min_insync_replicas: int = UNKNOWN,
) -> ConfigPlan:
    """Return what the destination topic is to be given.

    `replication_factor` and `min_insync_replicas` are those of the topic where they are known (it exists, or a factor
    was asked for); the destination's defaults otherwise.
    """
    synced = {name: value for name, value in source.overrides.items() if config.copies_topic_property(name)}
    needed = _necessities(source, destination.known)
    wanted = synced | needed
    unknown = {name: "the destination has no such config" for name in wanted if not _has(destination.known, name)}
    kept = {name: value for name, value in wanted.items() if name not in unknown}
    factor = destination.replication_factor if replication_factor == UNKNOWN else replication_factor
    least = destination.min_insync_replicas if min_insync_replicas == UNKNOWN else min_insync_replicas
    replicas, notes = _insync(kept.get(MIN_INSYNC_REPLICAS), least, factor)
    covers = config.copies_topic_property if config.configs_sync_removals else None
    return ConfigPlan(kept | replicas, frozenset(needed) | frozenset(replicas), unknown, notes, covers)


def _necessities(source: SourceConfigs, known: Collection[str]) -> dict[str, str]:
    """What no config of the source's may change.

    Producer compression and CreateTime keep batches as they are, the time limits let any timestamp in.
    """
    needed = {
        COMPRESSION: "producer",
        TIMESTAMP_TYPE: "CreateTime",
        MAX_MESSAGE_BYTES: str(source.max_message_bytes),
    }
    if _has(known, TIMESTAMP_BEFORE):
        return needed | {TIMESTAMP_BEFORE: str(LONG_MAX), TIMESTAMP_AFTER: str(LONG_MAX)}
    return needed | {TIMESTAMP_DIFFERENCE: str(LONG_MAX)}


def _has(known: Collection[str], name: str) -> bool:
    return not known or name in known


def _insync(wanted: str | None, default: int, factor: int) -> tuple[dict[str, str], tuple[str, ...]]:
    """Lower min.insync.replicas to the replication factor where it is above: such a topic could never be written."""
    least = int(wanted) if wanted is not None and wanted.isascii() and wanted.isdigit() else default
    if UNKNOWN in {least, factor} or least <= factor:
        return {}, ()
    note = (
        f"{MIN_INSYNC_REPLICAS} would be {least} with only {factor} replica{'s' if factor > 1 else ''}, and no write "
        f"could ever succeed; it is set to {factor}."
    )
    return {MIN_INSYNC_REPLICAS: str(factor)}, (note,)


def changes(current: Mapping[str, ConfigEntry], planned: ConfigPlan) -> dict[str, str]:
    """Return what of a plan differs from an existing topic's configs; its limit on batches is never lowered."""
    return {name: value for name, value in planned.configs.items() if not _satisfied(current.get(name), name, value)}


def _satisfied(entry: ConfigEntry | None, name: str, value: str) -> bool:
    if entry is None or entry.value is None:
        return False
    if name == MAX_MESSAGE_BYTES:
        return int(entry.value) >= int(value)
    return entry.value == value


def removals(current: Mapping[str, ConfigEntry], planned: ConfigPlan) -> list[str]:
    """Return what an existing topic sets and is to have no more; nothing where removals are not followed."""
    if planned.covers is None:
        return []
    ours = {name for name, entry in current.items() if entry.overridden}
    # What is in `left_out` the source does set; the destination does not take it.
    return sorted(name for name in ours - planned.configs.keys() - planned.left_out.keys() if planned.covers(name))


async def read_source(cluster: Cluster, topics: Collection[str]) -> dict[str, SourceConfigs | AuthorizationFailed]:
    """Read the configs of source topics; a topic whose configs may not be read gets its error as a value."""
    found: dict[str, SourceConfigs | AuthorizationFailed] = {}
    names = sorted(topics)
    for first in range(0, len(names), TOPICS_A_REQUEST):
        some = names[first : first + TOPICS_A_REQUEST]
        try:
            told = await describe_configs(cluster, "topic", some)
            found |= {name: _source_configs(told[name]) for name in some}
        except AuthorizationFailed:
            for name in some:
                found[name] = await _read_one(cluster, name)
    return found


async def _read_one(cluster: Cluster, topic: str) -> SourceConfigs | AuthorizationFailed:
    try:
        return _source_configs((await describe_configs(cluster, "topic", [topic]))[topic])
    except AuthorizationFailed as refused:
        return AuthorizationFailed(f"{refused} The right needed at the source is DESCRIBE_CONFIGS on topic '{topic}'.")


def _source_configs(entries: Mapping[str, ConfigEntry]) -> SourceConfigs:
    overrides = {name: entry.value for name, entry in entries.items() if entry.overridden and entry.value is not None}
    return SourceConfigs(overrides, int(entries[MAX_MESSAGE_BYTES].value or 0))


async def read_defaults(cluster: Cluster) -> DestinationDefaults:
    """Ask the destination which topic configs it has, and with how many replicas it creates topics."""
    known = frozenset((await _or_nothing(cluster, "topic", STATE_TOPIC)).keys())
    node = str(min(cluster.brokers))
    broker = await _or_nothing(cluster, "broker", node, DEFAULT_REPLICATION_FACTOR, MIN_INSYNC_REPLICAS)
    return DestinationDefaults(
        known, _number(broker.get(DEFAULT_REPLICATION_FACTOR)), _number(broker.get(MIN_INSYNC_REPLICAS))
    )


async def _or_nothing(cluster: Cluster, kind: str, name: str, *keys: str) -> Mapping[str, ConfigEntry]:
    try:
        if kind == "topic":
            return (await describe_configs(cluster, "topic", [name], keys=keys or None))[name]
        return (await describe_configs(cluster, "broker", [name], keys=keys or None))[name]
    except (AuthorizationFailed, BadInput):
        return {}


def _number(entry: ConfigEntry | None) -> int:
    return int(entry.value) if entry is not None and entry.value is not None else UNKNOWN


async def read_current(cluster: Cluster, topic: str) -> Mapping[str, ConfigEntry]:
    """Read the configs in force of an existing destination topic. Raises AuthorizationFailed naming the right."""
    try:
        return (await describe_configs(cluster, "topic", [topic]))[topic]
    except AuthorizationFailed as missing:
        raise _naming(missing, "DESCRIBE_CONFIGS", topic) from missing


def min_insync(current: Mapping[str, ConfigEntry]) -> int:
    """The min.insync.replicas in force; UNKNOWN where it is not told."""
    return _number(current.get(MIN_INSYNC_REPLICAS))


async def apply(cluster: Cluster, topic: str, planned: ConfigPlan, current: Mapping[str, ConfigEntry]) -> ConfigPlan:
    """Give an existing topic the planned configs where they differ; returns the plan as it was carried out.

    Raises AuthorizationFailed naming the right, and InvalidConfig when a necessity is refused.
    """
    due, gone = changes(current, planned), removals(current, planned)
    try:
        refused = await refusals(
            due.keys() & planned.optional.keys(),
            lambda name: alter_configs(cluster, "topic", topic, set_to={name: due[name]}, validate_only=True),
        )
        due = {name: value for name, value in due.items() if name not in refused}
        if due or gone:
            await alter_configs(cluster, "topic", topic, set_to=due, delete=gone)
    except AuthorizationFailed as missing:
        raise _naming(missing, "ALTER_CONFIGS", topic) from missing
    return planned.without(refused)


def _naming(missing: AuthorizationFailed, right: str, topic: str) -> AuthorizationFailed:
    return AuthorizationFailed(f"{missing} The right needed at the destination is {right} on topic '{topic}'.")


async def refusals(names: Collection[str], attempt: Callable[[str], Awaitable[object]]) -> dict[str, str]:
    """Try configs one by one; returns those that are not taken, with the reason."""
    refused: dict[str, str] = {}
    for name in sorted(names):
        try:
            await attempt(name)
        except InvalidConfig as problem:
            refused[name] = str(problem)
    return refused
