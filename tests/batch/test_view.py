"""One batch as a view: every header field by name, markers, old messages, and hostile bytes."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.record.util import encode_varint

from twinlog.batch.view import Batch, Marker, OldBatch, signed, varint
from twinlog.errors import CorruptBatch

Raw = Callable[..., bytes]

FIELDS = {
    "base_offset": "base_offset",
    "last_offset": "last_offset",
    "next_offset": "next_offset",
    "leader_epoch": "leader_epoch",
    "magic": "magic",
    "crc": "crc",
    "attributes": "attributes",
    "codec": "compression_type",
    "log_append_time": "timestamp_type",
    "transactional": "is_transactional",
    "control": "is_control_batch",
    "last_offset_delta": "last_offset_delta",
    "base_timestamp": "first_timestamp",
    "max_timestamp": "max_timestamp",
    "producer_id": "producer_id",
    "producer_epoch": "producer_epoch",
    "base_sequence": "base_sequence",
    "count": "records_count",
    "size": "size_in_bytes",
}


def int_of(size: int) -> st.SearchStrategy[int]:
    """Any signed number of that many bytes."""
    return st.integers(-(2 ** (8 * size - 1)), 2 ** (8 * size - 1) - 1)


@given(header=st.tuples(int_of(8), int_of(4), int_of(2), int_of(8), int_of(8), int_of(8), int_of(2), int_of(4)))
def test_every_field_is_what_an_independent_client_reads(raw_batch: Raw, header: tuple[int, ...]) -> None:
    """Whatever the header says, kafka-python reads the same from it."""
    names = ("leader_epoch", "attributes", "base_time", "max_time", "producer", "epoch", "sequence")
    base, fields = header[0], dict(zip(names, header[1:], strict=True))
    raw = raw_batch(base, count=3, span=7, body=b"some bytes", **fields)
    ours, theirs = Batch(memoryview(raw)), DefaultRecordBatch(raw)
    assert {our: getattr(ours, our) for our in FIELDS} == {our: getattr(theirs, their) for our, their in FIELDS.items()}
    assert ours.crc_ok()
    assert ours.body == b"some bytes"
    assert ours.delete_horizon == (ours.attributes & 64 > 0)


def test_a_batch_of_a_real_builder_in_known_bytes() -> None:
    """The fields of a batch whose bytes are written out here."""
    raw = bytes.fromhex(
        "0000000000000000" "0000003a" "00000000" "02" "0067e77f" "0000" "00000000"
        "0000000000000064" "0000000000000064" "ffffffffffffffff" "ffff" "ffffffff" "00000001"
        "10" "00" "00" "00" "02" "6b" "02" "76" "00"
    )  # fmt: skip
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 999)
    builder.append(0, 100, b"k", b"v", [])
    assert bytes(builder.build()) == raw
    batch = Batch(memoryview(raw))
    assert (batch.base_offset, batch.last_offset, batch.next_offset, batch.count) == (0, 0, 1, 1)
    assert (batch.base_timestamp, batch.max_timestamp, batch.crc) == (100, 100, 0x0067E77F)
    assert batch.whole
    assert batch.crc_ok()
    assert repr(batch) == f"<Batch 0..0 count=1 size={len(raw)}>"


def test_nothing_is_copied(raw_batch: Raw) -> None:
    """The body is a view of the very buffer that the batch was made over."""
    buffer = bytearray(raw_batch(body=b"abc"))
    batch = Batch(memoryview(buffer))
    buffer[-1] = ord("x")
    assert batch.body == b"abx"
    assert not batch.crc_ok()


def test_a_batch_with_a_hole_is_not_whole(raw_batch: Raw) -> None:
    """Compaction takes records and leaves the span."""
    assert not Batch(memoryview(raw_batch(count=2, span=3))).whole
    assert not Batch(memoryview(raw_batch(count=0, span=1))).whole
    assert Batch(memoryview(raw_batch(count=3))).whole


@pytest.mark.parametrize(("kind", "epoch"), [(0, 9), (1, 9), (2, -1), (6, -1)])
def test_a_control_batch_says_what_it_is(raw_marker: Raw, kind: int, epoch: int) -> None:
    """Type and coordinator epoch come from the control record; other types have no coordinator."""
    assert Batch(memoryview(raw_marker(5, kind))).marker() == Marker(kind, epoch)


def test_a_marker_whose_time_lies_far_from_a_delete_horizon_is_read(raw_marker: Raw) -> None:
    """Relative to a horizon set years later its time delta takes more than 32 bits."""
    record = bytes.fromhex("00 ffffffffff3f 00 08 00000001 0c 000000000007 00")
    body = bytes([2 * len(record)]) + record
    assert Batch(memoryview(raw_marker(5, 1, body=body, attributes=0x70))).marker() == Marker(1, 7)


def test_what_is_no_marker_says_so(raw_batch: Raw, raw_marker: Raw) -> None:
    """Data, and a control batch that the cleaner has emptied, have no marker."""
    assert Batch(memoryview(raw_batch(5, attributes=0x10))).marker() is None
    assert Batch(memoryview(raw_marker(5, 0, count=0, span=1, body=b""))).marker() is None


@pytest.mark.parametrize(
    "record",
    [
        "",
        "20",
        "20 00 00 00 01 00 00",  # a null key
        "20 00 00 00 06 000000 00",  # a key of three bytes
        "20 00 00 00 08 ffff0000 0c 000000000009 00",  # a negative version
        "20 00 00 00 08 00000000 08 00000000 00",  # a value without an epoch
        "20 00 00 00 08 00000000 7e 000000000009 00",  # a value beyond the end
        "20 00 00 ffffffffffffff 08",  # a number without end
    ],
)
def test_a_broken_marker_is_a_corrupt_batch(raw_marker: Raw, record: str) -> None:
    """A control record that cannot be read is refused with its offset, by no other error."""
    with pytest.raises(CorruptBatch, match="offset 77: its control record cannot be read"):
        Batch(memoryview(raw_marker(77, 0, body=bytes.fromhex(record)))).marker()


@given(body=st.binary(max_size=40))
def test_any_bytes_are_a_marker_or_a_corrupt_batch(raw_marker: Raw, body: bytes) -> None:
    """Random control records never raise anything else."""
    batch = Batch(memoryview(raw_marker(0, 0, body=body)))
    try:
        found: object = batch.marker()
    except CorruptBatch as error:
        found = error
    assert isinstance(found, Marker | CorruptBatch)


@pytest.mark.parametrize("size", [0, 16, 60])
def test_too_few_bytes_are_no_batch(size: int) -> None:
    """Neither view is made over less than its header."""
    with pytest.raises(CorruptBatch, match="too few"):
        Batch(memoryview(bytes(size)))
    with pytest.raises(CorruptBatch, match="too few"):
        OldBatch(memoryview(bytes(min(size, 25))))


@pytest.mark.parametrize("magic", [0, 1])
def test_an_old_message(old_message: Raw, magic: int) -> None:
    """Offset, magic, checksum and bits of the old formats."""
    raw = old_message(42, magic=magic, attributes=8)
    old = OldBatch(memoryview(raw))
    assert (old.base_offset, old.last_offset, old.next_offset, old.magic) == (42, 42, 43, magic)
    assert (old.codec, old.log_append_time, old.size) == (0, magic == 1, len(raw))
    assert old.crc_ok()
    assert not OldBatch(memoryview(raw[:-1] + b"?")).crc_ok()
    assert repr(old) == f"<OldBatch magic={magic} ..42 size={len(raw)}>"


def test_a_wrapper_bears_its_last_offset(old_message: Raw) -> None:
    """A compressed old message stands for several; its own offset is that of the last one."""
    old = OldBatch(memoryview(old_message(42, attributes=1)))
    assert (old.codec, old.last_offset) == (1, 42)


@given(value=st.integers(-(2**63), 2**63 - 1), ahead=st.binary(max_size=3))
def test_a_number_is_what_an_independent_client_wrote(value: int, ahead: bytes) -> None:
    """Each 64-bit zigzag number is read back, with the place behind it."""
    written = bytearray()
    encode_varint(value, written.append)
    assert varint(memoryview(ahead + written + b"rest"), len(ahead), longest=10) == (value, len(ahead) + len(written))


@pytest.mark.parametrize(
    ("spelt", "longest", "value"),
    [("80" * 9 + "02", 10, 0), ("80" * 9 + "03", 10, 2**62), ("8080808010", 5, 0), ("feffffff7f", 5, 2**31 - 1)],
)
def test_bits_that_do_not_fit_are_dropped(spelt: str, longest: int, value: int) -> None:
    """As Java's int and long do: a broker takes such a number, and readers of Kafka's read that."""
    read = varint(bytes.fromhex(spelt), 0, longest=longest)
    assert (signed(read[0]), read[1]) == (value, longest)


def test_a_number_too_long_is_refused() -> None:
    """Five bytes are read, a sixth is not, nor one behind the end."""
    assert varint(memoryview(bytes.fromhex("ffffffff0f")), 0) == (-(2**31), 5)
    with pytest.raises(ValueError, match="longer than 5 bytes"):
        varint(memoryview(bytes.fromhex("ffffffffff0f")), 0)
    with pytest.raises(IndexError):
        varint(memoryview(b"\xff"), 0)
