"""A mirror that was told where to begin: the twin starts there, at the source's own offsets."""

import asyncio
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.real.commanding import Commands, rows
from tests.real.mirrored_logs import delete_records, numbered, write
from tests.real.mirroring import Mirror

from twinlog.admin.starts import chosen_starts
from twinlog.batch.blank import MAX_FILLER, filler_batch
from twinlog.config.client import ClientSettings
from twinlog.names import TopicPartition as Tp
from twinlog.testing.checker import Anomaly, compare
from twinlog.testing.kafka import LocalKafka
from twinlog.testing.reader import TopicReader
from twinlog.verify.report import Outcome
from twinlog.verify.run import Question, verify
from twinlog.wire.ops import produce_batch

pytestmark = pytest.mark.timed


@pytest.fixture(scope="module")
def mirror(source: LocalKafka, destination: LocalKafka) -> Iterator[Mirror]:
    """One mirror and its worker for all tests of this file."""
    with Mirror(source, destination) as mirror:
        yield mirror


def starts(kafka: LocalKafka, topic: str) -> list[int]:
    """Each partition's log start."""
    reader = TopicReader(kafka, topic)
    try:
        return [at.start for at in reader.bounds().values()]
    finally:
        reader.close()


def test_only_what_comes_from_the_chosen_offset_on_is_copied(mirror: Mirror, topic: str) -> None:
    """Partitions begin at 60, at the end and, none being chosen, at 0; a later owner and an emptied source agree."""
    mirror.create(topic, partitions=3)
    for partition in range(3):
        write(mirror.source, topic, numbered(100), partition=partition)
    mirror.start(topic, start_offsets=(60, 100))
    mirror.wait_level(topic)
    assert starts(mirror.destination, topic) == [60, 100, 0]
    write(mirror.source, topic, numbered(10), partition=1)
    mirror.wait_level(topic)
    mirror.workers[0].kill()
    mirror.start_worker()
    write(mirror.source, topic, numbered(10))
    mirror.wait_level(topic)
    assert starts(mirror.destination, topic) == [60, 100, 0]
    report = compare(mirror.source, mirror.destination, topic)
    assert set(report.counts) == {Anomaly.LOST, Anomaly.START}
    assert (report.counts[Anomaly.LOST], report.destination_records) == (60 + 100, 50 + 10 + 100)
    sides = [
        ClientSettings.from_properties({}, bootstrap=side.bootstrap) for side in (mirror.source, mirror.destination)
    ]
    verified = asyncio.run(verify(Question(sides[0], sides[1], topic, starts=chosen_starts)))
    assert (verified.outcome, verified.records) == (Outcome.IDENTICAL, 50 + 10 + 100)
    assert verified.partitions[0].notes == ["the mirror was told to begin at 60: offsets 0 to 59 are not compared"]
    assert asyncio.run(verify(Question(sides[0], sides[1], topic))).outcome is Outcome.DIFFERENT
    delete_records(mirror.source, topic, {0: 110})
    mirror.wait_for(
        lambda: starts(mirror.destination, topic)[0] == 110, lambda: str(starts(mirror.destination, topic)), 20.0
    )
    assert starts(mirror.destination, topic) == [110, 100, 0]


def test_twenty_million_offsets_are_skipped_with_progress(mirror: Mirror, topic: str) -> None:
    """What lies before costs seconds, the figures show how far it is, and the record behind it has its own offset."""
    start = 20 * MAX_FILLER
    mirror.create(topic)
    for first in range(0, start, MAX_FILLER):
        batch = filler_batch(
            MAX_FILLER, producer_id=-1, epoch=-1, sequence=-1, transactional=False, timestamp_ms=0, key=b"k"
        )
        found = mirror.run(produce_batch(mirror.clusters[0], Tp(topic, 0), batch.header + bytes(batch.body)))
        assert (found.error, found.base_offset) == (0, first)
    write(mirror.source, topic, numbered(5))
    mirror.start(topic, start_offsets=(start,))
    mirror.wait_figure(topic, lambda figure: 0 < figure.destination_end < start, timeout_s=30.0)
    mirror.wait_level(topic)
    assert starts(mirror.destination, topic) == [start]


@pytest.fixture
def commands(mirror: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Commands:
    """Commands to the destination that the worker of this file serves."""
    return Commands(mirror.destination, mirror.source, tmp_path, capsys)


def wait_begun(commands: Commands, name: str, wanted: Mapping[str, int]) -> None:
    """Wait until all these topics are MIRRORING, each from its offset on."""
    deadline = time.monotonic() + 40.0
    while True:
        states = {row[1]: row[-1] for row in rows(commands.done("--describe", "--mirror", name))}
        if all(state == "MIRRORING" for state in states.values()) and states.keys() == wanted.keys():
            break
        assert time.monotonic() < deadline, states
        time.sleep(0.3)
    assert {topic: starts(commands.destination, topic)[0] for topic in wanted} == wanted


def test_discovery_begins_at_the_end_of_what_was_there_and_at_the_beginning_of_what_was_not(
    mirror: Mirror, commands: Commands
) -> None:
    """Through new patterns and a change of the worker, and whatever times the records of a later topic have."""
    source, base = mirror.source, f"d{time.time_ns()}"

    def made(name: str, records: int) -> str:
        source.create_topic(f"{base}-{name}", config={"retention.ms": "-1"})
        write(source, f"{base}-{name}", numbered(records, timestamp_ms=1_600_000_000_000))
        return f"{base}-{name}"

    there, other = made("a-there", 10), made("b-there", 7)
    name = commands.mirror(
        mirror_start_offset_spec="latest",
        mirror_topics_include=f"{base}-a.*",
        mirror_metadata_refresh_interval_ms="500",
    )
    wait_begun(commands, name, {there: 10})
    later = made("a-later", 5)
    wait_begun(commands, name, {there: 10, later: 0})
    mirror.workers[-1].stop()
    unseen = made("a-unseen", 4)
    commands.done("--alter", "--mirror", name, "--config", f"mirror.topics.include=[{base}-a.*,{base}-b.*]")
    mirror.start_worker()
    wait_begun(commands, name, {there: 10, later: 0, unseen: 0, other: 7})
    last = made("b-later", 3)
    wait_begun(commands, name, {there: 10, later: 0, unseen: 0, other: 7, last: 0})
    for topic in (later, unseen, last):
        mirror.wait_for(lambda: compare(source, mirror.destination, topic).identical, lambda: topic, 20.0)  # noqa: B023
    commands.done("--stop", "--topics", f"{base}.*", "--mirror", name)
    commands.done("--delete", "--mirror", name)


def test_a_time_is_followed_where_it_can_be_and_a_later_topic_is_whole(mirror: Mirror, commands: Commands) -> None:
    """A topic that is born later has records from before that time: they are no reason to leave any of it out."""
    source, base, middle = mirror.source, f"t{time.time_ns()}", 1_700_000_000_000
    there, later = f"{base}-there", f"{base}-later"
    source.create_topic(there, config={"retention.ms": "-1"})
    write(source, there, numbered(10, timestamp_ms=middle - 100_000))
    write(source, there, numbered(5, timestamp_ms=middle + 1_000))
    name = commands.mirror(
        mirror_start_offset_spec=str(middle),
        mirror_topics_include=f"{base}.*",
        mirror_metadata_refresh_interval_ms="500",
    )
    wait_begun(commands, name, {there: 10})
    source.create_topic(later, config={"retention.ms": "-1"})
    write(source, later, numbered(6, timestamp_ms=middle - 100_000))
    write(source, later, numbered(2, timestamp_ms=middle + 1_000))
    wait_begun(commands, name, {there: 10, later: 0})
    mirror.wait_for(lambda: compare(source, mirror.destination, later).identical, lambda: later, 20.0)
    commands.done("--stop", "--topics", f"{base}.*", "--mirror", name)
    commands.done("--delete", "--mirror", name)
