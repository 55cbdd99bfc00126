"""Made-up records of every shape that a topic can hold; all chance comes from a seeded generator."""

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from twinlog.testing.errors import BenchFailed
from twinlog.testing.reader import QUIET, Address, address

REQUEST_TIMEOUT_S: Final = 20.0
MAX_LONG: Final = 2**63 - 1
YEAR_9999_MS: Final = 253_402_300_799_000
NOW: Final = 0  # librdkafka's word for "stamp it when it is produced"
NO_TIME: Final = -1

BATCH_HEADER_BYTES: Final = 61

HeaderList = list[tuple[str, bytes | None]]

EVERYTHING_ALLOWED: Final = {
    "retention.ms": "-1",
    "message.timestamp.before.max.ms": str(MAX_LONG),
    "message.timestamp.after.max.ms": str(MAX_LONG),
}
"""Topic configs under which no record made here is refused, and none expires for its old timestamp."""


def create_topic(
    cluster: Address, topic: str, *, partitions: int = 1, config: Mapping[str, str] = EVERYTHING_ALLOWED
) -> None:
    """Create a topic; by default one in which nothing is refused or expires for its timestamp."""
    admin = AdminClient({"bootstrap.servers": address(cluster), **QUIET})
    new = NewTopic(topic, num_partitions=partitions, config=dict(config))
    admin.create_topics([new], request_timeout=REQUEST_TIMEOUT_S)[topic].result()


@dataclass(frozen=True, slots=True)
class Made:
    """A record to produce; `timestamp_ms` NOW lets the client stamp it."""

    key: bytes | None
    value: bytes | None
    headers: HeaderList
    timestamp_ms: int = NOW


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What a topic lets a producer do: its partitions, the largest batch in bytes, how far ahead a timestamp may be."""

    partitions: int
    max_batch_bytes: int
    max_ahead_ms: int
    compacted: bool

    @classmethod
    def of(cls, cluster: Address, topic: str) -> "TopicFacts":
        """Ask the cluster; raises BenchFailed when there is no such topic."""
        admin = AdminClient({"bootstrap.servers": address(cluster), **QUIET})
        known = admin.list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic]
        if known.error is not None or not known.partitions:
            raise BenchFailed(f"Topic {topic} cannot be filled at {address(cluster)}: {known.error}")
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        entries = admin.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)[resource].result()
        config = {name: entry.value for name, entry in entries.items()}
        return cls(
            partitions=len(known.partitions),
            max_batch_bytes=int(config["max.message.bytes"]),
            max_ahead_ms=int(config.get("message.timestamp.after.max.ms", MAX_LONG)),
            compacted="compact" in config["cleanup.policy"],
        )


class Maker:
    """Makes records for one topic; the same seed gives the same records, but for timestamps relative to now."""

    def __init__(self, rng: random.Random, facts: TopicFacts) -> None:
        self.rng = rng
        self._facts = facts

    def record(self) -> Made:
        """An ordinary record: mostly small, some larger, one in ten with headers."""
        headers = self.headers() if self.rng.random() < 0.1 else []
        timestamp_ms = self.timestamp_ms() if self.rng.random() < 0.2 else NOW
        return Made(b"key-%d" % self.rng.randrange(1000), self._value(), headers, timestamp_ms)

    def timestamp_ms(self) -> int:
        """No time, the far past, the future as far as the topic allows; never 0, see `Load.timestamps`."""
        now_ms = int(time.time() * 1000)
        latest = YEAR_9999_MS if self._facts.max_ahead_ms == MAX_LONG else now_ms + self._facts.max_ahead_ms // 2
        return self.rng.choice([NO_TIME, 1, self.rng.randrange(1, now_ms), now_ms, self.rng.randrange(now_ms, latest)])

    def headers(self) -> HeaderList:
        """Null and empty values, repeated and non-ASCII names, values that are no UTF-8; some or many."""
        kinds: HeaderList = [
            ("empty", b""),
            ("null", None),
            ("", b"no name"),
            ("naïve → 名", "größe".encode()),
            ("bytes", b"\xff\xfe\x00\x80"),
            ("repeated", b"1"),
            ("repeated", b"2"),
        ]
        return self.rng.choices(kinds, k=self.rng.choice([1, 2, 7, 50]))

    def edges(self) -> list[Made]:
        """Every combination of null, empty and present key, value and headers; no null key on a compacted topic."""
        keys = [b"", b"key"] if self._facts.compacted else [None, b"", b"key"]
        headers: list[HeaderList] = [[], self.headers()]
        made = [Made(k, v, h) for k in keys for v in (None, b"", b"value") for h in headers]
        self.rng.shuffle(made)
        return made

    def tombstone(self) -> Made:
        """A deletion of one of the ordinary records' keys."""
        return replace(self.record(), value=None)

    def largest(self) -> Made:
        """The record whose uncompressed batch has exactly the topic's `max.message.bytes`."""
        key = b"largest"
        size = self._facts.max_batch_bytes - BATCH_HEADER_BYTES
        while _record_bytes(key, size) > self._facts.max_batch_bytes - BATCH_HEADER_BYTES:
            size -= 1
        return Made(key, self.rng.randbytes(size), [])

    def inflated(self) -> Made:
        """A record twice as large as the topic's limit, small enough once it is compressed."""
        line = self.rng.randbytes(64)
        return Made(b"inflated", line * (self._facts.max_batch_bytes // 32), [])

    def refused(self) -> Made:
        """A record that the topic refuses for its size, compressed or not."""
        return Made(b"refused", self.rng.randbytes(self._facts.max_batch_bytes + 1), [])

    def _value(self) -> bytes:
        size = self.rng.choice([0, 10, 100, 100, 1000, 1000, 20_000])
        if self.rng.random() < 0.5:
            return self.rng.randbytes(size)
        return (b"%08d " % self.rng.randrange(10**8)) * (size // 9 + 1)


def _record_bytes(key: bytes, value_bytes: int) -> int:
    """Size of the only record of a batch, of magic 2, without headers."""
    fixed = 1 + 1 + 1 + _varint_bytes(len(key)) + len(key) + 1  # attributes, two deltas, key, header count
    body = fixed + _varint_bytes(value_bytes) + value_bytes
    return _varint_bytes(body) + body


def _varint_bytes(number: int) -> int:
    """Bytes of a zigzag varint, for a number that is not negative."""
    return max(1, ((number << 1).bit_length() + 6) // 7)
