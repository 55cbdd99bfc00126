"""A destination topic that somebody has changed, and configs that were taken away at the source."""

from collections.abc import Callable, Iterator

import pytest
from tests.real.mirrored_logs import alter, config_of, delete_records, numbered, visible, write
from tests.real.mirroring import Mirror

from twinlog.control.lifecycle import PartitionState
from twinlog.testing.checker import assert_identical
from twinlog.testing.data import EVERYTHING_ALLOWED
from twinlog.testing.kafka import LocalKafka
from twinlog.wire.ops import alter_configs, create_partitions, delete_topics

CONFIGS = {
    "mirror.metadata.refresh.interval.ms": "1000",
    "mirror.configs.sync.removals": "true",
    "mirror.num.replica.fetchers": "3",
    "mirror.socket.receive.buffer.bytes": "1048576",
}
WITHIN_S = 20.0
PARTITIONS = 4


@pytest.fixture(scope="module")
def mirror(source: LocalKafka, destination: LocalKafka) -> Iterator[Mirror]:
    """One mirror and its worker for all tests of this file; three fetchers share its partitions."""
    with Mirror(source, destination, configs=CONFIGS) as mirror:
        yield mirror


def mirrored(mirror: Mirror, topic: str, **configs: str) -> None:
    """A topic of some partitions, level on both sides."""
    named = {key.replace("_", "."): value for key, value in configs.items()}
    mirror.create(topic, partitions=PARTITIONS, config={**EVERYTHING_ALLOWED, **named})
    for partition in range(PARTITIONS):
        write(mirror.source, topic, numbered(10 + partition), partition=partition)
    mirror.start(topic)
    mirror.wait_level(topic)


def wait_configs(mirror: Mirror, topic: str, what: Callable[[dict[str, str | None]], bool]) -> None:
    """Wait for a refresh that has done it."""
    mirror.wait_for(
        lambda: what(config_of(mirror.destination, topic)), lambda: f"{config_of(mirror.destination, topic)}", WITHIN_S
    )


def states(mirror: Mirror, topic: str) -> list[PartitionState | None]:
    """Of all partitions there will be; none of one that is about to be tried again."""
    records = [mirror.partition(topic, number) for number in range(PARTITIONS + 1)]
    return [None if record is None or record.error else record.state for record in records]


def test_a_config_removed_at_the_source_goes_back_to_its_default(mirror: Mirror, topic: str) -> None:
    """So does one that was set by hand; what a twin needs, and what is excluded, stays."""
    mirrored(mirror, topic, flush_messages="77", segment_index_bytes="1000000")
    alter(mirror.destination, topic, {"min.insync.replicas": "1", "delete.retention.ms": "5"})
    mirror.run(alter_configs(mirror.clusters[0], "topic", topic, delete=["flush.messages", "retention.ms"]))
    wait_configs(mirror, topic, lambda configs: configs["delete.retention.ms"] == "86400000")
    wait_configs(mirror, topic, lambda configs: configs["flush.messages"] == str(2**63 - 1))
    now = config_of(mirror.destination, topic)
    assert now["retention.ms"] == "-1"
    kept = ("compression.type", "message.timestamp.type", "segment.index.bytes", "message.timestamp.before.max.ms")
    assert [now[name] for name in kept] == ["producer", "CreateTime", "1000000", str(2**63 - 1)]
    assert_identical(mirror.source, mirror.destination, topic)


def test_a_config_altered_at_the_destination_is_put_right(mirror: Mirror, topic: str) -> None:
    """One that would make the twin another is set again at the next refresh."""
    mirrored(mirror, topic, retention_ms="123456789")
    alter(mirror.destination, topic, {"compression.type": "gzip", "retention.ms": "1"})
    wait_configs(mirror, topic, lambda configs: configs["compression.type"] == "producer")
    assert config_of(mirror.destination, topic)["retention.ms"] == "123456789"


def test_partitions_added_at_the_destination_fail_the_topic(mirror: Mirror, topic: str) -> None:
    """Without a takeover of anything; given as many at the source, all of it goes on by itself."""
    mirrored(mirror, topic)
    mirror.run(create_partitions(mirror.clusters[1], topic, PARTITIONS + 1))
    error = mirror.wait_failed(topic, 0, timeout_s=WITHIN_S)
    assert f"{PARTITIONS + 1} partitions, the source topic {PARTITIONS}: somebody added some by hand" in error
    for partition in range(PARTITIONS):
        mirror.wait_state(topic, PartitionState.FAILED, partition, timeout_s=WITHIN_S)
    write(mirror.source, topic, numbered(5))
    mirror.run(create_partitions(mirror.clusters[0], topic, PARTITIONS + 1))
    goes_on = [PartitionState.MIRRORING] * (PARTITIONS + 1)
    mirror.wait_for(lambda: states(mirror, topic) == goes_on, lambda: f"{mirror.states(topic)}", 30)
    mirror.wait_level(topic)
    assert_identical(mirror.source, mirror.destination, topic)


def test_a_topic_made_anew_with_logs_as_long_fails_and_keeps_its_records(mirror: Mirror, topic: str) -> None:
    """Its ends are where they should be, and only its id tells; what the source has deleted is not deleted from it."""
    mirrored(mirror, topic)
    delete_records(mirror.source, topic, {0: 5})
    mirror.run(delete_topics(mirror.clusters[1], [topic]))
    mirror.destination.create_topic(topic, partitions=PARTITIONS, config=EVERYTHING_ALLOWED)
    for partition in range(PARTITIONS):
        write(mirror.destination, topic, numbered(10 + partition, seed=7), partition=partition)
    mirror.wait_state(topic, PartitionState.FAILED, timeout_s=WITHIN_S)
    record = mirror.partition(topic, 0)
    assert record is not None
    assert "the destination topic was deleted and created again" in record.error
    assert list(visible(mirror.destination, topic)) == list(range(10))
