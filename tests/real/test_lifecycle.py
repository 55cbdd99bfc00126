"""What an operator's commands and lasting trouble make of a mirror that a worker runs: retry, recover, pause, stop."""

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.real.mirrored_logs import delete_records, numbered, write
from tests.real.mirroring import Mirror

from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import NEVER_RETRY, TopicRecord
from twinlog.testing.checker import assert_identical
from twinlog.testing.kafka import LocalKafka
from twinlog.wire.ops import delete_topics

pytestmark = pytest.mark.timed

REFRESH = {"mirror.metadata.refresh.interval.ms": "1000"}
STOPPED_WITHIN_S = 5.0
MANY = 60


@pytest.fixture(scope="module")
def mirror(source: LocalKafka, destination: LocalKafka) -> Iterator[Mirror]:
    """One mirror and its worker for all tests of this file."""
    with Mirror(source, destination, configs=REFRESH) as mirror:
        yield mirror


def mirrored(mirror: Mirror, topic: str, records: int = 10) -> None:
    """A topic of one partition, level on both sides."""
    mirror.create(topic)
    write(mirror.source, topic, numbered(records))
    mirror.start(topic)
    mirror.wait_level(topic)


def topic_record(mirror: Mirror, topic: str) -> TopicRecord:
    """What is stored of the topic."""
    record = mirror._image.topic(mirror.name, topic)
    assert record is not None
    return record


def desire(mirror: Mirror, topic: str, desired: DesiredState) -> None:
    """Ask as a command does, whatever the clusters say just now."""
    mirror.put(replace(topic_record(mirror, topic), desired=desired))


def recover(mirror: Mirror, topic: str) -> None:
    """Ask for another try, as the command does."""
    record = topic_record(mirror, topic)
    mirror.put(replace(record, recoveries=record.recoveries + 1))


def test_recover_goes_on_behind_what_retention_took(mirror: Mirror, topic: str) -> None:
    """First FAILED with what is lost; then the log starts where the source's does, at the source's offsets."""
    mirrored(mirror, topic)
    desire(mirror, topic, DesiredState.PAUSED)
    mirror.wait_state(topic, PartitionState.PAUSED)
    write(mirror.source, topic, numbered(90))
    delete_records(mirror.source, topic, {0: 50})
    desire(mirror, topic, DesiredState.MIRRORING)
    error = mirror.wait_failed(topic)
    assert "wants offset 10, the source now starts at 50: 40 offsets" in error
    assert "--recover" in error
    assert mirror.ends(topic) == {0: 10}
    recover(mirror, topic)
    mirror.wait_for(lambda: mirror.ends(topic) == {0: 100}, lambda: f"{mirror.partition(topic)}", 20)
    mirror.wait_level(topic)
    assert assert_identical(mirror.source, mirror.destination, topic).source_records == 50
    record = mirror.partition(topic)
    assert record is not None
    assert (record.recoveries, record.retry_attempt, record.error) == (1, 0, "")


def test_recover_writes_nothing_where_it_cannot_help(mirror: Mirror, topic: str) -> None:
    """A recreated source topic: the same reason again, both ids in it, and the twin is untouched."""
    mirrored(mirror, topic)
    before = topic_record(mirror, topic).source_topic_id
    mirror.run(delete_topics(mirror.clusters[0], [topic]))
    time.sleep(0.5)
    mirror.source.create_topic(topic)
    after = mirror.run(mirror.clusters[0].topics([topic]))[topic].id
    error = mirror.wait_failed(topic)
    assert str(before) in error
    assert str(after) in error
    recover(mirror, topic)
    mirror.wait_for(lambda: _recoveries(mirror, topic) == 1, lambda: "the recover is answered", 20)
    assert mirror.wait_failed(topic) == error
    assert mirror.ends(topic) == {0: 10}


def _recoveries(mirror: Mirror, topic: str) -> int:
    record = mirror.partition(topic)
    return -1 if record is None else record.recoveries


def test_a_deleted_source_topic_is_said_and_can_be_stopped(mirror: Mirror, topic: str) -> None:
    """Never retried, with the message of the KIP; stop leaves a twin that ends where it did."""
    mirrored(mirror, topic)
    mirror.run(delete_topics(mirror.clusters[0], [topic]))
    assert mirror.wait_failed(topic) == "The source topic is deleted."
    record = mirror.partition(topic)
    assert record is not None
    assert record.retry_attempt == NEVER_RETRY
    desire(mirror, topic, DesiredState.STOPPED)
    mirror.wait_state(topic, PartitionState.STOPPED, timeout_s=STOPPED_WITHIN_S)
    record = mirror.partition(topic)
    assert record is not None
    assert record.last_mirrored_offset == 10


def test_nothing_is_appended_behind_paused(mirror: Mirror, topic: str) -> None:
    """While records keep coming: the end stays where it was when PAUSED was stored, and resume goes on from there."""
    mirrored(mirror, topic)
    for _ in range(5):
        write(mirror.source, topic, numbered(2000))
    desire(mirror, topic, DesiredState.PAUSED)
    mirror.wait_state(topic, PartitionState.PAUSED, timeout_s=STOPPED_WITHIN_S)
    ends = mirror.ends(topic)
    record = mirror.partition(topic)
    assert record is not None
    assert ends == {0: record.last_mirrored_offset}
    write(mirror.source, topic, numbered(100))
    time.sleep(1.5)
    assert mirror.ends(topic) == ends
    desire(mirror, topic, DesiredState.MIRRORING)
    mirror.wait_for(lambda: mirror.ends(topic) == {0: 10_110}, lambda: f"{mirror.ends(topic)}", 20)
    mirror.wait_level(topic)
    assert assert_identical(mirror.source, mirror.destination, topic).source_records == 10_110


def test_a_destination_topic_with_more_partitions_is_failed(mirror: Mirror, topic: str) -> None:
    """Both counts are named at the next takeover, and nothing is written to any."""
    mirror.create(topic)
    write(mirror.source, topic, numbered(10))
    mirror.delete_at_destination(topic)
    mirror.create_at_destination(topic, partitions=3)
    there, here = [mirror.run(cluster.topics([topic]))[topic] for cluster in mirror.clusters]
    mirror.put(TopicRecord(mirror.name, topic, DesiredState.MIRRORING, there.id, here.id, 1))
    error = mirror.wait_failed(topic)
    assert "destination topic has 3 partitions, the source topic 1" in error
    assert mirror.ends(topic) == {0: 0, 1: 0, 2: 0}


@pytest.mark.timeout(180)
def test_many_partitions_stop_in_time_with_the_source_down(destination: LocalKafka, topic: str) -> None:
    """Each ends at its last mirrored offset, within seconds of the command."""
    with LocalKafka() as own, Mirror(own, destination, configs=REFRESH) as mirror:
        mirror.create(topic, partitions=MANY)
        write(own, topic, numbered(10))
        mirror.start(topic)
        mirror.wait_for(lambda: _count(mirror, topic, PartitionState.MIRRORING) == MANY, lambda: "all mirror", 60)
        mirror.wait_for(lambda: mirror.ends(topic)[0] == 10, lambda: "all is copied", 20)
        own[1].kill()
        time.sleep(3.0)
        began = time.monotonic()
        desire(mirror, topic, DesiredState.STOPPED)
        mirror.wait_for(lambda: _count(mirror, topic, PartitionState.STOPPED) == MANY, lambda: "all stopped", 20)
        took_s = time.monotonic() - began
        print(f"{MANY} partitions were stopped within {took_s:.1f} s")
        assert took_s < STOPPED_WITHIN_S
        record = mirror.partition(topic)
        assert record is not None
        assert record.last_mirrored_offset == 10


def _count(mirror: Mirror, topic: str, state: PartitionState) -> int:
    return list(mirror.states(topic).values()).count(state)
