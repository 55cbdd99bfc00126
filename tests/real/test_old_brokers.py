"""Sources and destinations of other Kafka releases: what works between them, and what says that it cannot.

All pairs are in the soak tests; here are the oldest source that works and the oldest destination with KRaft.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from tests.real.commanding import READY_S, Commands
from tests.real.matrix import EAGER_CLEANER, make_cleaner_eager, mirror_by_commands, run_matrix
from tests.real.mirrored_logs import numbered, write
from tests.real.mirroring import Mirror

from twinlog.cli import twinlog
from twinlog.control.lifecycle import PartitionState
from twinlog.testing.kafka import LocalKafka

OLDEST_SOURCE = "1.1.1"
OLDER = "1.0.2"
OLDEST_DESTINATION = "3.3.2"


@pytest.fixture(scope="module")
def oldest() -> Iterator[LocalKafka]:
    """The oldest release that can be mirrored from, with ZooKeeper."""
    with LocalKafka(version=OLDEST_SOURCE, config=EAGER_CLEANER) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def older() -> Iterator[LocalKafka]:
    """The release before that."""
    with LocalKafka(version=OLDER) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def first_kraft() -> Iterator[LocalKafka]:
    """The oldest destination that is promised to work."""
    with LocalKafka(version=OLDEST_DESTINATION) as kafka:
        yield kafka


def create(commands: Commands) -> tuple[int, str]:
    """Create a mirror; returns the exit code and what stood on stderr."""
    config = commands.file(f"bootstrap.servers={commands.source.bootstrap}\n")
    said = commands("--create", "--mirror", "m", "--mirror-config", config)
    return said.code, said.err


def make_anew(kafka: LocalKafka, topic: str) -> None:
    """Delete a topic, and create it again as soon as its name is free."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_topics([topic])[topic].result(READY_S)
    deadline = time.monotonic() + READY_S
    while not _created(kafka, topic):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _created(kafka: LocalKafka, topic: str) -> bool:
    try:
        kafka.create_topic(topic)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        raise
    return True


def worker(destination: LocalKafka) -> "subprocess.CompletedProcess[str]":
    """Run a worker to its end."""
    return subprocess.run(
        [sys.executable, "-m", "twinlog", "worker", "--bootstrap-server", destination.bootstrap],
        capture_output=True,
        text=True,
        timeout=READY_S,
        check=False,
    )


@pytest.mark.timeout(240)
def test_the_oldest_source_is_mirrored_exactly(oldest: LocalKafka, destination: LocalKafka, topic: str) -> None:
    """All kinds of content of a source without topic ids and leader epochs, into a destination of today."""
    with Mirror(oldest, destination) as mirror:
        records = run_matrix(mirror, topic)
    assert min(records.values()) > 0


@pytest.mark.soak
@pytest.mark.timeout(240)
def test_a_destination_of_the_first_kraft_release_holds_all(
    source: LocalKafka, first_kraft: LocalKafka, topic: str
) -> None:
    """All kinds of content of a source of today."""
    make_cleaner_eager(source)
    with Mirror(source, first_kraft) as mirror:
        records = run_matrix(mirror, topic)
    assert min(records.values()) > 0


def test_the_commands_mirror_and_verify_an_old_source(
    oldest: LocalKafka,
    destination: LocalKafka,
    topic: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Create, start (which makes the twin after the source's configs), mirror, and `verify` finds them identical."""
    with Mirror(oldest, destination) as mirror:
        assert "identical" in mirror_by_commands(Commands(destination, oldest, tmp_path, capsys), mirror, topic)


def test_a_topic_made_anew_while_its_mirror_was_stopped(
    oldest: LocalKafka, destination: LocalKafka, topic: str
) -> None:
    """Without topic ids its records tell: started again it is FAILED, and nothing of the new topic is written."""
    with Mirror(oldest, destination) as mirror:
        mirror.create(topic)
        write(oldest, topic, numbered(10))
        mirror.start(topic)
        mirror.wait_level(topic)
        mirror.stop(topic)
        mirror.wait_state(topic, PartitionState.STOPPED)
        make_anew(oldest, topic)
        write(oldest, topic, numbered(20, seed=2))
        mirror.start(topic)
        error = mirror.wait_failed(topic)
        assert mirror.ends(topic) == {0: 10}
    assert "differ" in error


def test_a_source_that_is_too_old_says_so(
    older: LocalKafka, destination: LocalKafka, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--create` and `verify` name the broker, the request, both versions and the release to use."""
    said = "is too old: it offers versions 0 to 0 of DescribeConfigs, and version 1 is needed"
    code, err = create(Commands(destination, older, tmp_path, capsys))
    assert code == 1
    assert f"source broker {older.bootstrap} {said}" in err
    assert "Use brokers of Kafka 1.1 or newer." in err
    for side in (older, destination):
        side.create_topic(topic)
    sides = ("--source", older.bootstrap, "--destination", destination.bootstrap)
    assert twinlog.main(["verify", *sides, "--topic", topic]) not in {0, 1}
    assert said in capsys.readouterr().err


def test_a_destination_that_is_too_old_says_so(
    source: LocalKafka, oldest: LocalKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commands and the worker refuse it at once, and nothing is created there."""
    commands = Commands(oldest, source, tmp_path, capsys)
    said = f"destination broker {oldest.bootstrap} is too old: it offers versions"
    code, err = create(commands)
    assert code == 1
    assert said in err
    assert said in commands("--list").err
    ended = worker(oldest)
    assert ended.returncode != 0
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
