"""Small batches made into larger ones: the same records at the same offsets, read back by an independent client."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch

from twinlog.batch import layout
from twinlog.batch.edit import stamped
from twinlog.batch.join import MOST_BYTES, MOST_RECORDS, as_one, joined
from twinlog.batch.records import Record, decode, encode
from twinlog.batch.view import Batch

# From before 1970 to far ahead: deltas of any length, and the end of what 64 bits hold.
TIMES = st.integers(-1, 2**42) | st.sampled_from([-1, 0, 2**62, -(2**62)])
BYTES = st.none() | st.binary(max_size=12) | st.integers(60, 300).map(bytes) | st.integers(8_000, 9_000).map(bytes)
HEADERS = st.lists(st.tuples(st.binary(max_size=3), st.none() | st.binary(max_size=3)), max_size=2).map(tuple)
BATCHES = st.lists(st.lists(st.tuples(TIMES, BYTES, BYTES, HEADERS), min_size=1, max_size=6), min_size=1, max_size=8)
NOW = 1_700_000_000_000
BODY = layout.HEADER_SIZE


def batches(content: Sequence[Sequence[tuple[Any, ...]]], first: int = 100) -> list[Batch]:
    """Batches of these records, one behind the other."""
    made = []
    for records in content:
        made.append(encode([Record(first + at, *record) for at, record in enumerate(records)], codec=0))
        first += len(records)
    return made


def plain(count: int, *, first: int = 100, records: int = 1, value: bytes = b"value") -> list[Batch]:
    """So many batches of so many records each."""
    return batches([[(NOW + at, b"k", value, ()) for at in range(records)] for _ in range(count)], first)


def altered(batch: Batch, at: int, new: bytes) -> Batch:
    """The same batch with other bytes at a place."""
    raw = bytearray(batch.raw)
    raw[at : at + len(new)] = new
    return Batch(memoryview(bytes(raw)))


def records_of(run: Sequence[Batch]) -> list[Record]:
    """What a reader gets."""
    return [record for batch in run for record in decode(batch)]


@given(content=BATCHES, first=st.integers(0, 2**62))
def test_a_joined_batch_holds_the_same_records(content: list[list[tuple[Any, ...]]], first: int) -> None:
    """Offsets, times, keys, values and headers, whatever their sizes."""
    run = batches(content, first)
    whole = as_one(run)
    assert whole is not None
    assert records_of([whole]) == records_of(run)
    assert (whole.base_offset, whole.last_offset) == (run[0].base_offset, run[-1].last_offset)
    assert whole.max_timestamp == max(batch.max_timestamp for batch in run)


def test_another_client_reads_what_goes_out() -> None:
    """With our stamp, a right checksum, and relative to the first offset."""
    run = plain(20, records=7)
    whole = as_one(run)
    assert whole is not None
    out = stamped(whole, producer_id=5, epoch=2, sequence=9)
    theirs = DefaultRecordBatch(out.header + bytes(out.body))
    assert theirs.validate_crc()
    assert (theirs.producer_id, theirs.base_sequence, out.first, out.count) == (5, 9, 100, 140)
    expected = [(record.offset - 100, record.timestamp, record.key, record.value) for record in records_of(run)]
    assert [(record.offset, record.timestamp, record.key, record.value) for record in theirs] == expected


@given(
    sizes=st.lists(st.sampled_from([1, 900, 5_000, MOST_BYTES + 1]), min_size=1, max_size=30),
    most=st.sampled_from([0, 1, 2_000, 20_000, 500_000]),
)
def test_no_batch_is_larger_than_asked_for(sizes: list[int], most: int) -> None:
    """But those that came so; and none is lost, doubled or moved."""
    run = batches([[(NOW, b"k", bytes(size), ())] for size in sizes])
    out = joined(run, most)
    assert records_of(out) == records_of(run)
    assert all(batch.size <= most or batch in run for batch in out)
    assert most > 1 or list(out) == run


def test_times_far_apart_do_not_make_it_larger_than_asked_for() -> None:
    """Each delta then takes up to ten bytes more than where it was."""
    run = batches([[(at % 2 * 2**61, None, b"", ())] * MOST_RECORDS for at in range(6)])
    for most in range(200, 4_000, 50):
        out = joined(run, most)
        assert records_of(out) == records_of(run)
        assert all(batch.size <= most or batch in run for batch in out)


def test_small_neighbours_become_one() -> None:
    """As many as there is room for."""
    run = plain(1_000)
    assert len(joined(run, 1_000_000)) == 1
    assert 3 < len(joined(run, 20_000)) < 10
    assert joined(run[:1], 1_000_000) == run[:1]


def test_a_number_with_bits_beyond_its_size_is_read_as_a_broker_reads_it() -> None:
    """A time delta of 0 in ten bytes, whose last one Java drops all but a bit of."""
    good, record = plain(2)
    body = bytes(record.body)
    odd = body[1:2] + b"\x80" * 9 + b"\x02" + body[3:]
    raw = bytes(record.raw[:BODY]) + bytes([2 * len(odd)]) + odd
    whole = as_one([good, Batch(memoryview(raw))])
    assert whole is not None
    assert records_of([whole]) == records_of([good, record])


def test_a_run_of_very_many_records_can_be_one() -> None:
    """However many bytes their deltas take."""
    run = [*plain(1), *plain(1, first=101, records=9_000), *plain(1, first=9_101, records=9_000)]
    whole = as_one(run)
    assert whole is not None
    assert records_of([whole]) == records_of(run)


def test_what_is_not_worth_it_stays_as_it_is() -> None:
    """Many records, or many bytes: the time that joining takes would be more than it spares."""
    many, large = plain(3, records=MOST_RECORDS + 1), plain(3, first=500, value=bytes(MOST_BYTES))
    small = plain(2, first=900)
    out = joined([*many, *large, *small], 1_000_000)
    assert [*out[:6]] == [*many, *large]
    assert len(out) == 7
    assert records_of(out[6:]) == records_of(small)


APART = {
    "compressed": layout.LZ4,
    "stamped by its broker": layout.LOG_APPEND_TIME_BIT,
    "a marker": layout.CONTROL_BIT,
    "with a delete horizon": layout.DELETE_HORIZON_BIT,
}


@pytest.mark.parametrize("bit", APART.values(), ids=APART)
def test_a_batch_of_another_kind_is_left_out(bit: int) -> None:
    """Its neighbours are joined on either side of it."""
    run = plain(5)
    run[2] = altered(run[2], layout.ATTRIBUTES, bit.to_bytes(2, "big"))
    out = joined(run, 1_000_000)
    assert out[1] is run[2]
    assert records_of([out[0], out[2]]) == records_of([*run[:2], *run[3:]])
    assert as_one(run) is None


def test_nothing_is_joined_over_a_gap() -> None:
    """Offsets in a batch follow each other."""
    run = [*plain(2), *plain(2, first=103)]
    out = joined(run, 1_000_000)
    assert [(batch.base_offset, batch.last_offset) for batch in out] == [(100, 101), (103, 104)]
    assert as_one(run) is None


def test_a_transaction_s_batches_are_joined_too() -> None:
    """Their bit is cleared at the destination in any case."""
    bits = layout.TRANSACTIONAL_BIT.to_bytes(2, "big")
    run = [altered(batch, layout.ATTRIBUTES, bits) for batch in plain(4)]
    (whole,) = joined(run, 1_000_000)
    assert not whole.transactional
    assert records_of([whole]) == records_of(run)


BROKEN = {
    "an offset out of order": (BODY + 3, b"\x04"),
    "a record beyond the end": (BODY, b"\x7e"),
    "a record too short": (BODY, b"\x02"),
    "a record of negative length": (BODY, b"\x01"),
    "bytes behind the last record": (BODY, b"\x10"),
    "a length that never ends": (BODY, b"\xff\xff\xff\xff\xff\xff"),
}


@pytest.mark.parametrize("place", BROKEN.values(), ids=BROKEN)
def test_what_cannot_be_read_goes_out_as_it_is(place: tuple[int, bytes]) -> None:
    """The destination's broker judges it, not we."""
    run = plain(2)
    run[1] = altered(run[1], *place)
    assert as_one(run) is None
    assert joined(run, 1_000_000) == run


def test_any_bytes_are_read_as_a_reader_reads_them_or_not_at_all() -> None:
    """Each byte of a batch's records, changed to each of some values."""
    good, victim = plain(1)[0], plain(1, first=101, records=2, value=b"v" * 70)[0]
    read = 0
    for at in range(BODY, victim.size):
        for byte in (0, 1, 2, 3, 0x7F, 0x80, 0x81, 0xFE, 0xFF):
            broken = altered(victim, at, bytes([byte]))
            whole = as_one([good, broken])
            if whole is None:
                continue
            try:
                expected = records_of([good, broken])
            except ValueError:
                continue  # neither can be read: a broken key or value is carried as it is
            except Exception as error:  # noqa: BLE001  # a CorruptBatch; the joined batch has to be refused likewise
                with pytest.raises(type(error)):
                    records_of([whole])
                continue
            assert records_of([whole]) == expected
            read += 1
    assert read > 500
