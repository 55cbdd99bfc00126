"""The judge of the simulation: it must see each way in which a destination can be wrong, and nothing else."""

import pytest
from tests.sim.broker.log import control_batch
from tests.sim.judge import COMMIT, Judge, Truth, describe

from twinlog.batch import layout
from twinlog.batch.edit import stamped
from twinlog.batch.records import Record, encode
from twinlog.batch.view import Batch
from twinlog.names import TopicPartition

WHERE = TopicPartition("twin", 0)
STAMP = 1_750_000_000_000


def at(batch: Batch, offset: int) -> Batch:
    """The same batch where a log has it."""
    raw = bytearray(batch.raw)
    raw[:8] = offset.to_bytes(8, "big")
    return Batch(memoryview(bytes(raw)))


def data(offset: int, *values: str, producer_id: int = 7) -> Batch:
    """A data batch of an idempotent producer."""
    records = [Record(n, STAMP + n, b"k", value.encode(), ()) for n, value in enumerate(values)]
    sent = stamped(encode(records, codec=0), producer_id=producer_id, epoch=0, sequence=0)
    return at(Batch(memoryview(sent.header + bytes(sent.body))), offset)


def transactional(batch: Batch) -> Batch:
    """The same batch as part of a transaction."""
    raw = bytearray(batch.raw)
    attributes = batch.attributes | layout.TRANSACTIONAL_BIT
    raw[layout.ATTRIBUTES : layout.ATTRIBUTES + 2] = attributes.to_bytes(2, "big")
    return Batch(memoryview(bytes(raw)))


def marker(offset: int, *, commit: bool, producer_id: int = 7) -> Batch:
    """A control record."""
    return at(control_batch(producer_id, 0, commit=commit, coordinator_epoch=0, now_ms=STAMP), offset)


@pytest.fixture
def truth() -> Truth:
    """A source that holds: two records, an aborted one and its marker, a committed one and its marker, an open one."""
    truth = Truth()
    for batch in (
        data(0, "a", "b"),
        transactional(data(2, "x", producer_id=8)),
        marker(3, commit=False, producer_id=8),
        transactional(data(4, "c", producer_id=9)),
        marker(5, commit=True, producer_id=9),
        transactional(data(6, "d", producer_id=9)),
    ):
        truth.appended(batch)
    truth.high_watermark = 7
    return truth


def kinds(truth: Truth, *batches: Batch) -> list[tuple[str, int]]:
    """What a judge finds, in short."""
    judge = Judge(WHERE, truth)
    for batch in batches:
        judge.appended(batch, 0.0)
    return [(anomaly.kind, anomaly.offset) for anomaly in judge.anomalies]


def test_readings_of_the_source(truth: Truth) -> None:
    """Committed and plain records count, aborted ones do not, and an open transaction is not decided."""
    assert {offset: record.value for offset, record in truth.records.items()} == {0: b"a", 1: b"b", 4: b"c"}
    assert truth.end == 6
    truth.appended(marker(7, commit=True, producer_id=9))
    assert truth.end == 7, "its marker is not replicated yet"
    truth.high_watermark = 8
    assert truth.end == 8
    assert COMMIT == layout.COMMIT


def test_a_twin_passes(truth: Truth) -> None:
    """The same records in any batches, and control records of anyone where nothing is read."""
    blanks = [marker(offset, commit=False, producer_id=1) for offset in (2, 3, 5)]
    assert kinds(truth, data(0, "a", "b"), *blanks[:2], data(4, "c"), blanks[2]) == []


@pytest.mark.parametrize(
    ("batch", "found"),
    [
        (data(0, "a", "other"), [("changed", 1)]),
        (data(2, "x"), [("surplus", 2)]),
        (marker(1, commit=False), [("lost", 1)]),
        (marker(6, commit=False), [("beyond the source", 6)]),
        (marker(3, commit=True), [("committed filler", 3)]),
        (transactional(data(1, "f", "f", "f")), [("lost", 1)]),
    ],
    ids=["changed", "surplus", "lost", "beyond", "committed", "filler over a record"],
)
def test_each_anomaly_is_named(truth: Truth, batch: Batch, found: list[tuple[str, int]]) -> None:
    """Every way of being wrong has its own name, and tells the offset."""
    assert kinds(truth, batch) == found


def test_what_compaction_takes_away_later_is_no_anomaly(truth: Truth) -> None:
    """The destination may still hold it, or hold nothing there."""
    truth.compacted([1])
    assert kinds(truth, data(0, "a", "b")) == []
    assert kinds(truth, marker(1, commit=False)) == []


def test_what_lies_below_the_source_is_not_judged(truth: Truth) -> None:
    """Filler below the source's log start is deleted again."""
    truth.start = 2
    assert kinds(truth, data(0, "filler", "filler")) == []


def test_a_source_that_lost_its_end_is_read_again(truth: Truth) -> None:
    """Only what is in the log then counts."""
    truth.rebuild([data(0, "a", "b")])
    assert truth.records.keys() == {0, 1}
    assert truth.end == 2


def test_batches_are_described_in_a_few_words() -> None:
    """A line of a trace tells kind, offsets, producer, epoch and sequence."""
    assert describe(data(4, "c", "d")) == "data 4..5 of (7, 0, 0)"
    assert describe(marker(2, commit=False)) == "marker 2..2 of (7, 0, -1)"
