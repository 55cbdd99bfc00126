"""Reads a topic through librdkafka, for the checker: its bounds, and one fingerprint for each record."""

import time
import uuid
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, TypeVar

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from twinlog.testing.errors import BenchFailed

Isolation = Literal["read_committed", "read_uncommitted"]
Headers = tuple[tuple[str, bytes | None], ...]
Answer = TypeVar("Answer")

EARLIEST: Final[OffsetSpec] = OffsetSpec.earliest()
LATEST: Final[OffsetSpec] = OffsetSpec.latest()

QUIET: Final = {"log_level": 0}  # what goes wrong is raised, not printed
READ_AT_ONCE: Final = 10_000
WAIT_S: Final = 0.05
REQUEST_TIMEOUT_S: Final = 10.0
RETRY_S: Final = 0.2
MARKERS_S: Final = 3.0  # usually some milliseconds; longer while a coordinator moves

# What a reader meets while brokers come and go, and what passes by itself.
PASSING: Final = {
    KafkaError._TRANSPORT,  # noqa: SLF001 - librdkafka's own codes are named so
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
    KafkaError._TIMED_OUT,  # noqa: SLF001
    KafkaError._RESOLVE,  # noqa: SLF001
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT,
}


class HasBootstrap(Protocol):
    """A cluster of the bench, or anything else that knows its address."""

    @property
    def bootstrap(self) -> str:
        """`host:port,...`, as every Kafka client takes it."""


Address = str | HasBootstrap


def address(cluster: Address) -> str:
    """The bootstrap address of a cluster."""
    return cluster if isinstance(cluster, str) else cluster.bootstrap


@dataclass(frozen=True, slots=True)
class Bounds:
    """One partition's first offset, its end (the high watermark), and its last stable offset."""

    start: int
    end: int
    stable: int


@dataclass(frozen=True, slots=True)
class SeenRecord:
    """One record as a consumer sees it; null and empty are told apart."""

    timestamp_type: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(slots=True)
class Column:
    """All visible records of one partition: offsets, and a 64-bit fingerprint of the rest of each record.

    Fingerprints are Python's own keyed hash: they compare within one process only.
    """

    offsets: "array[int]" = field(default_factory=lambda: array("q"))
    digests: "array[int]" = field(default_factory=lambda: array("q"))


class TopicReader:
    """One topic on one cluster, read by `assign` (no group is joined, nothing is committed).

    timestamp_types: let a record's timestamp type count as part of it.
    timeout_s: how long to go on without any progress. Raises BenchFailed when that is over, when the topic is not
    there, and when librdkafka finds a batch whose checksum is wrong.
    """

    def __init__(
        self,
        cluster: Address,
        topic: str,
        *,
        isolation: Isolation = "read_committed",
        timestamp_types: bool = True,
        timeout_s: float = 60.0,
    ) -> None:
        self.topic = topic
        self._address = address(cluster)
        self._timestamp_types = timestamp_types
        self._timeout_s = timeout_s
        self._admin = AdminClient({"bootstrap.servers": self._address, **QUIET})
        self._consumer = Consumer(
            {
                "bootstrap.servers": self._address,
                **QUIET,
                "group.id": f"twinlog-checker-{uuid.uuid4().hex}",
                "isolation.level": isolation,
                "enable.partition.eof": True,  # the only sign of an end behind markers
                "enable.auto.commit": False,
                "auto.offset.reset": "error",  # a log start that moved is an error, never a silent jump
                "check.crcs": True,
                "fetch.queue.backoff.ms": 20,
                "queued.min.messages": 200_000,
                "queued.max.messages.kbytes": 128 << 10,
                "max.partition.fetch.bytes": 8 << 20,
            }
        )

    def close(self) -> None:
        """Leave the cluster."""
        self._consumer.close()

    def bounds(self) -> dict[int, Bounds]:
        """Where each partition starts and ends now."""
        partitions = self._partitions()
        starts = self._offsets(partitions, EARLIEST, IsolationLevel.READ_UNCOMMITTED)
        stables = self._offsets(partitions, LATEST, IsolationLevel.READ_COMMITTED)
        ends = self._offsets(partitions, LATEST, IsolationLevel.READ_UNCOMMITTED)
        return {p: Bounds(starts[p], ends[p], stables[p]) for p in partitions}

    def settled_bounds(self) -> dict[int, Bounds]:
        """As `bounds`, once the markers of ended transactions are written: a commit returns before its markers are.

        A transaction that is really open is waited for in vain, for `MARKERS_S`.
        """
        deadline = time.monotonic() + MARKERS_S
        while True:
            bounds = self.bounds()
            if all(b.stable == b.end for b in bounds.values()) or time.monotonic() > deadline:
                return bounds
            time.sleep(WAIT_S)

    def columns(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> dict[int, Column]:
        """All visible records from `starts` to before `ends`, by partition."""
        columns = {p: Column() for p in ends}
        reading = {p for p in ends if starts[p] < ends[p]}
        self._consumer.assign([TopicPartition(self.topic, p, starts[p]) for p in reading])
        paused: list[TopicPartition] = []
        last_progress = time.monotonic()
        while reading:
            messages = self._consumer.consume(READ_AT_ONCE, WAIT_S)
            finished = self._take(messages, columns, ends) & reading
            reading -= finished
            paused += (done := [TopicPartition(self.topic, p) for p in finished])
            self._consumer.pause(done)
            if messages:
                last_progress = time.monotonic()
            elif time.monotonic() - last_progress > self._timeout_s:
                raise self._stuck(f"partitions {sorted(reading)[:10]} gave no record")
        self._consumer.resume(paused)  # a pause would outlive the assignment
        self._consumer.unassign()
        return columns

    def record(self, partition: int, offset: int) -> SeenRecord | None:
        """The visible record at one offset; None if there is none."""
        self._consumer.assign([TopicPartition(self.topic, partition, offset)])
        deadline = time.monotonic() + self._timeout_s
        while time.monotonic() < deadline:
            message = self._consumer.poll(WAIT_S)
            if message is None or (message.error() and not self._at_end(message)):
                continue
            return None if message.error() or message.offset() != offset else seen(message)
        raise self._stuck(f"offset {offset} of partition {partition} gave no answer")

    def _take(self, messages: list[Message], columns: dict[int, Column], ends: Mapping[int, int]) -> set[int]:
        """Add messages to their columns; returns the partitions that have reached their end."""
        finished: set[int] = set()
        kinds = self._timestamp_types
        for message in messages:
            partition: int = message.partition()  # type: ignore[assignment] # None only for errors of no partition
            if message.error():
                if self._at_end(message):
                    finished.add(partition)
                continue
            offset: int = message.offset()  # type: ignore[assignment] # as above
            end = ends[partition]
            if offset >= end - 1:
                finished.add(partition)
            if offset < end:
                column = columns[partition]
                column.offsets.append(offset)
                column.digests.append(_digest(message, kinds=kinds))
        return finished

    def _at_end(self, message: Message) -> bool:
        """Whether an error event says that the end was reached; raises unless it passes by itself."""
        error = message.error()
        if error is None or error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's own codes
            return error is not None
        if error.code() in PASSING or error.retriable():
            return False
        raise BenchFailed(
            f"Reading {self.topic}-{message.partition()} at {self._address} failed at offset "
            f"{message.offset()}: {error}"
        )

    def _partitions(self) -> list[int]:
        metadata = self._patiently(lambda: self._admin.list_topics(self.topic, timeout=REQUEST_TIMEOUT_S))
        topic = metadata.topics[self.topic]
        if topic.error is not None or not topic.partitions:
            raise BenchFailed(f"Topic {self.topic} cannot be read at {self._address}: {topic.error}")
        return sorted(topic.partitions)

    def _offsets(self, partitions: list[int], spec: OffsetSpec, isolation: IsolationLevel) -> dict[int, int]:
        asked = {TopicPartition(self.topic, p): spec for p in partitions}

        def ask() -> dict[int, int]:
            futures = self._admin.list_offsets(asked, isolation_level=isolation, request_timeout=REQUEST_TIMEOUT_S)
            return {tp.partition: future.result().offset for tp, future in futures.items()}

        return self._patiently(ask)

    def _patiently(self, ask: Callable[[], Answer]) -> Answer:
        """Ask again while brokers come and go, within the time limit."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                return ask()
            except KafkaException as error:
                reason: KafkaError = error.args[0]
                passing = reason.code() in PASSING or reason.retriable()
                if not passing or time.monotonic() > deadline:
                    raise self._stuck(str(reason)) from error
            time.sleep(RETRY_S)

    def _stuck(self, what: str) -> BenchFailed:
        return BenchFailed(
            f"Topic {self.topic} at {self._address} could not be read: {what} (limit {self._timeout_s} s)."
        )


def seen(message: Message) -> SeenRecord:
    """A message as values that compare."""
    kind, timestamp_ms = message.timestamp()
    return SeenRecord(kind, timestamp_ms, message.key(), message.value(), _headers(message))


def _headers(message: Message) -> Headers:
    headers = message.headers()
    return tuple(headers) if headers else ()  # type: ignore[arg-type] # librdkafka gives bytes, never str


def _digest(message: Message, *, kinds: bool) -> int:
    """A fingerprint of everything but the offset; bytes only, since small integers hash badly."""
    kind, timestamp_ms = message.timestamp()
    stamp = timestamp_ms.to_bytes(8, "big", signed=True)
    headers = message.headers()
    return hash((kind if kinds else 0, stamp, message.key(), message.value(), tuple(headers) if headers else ()))
