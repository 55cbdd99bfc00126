"""`--stop --check-lag`: refused with all that is behind, by name, and done once nothing is."""

import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.real.commanding import Commands, Said, on, produce, topic_configs
from tests.real.mirrored_logs import alter, transactional
from tests.real.mirroring import Worker, workers_on
from tests.real.test_group_sync import commit
from tests.real.ways import LEVEL_S, Way

from twinlog.names import TopicPartition
from twinlog.testing.kafka import LocalKafka
from twinlog.wire.ops_groups import committed_offsets

SOON = {"mirror_metadata_refresh_interval_ms": "500"}


@pytest.fixture(scope="module")
def worker(destination: LocalKafka) -> Iterator[Worker]:
    """A worker on the destination."""
    with workers_on(destination) as (worker,):
        yield worker


@pytest.fixture
def way(
    worker: Worker, source: LocalKafka, destination: LocalKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Way:
    """A mirror of its own name."""
    assert worker.alive
    commands = Commands(destination, source, tmp_path, capsys)
    return Way(commands, commands.mirror(**SOON))


def test_what_is_behind_is_refused_by_name_and_a_level_topic_is_promoted(way: Way, topic: str) -> None:
    """Records of a paused topic, a config and a group's offset; then all three follow, and the stop goes through."""
    commands = way.commands
    commands.source.create_topic(topic, 2)
    produce(commands.source, topic, 3)
    way.start(topic)
    on_topic = ("--topics", topic, "--mirror", way.mirror)
    commands.done("--pause", *on_topic)
    produce(commands.source, topic, 7)
    commit(commands.source, f"g-{topic}", topic, 0)
    alter(commands.source, topic, {"retention.ms": "99000000"})
    told = f"lag: {topic}-0 7 offset(s); configs: retention.ms; group offsets: g-{topic}"
    assert told in commands.failure("--stop", "--check-lag", *on_topic)
    said = commands("--stop", "--check-lag", "--dry-run", *on_topic)
    assert said.code == 1
    assert said.out.startswith(f"Would fail: {topic}: ")
    assert told in said.out
    commands.done("--resume", *on_topic)
    said = promoted(way, topic)
    assert f"{topic}-0: last mirrored offset 9, log end 10\n" in said.out
    assert topic_configs(commands.destination, topic)["retention.ms"] == "99000000"
    told_there = on(commands.destination, lambda cluster: committed_offsets(cluster, f"g-{topic}"))
    assert [(where, one.offset) for where, one in told_there.items()] == [(TopicPartition(topic, 0), 0)]
    assert "Already stopped in mirror" in commands.done("--stop", "--check-lag", *on_topic)


def promoted(way: Way, topic: str) -> Said:
    """Ask for the promotion until it is granted."""
    deadline = time.monotonic() + LEVEL_S
    while True:
        said = way.commands("--stop", "--check-lag", "--topics", topic, "--mirror", way.mirror)
        if said.code == 0 or time.monotonic() > deadline:
            assert said.code == 0, said
            return said
        time.sleep(0.3)


def test_one_topic_that_is_behind_keeps_all_of_them_from_being_stopped(way: Way, topic: str) -> None:
    """An open transaction at the source counts, too; the level topic is named, and goes on being mirrored."""
    commands = way.commands
    names = [f"{topic}-a", f"{topic}-b"]
    for name in names:
        commands.source.create_topic(name, 1)
        produce(commands.source, name, 3)
        way.start(name)
    producer = transactional(commands.source)
    producer.begin_transaction()
    producer.produce(names[1], b"undecided", partition=0)
    producer.flush(LEVEL_S)
    refused = commands.refused("--stop", "--check-lag", "--topics", f"{topic}-.*", "--mirror", way.mirror)
    producer.abort_transaction(LEVEL_S)
    assert f"Level, and not stopped, since others are not: [{names[0]}]" in refused
    assert f"Failed to stop topic {names[1]}: " in refused
    assert f"undecided at the source: {names[1]}-0 1 offset(s)" in refused


def test_a_source_that_cannot_be_reached_is_said_and_a_plain_stop_still_works(way: Way, topic: str) -> None:
    """The refusal names the way out."""
    commands = way.commands
    commands.source.create_topic(topic, 1)
    produce(commands.source, topic, 3)
    way.start(topic)
    commands.done("--alter", "--mirror", way.mirror, "--config", "bootstrap.servers=127.0.0.1:1")
    on_topic = ("--topics", topic, "--mirror", way.mirror)
    refused = commands.failure("--stop", "--check-lag", "--timeout", "1", *on_topic)
    assert "127.0.0.1:1" in refused
    assert "A stop without --check-lag works with the source down" in refused
    assert f"{topic}-0: last mirrored offset 2, log end 3" in commands.done("--stop", *on_topic)


def test_what_is_written_between_the_look_and_the_stop_is_told(way: Way, topic: str) -> None:
    """A source whose producers go on is never said to be level, also where the look met it level."""
    commands = way.commands
    commands.source.create_topic(topic, 1)
    way.start(topic)
    ended = threading.Event()

    def go_on() -> None:
        producer = Producer({"bootstrap.servers": commands.source.bootstrap, "linger.ms": 0})
        while not ended.wait(0.05):
            producer.produce(topic, b"v", partition=0)
            producer.flush(LEVEL_S)

    writing = threading.Thread(target=go_on)
    writing.start()
    try:
        deadline, error = time.monotonic() + LEVEL_S, ""
        while "is STOPPED, but its producers went on" not in error:
            assert time.monotonic() < deadline, error
            said = commands("--stop", "--check-lag", "--topics", topic, "--mirror", way.mirror)
            assert said.code == 1, said
            error = said.err
    finally:
        ended.set()
        writing.join(LEVEL_S)
    found = re.search(rf"lag: {re.escape(topic)}-0 (\d+) offset\(s\), which only the source has", error)
    assert found is not None, error
    assert int(found[1]) > 0
    assert "Failed to stop" not in error
    # Who repeats it until it goes through is not told that it did.
    for words in ([], ["--dry-run"]):
        again = commands("--stop", "--check-lag", *words, "--topics", topic, "--mirror", way.mirror)
        assert again.code == 1
        assert f"lag: {topic}-0 " in again.out + again.err
    assert "undecided" not in error
