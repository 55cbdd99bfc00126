"""Types of values that only a mirror's configuration has."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from twinlog.config.acls import AclRule, parse_acl_rules
from twinlog.config.keys import LONG_MAX, Kind, choice, text_list
from twinlog.config.patterns import Patterns, check_topic_name
from twinlog.errors import BadInput

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class BlankMode(StrEnum):
    """How a blank, an offset without a visible record, is written at the destination."""

    MARKER = "marker"


class AclsSyncMode(StrEnum):
    """What ACL sync may do at the destination: create and delete, only create, or nothing."""

    EXACT = "exact"
    ADDITIVE = "additive"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class StartOffset:
    """Where a topic's first copy begins: `earliest`, `latest`, or a time in milliseconds since 1970."""

    at: str | int = "earliest"

    @property
    def timestamp_ms(self) -> int | None:
        """The time, if one was given."""
        return self.at if isinstance(self.at, int) else None


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """The partitions that a throttle covers; None in a pair stands for all partitions of the topic."""

    everything: bool = True
    listed: frozenset[tuple[str, int | None]] = frozenset()

    def covers(self, topic: str, partition: int) -> bool:
        """Say whether the throttle applies to a partition."""
        return self.everything or (topic, partition) in self.listed or (topic, None) in self.listed


def _patterns(text: str) -> Patterns:
    try:
        return Patterns.parse(text)
    except BadInput as problem:
        raise ValueError(f"this cannot be used: {str(problem).removesuffix('.')}") from None


def _unclean(text: str) -> Patterns:
    everything = {"false": "", "": "", "true": ".*"}
    return _patterns(everything.get(text.strip().lower(), text))


def _blank_mode(text: str) -> BlankMode:
    mode = text.lower()
    if mode in _NOT_OFFERED:
        raise ValueError(f"cannot be {mode}: {_NOT_OFFERED[mode]}; only marker is offered")
    if mode != BlankMode.MARKER:
        raise ValueError
    return BlankMode.MARKER


_NOT_OFFERED = {
    "transaction": "Kafka may write a transaction's end twice, which would move all that follows to other offsets. "
    "Grant the worker ALTER or CLUSTER_ACTION on the destination cluster instead",
    "tombstone": "a tombstone is a record that every consumer gets. Where it serves, in the first copy of a compacted "
    "topic, it is used without being asked for, and gone before the topic is MIRRORING",
}


def _start_offset(text: str) -> StartOffset:
    if text.lower() in {"earliest", "latest"}:
        return StartOffset(text.lower())
    if text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= LONG_MAX:
        return StartOffset(int(text))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError from None  # Python's reason is less clear than ours
    at = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    milliseconds = (at - _EPOCH) // _MILLISECOND
    if milliseconds < 0:
        raise ValueError
    return StartOffset(milliseconds)


def _throttled(text: str) -> ThrottledReplicas:
    parts = text_list(text)
    if "*" in parts:
        return ThrottledReplicas()
    return ThrottledReplicas(everything=False, listed=frozenset(_replica(part) for part in parts))


def _replica(text: str) -> tuple[str, int | None]:
    topic, _, partition = text.partition(":")
    try:
        check_topic_name(topic)
    except BadInput as problem:
        raise ValueError(f"this cannot be used: {str(problem).removesuffix('.')}") from None
    if partition in {"", "*"}:
        return topic, None
    if not (partition.isascii() and partition.isdigit() and len(partition) < 10):
        raise ValueError
    return topic, int(partition)


PATTERNS: Kind[Patterns] = Kind("list", "a comma-separated list of names and regular expressions", _patterns)
UNCLEAN: Kind[Patterns] = Kind("string", "true, false, or the topics for which it is true", _unclean)
ACL_RULES: Kind[tuple[AclRule, ...]] = Kind("list", "a comma-separated list of rules", parse_acl_rules)
SWITCH: Kind[bool] = choice({"true": True, "false": False})
ACLS_SYNC_MODE: Kind[AclsSyncMode] = choice({mode.value: mode for mode in AclsSyncMode})
BLANK_MODE: Kind[BlankMode] = Kind("string", "marker", _blank_mode)
START_OFFSET: Kind[StartOffset] = Kind(
    "string", "earliest, latest, milliseconds since 1970, or a time such as 2026-01-31T12:00:00Z", _start_offset
)
THROTTLED_REPLICAS: Kind[ThrottledReplicas] = Kind("list", "* or a list of topic and topic:partition", _throttled)
