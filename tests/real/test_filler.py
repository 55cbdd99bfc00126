"""Filler below a log's start: no reader meets it, neither while it is written nor where its deletion is forgotten."""

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.real.faults import FaultyMirror
from tests.real.mirrored_logs import delete_records, numbered, write
from tests.real.mirroring import Mirror

from twinlog.batch.blank import MAX_FILLER, filler_batch
from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.names import TopicPartition as Tp
from twinlog.relay.prefix import MOST_A_RUN
from twinlog.testing.checker import assert_identical
from twinlog.testing.errors import BenchFailed
from twinlog.testing.kafka import LocalKafka
from twinlog.testing.reader import Bounds, TopicReader
from twinlog.wire.ops import produce_batch

# A command that comes in the first run ends it in the middle.
START = MOST_A_RUN + MAX_FILLER


@pytest.fixture(scope="module")
def mirror(source: LocalKafka, destination: LocalKafka) -> Iterator[FaultyMirror]:
    """One mirror and its worker for all tests of this file."""
    with FaultyMirror(source, destination) as mirror:
        yield mirror


def bounds(kafka: LocalKafka, topic: str) -> Bounds:
    """Partition 0's bounds, as a consumer is told them."""
    reader = TopicReader(kafka, topic)
    try:
        return reader.bounds()[0]
    finally:
        reader.close()


def overtaken(mirror: Mirror, topic: str, *, records: int) -> None:
    """Let the source start at START, with a few records behind."""
    at = mirror.ends(topic, at_source=True)[0]
    while at < START:
        count = min(MAX_FILLER, START - at)
        batch = filler_batch(count, producer_id=-1, epoch=-1, sequence=-1, transactional=False, timestamp_ms=0)
        found = mirror.run(produce_batch(mirror.clusters[0], Tp(topic, 0), batch.header + bytes(batch.body)))
        assert (found.error, found.base_offset) == (0, at)
        at += count
    delete_records(mirror.source, topic, {0: START})
    write(mirror.source, topic, numbered(records))


class Reader(threading.Thread):
    """Reads what is committed of partition 0, from 0 on; `nobodys` are the offsets of records that nobody wrote."""

    def __init__(self, kafka: LocalKafka, topic: str) -> None:
        super().__init__(daemon=True)
        self.nobodys: list[int] = []
        self.read = 0
        self._ends = threading.Event()
        settings = {"bootstrap.servers": kafka.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
        self._consumer = Consumer({**settings, "isolation.level": "read_committed"})
        self._consumer.assign([TopicPartition(topic, 0, 0)])

    def run(self) -> None:
        """Until `end`."""
        while not self._ends.is_set():
            for message in self._consumer.consume(1_000, 0.1):
                if message.error() is None:
                    self.read += 1
                    if message.value() is None:
                        self.nobodys.append(message.offset() or 0)
        self._consumer.close()

    def end(self) -> None:
        """Read no more."""
        self._ends.set()
        self.join(20)


def test_a_stop_while_a_prefix_is_filled_leaves_nothing_to_readers(mirror: Mirror, topic: str) -> None:
    """What was filled by then is deleted before STOPPED is said; started again, it goes on there."""
    mirror.create(topic)
    overtaken(mirror, topic, records=5)
    mirror.start(topic)
    mirror.wait_for(lambda: mirror.ends(topic)[0] > 0, lambda: "nothing is filled", 30)
    mirror.stop(topic)
    mirror.wait_state(topic, PartitionState.STOPPED)
    at = bounds(mirror.destination, topic)
    assert at.start == at.end == mirror.ends(topic)[0]
    assert 0 < at.start < START
    mirror.start(topic)
    mirror.wait_level(topic)
    assert assert_identical(mirror.source, mirror.destination, topic).source_records == 5
    assert bounds(mirror.destination, topic).start == START


@pytest.mark.parametrize("how", ["pause", pytest.param("kill", marks=pytest.mark.soak)])
def test_a_reader_meets_no_filler_while_a_recover_leaves_out_what_is_lost(
    mirror: FaultyMirror, topic: str, how: str
) -> None:
    """Nor where it is cut short: whoever owns the partition next goes on with it, without being asked again."""
    mirror.create(topic)
    write(mirror.source, topic, numbered(100))
    mirror.start(topic)
    mirror.wait_level(topic)
    reader = Reader(mirror.destination, topic)
    reader.start()
    try:
        mirror.desire(topic, DesiredState.PAUSED)
        mirror.wait_state(topic, PartitionState.PAUSED)
        overtaken(mirror, topic, records=5)
        mirror.desire(topic, DesiredState.MIRRORING)
        assert "retention overtook" in mirror.wait_failed(topic)
        recover(mirror, topic)
        mirror.wait_for(lambda: mirror.ends(topic)[0] > 100, lambda: "nothing is filled", 30)
        if how == "kill":
            mirror.workers[-1].kill()
            mirror.start_worker()
        else:
            mirror.desire(topic, DesiredState.PAUSED)
            mirror.wait_state(topic, PartitionState.PAUSED)
            assert bounds(mirror.destination, topic).start == mirror.ends(topic)[0] < START
            mirror.desire(topic, DesiredState.MIRRORING)
        # Until then the record still has the error that was recovered from.
        mirror.wait_for(lambda: mirror.ends(topic)[0] == START + 5, lambda: f"it ends at {mirror.ends(topic)}", 60)
        mirror.wait_level(topic)
        mirror.wait_for(lambda: reader.read == 105, lambda: f"{reader.read} of 105 records are read", 20)
    finally:
        reader.end()
    assert reader.nobodys == []
    assert assert_identical(mirror.source, mirror.destination, topic).source_records == 5


def recover(mirror: Mirror, topic: str) -> None:
    """As `--recover` does."""
    record = mirror._image.topic(mirror.name, topic)
    assert record is not None
    mirror.put(replace(record, recoveries=record.recoveries + 1))


@pytest.mark.soak
def test_a_broker_that_forgets_a_deletion_is_reminded(source: LocalKafka, topic: str) -> None:
    """Its death within a minute sets the log start back: in a mirrored topic that is idle, and in one that is stopped.

    No consumer sees a record more meanwhile.
    """
    stopped = f"{topic}-stopped"
    with LocalKafka() as destination, FaultyMirror(source, destination) as mirror:
        for name in (topic, stopped):
            mirror.create(name)
            write(source, name, numbered(3_000))
            delete_records(source, name, {0: 2_900})
            mirror.start(name)
            mirror.wait_level(name)
        mirror.stop(stopped)
        mirror.wait_state(stopped, PartitionState.STOPPED)
        destination[1].kill()
        destination[1].start()
        destination.wait_ready()
        for name in (topic, stopped):
            assert _expect_start(2_900, mirror, name) == 100


def _expect_start(start: int, mirror: Mirror, topic: str) -> int:
    reader = Reader(mirror.destination, topic)
    reader.start()
    try:
        mirror.wait_for(lambda: _start_of(mirror.destination, topic) == start, lambda: f"where {topic} starts", 30)
        mirror.wait_for(lambda: reader.read == 100, lambda: f"{reader.read} of 100 records are read", 20)
    finally:
        reader.end()
    assert reader.nobodys == []
    return assert_identical(mirror.source, mirror.destination, topic).source_records


def _start_of(kafka: LocalKafka, topic: str) -> int | None:
    try:
        return bounds(kafka, topic).start
    except BenchFailed:  # its broker is still starting
        return None
