"""A mirror's configuration: one typed table of keys, which is also what the reference page is made of.

The keys are KIP-1279's (resource CLUSTER_MIRROR), those that the KIP keeps on brokers (a mirror may set them here,
since nothing is installed in a broker), a few of ours, and Kafka's client keys for the connection to the source.
An unknown key is refused, as is a secret in clear: a configuration is stored, and shown by `--describe`.
"""

# ruff: noqa: RUF009  (`_key` is `dataclasses.field`, with a key as its metadata)

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any, Self, TypeVar

from twinlog.config import kinds
from twinlog.config.acls import AclRule
from twinlog.config.client import CLIENT_KEYS, ClientSettings, read_client
from twinlog.config.jaas import parse_jaas
from twinlog.config.keys import LONG_MAX, ConfigKey, Kind, Reader, optional, whole
from twinlog.config.kinds import AclsSyncMode, BlankMode, StartOffset, ThrottledReplicas
from twinlog.config.patterns import Patterns
from twinlog.config.properties import Properties
from twinlog.config.secrets import FORMS, SECRET_KEYS, is_reference
from twinlog.errors import BadInput, InvalidConfig, InvalidRequest

T = TypeVar("T")

MAX_FETCH_BYTES = 67_108_864
"""64 MiB: with one oversized batch on top, an answer stays within what a connection accepts as a frame."""

MAX_JOINED_BYTES = 524_288
"""512 KiB, as large as those of a producer that is tuned for throughput."""

_MIRROR_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")

TOPIC_PROPERTIES_EXCLUDE = (
    "follower.replication.throttled.replicas,leader.replication.throttled.replicas,"
    "message.timestamp.difference.max.ms,log.message.timestamp.before.max.ms,log.message.timestamp.after.max.ms,"
    "message.timestamp.type,unclean.leader.election.enable,min.insync.replicas,mirror.name"
)
"""KIP-1279's default: configs that belong to a cluster, not to the data."""


def check_mirror_name(name: str) -> str:
    """Return a valid mirror name; InvalidRequest states the rule."""
    if not _MIRROR_NAME.fullmatch(name):
        shown = repr(name if len(name) <= 249 else f"{name[:249]}...")
        raise InvalidRequest(
            f"The mirror name {shown} is not valid: 1 to 249 ASCII letters, digits, '.', '_' and '-' are allowed."
        )
    return name


def _key(name: str, kind: Kind[T], default: str, doc: str, *, aliases: tuple[str, ...] = ()) -> T:
    """Declare a field of `MirrorConfig` and its key at once; the field has the type that the key's parser returns."""
    key = ConfigKey(name, kind, default, doc, aliases)
    return field(default_factory=lambda: key.default_value, metadata={"key": key})


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorConfig:
    """All settings of one mirror; `raw` is what is stored, key by key, under each key's own name.

    Units are in the names: `_ms`, `_bytes`. An absent key has its default.
    """

    topics_include: Patterns = _key(
        "mirror.topics.include",
        kinds.PATTERNS,
        "",
        "Topics to discover and mirror: comma-separated names and regular expressions; start and stop add to it.",
    )
    topics_exclude: Patterns = _key(
        "mirror.topics.exclude", kinds.PATTERNS, "__.*", "Topics never to mirror; stronger than the include list."
    )
    topic_properties_exclude: Patterns = _key(
        "mirror.topic.properties.exclude",
        kinds.PATTERNS,
        TOPIC_PROPERTIES_EXCLUDE,
        "Topic configs not copied, as regular expressions; mirror.name never is.",
    )
    groups_include: Patterns = _key(
        "mirror.groups.include",
        kinds.PATTERNS,
        ".*",
        "Groups whose committed offsets are synced; of share groups, where they begin.",
    )
    groups_exclude: Patterns = _key(
        "mirror.groups.exclude", kinds.PATTERNS, "", "Groups never to sync; stronger than the include list."
    )
    groups_sync_enabled: bool = _key(
        "mirror.groups.sync.enabled", kinds.SWITCH, "true", "Whether the groups' committed offsets are synced."
    )
    groups_sync_backwards: bool = _key(
        "mirror.groups.sync.backwards",
        kinds.SWITCH,
        "true",
        "Whether a group that is ahead at the destination is set back to where it is at the source.",
    )
    configs_sync_enabled: bool = _key(
        "mirror.configs.sync.enabled",
        kinds.SWITCH,
        "true",
        "Whether the configs of a topic that is mirrored already follow the source's; a start sets them in any case.",
    )
    configs_sync_removals: bool = _key(
        "mirror.configs.sync.removals",
        kinds.SWITCH,
        "false",
        "Whether a topic's config that the source's topic does not set (any more) goes back to its default at the "
        "destination, also one that was set there by hand; what mirror.topic.properties.exclude matches is left alone.",
    )
    acls_include: tuple[AclRule, ...] = _key(
        "mirror.acls.include",
        kinds.ACL_RULES,
        "*",
        "ACLs to sync: comma-separated rules resourceType;resourceName;operation;permissionType;principal, "
        "trailing fields optional, * for anything. What is about the cluster, or every resource (name *), only where a "
        "rule names it.",
        aliases=("mirror.acl.include",),
    )
    acls_sync_mode: AclsSyncMode = _key(
        "mirror.acls.sync.mode",
        kinds.ACLS_SYNC_MODE,
        "additive",
        "exact: as the KIP, also deletes destination ACLs that the source does not have; "
        "additive: never deletes; off: ACLs are left alone.",
    )
    acls_deny_writes: bool = _key(
        "mirror.acls.deny.writes",
        kinds.SWITCH,
        "false",
        "Whether writing to a topic is denied to everybody by an ACL at the destination until the topic is stopped. "
        "Only where the worker logs in as a super user, whom no ACL binds; else nothing is denied, and that is listed.",
    )
    start_offset_spec: StartOffset = _key(
        "mirror.start.offset.spec",
        kinds.START_OFFSET,
        "earliest",
        "Where a topic's first copy begins: earliest, latest, or the first record at or after a time "
        "(milliseconds since 1970, or ISO 8601); offsets stay identical, what lies before is left out. It is said of "
        "what exists when the mirror, or a new pattern of it, is looked for first; a topic born later is copied whole.",
    )
    blank_mode: BlankMode = _key(
        "mirror.blank.mode",
        kinds.BLANK_MODE,
        "marker",
        "How offsets without a visible record are filled: by control records, which no consumer sees; they need ALTER "
        "or CLUSTER_ACTION on the destination cluster.",
    )
    batch_join_max_bytes: int = _key(
        "mirror.batch.join.max.bytes",
        whole(0, MAX_JOINED_BYTES),
        str(MAX_JOINED_BYTES),
        "Up to which size, and never above what the topic takes, neighbouring batches without compression, of "
        "at most 40 records and 64 KB each, are joined into one, with the same records at the same offsets; 0: every "
        "batch is written as the source has it.",
    )
    support_unclean_leader_election: Patterns = _key(
        "mirror.support.unclean.leader.election",
        kinds.UNCLEAN,
        "false",
        "Whether a topic follows a source that has lost records already mirrored: the destination's topic is then "
        "deleted and made anew, and whatever the source has no more is lost there, too. If not, it becomes FAILED.",
        aliases=("mirror.unclean.leader.election.enable",),
    )
    metadata_refresh_interval_ms: int = _key(
        "mirror.metadata.refresh.interval.ms", whole(100), "30000", "Period of topic discovery and of all syncs."
    )
    failed_retry_initial_backoff_ms: int = _key(
        "mirror.failed.retry.initial.backoff.ms", whole(1), "1000", "Wait before the first retry of a FAILED partition."
    )
    failed_retry_max_backoff_ms: int = _key(
        "mirror.failed.retry.max.backoff.ms", whole(1), "300000", "Longest wait before such a retry; each doubles it."
    )
    failed_retry_max_attempts: int = _key(
        "mirror.failed.retry.max.attempts", whole(0), "10", "Retries before an operator is needed; 0: no retry."
    )
    num_replica_fetchers: int = _key(
        "mirror.num.replica.fetchers",
        whole(1, 64),
        "1",
        "Connections that fetch from each source broker for each destination broker; partitions are spread over them.",
    )
    fetch_wait_max_ms: int = _key(
        "mirror.fetch.wait.max.ms",
        whole(0),
        "1000",
        "How long the source may hold a fetch that finds nothing; must be below request.timeout.ms.",
        aliases=("fetch.wait.max.ms",),
    )
    fetch_backoff_ms: int = _key(
        "mirror.fetch.backoff.ms", whole(0), "1000", "Pause after a failed fetch.", aliases=("fetch.backoff.ms",)
    )
    fetch_min_bytes: int = _key(
        "mirror.fetch.min.bytes",
        whole(0, MAX_FETCH_BYTES),
        "1",
        "How much the source gathers before it answers a fetch.",
        aliases=("fetch.min.bytes",),
    )
    fetch_response_max_bytes: int = _key(
        "mirror.fetch.response.max.bytes",
        whole(1024, MAX_FETCH_BYTES),
        "10485760",
        "Most that one fetch answer brings, for all partitions together.",
        aliases=("fetch.response.max.bytes",),
    )
    fetch_max_bytes: int = _key(
        "mirror.fetch.max.bytes",
        whole(1024, MAX_FETCH_BYTES),
        "1048576",
        "Most that one fetch answer brings for one partition; a larger batch still comes whole.",
        aliases=("fetch.max.bytes",),
    )
    socket_timeout_ms: int = _key(
        "mirror.socket.timeout.ms",
        whole(1),
        "30000",
        "How long the source may be silent on a fetch before the connection is given up.",
        aliases=("socket.timeout.ms",),
    )
    socket_receive_buffer_bytes: int = _key(
        "mirror.socket.receive.buffer.bytes",
        whole(-1),
        "65536",
        "Size to which the receive buffer of a fetch connection is raised, for a source that is far away; where the "
        "system gives as much by itself it is left to choose. -1: always left to the system.",
        aliases=("socket.receive.buffer.bytes",),
    )
    replication_throttled_rate: int | None = _key(
        "mirror.replication.throttled.rate",
        optional(whole(1, LONG_MAX)),
        "",
        "Bytes a second that each worker mirrors at most, of the throttled partitions; empty: no limit.",
    )
    replication_throttled_replicas: ThrottledReplicas = _key(
        "mirror.replication.throttled.replicas",
        kinds.THROTTLED_REPLICAS,
        "*",
        "Partitions that the rate covers: * for all, or a comma-separated list of topic and topic:partition.",
    )
    raw: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def from_properties(cls, props: Mapping[str, str], origin: str) -> Self:
        """Check and read a configuration; references to secrets are checked in form, not looked up.

        `origin` names where `props` come from, unless they know it themselves (a file). InvalidConfig names the key,
        its value, file and line, and what would be allowed.
        """
        reader = Reader(props, origin, error=InvalidConfig, deferred=True)
        _refuse_unknown(reader, props)
        values = {name: reader.get(key) for name, key in _FIELDS.items()}
        client = read_client(reader)
        for key in CLIENT_KEYS:
            if key.name in props:
                _refuse_clear_secret(reader, key)
        config = cls(**values, raw={_NAMES[name]: value for name, value in props.items()})
        config._check_together(reader, client)
        return config

    def altered(self, changes: Mapping[str, str], *, removed: Iterable[str] = (), origin: str) -> Self:
        """Return the configuration with keys set and removed; as `from_properties` for what is wrong.

        A key that is removed goes back to its default; removing one that is not set is no error, an unknown one is.
        """
        for name in removed:
            if name not in _NAMES:
                raise InvalidConfig(f"{origin}: {name} {_unknown(name)}.")
        gone = {_NAMES.get(name, name) for name in (*changes, *removed)}
        kept = {name: value for name, value in self.raw.items() if name not in gone}
        lines = {name: changes.line_of(name) for name in changes} if isinstance(changes, Properties) else {}
        source = changes.origin if isinstance(changes, Properties) else origin
        return self.from_properties(Properties(kept | dict(changes), lines, source), origin)

    def source_settings(self) -> ClientSettings:
        """Return how to reach the source, with references looked up now; InvalidConfig for one that leads nowhere."""
        props = {key.name: self.raw[key.name] for key in CLIENT_KEYS if key.name in self.raw}
        return read_client(Reader(props, "the mirror's configuration", error=InvalidConfig))

    def mirrors_topic(self, topic: str) -> bool:
        """Say whether the include and exclude lists let a source topic in."""
        return self.topics_include.matches(topic) and not self.topics_exclude.matches(topic)

    def follows_truncated(self, topic: str) -> bool:
        """Say whether a topic's destination is made anew where its source was truncated."""
        return self.support_unclean_leader_election.matches(topic)

    def syncs_group(self, group: str) -> bool:
        """Say whether the include and exclude lists let a group in."""
        # A group's name may hold line breaks, which a dot does not stand for.
        names = {group, group.replace("\n", " ")}
        return any(map(self.groups_include.matches, names)) and not any(map(self.groups_exclude.matches, names))

    def copies_topic_property(self, name: str) -> bool:
        """Say whether a topic config is copied; `mirror.name` never is."""
        return name != "mirror.name" and not self.topic_properties_exclude.matches(name)

    def _check_together(self, reader: Reader, client: ClientSettings) -> None:
        if self.failed_retry_initial_backoff_ms > self.failed_retry_max_backoff_ms:
            initial, longest = "mirror.failed.retry.initial.backoff.ms", "mirror.failed.retry.max.backoff.ms"
            reader.refuse(initial, f"must not be above {longest}")
        if self.fetch_wait_max_ms >= client.request_timeout_ms:
            reader.refuse("mirror.fetch.wait.max.ms", "must be below request.timeout.ms: idle fetches would time out")


_FIELDS: dict[str, ConfigKey[Any]] = {f.name: f.metadata["key"] for f in fields(MirrorConfig) if "key" in f.metadata}
_ALL = (*_FIELDS.values(), *CLIENT_KEYS)
_NAMES = {name: key.name for key in _ALL for name in (key.name, *key.aliases)}

# What a running source connection need not know of (KIP-1279: filters take effect at the next refresh).
_WITHOUT_RECONNECT = frozenset(
    _FIELDS[name].name
    for name in (
        *("topics_include", "topics_exclude", "topic_properties_exclude", "groups_include", "groups_exclude"),
        *("groups_sync_enabled", "groups_sync_backwards"),
        *("configs_sync_enabled", "configs_sync_removals"),
        *("acls_include", "acls_sync_mode", "acls_deny_writes", "metadata_refresh_interval_ms"),
        *("failed_retry_initial_backoff_ms", "failed_retry_max_backoff_ms", "failed_retry_max_attempts"),
        *("replication_throttled_rate", "replication_throttled_replicas", "start_offset_spec"),
        "support_unclean_leader_election",
    )
)


def config_table() -> tuple[ConfigKey[Any], ...]:
    """Return every key that a mirror's configuration may hold, in the order of the reference page."""
    return _ALL


def filters_only_change(old: MirrorConfig, new: MirrorConfig) -> bool:
    """Say whether all that changed takes effect at the next refresh, without a new connection to the source.

    True for the filters, and for what no connection depends on (retries, throttles, periods); also for no change.
    """
    names = old.raw.keys() | new.raw.keys()
    return all(name in _WITHOUT_RECONNECT for name in names if old.raw.get(name) != new.raw.get(name))


def same_connection(old: Mapping[str, str], new: Mapping[str, str]) -> bool:
    """Say whether a change of stored configs leaves the connection to the source alone, as that of a filter does.

    Configs that would be refused now are no reason to keep one.
    """
    if old == new:
        return True
    try:
        return filters_only_change(
            MirrorConfig.from_properties(old, "the old configs"), MirrorConfig.from_properties(new, "the new configs")
        )
    except BadInput:
        return False


def _refuse_unknown(reader: Reader, props: Mapping[str, str]) -> None:
    for name in props:
        if name not in _NAMES:
            reader.refuse(name, _unknown(name))


def _unknown(name: str) -> str:
    close = get_close_matches(name[:100], _NAMES, n=1, cutoff=0.8)
    return "is not a key of a mirror's configuration" + (f"; perhaps {close[0]} was meant" if close else "")


def _refuse_clear_secret(reader: Reader, key: ConfigKey[Any]) -> None:
    if key.name not in SECRET_KEYS or may_be_shown(key.name, reader.raw(key)):
        return
    reader.refuse(
        key.name,
        "holds a secret in clear, and a mirror's configuration is stored: put the secret where the worker finds it, "
        f"and write {FORMS} instead",
    )


def may_be_shown(name: str, value: str) -> bool:
    """Say whether a stored value holds no secret in clear; an unknown key is judged by its name."""
    text = value.strip()
    if not text or is_reference(text):
        return True
    if name == "sasl.jaas.config":
        return _only_references(text)
    return name not in SECRET_KEYS and (name in _NAMES or not _SECRET_OPTION.search(name))


def _only_references(jaas: str) -> bool:
    """Say whether all secrets in a JAAS entry are references; what cannot be read may be anything."""
    try:
        options = parse_jaas(jaas).options
    except ValueError:
        return False
    return all(is_reference(value) for name, value in options.items() if _SECRET_OPTION.search(name))


_SECRET_OPTION = re.compile(r"password|secret|passphrase|private", re.IGNORECASE)
