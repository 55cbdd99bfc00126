"""Groups that go on at the destination, seen by real consumers."""

import time
import uuid
from collections.abc import Iterable, Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.real.mirroring import Mirror

from twinlog.control.records import Skipped
from twinlog.names import TopicPartition as At
from twinlog.testing.kafka import LocalKafka
from twinlog.wire.ops_groups import Committed, commit_offsets, committed_offsets

SOON = {"mirror.metadata.refresh.interval.ms": "500"}
WITHIN_S = 20.0
REFRESHES_S = 2.0
"""Several refreshes pass in it."""


def consumer(kafka: LocalKafka, group: str) -> Consumer:
    """A reader of committed records that begins at the group's offset."""
    return Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": group,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
        }
    )


def commit(kafka: LocalKafka, group: str, topic: str, offset: int, note: str = "") -> None:
    """Commit for a group without members."""
    reader = consumer(kafka, group)
    reader.commit(offsets=[TopicPartition(topic, 0, offset, note)], asynchronous=False)
    reader.close()


def fill(kafka: LocalKafka, topic: str) -> None:
    """Committed (0-4, marker 5), aborted (6-10, marker 11), committed (12-16, marker 17)."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(10)
    for turn in range(3):
        producer.begin_transaction()
        for number in range(5):
            producer.produce(topic, value=f"{turn}-{number}".encode(), partition=0)
        producer.flush(10)
        (producer.abort_transaction if turn == 1 else producer.commit_transaction)(10)


@pytest.fixture
def mirror(source: LocalKafka, destination: LocalKafka) -> Iterator[Mirror]:
    """A mirror that refreshes twice a second."""
    with Mirror(source, destination, configs=SOON) as mirror:
        yield mirror


def synced(mirror: Mirror, topic: str, wanted: dict[str, tuple[int, str]]) -> None:
    """Wait until groups have these offsets and notes at the destination."""
    seen: dict[str, object] = {}

    def there() -> bool:
        for group in wanted:
            told = mirror.run(committed_offsets(mirror.clusters[1], group))
            one = next((value for where, value in told.items() if where.topic == topic), None)
            seen[group] = one and (one.offset, one.metadata.rstrip("\0"))  # librdkafka ends notes so
        return seen == wanted

    mirror.wait_for(there, lambda: f"{seen} instead of {wanted}", WITHIN_S)


def skipped(mirror: Mirror) -> Iterable[Skipped]:
    """What the last refresh left alone."""
    record = mirror._image.skipped.get(mirror.name)
    return () if record is None else record.items


def test_a_group_with_an_awkward_name_is_synced(mirror: Mirror, topic: str) -> None:
    """Names that are awkward elsewhere are only names here."""
    group = f"a#b{topic}"
    mirror.create(topic)
    fill(mirror.source, topic)
    mirror.start(topic)
    mirror.wait_level(topic)
    codes = mirror.run(commit_offsets(mirror.clusters[0], group, {At(topic, 0): Committed(3)}))
    assert set(codes.values()) == {0}
    synced(mirror, topic, {group: (3, "")})


def test_a_live_group_and_a_stopped_topic_are_left_alone(mirror: Mirror, topic: str) -> None:
    """The live one is named with the reason; what is committed after the stop stays."""
    mirror.create(topic)
    fill(mirror.source, topic)
    mirror.start(topic)
    mirror.wait_level(topic)
    live, moved = f"live-{topic}", f"moved-{topic}"
    member = consumer(mirror.destination, live)
    member.subscribe([topic])
    deadline = time.monotonic() + WITHIN_S
    while not member.assignment() and time.monotonic() < deadline:
        member.poll(0.2)
    commit(mirror.source, live, topic, 4)
    commit(mirror.source, moved, topic, 3)
    synced(mirror, topic, {moved: (3, "")})

    def named() -> bool:
        member.poll(0)
        return any(one.name == live and "has members" in one.reason for one in skipped(mirror))

    mirror.wait_for(named, lambda: str(skipped(mirror)), WITHIN_S)
    assert mirror.run(committed_offsets(mirror.clusters[1], live)) == {}
    member.close()
    mirror.stop(topic)
    commit(mirror.destination, moved, topic, 12)
    commit(mirror.source, moved, topic, 6)
    time.sleep(REFRESHES_S)
    synced(mirror, topic, {moved: (12, "")})
