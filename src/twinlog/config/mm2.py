"""Turns the settings of MirrorMaker 2 (its dedicated mode) into those of mirrors: one mirror for each enabled flow.

A setting is looked for as MirrorMaker 2 does: `A->B.name` before `name`; for a connection `A.name` before `name`.
Nothing is dropped in silence: each setting without a counterpart is told with its line and the reason.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from twinlog.config.client import CLIENT_KEYS
from twinlog.config.kinds import PATTERNS
from twinlog.config.mirror import MirrorConfig
from twinlog.config.properties import Properties
from twinlog.config.secrets import SECRET_KEYS, is_reference
from twinlog.errors import BadInput


@dataclass(frozen=True, slots=True)
class Flow:
    """One enabled flow: the mirror's properties, those of the destination's clients, and the commands."""

    name: str
    mirror: Mapping[str, str]
    destination: Mapping[str, str]
    bootstrap: str
    replication_factor: str


@dataclass(frozen=True, slots=True)
class Left:
    """A setting that was not taken over as it is, and why."""

    where: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Converted:
    """Everything that became of one file."""

    flows: tuple[Flow, ...]
    left: tuple[Left, ...]


def _milliseconds(text: str) -> str:
    return str(int(text) * 1000)


def _acl_mode(text: str) -> str:
    return "additive" if text.strip().lower() == "true" else "off"


# MirrorMaker 2's name, ours, and how its value is turned into ours.
MAPPED: Final[Mapping[str, tuple[str, Callable[[str], str]]]] = {
    "topics": ("mirror.topics.include", str),
    "topics.exclude": ("mirror.topics.exclude", str),
    "topics.blacklist": ("mirror.topics.exclude", str),
    "groups": ("mirror.groups.include", str),
    "groups.exclude": ("mirror.groups.exclude", str),
    "groups.blacklist": ("mirror.groups.exclude", str),
    "config.properties.exclude": ("mirror.topic.properties.exclude", str),
    "config.properties.blacklist": ("mirror.topic.properties.exclude", str),
    "sync.topic.acls.enabled": ("mirror.acls.sync.mode", _acl_mode),
    "refresh.topics.interval.seconds": ("mirror.metadata.refresh.interval.ms", _milliseconds),
}
# Its defaults, where ours are others.
DEFAULTS: Final = {
    "mirror.topics.include": ".*",
    "mirror.topics.exclude": r"mm2.*\.internal,.*\.replica,__.*",
    "mirror.groups.exclude": "console-consumer-.*,connect-.*,__.*",
}
_IDENTITY: Final = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
_ONE_REFRESH: Final = "one period serves discovery and all syncs: mirror.metadata.refresh.interval.ms"
_OWN_TOPICS: Final = "twinlog keeps everything in the one topic __mirror_state at the destination"
_NO_TRANSLATION: Final = "offsets are the same on both sides, so there is nothing to translate"
REASONS: Final[tuple[tuple[str, str], ...]] = (
    (r"tasks\.max", "there are no tasks: start as many workers as you like, they share the partitions"),
    (r"replication\.policy\.(class|separator)", "topics keep their names; a copy made under a prefix stays as it is"),
    (r"(refresh|sync)\..*interval\.seconds", _ONE_REFRESH),
    (r"(refresh|sync)\..*\.enabled", "syncs are switched by their filters: exclude all with .*"),
    (r"(emit\.)?heartbeats.*", "a mirror's lag and state are told by kafka-mirrors --describe"),
    (r"(emit\.)?checkpoints.*|offset[.-](lag|syncs).*|emit\.offset-syncs.*", _NO_TRANSLATION),
    (r"(offset|status|config)\.storage\..*", _OWN_TOPICS),
    (r"(exactly\.once|transaction)\..*", "every record is always written exactly once"),
    (r"dedicated\.mode\..*|listeners|rest\..*", "workers find each other by the destination's group, not by HTTP"),
    (r"config\.providers.*", "${env:..}, ${file:..:..} and ${dir:..:..} are always understood; no other provider is"),
    (r"(consumer|producer|admin)\..*", "twinlog has no consumer and producer of its own to be tuned"),
    (r"(key|value|header)\.converter.*|transforms.*|predicates.*", "records are copied as they are"),
)
_UNKNOWN: Final = "has no counterpart"
_CLIENT_NAMES: Final = frozenset(key.name for key in CLIENT_KEYS)
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")


def convert(props: Properties) -> Converted:
    """Convert a file's settings. Raises BadInput where the file names no clusters, no enabled flow, or a bad value."""
    aliases = [name.strip() for name in props.get("clusters", "").split(",") if name.strip()]
    if not aliases:
        raise BadInput(f"{props.origin}: clusters is missing; it names the clusters, as in clusters=primary, backup.")
    pairs = [(a, b) for a in aliases for b in aliases if a != b and _on(props.get(f"{a}->{b}.enabled"))]
    if not pairs:
        raise BadInput(
            f"{props.origin}: no flow is enabled; one is by a line such as {aliases[0]}->OTHER.enabled=true."
        )
    work = _Conversion(props, aliases)
    flows = tuple(work.flow(a, b) for a, b in pairs)
    return Converted(flows, work.left())


def _on(text: str | None) -> bool:
    return (text or "").strip().lower() == "true"


class _Conversion:
    """One file on its way; remembers which settings were taken, and what else there is to be said."""

    def __init__(self, props: Properties, aliases: list[str]) -> None:
        self._props = props
        self._aliases = aliases
        self._taken = {"clusters"}
        self._notes: list[Left] = []

    def flow(self, source: str, destination: str) -> Flow:
        flow = f"{source}->{destination}"
        self._taken.add(f"{flow}.enabled")
        mirror = dict(DEFAULTS)
        for name, (ours, turned) in MAPPED.items():
            given = self._given(flow, name)
            if given is not None:
                mirror[ours] = self._value(given, ours, turned)
        if self._syncs_no_groups(flow):
            mirror["mirror.groups.exclude"] = ".*"
        mirror = self._client(source) | mirror
        MirrorConfig.from_properties(mirror, f"{self._props.origin}, flow {flow}")
        client = self._client(destination)
        factor = self._given(flow, "replication.factor")
        return Flow(
            name=_UNSAFE.sub("-", f"{source}-to-{destination}"),
            mirror=mirror,
            destination=client,
            bootstrap=client.pop("bootstrap.servers", ""),
            replication_factor="" if factor is None else self._props[factor].strip(),
        )

    def left(self) -> tuple[Left, ...]:
        """What was not taken over, in the order of the file, then the notes."""
        rest = [Left(self._where(name), name, self._reason(name)) for name in self._props if name not in self._taken]
        return (*rest, *self._notes)

    def _given(self, prefix: str, name: str) -> str | None:
        for full in (f"{prefix}.{name}", name):
            if full in self._props:
                self._taken.add(full)
                return full
        return None

    def _value(self, given: str, ours: str, turned: Callable[[str], str]) -> str:
        try:
            value = turned(self._props[given].strip())
            if ours.endswith((".include", ".exclude")):
                PATTERNS.parse(value)
        except ValueError as problem:
            raise BadInput(f"{self._where(given)}: {given} cannot be converted: {problem}.") from None
        return value

    def _syncs_no_groups(self, flow: str) -> bool:
        given = self._given(flow, "sync.group.offsets.enabled")
        return given is not None and not _on(self._props[given])

    def _client(self, alias: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for name in sorted(_CLIENT_NAMES):
            given = self._given(alias, name)
            if given is not None:
                found[name] = self._without_secret(alias, given, name)
        if not found.get("bootstrap.servers"):
            raise BadInput(f"{self._props.origin}: {alias}.bootstrap.servers is missing.")
        return found

    def _without_secret(self, alias: str, given: str, name: str) -> str:
        value = self._props[given].strip()
        if name not in SECRET_KEYS or not value or is_reference(value):
            return value
        variable = re.sub(r"\W", "_", f"{alias}_{name}").upper()
        note = Left(
            self._where(given), given, f"holds a secret: put its value into the environment variable {variable}"
        )
        if note not in self._notes:
            self._notes.append(note)
        return f"${{env:{variable}}}"

    def _where(self, name: str) -> str:
        return f"{self._props.origin}:{self._props.line_of(name)}"

    def _reason(self, name: str) -> str:
        bare = self._bare(name)
        if bare == "replication.policy.class" and self._props[name].strip() == _IDENTITY:
            return "is not needed: topics keep their names"
        if bare == "enabled" or (bare in MAPPED and "->" in name):
            return "belongs to a flow that is not enabled"
        return next((reason for pattern, reason in REASONS if re.fullmatch(pattern, bare)), _UNKNOWN)

    def _bare(self, name: str) -> str:
        flows = [f"{a}->{b}" for a in self._aliases for b in self._aliases]
        prefix = next((p for p in (*flows, *self._aliases) if name.startswith(f"{p}.")), None)
        return name if prefix is None else name[len(prefix) + 1 :]
