"""Decode, encode and rewrite batches of magic 2, against kafka-python and in known bytes."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from twinlog.batch import layout
from twinlog.batch.codecs import compress
from twinlog.batch.edit import stamped
from twinlog.batch.records import Record, decode, encode, rewritten
from twinlog.batch.scan import batches
from twinlog.batch.view import Batch, zigzag
from twinlog.errors import CorruptBatch
from twinlog.names import TopicPartition

Raw = Callable[..., bytes]
WORDS = [f"{number:x}" for number in range(10_000, 14_000)]
CODECS = (layout.NO_CODEC, layout.GZIP, layout.SNAPPY, layout.LZ4, layout.ZSTD)

times = st.one_of(
    st.sampled_from([-1, 0, 1, 2**63 - 1, -(2**63)]), st.integers(0, 2**45), st.integers(-(2**63), 2**63 - 1)
)
fields = st.one_of(st.none(), st.just(b""), st.binary(max_size=200))
names = st.one_of(st.sampled_from(["", "same", "ü"]), st.text(max_size=8))
headers = st.lists(st.tuples(names.map(str.encode), fields), max_size=4).map(tuple)


@dataclass(frozen=True)
class Content:
    """A record without an offset."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]


contents = st.lists(st.builds(Content, times, fields, fields, headers), min_size=1, max_size=12)


def numbered(found: Sequence[Content], base: int = 0) -> list[Record]:
    """Give consecutive offsets."""
    return [Record(base + at, one.timestamp, one.key, one.value, one.headers) for at, one in enumerate(found)]


def theirs(raw: bytes | memoryview) -> list[Record]:
    """What kafka-python reads in a batch."""
    return [
        Record(
            one.offset, one.timestamp, one.key, one.value, tuple((name.encode(), value) for name, value in one.headers)
        )
        for one in DefaultRecordBatch(bytes(raw))
    ]


def plain(count: int, base: int = 0) -> list[Record]:
    """Some records, each different."""
    return [Record(base + at, 1000 + at, b"key%d" % at, b"value%d" % at) for at in range(count)]


def holed(records: Sequence[Record], *, base: int, span: int, codec: int = 0, **header: int) -> bytes:
    """A batch as the cleaner leaves it: offsets missing, first and last offset kept; deltas to a base time of 500."""
    body = b""
    for one in records:
        record = b"\0" + zigzag(one.timestamp - 500) + zigzag(one.offset - base)
        for part in (one.key, one.value):
            record += zigzag(-1) if part is None else zigzag(len(part)) + part
        record += zigzag(len(one.headers)) + b"".join(
            zigzag(len(name)) + name + (zigzag(-1) if value is None else zigzag(len(value)) + value)
            for name, value in one.headers
        )
        body += zigzag(len(record)) + record
    attributes = header.get("attributes", 0) | codec
    made = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    made.append(0, 500, None, None, [])
    head = bytearray(made.build()[:61])
    packed = compress(codec, body)
    layout.HEADER.pack_into(
        head,
        0,
        base,
        49 + len(packed),
        0,
        2,
        0,
        attributes,
        span - 1,
        500,
        header.get("max_time", 5000),
        7,
        0,
        3,
        len(records),
    )
    return bytes(head) + packed


def view(raw: bytes) -> Batch:
    """A batch over bytes."""
    return Batch(memoryview(raw))


@pytest.mark.parametrize("codec", CODECS)
@given(found=contents, base=st.integers(0, 2**62))
def test_encoded_records_are_read_by_another_client(codec: int, found: list[Content], base: int) -> None:
    """kafka-python and decode both get the records back that encode was given."""
    records = numbered(found, base)
    made = encode(records, codec=codec)
    assert decode(made) == records
    read = theirs(made.raw)
    wrapped = [one._replace(timestamp=(one.timestamp + 2**63) % 2**64 - 2**63) for one in read]
    assert wrapped == records, "kafka-python does not wrap sums of 64 bits"


@pytest.mark.parametrize("codec", CODECS)
@given(found=contents, base=st.integers(0, 2**62))
def test_an_encoded_batch_is_one_that_a_broker_takes(codec: int, found: list[Content], base: int) -> None:
    """Its header is what `LogValidator` would make of it, so that the broker changes nothing."""
    records = numbered(found, base)
    (made,) = batches(memoryview(bytes(encode(records, codec=codec).raw)))
    assert isinstance(made, Batch)
    assert made.whole
    assert (made.base_offset, made.count) == (base, len(records))
    assert made.attributes == codec
    assert made.base_timestamp == records[0].timestamp
    assert made.max_timestamp == max([-1, *(one.timestamp for one in records)])
    assert (made.producer_id, made.producer_epoch, made.base_sequence, made.leader_epoch) == (-1, -1, -1, -1)
    assert made.crc_ok()


@pytest.mark.parametrize("codec", CODECS)
def test_what_another_client_writes_is_decoded(codec: int) -> None:
    """Batches of kafka-python's builder, of all codecs, with every odd field."""
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 20)
    records = [
        Record(0, 1000, None, None),
        Record(1, -1, b"", b""),
        Record(2, 0, b"key", None, ((b"h", None), (b"h", b""), (b"h", b"x"), (b"", b"y"))),
        Record(3, 2**45, None, bytes(1000)),
    ]
    for one in records:
        named = [(name.decode(), value) for name, value in one.headers]
        builder.append(one.offset, one.timestamp, one.key, one.value, named)
    assert decode(view(bytes(builder.build()))) == records


def test_a_batch_in_known_bytes() -> None:
    """One record, written out: length 12, no attributes, deltas 0, key k, value null, header h with null."""
    made = encode([Record(9, 5, b"k", None, ((b"h", None),))], codec=0)
    assert made.body.hex(" ") == "14 00 00 00 02 6b 01 02 02 68 01"
    assert bytes(made.raw[:12]).hex() == "00000000000000090000003c"
    assert bytes(made.raw[21:61]).hex() == "000000000000" + 2 * "0000000000000005" + "ff" * 14 + "00000001"


def test_encode_refuses_gaps_and_nothing() -> None:
    """A caller's mistake, not a corrupt batch."""
    for records in ([], [Record(1, 0, None, None), Record(3, 0, None, None)]):
        with pytest.raises(ValueError, match="consecutive"):
            encode(records, codec=0)


def test_a_stamped_batch_gives_all_records_the_stamp(raw_batch: Raw) -> None:
    """With log append time, deltas and base mean nothing."""
    made = encode(plain(3), codec=0)
    raw = raw_batch(4, count=3, attributes=8, base_time=77, max_time=9999, body=bytes(made.body))
    assert [(one.offset, one.timestamp) for one in decode(view(raw))] == [(4, 9999), (5, 9999), (6, 9999)]


def test_with_a_delete_horizon_deltas_are_relative_to_it() -> None:
    """The cleaner writes deltas against what it puts into the base timestamp field (`MemoryRecordsBuilder`)."""
    records = plain(2)
    (same,) = rewritten(view(holed(records, base=0, span=2, attributes=0x40)), from_offset=0)
    assert decode(same) == records


@pytest.mark.parametrize("codec", CODECS)
def test_a_whole_batch_is_returned_itself(codec: int) -> None:
    """Nothing is copied where nothing need be changed."""
    batch = encode(plain(5, 10), codec=codec)
    assert rewritten(batch, from_offset=10) == [batch]
    assert rewritten(batch, from_offset=0) == [batch]


@pytest.mark.parametrize("codec", CODECS)
def test_holes_part_a_batch(codec: int) -> None:
    """Each contiguous piece becomes a batch at its own offsets, of the same codec."""
    records = [one for one in plain(10, 100) if one.offset not in (100, 103, 104, 109)]
    batch = view(holed(records, base=100, span=10, codec=codec))
    pieces = rewritten(batch, from_offset=0)
    assert [(one.base_offset, one.count) for one in pieces] == [(101, 2), (105, 4)]
    assert all(one.whole and one.codec == codec and one.crc_ok() for one in pieces)
    assert [record for one in pieces for record in decode(one)] == records
    assert [record for one in pieces for record in theirs(one.raw)] == records


@pytest.mark.parametrize("codec", CODECS)
def test_log_append_time_becomes_the_records_own(codec: int) -> None:
    """Base and maximum are the broker's stamp, all deltas 0, the bit is gone."""
    batch = view(holed(plain(4, 20), base=20, span=4, codec=codec, attributes=8, max_time=8888))
    (made,) = rewritten(batch, from_offset=0)
    assert (made.attributes, made.base_timestamp, made.max_timestamp) == (codec, 8888, 8888)
    assert [one.timestamp for one in theirs(made.raw)] == [8888] * 4
    assert decode(made) == decode(batch)


@given(kept=st.sets(st.integers(0, 19), max_size=20), start=st.integers(-1, 25), stamped_by_broker=st.booleans())
def test_rewriting_keeps_every_record_from_the_offset_on(
    kept: set[int],
    start: int,
    stamped_by_broker: bool,  # noqa: FBT001
) -> None:
    """Against a dumb twin: what comes out is what decoding gives, filtered; and every piece is whole."""
    records = [one for one in plain(20) if one.offset in kept]
    batch = view(holed(records, base=0, span=20, attributes=8 if stamped_by_broker else 0))
    pieces = rewritten(batch, from_offset=start)
    assert all(one.whole and not one.log_append_time for one in pieces)
    assert [record for one in pieces for record in decode(one)] == [one for one in decode(batch) if one.offset >= start]
    assert all(after.base_offset > before.last_offset + 1 for before, after in pairwise(pieces))


def test_what_would_become_larger_than_the_original_is_halved() -> None:
    """Recompressed at another level, data may grow beyond max.message.bytes, which the original kept."""
    source = random.Random(7)
    values = [" ".join(source.choices(WORDS, k=900)).encode() for _ in range(40)]
    records = [Record(at, 1000, None, value) for at, value in enumerate(values)]
    raw = holed(records, base=0, span=41)
    body = zstandard.ZstdCompressor(level=19).compress(raw[61:])
    dense = bytearray(raw[:61]) + body
    dense[22] = layout.ZSTD
    pieces = rewritten(view(bytes(dense)), from_offset=0)
    assert len(pieces) == 2
    assert sum(one.size for one in pieces) > len(dense) > max(one.size for one in pieces)
    assert [record for one in pieces for record in decode(one)] == records


def test_a_rewritten_batch_can_be_stamped() -> None:
    """The hot path's editor takes the result."""
    (made,) = rewritten(view(holed(plain(3), base=0, span=9)), from_offset=1)
    outgoing = stamped(made, producer_id=5, epoch=2, sequence=40)
    assert (outgoing.first, outgoing.count) == (1, 2)
    sent = view(outgoing.header + bytes(outgoing.body))
    assert sent.crc_ok()
    assert (sent.base_offset, sent.producer_id, sent.base_sequence) == (0, 5, 40)


def test_unknown_bits_of_a_record_survive() -> None:
    """Rewriting carries a record's attributes and tail as they are."""
    batch = bytearray(holed(plain(2, 1), base=0, span=3))
    batch[62] = 0x81
    (made,) = rewritten(view(bytes(batch)), from_offset=0)
    assert made.body[1] == 0x81


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("", "1 records in 0 bytes"),
        ("0c 00 00 00 01 01 00 00", "1 bytes remain behind"),
        ("0e 00 00 00 01 01 00", "reaches beyond the end"),
        ("0e 00 00 00 01 01 00 00", "1 bytes remain in a record"),
        ("01 00 00 00 01 01 00", "reaches beyond the end"),
        ("02 00 00 00 01 01 00", "too short"),
        ("0c 00 00 02 01 01 00", "out of order"),
        ("0c 00 00 01 01 01 00", "out of order"),
        ("0c 00 00 00 20 01 00", "reaches beyond its record"),
        ("0c 00 00 00 01 20 00", "reaches beyond its record"),
        ("0c 00 00 00 01 01 01", "claims -1 headers"),
        ("0c 00 00 00 01 01 20", "claims 16 headers"),
        ("10 00 00 00 01 01 02 01 01", "header has no name"),
        ("80 80 80 80 80 80 00", "longer than"),
        ("0c 00 00 80 80 80 80", "reaches beyond the end"),
    ],
)
def test_hostile_records(raw_batch: Raw, body: str, reason: str) -> None:
    """Each way in which a record can lie is a CorruptBatch that names partition and offset."""
    batch = view(raw_batch(33, body=bytes.fromhex(body)))
    with pytest.raises(CorruptBatch, match=reason) as caught:
        decode(batch, where=TopicPartition("t", 3))
    assert caught.value.offset == 33
    assert "t-3 " in str(caught.value)


@pytest.mark.parametrize(("count", "span"), [(-1, 1), (2, 1), (2**31 - 1, 2**31 - 1), (2, 2)])
def test_counts_that_do_not_fit(raw_batch: Raw, count: int, span: int) -> None:
    """More records claimed than offsets or bytes allow, or fewer than none."""
    batch = view(raw_batch(count=count, span=span, body=bytes.fromhex("0c 00 00 00 01 01 00")))
    with pytest.raises(CorruptBatch):
        decode(batch)


def test_an_empty_batch_holds_nothing(raw_batch: Raw) -> None:
    """All its records were compacted away."""
    batch = view(raw_batch(count=0, span=5, body=b""))
    assert decode(batch) == []
    assert rewritten(batch, from_offset=0) == []


def test_a_bomb_is_corrupt() -> None:
    """Beyond the bound nothing is decompressed."""
    batch = encode([Record(0, 0, None, bytes(1 << 20))], codec=layout.ZSTD)
    with pytest.raises(CorruptBatch, match="zstd cannot decompress it into 1000 bytes"):
        decode(batch, limit_bytes=1000)


@given(body=st.binary(max_size=80), count=st.integers(-3, 5), span=st.integers(1, 6), attributes=st.integers(0, 127))
def test_hostile_bytes_raise_corrupt_batch_only(
    raw_batch: Raw, body: bytes, count: int, span: int, attributes: int
) -> None:
    """Whatever the body, the answer is records or CorruptBatch."""
    batch = view(raw_batch(5, body=body, count=count, span=span, attributes=attributes))
    try:
        records = decode(batch, limit_bytes=1 << 22)
    except CorruptBatch:
        return
    assert len(records) == count


@given(
    codec=st.sampled_from(CODECS), found=contents, place=st.integers(61, 400), junk=st.binary(min_size=1, max_size=4)
)
def test_damaged_batches_raise_corrupt_batch_only(codec: int, found: list[Content], place: int, junk: bytes) -> None:
    """A real batch with some bytes changed is decoded and rewritten, or CorruptBatch."""
    raw = bytearray(encode(numbered(found), codec=codec).raw)
    place = 61 + place % (len(raw) - 61)
    raw[place : place + len(junk)] = junk
    for attempt in (decode, lambda batch: rewritten(batch, from_offset=1)):
        try:
            assert isinstance(attempt(view(bytes(raw))), list)
        except CorruptBatch:
            continue
