"""The settings of a copy: one typed table, filled from a YAML file, the environment and flags, the later ones winning.

The names are kafka-reo's. In the environment a name is written in upper case, with `_` for `.` and `-`. Below
`kafka.clusters.source.` and `kafka.clusters.destination.` every client key of Kafka's is allowed, TLS and SASL too.
"""

# ruff: noqa: RUF009  (`_key` is `dataclasses.field`, with a key as its metadata)

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, Self, TypeVar

import yaml

from twinlog.config.client import CLIENT_KEYS, ClientSettings, read_client
from twinlog.config.keys import TEXT, ConfigKey, Kind, Reader, choice, one_of, optional, whole
from twinlog.config.patterns import Patterns, check_topic_name, split_patterns
from twinlog.errors import BadInput

T = TypeVar("T")

SOURCE, DESTINATION = "kafka.clusters.source.", "kafka.clusters.destination."
BOOTSTRAP = "bootstrap-servers"
PLACEHOLDER = "{topic}"
_APPLICATION = re.compile(r"[A-Za-z0-9._-]{1,200}")
_LITERAL = re.compile(r"[A-Za-z0-9._-]+")


class Mode(StrEnum):
    """How records are brought over."""

    DIRECT = "direct"
    PROXY = "proxy"


class Partitioning(StrEnum):
    """Which partition of the destination a record goes to."""

    KEEP = "keep"
    KEY = "key"


class Reset(StrEnum):
    """Where a partition begins."""

    EARLIEST = "earliest"
    LATEST = "latest"


E = TypeVar("E", bound=StrEnum)


def _words(members: type[E]) -> Kind[E]:
    return choice({member.value: member for member in members})


def _application(text: str) -> str:
    if not _APPLICATION.fullmatch(text):
        raise ValueError
    return text


APPLICATION = Kind("string", "1 to 200 ASCII letters, digits, '.', '_' and '-'", _application)


def _key(name: str, kind: Kind[T], default: str, doc: str) -> T:
    key = ConfigKey(name, kind, default, doc)
    return field(default_factory=lambda: key.default_value, metadata={"key": key})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReoSettings:
    """What to copy from where to where; sizes in bytes, times in milliseconds."""

    source: ClientSettings | None
    destination: ClientSettings
    application: str = _key(
        "application.name",
        APPLICATION,
        "exactly-once-replicator",
        "Name of this copy: its transactional ids are `<name>-0` and on, its positions are in `<name>-positions`.",
    )
    mode: Mode = _key(
        "mode",
        _words(Mode),
        "direct",
        "direct: in one step; proxy: in two stages, with a proxy topic on the destination between them.",
    )
    stage: int | None = _key(
        "stage",
        optional(whole(1, 2)),
        "",
        "With mode proxy: only stage 1 (source to proxy topic) or 2 (proxy to destination topic); empty: both, here.",
    )
    shares: int = _key(
        "shares",
        whole(1, 1_000),
        "1",
        "Into how many shares the partitions are parted. Above 1, instances with one application.name divide them.",
    )
    source_topic: str = _key(
        "kafka.clusters.source.topic",
        TEXT,
        "",
        "Required. Topics to copy: a comma-separated list of names, or of regular expressions.",
    )
    destination_topic: str = _key(
        "kafka.clusters.destination.topic",
        TEXT,
        PLACEHOLDER,
        "Where to: a topic's name; `{topic}` in it stands for the source topic's name, and is needed for several.",
    )
    proxy_topic: str = _key(
        "kafka.clusters.destination.topic-proxy",
        TEXT,
        f"{PLACEHOLDER}-proxy",
        "With mode proxy: the topic between the stages, created at need; `{topic}` as above.",
    )
    fetch_min_bytes: int = _key(
        "kafka.config.consumer.fetch-min-bytes",
        whole(0, 67_108_864),
        "1",
        "How much the source gathers before it answers a fetch, for at most half a second.",
    )
    auto_reset: Reset = _key(
        "kafka.config.consumer.auto-reset",
        _words(Reset),
        "earliest",
        "Where a copy begins that never ran, if its destination topic is empty; what is added later is copied whole.",
    )
    start_from: Reset | None = _key(
        "start-from",
        optional(_words(Reset)),
        "",
        "Where to begin where the recorded position is lost or no longer holds; without it, that is refused.",
    )
    acks: str = _key(
        "kafka.config.producer.acks",
        one_of("all", "-1"),
        "all",
        "Only `all`: a transaction needs all in-sync replicas.",
    )
    replication_factor: int | None = _key(
        "streams.replication-factor",
        optional(whole(1, 32_767)),
        "",
        "Replicas of the topic of positions; empty: 3, or the number of brokers if that is less.",
    )
    buffer_bytes: int = _key(
        "streams.buffer-config.max-bytes",
        whole(1_048_576),
        "33554432",
        "How much of what was fetched is held in memory at most.",
    )
    commit_interval_ms: int = _key(
        "commit-interval-ms", whole(1, 10_000), "100", "How long a transaction gathers records before it is committed."
    )
    transaction_timeout_ms: int = _key(
        "transaction-timeout-ms",
        whole(15_000, 900_000),
        "60000",
        "After how long the destination aborts what a copy left open; at most its transaction.max.timeout.ms.",
    )
    partitioning: Partitioning = _key(
        "partitioning",
        _words(Partitioning),
        "keep",
        "keep: the source's partition; key: by the key's murmur2 hash, as Java's producer (slower).",
    )
    provenance: bool = _key(
        "provenance",
        choice({"true": True, "false": False}),
        "false",
        "Add a header that says where a record came from (slower); what came from the destination is left out.",
    )
    log_level: str = _key(
        "LOG_LEVEL",
        one_of("DEBUG", "INFO", "WARN", "WARNING", "ERROR", "TRACE"),
        "INFO",
        "How much is logged.",
    )

    @classmethod
    def read(cls, values: Mapping[str, str], origin: str) -> Self:
        """Check and read settings by name; BadInput names what is unknown, missing or not allowed."""
        _refuse_unknown(values, origin)
        reader = Reader(values, origin)
        read = {name: reader.get(key) for name, key in FIELDS.items()}
        # The second stage needs nothing of the source.
        alone = (read["mode"], read["stage"]) == (Mode.PROXY, 2) and not values.get(SOURCE + BOOTSTRAP)
        source = None if alone else _client(values, SOURCE, origin)
        settings = cls(**read, source=source, destination=_client(values, DESTINATION, origin))
        settings._check(origin)
        return settings

    def once_begun(self) -> Self:
        """The same for what is found later: where to begin was said for what there was at the start.

        What is added while it runs is copied from its beginning, and what is lost one day was not meant.
        """
        return replace(self, start_from=None, auto_reset=Reset.EARLIEST)

    def _check(self, origin: str) -> None:
        if not self.source_topic:
            raise BadInput(f"{origin}: kafka.clusters.source.topic is missing; name the topics to copy.")
        if self.stage is not None and self.mode is not Mode.PROXY:
            raise BadInput(f"{origin}: stage {self.stage} is one of two stages; set mode to proxy as well.")
        targets = {"topic": self.destination_topic}
        if self.mode is Mode.PROXY:
            targets["topic-proxy"] = self.proxy_topic
        for key, told in targets.items():
            if not self.takes_one_name and PLACEHOLDER not in told:
                raise BadInput(
                    f"{origin}: several topics cannot go into the one topic {told!r}; write {PLACEHOLDER} in "
                    f"kafka.clusters.destination.{key} where the source topic's name is to stand."
                )
        if self.mode is Mode.PROXY and self.proxy_topic == self.destination_topic:
            raise BadInput(f"{origin}: kafka.clusters.destination.topic-proxy must not be the destination topic.")

    @property
    def takes_one_name(self) -> bool:
        """Whether the source is one topic, given by its plain name."""
        elements = split_patterns(self.source_topic)
        return len(elements) == 1 and _LITERAL.fullmatch(elements[0]) is not None

    def named(self) -> tuple[str, ...]:
        """The topics that are given by plain names."""
        return tuple(name for name in split_patterns(self.source_topic) if _LITERAL.fullmatch(name))

    def expressions(self) -> Patterns:
        """The elements that are regular expressions; they never choose topics that begin with two underscores."""
        return Patterns(tuple(e for e in split_patterns(self.source_topic) if not _LITERAL.fullmatch(e)))

    def target(self, topic: str) -> str:
        """The destination topic of a source topic."""
        return check_topic_name(self.destination_topic.replace(PLACEHOLDER, topic))

    def proxy(self, topic: str) -> str:
        """The proxy topic of a source topic."""
        return check_topic_name(self.proxy_topic.replace(PLACEHOLDER, topic))

    def topic_of_proxy(self, name: str) -> str | None:
        """The source topic whose proxy topic would have that name, among those that expressions choose."""
        before, placeholder, after = self.proxy_topic.partition(PLACEHOLDER)
        topic = name.removeprefix(before).removesuffix(after)
        fits = placeholder and topic and self.proxy_topic.replace(PLACEHOLDER, topic) == name
        return topic if fits and self.expressions().matches(topic) else None

    def transactional_id(self, share: int) -> str:
        """Under which a share is written; whoever begins with it fences the one before."""
        return f"{self.application}-{share}"

    @property
    def positions_topic(self) -> str:
        """The topic on the destination that holds how far the source was read."""
        return f"{self.application}-positions"


FIELDS: dict[str, ConfigKey[Any]] = {f.name: f.metadata["key"] for f in fields(ReoSettings) if "key" in f.metadata}

WITHOUT_MEANING: dict[str, str] = {
    "kafka.config.producer.linger-ms": "batches are passed on as the source holds them; see commit-interval-ms",
    "kafka.config.producer.compression-type": "records stay compressed as the source holds them",
    "kafka.config.producer.delivery-timeout-ms": "what the destination refuses is tried again without end",
    "streams.num-standby-replicas": "no state is kept beside the topic of positions",
    "streams.num-stream-threads": "one process copies all partitions without threads; see shares for several",
}
"""Settings of kafka-reo that are accepted without effect, and why."""


def _client_names() -> Iterator[str]:
    for side in (SOURCE, DESTINATION):
        yield side + BOOTSTRAP
        for key in CLIENT_KEYS:
            yield side + key.name


NAMES: tuple[str, ...] = (*(key.name for key in FIELDS.values()), *WITHOUT_MEANING, *_client_names())


def environment_name(name: str) -> str:
    """The environment variable of a setting."""
    return re.sub(r"[.-]", "_", name).upper()


def from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings that environment variables give."""
    found = ((name, environment.get(environment_name(name))) for name in NAMES)
    return {name: value for name, value in found if value is not None}


def misspelt(environment: Mapping[str, str]) -> tuple[str, ...]:
    """A sentence for each variable whose name is nearly that of a setting.

    Others are none of ours: an orchestrator adds variables that begin alike for services of its own.
    """
    known = {environment_name(name) for name in NAMES}
    found = (
        (name, get_close_matches(name[:100], known, n=1, cutoff=0.9)) for name in sorted(environment.keys() - known)
    )
    return tuple(f"{name} is no setting and is ignored; perhaps {near[0]} was meant." for name, near in found if near)


def from_yaml(text: str, origin: str) -> dict[str, str]:
    """The settings of a YAML file, whose keys may be nested or joined by dots."""
    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError as problem:
        raise BadInput(f"{origin} is not valid YAML: {problem}.") from None
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise BadInput(f"{origin} must hold keys and values, as in `application.name: orders-copy`.")
    return dict(_flat(tree, ""))


def _flat(tree: Mapping[Any, Any], before: str) -> Iterator[tuple[str, str]]:
    for name, value in tree.items():
        path = f"{before}{name}"
        if isinstance(value, dict):
            yield from _flat(value, f"{path}.")
        elif isinstance(value, list):
            yield path, ",".join(map(str, value))
        elif value is not None:
            yield path, str(value).lower() if isinstance(value, bool) else str(value)


def without_meaning(values: Mapping[str, str]) -> tuple[str, ...]:
    """A sentence for each setting that is given but has no effect here."""
    reasons = dict(WITHOUT_MEANING)
    if values.get("mode", Mode.DIRECT).strip() == Mode.DIRECT:
        reasons[FIELDS["proxy_topic"].name] = "mode is direct, which needs no proxy topic"
    return tuple(f"{name} has no effect here: {why}." for name, why in reasons.items() if name in values)


def settings_table() -> tuple[ConfigKey[Any], ...]:
    """Every setting but those of the clients, in the order of the reference page."""
    return tuple(FIELDS.values())


def _client(values: Mapping[str, str], side: str, origin: str) -> ClientSettings:
    own = {*(key.name for key in FIELDS.values()), *WITHOUT_MEANING}
    props = {name.removeprefix(side): value for name, value in values.items() if name.startswith(side)}
    props = {name: value for name, value in props.items() if side + name not in own}
    if BOOTSTRAP in props:
        props["bootstrap.servers"] = props.pop(BOOTSTRAP)
    if not props.get("bootstrap.servers", "").strip():
        raise BadInput(f"{origin}: {side}{BOOTSTRAP} is missing; give the address of at least one broker as host:port.")
    return read_client(Reader(props, f"{origin}: {side.removesuffix('.')}"))


def _refuse_unknown(values: Mapping[str, str], origin: str) -> None:
    for name in values:
        if name not in NAMES:
            close = get_close_matches(name[:100], NAMES, n=1, cutoff=0.8)
            hint = f"; perhaps {close[0]} was meant" if close else ""
            raise BadInput(f"{origin}: {name[:200]} is not a setting{hint}.")
