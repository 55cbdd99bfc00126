"""A topic's configs as far as the simulated broker obeys them. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

MAX_LONG: Final = 2**63 - 1
DAY_MS: Final = 86_400_000
HOUR_MS: Final = 3_600_000

DEFAULTS: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(MAX_LONG),
    "message.timestamp.after.max.ms": str(HOUR_MS),
    "min.insync.replicas": "1",
    "retention.ms": str(7 * DAY_MS),
    "retention.bytes": "-1",
    "segment.ms": str(7 * DAY_MS),
    "segment.bytes": "1073741824",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "max.compaction.lag.ms": str(MAX_LONG),
    "delete.retention.ms": str(DAY_MS),
    "unclean.leader.election.enable": "false",
    "remote.storage.enable": "false",
}
"""Kafka 4's defaults."""


@dataclass(frozen=True, slots=True)
class TopicRules:
    """What decides about an append; times in ms."""

    compacted: bool = False
    deletes: bool = True
    max_message_bytes: int = 1_048_588
    append_time: bool = False
    before_max_ms: int = MAX_LONG
    after_max_ms: int = HOUR_MS
    min_isr: int = 1

    @classmethod
    def of(cls, configs: Mapping[str, str]) -> "TopicRules":
        """Read them from configs; what is not set has Kafka's default."""
        told = {**DEFAULTS, **configs}
        policies = {policy.strip() for policy in told["cleanup.policy"].split(",")}
        return cls(
            compacted="compact" in policies,
            deletes="delete" in policies,
            max_message_bytes=int(told["max.message.bytes"]),
            append_time=told["message.timestamp.type"] == "LogAppendTime",
            before_max_ms=int(told["message.timestamp.before.max.ms"]),
            after_max_ms=int(told["message.timestamp.after.max.ms"]),
            min_isr=int(told["min.insync.replicas"]),
        )
