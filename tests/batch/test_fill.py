"""Filling records: what stands in holes for a while, and the batches that hold both."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.batch import layout
from twinlog.batch.codecs import compress
from twinlog.batch.edit import stamped
from twinlog.batch.fill import HEADER_NAME, MAX_SPAN, Joined, filling_tail, is_filling, last_filling
from twinlog.batch.records import Record, decode, encode, frames_from
from twinlog.batch.view import Batch

KEYS = st.binary(max_size=20)
HEADERS = st.lists(st.tuples(st.binary(max_size=5), st.none() | st.binary(max_size=5)), max_size=2).map(tuple)


@st.composite
def records_with_holes(draw: st.DrawFn) -> tuple[int, list[Record]]:
    """An offset, and records behind it with holes between, and mostly in front."""
    at = first = draw(st.integers(0, 2**40))
    records = []
    for _ in range(draw(st.integers(1, 12))):
        at += draw(st.sampled_from([0, 0, 1, 5, 63, 64, 65, 200]))
        time = draw(st.integers(-1, 2**45))
        records.append(Record(at, time, draw(KEYS), draw(st.none() | st.binary(max_size=30)), draw(HEADERS)))
        at += 1
    return first, records


def joined(first: int, records: list[Record], codec: int) -> Joined:
    """The records in one batch from `first` on, with their holes filled."""
    made = Joined(codec, first, records[0].timestamp)
    for record in records:
        frame = frames_from(encode([record], codec=layout.NO_CODEC), from_offset=0)[0]
        made.add(frame, filling_tail(frame) if record.offset > made.next_offset else None)
    return made


@given(records_with_holes(), st.integers(layout.NO_CODEC, layout.ZSTD))
def test_a_joined_batch_holds_the_records_and_tombstones_of_the_next_key(
    made: tuple[int, list[Record]], codec: int
) -> None:
    """Each offset from the first on has a record: the source's own, or a filling one under the next record's key."""
    first, records = made
    batch = joined(first, records, codec).made()
    found = decode(batch)
    assert [record.offset for record in found] == list(range(first, records[-1].offset + 1))
    assert [record for record in found if not is_filling(record)] == records
    following = iter(records)
    nearest = next(following)
    for record in found:
        if is_filling(record):
            assert (record.key, record.value, record.timestamp) == (nearest.key, None, nearest.timestamp)
        else:
            nearest = next(following, nearest)
    assert batch.crc_ok()
    assert batch.max_timestamp == max(record.timestamp for record in records)
    assert stamped(batch, producer_id=1, epoch=0, sequence=0).count == len(found)


@given(records_with_holes(), st.integers(layout.NO_CODEC, layout.ZSTD))
def test_the_last_filling_record_is_found(made: tuple[int, list[Record]], codec: int) -> None:
    """Whatever the codec, and below a bound only."""
    first, records = made
    batch = joined(first, records, codec).made()
    filled = [record.offset for record in decode(batch) if is_filling(record)]
    assert last_filling(batch, batch.next_offset) == max(filled, default=-1)
    bound = records[len(records) // 2].offset
    assert last_filling(batch, bound) == max((offset for offset in filled if offset < bound), default=-1)


def test_a_value_that_mentions_the_name_is_no_filling_record() -> None:
    """Only a null value with just that header is."""
    plain = Record(5, 0, b"k", HEADER_NAME, ((HEADER_NAME, None),))
    other = Record(6, 0, b"k", None, ((HEADER_NAME, b""),))
    batch = encode([plain, other], codec=layout.ZSTD)
    assert last_filling(batch, 10) == -1


def test_a_record_without_a_key_has_nothing_to_fill_with() -> None:
    """A cleaner drops it at once, so it supersedes nothing; an empty key is a key."""
    frames = frames_from(encode([Record(0, 0, None, b"v"), Record(1, 0, b"", b"v")], codec=0), from_offset=0)
    assert filling_tail(frames[0]) is None
    assert filling_tail(frames[1]) is not None


def test_a_hole_without_anything_to_fill_it_is_refused() -> None:
    """A broker takes no batch with holes."""
    frame = frames_from(encode([Record(7, 0, b"k", b"v")], codec=0), from_offset=0)[0]
    with pytest.raises(ValueError, match="offset 5 has no record"):
        Joined(layout.NO_CODEC, 5, 0).add(frame)


def test_the_longest_batch() -> None:
    """Offset deltas of one, two and three bytes."""
    frame = frames_from(encode([Record(MAX_SPAN - 1, 9, b"key", b"v")], codec=0), from_offset=0)[0]
    made = Joined(layout.NO_CODEC, 0, 9)
    made.add(frame, filling_tail(frame))
    assert [record.offset for record in decode(made.made())] == list(range(MAX_SPAN))


def test_old_and_empty_batches_have_none() -> None:
    """Nothing is decoded there."""
    whole = encode([Record(0, 0, b"k", b"v")], codec=0)
    body = compress(layout.NO_CODEC, b"")
    empty = Batch(memoryview(bytes(whole.raw[: layout.COUNT]) + (0).to_bytes(4, "big") + body))
    assert last_filling(empty, 10) == -1
