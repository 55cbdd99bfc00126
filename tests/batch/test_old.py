"""Messages of magic 0 and 1, against kafka-python's builder and reader, and in known bytes."""

import zlib
from collections.abc import Sequence
from itertools import product
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.codec import gzip_encode
from kafka.record.legacy_records import LegacyRecordBatch, LegacyRecordBatchBuilder

from twinlog.batch import layout
from twinlog.batch.records import Record, decode, rewritten
from twinlog.batch.scan import batches
from twinlog.batch.view import Batch, OldBatch
from twinlog.errors import CorruptBatch

CODECS = (layout.GZIP, layout.SNAPPY, layout.LZ4)
MAGICS = (0, 1)

fields = st.one_of(st.none(), st.just(b""), st.binary(max_size=200))
contents = st.lists(st.tuples(st.integers(0, 2**45), fields, fields), min_size=1, max_size=9)


def message(magic: int, offset: int, *, value: bytes | None = b"v", time: int = 1000, attributes: int = 0) -> bytes:
    """One message with key `k`, as it lies in a log."""
    body = bytes([magic, attributes]) + (pack(">q", time) if magic else b"") + pack(">i", 1) + b"k"
    body += pack(">i", -1) if value is None else pack(">i", len(value)) + value
    return pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


def wrapper(magic: int, last: int, inner: Sequence[bytes], *, attributes: int = 1, time: int = 7777) -> bytes:
    """A compressed wrapper (gzip unless told otherwise) around messages."""
    return message(magic, last, value=gzip_encode(b"".join(inner)), time=time, attributes=attributes)


def old(raw: bytes) -> OldBatch:
    """The one entry in a buffer, its checksum checked."""
    (found,) = batches(memoryview(raw))
    assert isinstance(found, OldBatch)
    return found


def theirs(batch: OldBatch) -> list[Record]:
    """What kafka-python reads; it says None where there is no timestamp."""
    return [
        Record(one.offset, -1 if one.timestamp is None else one.timestamp, one.key, one.value)
        for one in LegacyRecordBatch(bytearray(batch.raw), batch.magic)
    ]


@pytest.mark.parametrize(("magic", "codec"), list(product(MAGICS, CODECS)))
@given(found=contents, base=st.integers(0, 2**40))
def test_wrappers_of_another_client(magic: int, codec: int, found: list[tuple[int, bytes, bytes]], base: int) -> None:
    """Compressed by kafka-python, stored by a broker at `base`: both read the same, at absolute offsets."""
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    first = base if magic == 0 else 0  # offsets inside are absolute in magic 0, relative in magic 1
    for at, (time, key, value) in enumerate(found):
        builder.append(first + at, time, key, value)
    raw = bytearray(builder.build())
    raw[:8] = pack(">q", base + len(found) - 1)
    batch = old(bytes(raw))
    expected = [Record(base + at, time if magic else -1, key, value) for at, (time, key, value) in enumerate(found)]
    assert decode(batch) == expected
    assert theirs(batch) == expected


@pytest.mark.parametrize("magic", MAGICS)
@given(time=st.integers(-1, 2**45), key=fields, value=fields, offset=st.integers(0, 2**62))
def test_single_messages_of_another_client(
    magic: int, time: int, key: bytes | None, value: bytes | None, offset: int
) -> None:
    """Not compressed: one message, one record."""
    builder = LegacyRecordBatchBuilder(magic, 0, 1 << 20)
    builder.append(0, time, key, value)
    raw = bytearray(builder.build())
    raw[:8] = pack(">q", offset)
    assert decode(old(bytes(raw))) == [Record(offset, time if magic else -1, key, value)]


def test_messages_in_known_bytes() -> None:
    """One of each magic, written out."""
    zero = bytes.fromhex("0000000000000005 00000010 00000000 00 00 00000001 6b 00000001 76")
    one = bytes.fromhex("0000000000000006 00000017 00000000 01 08 0000000000000009 ffffffff 00000001 76")
    assert decode(OldBatch(memoryview(zero))) == [Record(5, -1, b"k", b"v")]
    assert decode(OldBatch(memoryview(one))) == [Record(6, 9, None, b"v")]


def test_a_stamped_wrapper_gives_all_messages_its_time() -> None:
    """Log append time, magic 1: the broker changed the wrapper only."""
    batch = old(wrapper(1, 11, [message(1, 0, time=1), message(1, 1, time=2)], attributes=9))
    assert [(one.offset, one.timestamp) for one in decode(batch)] == [(10, 7777), (11, 7777)]
    assert [one.timestamp for one in theirs(batch)] == [7777, 7777]


def test_messages_of_magic_0_in_a_wrapper_of_magic_1_have_no_time() -> None:
    """Java decides by the inner message."""
    batch = old(wrapper(1, 11, [message(0, 0), message(1, 1, time=2)], attributes=9))
    assert [one.timestamp for one in decode(batch)] == [-1, 7777]


def test_relative_offsets_count_back_from_the_wrapper() -> None:
    """Also when compaction has removed messages at the start, inside and before the end."""
    batch = old(wrapper(1, 109, [message(1, at) for at in (2, 3, 7)]))
    assert [one.offset for one in decode(batch)] == [104, 105, 109]
    assert [one.offset for one in theirs(batch)] == [104, 105, 109]


@pytest.mark.parametrize(("magic", "codec"), list(product(MAGICS, (0, *CODECS))))
def test_rewriting_makes_magic_2_of_the_same_codec(magic: int, codec: int) -> None:
    """As a broker up-converts: same records, -1 for magic 0, contiguous, below the offset trimmed."""
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for at in range(1 if codec == 0 else 5):
        builder.append(at, 1000 + at, b"k", b"v" * 50)
    raw = bytearray(builder.build())
    raw[:8] = pack(">q", 0 if codec == 0 else 4)  # as a broker does, which stores a wrapper at its last offset
    batch = old(bytes(raw))
    (made,) = rewritten(batch, from_offset=0)
    assert isinstance(made, Batch)
    assert (made.magic, made.attributes) == (2, codec)
    assert made.max_timestamp == (decode(batch)[-1].timestamp if magic else -1)
    assert made.whole
    assert made.crc_ok()
    assert decode(made) == decode(batch)
    trimmed = rewritten(batch, from_offset=3)
    assert [record.offset for one in trimmed for record in decode(one)] == ([] if codec == 0 else [3, 4])


def test_rewriting_parts_at_holes() -> None:
    """A compacted wrapper becomes several batches."""
    pieces = rewritten(old(wrapper(1, 109, [message(1, at) for at in (2, 3, 7)])), from_offset=0)
    assert [(one.base_offset, one.count) for one in pieces] == [(104, 2), (109, 1)]


GOOD = message(1, 0)
HOSTILE = {
    "no value": message(1, 5, value=None, attributes=1),
    "empty": wrapper(1, 5, []),
    "zstd": wrapper(1, 5, [GOOD], attributes=4),
    "not gzip": message(1, 5, value=b"plain", attributes=1),
    "cut entry": wrapper(1, 5, [GOOD, b"\0" * 5]),
    "cut message": wrapper(1, 5, [GOOD, GOOD[:-1]]),
    "negative length": wrapper(1, 5, [pack(">qi", 0, -1)]),
    "huge length": wrapper(1, 5, [pack(">qi", 0, 2**31 - 1) + GOOD]),
    "short message": wrapper(1, 5, [pack(">qi", 0, 14) + GOOD[12:26]]),
    "nested": wrapper(1, 5, [wrapper(1, 0, [GOOD])]),
    "magic": wrapper(1, 5, [message(2, 0)]),
    "checksum": wrapper(1, 5, [GOOD[:-1] + b"!"]),
    "descending": wrapper(1, 5, [message(1, 1), message(1, 0)]),
    "repeated": wrapper(0, 5, [message(0, 5), message(0, 5)]),
    "beyond the wrapper": wrapper(0, 5, [message(0, 6)]),
    "below zero": wrapper(1, 5, [message(1, 0), message(1, 9)]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_wrappers(name: str) -> None:
    """Each way in which a wrapper can lie is a CorruptBatch at its offset."""
    with pytest.raises(CorruptBatch) as caught:
        decode(old(HOSTILE[name]))
    assert caught.value.offset == 5


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("length", [2**31 - 1, 2, 0])
def test_fields_that_do_not_fit(magic: int, length: int) -> None:
    """A key's length that is not the key's."""
    raw = bytearray(message(magic, 5))
    at = layout.OLD_KEY[magic]
    raw[at : at + 4] = pack(">i", length)
    with pytest.raises(CorruptBatch):
        decode(OldBatch(memoryview(bytes(raw))))


@given(tail=st.binary(min_size=14, max_size=60), magic=st.integers(0, 2), attributes=st.integers(0, 15))
def test_hostile_bytes_raise_corrupt_batch_only(tail: bytes, magic: int, attributes: int) -> None:
    """Whatever follows, the answer is records or CorruptBatch."""
    raw = pack(">qiI", 5, 6 + len(tail), 0) + bytes([magic, attributes]) + tail
    try:
        assert decode(OldBatch(memoryview(raw)))
    except CorruptBatch:
        return


@given(place=st.integers(0, 500), junk=st.binary(min_size=1, max_size=6), codec=st.sampled_from(CODECS))
def test_damaged_wrappers_raise_corrupt_batch_only(place: int, junk: bytes, codec: int) -> None:
    """A real wrapper with some bytes changed is decoded, or CorruptBatch."""
    builder = LegacyRecordBatchBuilder(1, codec, 1 << 20)
    for at in range(5):
        builder.append(at, 1000 + at, b"key", b"value")
    raw = bytearray(builder.build())
    place = 17 + place % (len(raw) - 17)
    raw[place : place + len(junk)] = junk
    try:
        assert decode(OldBatch(memoryview(bytes(raw))))
    except CorruptBatch:
        return
