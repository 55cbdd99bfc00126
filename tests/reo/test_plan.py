"""What of a fetched answer is sent: whole batches with a new header, others taken apart; nothing else is touched."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as independent_murmur2
from kafka.record.default_records import DefaultRecordBatch

from twinlog.batch.records import Record, decode, encode
from twinlog.batch.scan import Blank, Data
from twinlog.batch.view import Batch
from twinlog.names import TopicPartition
from twinlog.reo.plan import PROVENANCE, Shape, murmur2, partition_of, pieces, transactional, wanted

WHERE = TopicPartition("orders", 2)


def made(first: int, count: int, *, codec: int = 0) -> Batch:
    """A batch whose records say their offset in the value."""
    records = [
        Record(at, 1_000 + at, b"k%d" % at if at % 2 else None, b"%d" % at, ((b"h", None),))
        for at in range(first, first + count)
    ]
    return encode(records, codec=codec)


def only(items: tuple[Batch | Blank, ...]) -> Batch:
    """The one batch of `items`."""
    (item,) = items
    assert isinstance(item, Batch)
    return item


def test_a_whole_batch_is_passed_on_as_it_is() -> None:
    """No copy is made of it, and blanks are left out."""
    batch = made(10, 3)
    out = wanted([Blank(5, 9), Data(batch), Blank(13, 20)], 5, WHERE)
    assert only(out) is batch


@given(st.integers(0, 30), st.integers(1, 12), st.integers(0, 12))
def test_what_lies_below_the_position_is_left_out(first: int, count: int, below: int) -> None:
    """The rest has consecutive places, and content and times as before."""
    position = first + min(below, count - 1)
    batch = only(wanted([Data(made(first, count))], position, WHERE))
    assert batch.whole
    found = [(record.timestamp, record.key, record.value, record.headers) for record in decode(batch)]
    assert found == [tuple(record)[1:] for record in decode(made(first, count)) if record.offset >= position]


@given(st.integers(0, 4), st.integers(0, 2**31 - 1))
def test_a_stamped_batch_is_one_of_a_transaction_for_an_independent_reader(codec: int, sequence: int) -> None:
    """Producer, epoch, sequence and the transactional bit are new; the checksum holds; the records are the same."""
    batch = made(7, 5, codec=codec)
    head = transactional(batch, producer_id=77, epoch=3, sequence=sequence)
    read = DefaultRecordBatch(head + bytes(batch.raw[61:]))
    assert read.validate_crc()
    assert (read.base_offset, read.is_transactional, read.producer_id) == (0, True, 77)
    assert (read.producer_epoch, read.base_sequence) == (3, sequence)
    assert [record.value for record in read] == [b"7", b"8", b"9", b"10", b"11"]


def test_a_batch_above_the_limit_is_halved_until_it_fits_or_is_one_record() -> None:
    """Order and content are kept, and each piece says at which source offset it begins."""
    small = pieces(made(100, 9), WHERE, Shape(), limit_bytes=90)
    assert all(piece.batch.size <= 90 or piece.batch.count == 1 for piece in small)
    assert [record.value for piece in small for record in decode(piece.batch)] == [b"%d" % at for at in range(100, 109)]
    assert [piece.first for piece in small] == [piece.batch.base_offset for piece in small]


def test_provenance_names_the_offset_at_the_source_and_cuts_loops() -> None:
    """What came from the destination's own cluster is left out."""
    there = wanted([Data(made(4, 3))], 5, WHERE, shape=Shape(origin="A", cut="B"))
    assert [record.headers[-1] for record in decode(only(there))] == [
        (PROVENANCE, b"A/orders/2/5"),
        (PROVENANCE, b"A/orders/2/6"),
    ]
    assert wanted([Data(only(there))], 0, WHERE, shape=Shape(origin="B", cut="A")) == ()


@given(st.binary(max_size=40))
def test_murmur2_is_the_one_of_other_clients(key: bytes) -> None:
    """As kafka-python computes it."""
    assert murmur2(key) == independent_murmur2(key) & 0xFFFFFFFF


def test_records_are_spread_by_key_and_keep_their_order() -> None:
    """One without a key keeps its partition, as far as there is one."""
    spread = pieces(made(0, 40), WHERE, Shape(partitions=2))
    for piece in spread:
        records = decode(piece.batch)
        assert all(partition_of(record.key, 2, otherwise=2) == piece.partition for record in records)
        assert [int(record.value or b"") for record in records] == sorted(
            int(record.value or b"") for record in records
        )
    assert sum(piece.batch.count for piece in spread) == 40


def test_a_batch_with_holes_is_not_stamped() -> None:
    """A broker would refuse it."""
    raw = bytearray(made(0, 3).raw)
    raw[26] += 1  # the last offset delta
    with pytest.raises(ValueError, match="rewritten"):
        transactional(Batch(memoryview(bytes(raw))), producer_id=1, epoch=0, sequence=0)
