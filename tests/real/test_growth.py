"""Topics that change under a mirror, or while it is stopped: they grow, get other configs, or are deleted."""

import time
from collections.abc import Iterator

import pytest
from tests.real.commanding import on, produce, topic_info
from tests.real.mirrored_logs import write
from tests.real.mirroring import Mirror
from tests.real.ways import RECORDS, Way

from twinlog.testing.checker import compare
from twinlog.testing.kafka import LocalKafka
from twinlog.wire.ops import alter_configs, create_partitions, delete_topics, describe_configs

SOON = {"mirror.metadata.refresh.interval.ms": "500"}
WITHIN_S = 30.0


@pytest.fixture
def mirror(source: LocalKafka, destination: LocalKafka) -> Iterator[Mirror]:
    """A mirror that refreshes twice a second."""
    with Mirror(source, destination, configs=SOON) as mirror:
        yield mirror


def reasons(mirror: Mirror, name: str) -> str:
    """Why the last refresh left `name` alone."""
    record = mirror._image.skipped.get(mirror.name)
    return "" if record is None else "; ".join(one.reason for one in record.items if one.name == name)


def wait_identical(source: LocalKafka, destination: LocalKafka, topic: str) -> None:
    """Wait until the independent checker finds no difference."""
    deadline = time.monotonic() + WITHIN_S
    while (report := compare(source, destination, topic)).counts:
        assert time.monotonic() < deadline, str(report)
        time.sleep(0.5)


def test_a_topic_that_grows_at_the_source_grows_at_the_destination(mirror: Mirror, topic: str) -> None:
    """The new partitions are mirrored from their own beginning."""
    mirror.create(topic)
    produce(mirror.source, topic, 5)
    mirror.start(topic)
    mirror.wait_level(topic)
    mirror.run(create_partitions(mirror.clusters[0], topic, 3))
    mirror.wait_for(lambda: len(mirror.states(topic)) == 3, lambda: str(mirror.states(topic)), WITHIN_S)
    produce(mirror.source, topic, 7, partition=2)
    mirror.wait_level(topic)
    assert mirror.ends(topic) == {0: 5, 1: 0, 2: 7}


def test_configs_follow_and_what_was_altered_by_hand_is_put_right(mirror: Mirror, topic: str) -> None:
    """What a twin needs is put right, too; what the destination alone has stays."""
    mirror.create(topic)
    mirror.start(topic)
    mirror.wait_level(topic)
    mirror.run(alter_configs(mirror.clusters[0], "topic", topic, set_to={"max.compaction.lag.ms": "123456"}))
    by_hand = {"compression.type": "gzip", "index.interval.bytes": "8192"}
    mirror.run(alter_configs(mirror.clusters[1], "topic", topic, set_to=by_hand))
    wanted = {"max.compaction.lag.ms": "123456", "compression.type": "producer", "index.interval.bytes": "8192"}

    def told() -> dict[str, str | None]:
        entries = mirror.run(describe_configs(mirror.clusters[1], "topic", [topic], keys=wanted))[topic]
        return {name: entry.value for name, entry in entries.items()}

    mirror.wait_for(lambda: told() == wanted, lambda: str(told()), WITHIN_S)
    assert told() == wanted


def test_a_topic_deleted_at_the_source_is_named(mirror: Mirror, topic: str) -> None:
    """The destination's is kept."""
    mirror.create(topic)
    mirror.start(topic)
    mirror.wait_level(topic)
    mirror.run(delete_topics(mirror.clusters[0], [topic]))
    mirror.wait_for(
        lambda: reasons(mirror, topic) == "The source topic is deleted.", lambda: reasons(mirror, topic), WITHIN_S
    )
    assert set(mirror.ends(topic)) == {0}


def test_partitions_added_by_hand_are_named(mirror: Mirror, topic: str) -> None:
    """They cannot be taken away, so the operator is told."""
    mirror.create(topic)
    mirror.start(topic)
    mirror.wait_level(topic)
    mirror.run(create_partitions(mirror.clusters[1], topic, 2))
    mirror.wait_for(lambda: "by hand" in reasons(mirror, topic), lambda: reasons(mirror, topic), WITHIN_S)
    assert set(mirror.states(topic)) == {0}


def test_a_topic_that_grew_while_it_was_stopped_grows_with_the_start(ways: tuple[Way, Way], topic: str) -> None:
    """A dry run says what would be added and adds nothing; a destination that is larger than its source is refused."""
    way, _ = ways
    source, destination = way.commands.source, way.commands.destination
    source.create_topic(topic, 2)
    for partition in range(2):
        write(source, topic, RECORDS[:10], partition=partition)
    way.start(topic)
    way.stop(topic)
    on(source, lambda cluster: create_partitions(cluster, topic, 4))
    for partition in range(4):
        write(source, topic, RECORDS[10 : 20 + partition], partition=partition)
    start = ("--start", "--mirror", way.mirror, "--topics", topic)
    said = way.commands(*start, "--dry-run")
    grown = f"Topic '{topic}' has 4 partitions at the source and 2 at the destination: partitions 2 to 3"
    assert said.code == 0
    assert f"{grown} would be added there, to be mirrored from their own beginning." in said.out + said.err
    assert len(topic_info(destination, topic).partitions) == 2
    said = way.commands(*start)
    assert (said.code, f"{grown} were added there" in said.out + said.err) == (0, True)
    wait_identical(source, destination, topic)
    way.stop(topic)
    on(destination, lambda cluster: create_partitions(cluster, topic, 5))
    assert "4 partitions at the source and 5 at the destination" in way.refused(topic)
    on(destination, lambda cluster: delete_topics(cluster, [topic]))


def test_a_topic_of_somebody_elses_is_not_made_larger(ways: tuple[Way, Way], topic: str) -> None:
    """It holds records of which nobody has recorded that they are the source's; an empty one is as good as none."""
    way, _ = ways
    source, destination = way.commands.source, way.commands.destination
    source.create_topic(topic, 3)
    write(source, topic, RECORDS[:10])
    destination.create_topic(topic, 1)
    write(destination, topic, RECORDS[:1])
    said = way.refused(topic)
    assert "3 partitions at the source and 1 at the destination" in said
    assert "left as it is" in said
    assert len(topic_info(destination, topic).partitions) == 1
    source.create_topic(f"{topic}-empty", 3)
    destination.create_topic(f"{topic}-empty", 1)
    way.start(f"{topic}-empty")
    assert len(topic_info(destination, f"{topic}-empty").partitions) == 3
