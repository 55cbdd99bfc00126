"""A destination topic that is there already: its twin is adopted, anything else is refused before a byte is written."""

from collections.abc import Iterator

import pytest
from tests.real.mirrored_logs import delete_records, numbered, write, write_transaction
from tests.real.mirroring import Mirror

from twinlog.control.lifecycle import PartitionState
from twinlog.testing.checker import assert_identical
from twinlog.testing.data import EVERYTHING_ALLOWED, Made
from twinlog.testing.kafka import LocalKafka

RECORDS = numbered(100, timestamp_ms=1_700_000_000_000)
FOREIGN = Made(b"foreign", b"value", [], 1_700_000_000_000)
WAIT_S = 20.0


@pytest.fixture(scope="module")
def mirror(source: LocalKafka, destination: LocalKafka) -> Iterator[Mirror]:
    """One mirror and its worker for all tests of this file."""
    with Mirror(source, destination) as mirror:
        yield mirror


def assert_refused(mirror: Mirror, topic: str, *said: str) -> None:
    """Start the topic: it must be FAILED, say all of `said`, and leave the destination's end alone."""
    before = mirror.ends(topic)
    mirror.start(topic)
    error = mirror.wait_failed(topic)
    assert not [word for word in said if word not in error], error
    record = mirror.partition(topic)
    assert record is not None
    assert record.retry_attempt == -1
    assert mirror.ends(topic) == before


@pytest.mark.parametrize("count", [100, 40, 1])
def test_a_topic_with_the_same_beginning_is_adopted(mirror: Mirror, topic: str, count: int) -> None:
    """Somebody else has copied all, some or one of the records at their offsets; the mirror goes on behind them."""
    mirror.create(topic)
    write(mirror.source, topic, RECORDS)
    write(mirror.destination, topic, RECORDS[:count], **{"batch.num.messages": 7})
    mirror.start(topic)
    mirror.wait_level(topic)
    write_transaction(mirror.source, topic, RECORDS, commit=False)
    write(mirror.source, topic, RECORDS)
    mirror.wait_level(topic)
    assert assert_identical(mirror.source, mirror.destination, topic).source_records == 200


def test_a_twin_whose_mirror_was_forgotten_is_adopted(mirror: Mirror, topic: str) -> None:
    """What an earlier mirror wrote, blanks among it, is compared and kept by the next."""
    mirror.create(topic)
    write(mirror.source, topic, RECORDS)
    write_transaction(mirror.source, topic, RECORDS, commit=False)
    delete_records(mirror.source, topic, {0: 10})
    mirror.start(topic)
    mirror.wait_level(topic)
    mirror.stop(topic)
    mirror.wait_state(topic, PartitionState.STOPPED)
    mirror.forget(topic)
    write(mirror.source, topic, RECORDS)
    with Mirror(mirror.source, mirror.destination, workers=0) as second:
        second.start(topic)
        second.wait_level(topic)
        assert assert_identical(mirror.source, mirror.destination, topic).source_records == 190
        second.stop(topic)
        second.wait_state(topic, PartitionState.STOPPED)


@pytest.mark.parametrize("at", [0, 37, 99])
def test_one_foreign_record_is_refused_with_its_offset(mirror: Mirror, topic: str, at: int) -> None:
    """A record that differs, be it the first or the last one."""
    mirror.create(topic)
    write(mirror.source, topic, RECORDS)
    write(mirror.destination, topic, [*RECORDS[:at], FOREIGN, *RECORDS[at + 1 :]])
    assert_refused(mirror, topic, f"offset {at}")


def test_a_record_too_many_at_the_end_is_refused(mirror: Mirror, topic: str) -> None:
    """All records are there, and one more that the source does not have."""
    mirror.create(topic)
    write(mirror.source, topic, RECORDS)
    write(mirror.destination, topic, [*RECORDS, FOREIGN])
    assert_refused(mirror, topic, "100")


def test_a_missing_record_is_refused(mirror: Mirror, topic: str) -> None:
    """One record was left out, so that everything behind it stands one offset too low."""
    mirror.create(topic)
    write(mirror.source, topic, RECORDS)
    write(mirror.destination, topic, [*RECORDS[:50], *RECORDS[51:]])
    assert_refused(mirror, topic, "50")


def test_a_record_where_the_source_has_a_blank_is_refused(mirror: Mirror, topic: str) -> None:
    """Committed at the destination, aborted at the source."""
    mirror.create(topic)
    write_transaction(mirror.source, topic, RECORDS, commit=False)
    write_transaction(mirror.destination, topic, RECORDS)
    mirror.wait_for(lambda: mirror.ends(topic) == {0: 101}, lambda: "the transaction's marker", WAIT_S)
    assert_refused(mirror, topic, "offset 0")


def test_records_below_the_start_of_the_source_are_refused(mirror: Mirror, topic: str) -> None:
    """The source starts at 90; the destination holds 0 to 9, of which nobody can say what they are."""
    mirror.create(topic)
    write(mirror.source, topic, RECORDS)
    delete_records(mirror.source, topic, {0: 90})
    write(mirror.destination, topic, RECORDS[:10])
    assert_refused(mirror, topic, "90")


def test_a_foreign_partition_does_not_stop_its_neighbours(mirror: Mirror, topic: str) -> None:
    """Three partitions, one of them foreign: two are mirrored; with the topic made anew, all are."""
    mirror.create(topic, partitions=3)
    for partition in range(3):
        write(mirror.source, topic, RECORDS, partition=partition)
    write(mirror.destination, topic, [FOREIGN], partition=1)
    mirror.start(topic)
    mirror.wait_failed(topic, 1)
    mirror.wait_for(lambda: mirror.ends(topic) == {0: 100, 1: 1, 2: 100}, lambda: str(mirror.ends(topic)), WAIT_S)
    mirror.stop(topic)
    for partition in range(3):
        mirror.wait_state(topic, PartitionState.STOPPED, partition)
    mirror.delete_at_destination(topic)
    mirror.create_at_destination(topic, partitions=3, config=EVERYTHING_ALLOWED)
    mirror.start(topic)
    mirror.wait_level(topic)
    assert assert_identical(mirror.source, mirror.destination, topic).source_records == 300


def test_a_foreign_writer_beside_the_mirror_is_found(mirror: Mirror, topic: str) -> None:
    """One record written into the twin while the mirror is idle: FAILED with the offset, nothing more is written."""
    mirror.create(topic, partitions=2)
    write(mirror.source, topic, RECORDS)
    mirror.start(topic)
    mirror.wait_level(topic)
    write(mirror.destination, topic, [FOREIGN])
    error = mirror.wait_failed(topic)
    assert "100" in error
    for partition in range(2):
        write(mirror.source, topic, RECORDS, partition=partition)
    mirror.wait_for(lambda: mirror.ends(topic)[1] == 100, lambda: "the other partition goes on", WAIT_S)
    assert mirror.ends(topic)[0] == 101
