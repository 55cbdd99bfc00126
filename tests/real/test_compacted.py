"""Compacted topics as the broker's own cleaner leaves them: holes of every kind are blanks at the twin."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from tests.real.mirrored_logs import (
    all_batches,
    alter,
    numbered,
    put,
    transactional,
    visible,
    write,
    write_transaction,
)
from tests.real.mirroring import Mirror

from twinlog.control.lifecycle import PartitionState
from twinlog.testing.checker import Anomaly, assert_identical, compare
from twinlog.testing.data import EVERYTHING_ALLOWED, Made
from twinlog.testing.kafka import LocalKafka

WAIT_S = 30.0
KEEP_MS = 86_400_000
COMPACTED = EVERYTHING_ALLOWED | {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0",
    "max.compaction.lag.ms": "100",
}
SMALL_BATCHES = {"batch.num.messages": 100, "linger.ms": 20}


@pytest.fixture(scope="module", autouse=True)
def _eager_cleaner(source: LocalKafka) -> None:
    """Let the source's cleaner look every 0.1 s for something to clean, not every 15 s."""
    entry = ConfigEntry("log.cleaner.backoff.ms", "100", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": source.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(WAIT_S)


@pytest.fixture(scope="module")
def mirror(source: LocalKafka, destination: LocalKafka) -> Iterator[Mirror]:
    """One mirror and its worker for all tests of this file."""
    with Mirror(source, destination) as mirror:
        yield mirror


def mirrored(mirror: Mirror, topic: str) -> int:
    """Start the topic, wait until it is level, compare, and return how many records there are."""
    mirror.start(topic)
    mirror.wait_level(topic)
    return assert_identical(mirror.source, mirror.destination, topic).source_records


def keyed(key: str, count: int, value: bytes | None = b"v") -> list[Made]:
    """Records of one key; only the last of them survives the cleaner."""
    return [Made(key.encode(), value, [])] * count


def roll(kafka: LocalKafka, topic: str, partition: int = 0) -> None:
    """Close the active segment: its time is over, and one more record is appended."""
    time.sleep(0.15)
    write(kafka, topic, [Made(b"roll", b"%d" % time.monotonic_ns(), [])], partition=partition)


def cleaned(mirror: Mirror, topic: str, records: int, partition: int = 0) -> None:
    """Wait until the source's cleaner has left that many visible records."""
    mirror.wait_for(
        lambda: len(visible(mirror.source, topic, partition)) == records,
        lambda: f"{records} records left by the cleaner, not {len(visible(mirror.source, topic, partition))}",
        WAIT_S,
    )


def test_holes_inside_batches_and_between_them(mirror: Mirror, topic: str) -> None:
    """Most records of most batches are gone, and some batches are gone as a whole."""
    mirror.create(topic, config=COMPACTED)
    write(mirror.source, topic, numbered(300, value_bytes=10), **SMALL_BATCHES)
    write(mirror.source, topic, [Made(b"%d" % (n * n % 300), b"v", []) for n in range(3000)], **SMALL_BATCHES)
    roll(mirror.source, topic)
    cleaned(mirror, topic, 301)
    batches = all_batches(mirror, topic, at_source=True)
    assert any(not batch.whole and batch.count > 1 for batch in batches)
    mirrored(mirror, topic)
    mirror.adopt_anew(topic)
    assert mirrored(mirror, topic) == 301


def test_a_hole_of_tens_of_thousands(mirror: Mirror, topic: str) -> None:
    """One key was written 40,000 times: a long run of blanks, in front of a record and behind one."""
    mirror.create(topic, config=COMPACTED)
    write(mirror.source, topic, [*keyed("first", 1), *keyed("often", 40_000), *keyed("last", 1)], **SMALL_BATCHES)
    roll(mirror.source, topic)
    cleaned(mirror, topic, 4)
    assert mirrored(mirror, topic) == 4


def test_batches_without_records_are_blanks(mirror: Mirror, topic: str) -> None:
    """The cleaner keeps a producer's last batch, emptied, so that its sequence is not forgotten."""
    mirror.create(topic, config=COMPACTED)
    write(mirror.source, topic, keyed("a", 10), **{"enable.idempotence": True})
    write(mirror.source, topic, keyed("a", 10), **{"enable.idempotence": True})
    write(mirror.source, topic, keyed("b", 10))
    roll(mirror.source, topic)
    cleaned(mirror, topic, 3)
    assert any(batch.count == 0 for batch in all_batches(mirror, topic, at_source=True))
    assert mirrored(mirror, topic) == 3


def test_tombstones_that_wait_for_their_end_keep_their_times(mirror: Mirror, topic: str) -> None:
    """A batch of tombstones that the cleaner has given a delete horizon (KIP-534), and others it has removed."""
    mirror.create(topic, partitions=2, config=COMPACTED | {"delete.retention.ms": str(KEEP_MS)})
    for partition in range(2):
        write(mirror.source, topic, numbered(100, timestamp_ms=1_000_000), partition=partition)
        dead = [Made(b"%d" % number, None, [], 2_000_000 + number) for number in range(0, 100, 2)]
        write(mirror.source, topic, dead, partition=partition)
        roll(mirror.source, topic, partition)
        cleaned(mirror, topic, 101, partition)
    mirror.wait_for(
        lambda: any(batch.delete_horizon for batch in all_batches(mirror, topic, at_source=True)),
        lambda: "a delete horizon",
        WAIT_S,
    )
    mirrored(mirror, topic)
    mirror.adopt_anew(topic)
    assert mirrored(mirror, topic) == 202


def test_tombstones_and_markers_that_are_gone(mirror: Mirror, topic: str) -> None:
    """Committed and aborted transactions and deletions, cleaned twice: what is left is only what lives."""
    mirror.create(topic, config=COMPACTED | {"delete.retention.ms": "0"})
    for _ in range(3):
        write_transaction(mirror.source, topic, keyed("kept", 5))
        write_transaction(mirror.source, topic, keyed("aborted", 5), commit=False)
        write_transaction(mirror.source, topic, keyed("deleted", 5))
        write(mirror.source, topic, keyed("deleted", 1, None))
    for _ in range(2):
        roll(mirror.source, topic)
        time.sleep(0.3)
    cleaned(mirror, topic, 3)
    assert mirrored(mirror, topic) == 3


def test_an_open_transaction_on_a_compacted_topic(mirror: Mirror, topic: str) -> None:
    """What is behind an open transaction waits; the blanks that the cleaner left in front of it do not."""
    mirror.create(topic, config=COMPACTED)
    write(mirror.source, topic, keyed("a", 200), **SMALL_BATCHES)
    producer = transactional(mirror.source)
    producer.begin_transaction()
    roll(mirror.source, topic)
    cleaned(mirror, topic, 2)
    put(producer, topic, keyed("a", 3))
    write(mirror.source, topic, keyed("b", 3))
    mirror.start(topic)
    mirror.wait_level(topic, until_stable=True)
    assert mirror.ends(topic) == {0: 201}
    producer.commit_transaction(WAIT_S)
    mirror.wait_level(topic)
    assert mirror.ends(topic) == {0: 208}
    assert last_values(mirror.destination, topic) == last_values(mirror.source, topic)


def test_what_the_source_compacts_later_may_stay_at_the_twin(mirror: Mirror, topic: str) -> None:
    """Mirrored first, compacted at the source afterwards: no record is missing, and a restart is no failure."""
    mirror.create(topic, config=COMPACTED | {"min.cleanable.dirty.ratio": "1", "max.compaction.lag.ms": str(KEEP_MS)})
    write(mirror.source, topic, [Made(b"%d" % (n % 50), b"%d" % n, []) for n in range(500)], **SMALL_BATCHES)
    roll(mirror.source, topic)
    assert mirrored(mirror, topic) == 501
    mirror.stop(topic)
    mirror.wait_state(topic, PartitionState.STOPPED)
    alter(mirror.source, topic, {key: COMPACTED[key] for key in ("min.cleanable.dirty.ratio", "max.compaction.lag.ms")})
    roll(mirror.source, topic)
    cleaned(mirror, topic, 52)
    mirror.start(topic)
    mirror.wait_level(topic)
    report = compare(mirror.source, mirror.destination, topic)
    assert set(report.counts) == {Anomaly.EXTRA}
    assert report.destination_records == 502


def test_the_twin_compacts_the_same_keys(mirror: Mirror, topic: str, destination: LocalKafka) -> None:
    """After compaction at the destination, too, the last value of each key is the same on both sides."""
    mirror.create(topic, config=COMPACTED)
    eager = {key: COMPACTED[key] for key in ("segment.ms", "min.cleanable.dirty.ratio", "max.compaction.lag.ms")}
    alter(destination, topic, eager)
    mirror.start(topic)
    for round_ in range(3):
        write(mirror.source, topic, [Made(b"%d" % (n % 50), b"%d" % (n + round_), []) for n in range(500)])
        roll(mirror.source, topic)
        mirror.wait_level(topic)
    assert last_values(mirror.destination, topic) == last_values(mirror.source, topic)
    assert set(mirror.states(topic).values()) == {PartitionState.MIRRORING}


def last_values(kafka: LocalKafka, topic: str) -> dict[bytes | None, tuple[int, bytes | None]]:
    """What a reader that builds state from the topic ends with."""
    return {record.key: (offset, record.value) for offset, record in visible(kafka, topic).items()}
