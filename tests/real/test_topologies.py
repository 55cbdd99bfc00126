"""More than two clusters: a chain, a fan-out of which one then follows the other, and rings, which are refused."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.real.commanding import Commands, topic_info
from tests.real.mirrored_logs import write
from tests.real.mirroring import Worker
from tests.real.ways import RECORDS, Way, assert_verified, mixed

from twinlog.testing.kafka import LocalKafka


@pytest.fixture(scope="module")
def third(destination: LocalKafka) -> Iterator[LocalKafka]:
    """A third cluster; there is a worker on it and on `destination`."""
    with LocalKafka() as kafka:
        workers = [Worker(kafka.bootstrap), Worker(destination.bootstrap)]
        for worker in workers:
            worker.wait_running()
        yield kafka
        for worker in workers:
            assert worker.stop() == 0, worker.log_text(40)


@pytest.fixture
def say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> "Say":
    """Makes a mirror, of a new name, from one cluster to another."""
    return Say(tmp_path, capsys)


class Say:
    """Makes mirrors."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder = folder
        self._capsys = capsys

    def way(self, source: LocalKafka, destination: LocalKafka) -> Way:
        """A new mirror."""
        commands = Commands(destination, source, self._folder, self._capsys)
        return Way(commands, commands.mirror())


def test_a_chain_of_three_clusters_stays_identical(
    say: Say, source: LocalKafka, destination: LocalKafka, third: LocalKafka, topic: str
) -> None:
    """Transactional data goes from the first to the second and from there to the third."""
    source.create_topic(topic, config={"retention.ms": "-1"})
    mixed(source, topic)
    first, second = say.way(source, destination), say.way(destination, third)
    first.start(topic)
    second.start(topic)
    mixed(source, topic)
    first.wait_level(topic)
    second.wait_level(topic)
    assert_verified(source, third, topic)


def test_one_of_two_destinations_follows_the_other(
    say: Say, source: LocalKafka, destination: LocalKafka, third: LocalKafka, topic: str
) -> None:
    """The source is left; what was written to the promoted one reaches the other, whose topic is not made anew."""
    source.create_topic(topic, config={"retention.ms": "-1"})
    mixed(source, topic)
    one, other = say.way(source, destination), say.way(source, third)
    one.start(topic)
    other.start(topic)
    one.stop(topic)
    other.stop(topic)
    write(destination, topic, RECORDS)
    made = topic_info(third, topic).id
    say.way(destination, third).start(topic)
    assert topic_info(third, topic).id == made
    assert_verified(destination, third, topic)


def test_the_destination_that_is_ahead_is_refused_with_what_it_has_more(
    say: Say, source: LocalKafka, destination: LocalKafka, third: LocalKafka, topic: str
) -> None:
    """One destination was stopped early and written to: what the other mirrored since then, it never saw."""
    source.create_topic(topic, config={"retention.ms": "-1"})
    write(source, topic, RECORDS)
    one, other = say.way(source, destination), say.way(source, third)
    one.start(topic)
    other.start(topic)
    one.stop(topic)
    write(source, topic, RECORDS[:7])
    other.wait_level(topic)
    other.stop(topic)
    write(destination, topic, RECORDS[10:40])
    refused = say.way(destination, third).refused(topic)
    assert f"{topic}-0 offsets 50 to 56 (7 committed records)" in refused
