"""A mirror that was told where to begin: the twin starts there, at the source's own offsets."""

import asyncio
from collections.abc import Iterator

import pytest
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
