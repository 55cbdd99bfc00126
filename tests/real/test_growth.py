"""Topics that change under a running mirror: they grow, get other configs, or are deleted; the worker follows."""

from collections.abc import Iterator

import pytest
from tests.real.commanding import produce
from tests.real.mirroring import Mirror

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
