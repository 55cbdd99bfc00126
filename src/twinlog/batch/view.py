"""One batch as a view over bytes: header fields by name, the records untouched."""

import struct
from typing import Final, NamedTuple
from zlib import crc32

from crc32c import crc32c

from twinlog.batch import layout
from twinlog.errors import CorruptBatch

_INT: Final = (1 << 32) - 1
_LONG: Final = (1 << 64) - 1
_TWO_64: Final = 1 << 64
_TWO_63: Final = 1 << 63


class Marker(NamedTuple):
    """What a control batch says: `type` is `layout.ABORT`, `layout.COMMIT` or a type of KRaft's.

    `coordinator_epoch` is -1 for any other type. Rule: `ControlRecordType`, `EndTransactionMarker` (KIP-98).
    """

    type: int
    coordinator_epoch: int


Header = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
"""The fields of `layout.HEADER`, in its order."""


class Batch:
    """A batch of magic 2 over exactly its own bytes; nothing is copied, the header is unpacked once.

    Raises CorruptBatch when `raw` is shorter than a header. Lengths and counts are judged by `scan`, which makes
    these; whoever makes one directly vouches for its bytes. Rule: Kafka's `DefaultRecordBatch`.
    """

    __slots__ = ("header", "raw")

    def __init__(self, raw: memoryview) -> None:
        try:
            self.header: Header = layout.HEADER.unpack_from(raw)
        except struct.error:
            raise CorruptBatch(None, -1, f"{len(raw)} bytes are too few for a header") from None
        self.raw = raw

    def __repr__(self) -> str:
        return f"<Batch {self.base_offset}..{self.last_offset} count={self.count} size={self.size}>"

    @property
    def base_offset(self) -> int:
        """Offset of the first record that the batch was written with."""
        return self.header[0]

    @property
    def last_offset(self) -> int:
        """Offset of the last record that the batch was written with; compaction leaves it as it is."""
        header = self.header
        return header[0] + header[6]

    @property
    def next_offset(self) -> int:
        """The offset behind the batch."""
        header = self.header
        return header[0] + header[6] + 1

    @property
    def size(self) -> int:
        """Bytes, the header among them."""
        return len(self.raw)

    @property
    def leader_epoch(self) -> int:
        """Epoch of the leader that appended it."""
        return self.header[2]

    @property
    def magic(self) -> int:
        """The format: 2."""
        return self.header[3]

    @property
    def crc(self) -> int:
        """CRC32C of all from the attributes on, as stored."""
        return self.header[4]

    @property
    def attributes(self) -> int:
        """The bits, see `layout`."""
        return self.header[5]

    @property
    def codec(self) -> int:
        """How the body is compressed: 0 not, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.header[5] & layout.CODEC_MASK

    @property
    def log_append_time(self) -> bool:
        """Whether the broker stamped it: then every record's time is `max_timestamp`, whatever its delta says."""
        return self.header[5] & layout.LOG_APPEND_TIME_BIT != 0

    @property
    def transactional(self) -> bool:
        """Whether it was written in a transaction."""
        return self.header[5] & layout.TRANSACTIONAL_BIT != 0

    @property
    def control(self) -> bool:
        """Whether it holds a marker, which no consumer sees."""
        return self.header[5] & layout.CONTROL_BIT != 0

    @property
    def delete_horizon(self) -> bool:
        """Whether the cleaner put the time of its deletion into `base_timestamp` (KIP-534)."""
        return self.header[5] & layout.DELETE_HORIZON_BIT != 0

    @property
    def last_offset_delta(self) -> int:
        """`last_offset` - `base_offset`."""
        return self.header[6]

    @property
    def base_timestamp(self) -> int:
        """What the records' time deltas are added to, in ms; also when it is a delete horizon."""
        return self.header[7]

    @property
    def max_timestamp(self) -> int:
        """The highest time of a record, in ms."""
        return self.header[8]

    @property
    def producer_id(self) -> int:
        """Id of an idempotent producer, else -1."""
        return self.header[9]

    @property
    def producer_epoch(self) -> int:
        """Epoch of an idempotent producer, else -1."""
        return self.header[10]

    @property
    def base_sequence(self) -> int:
        """Sequence of the first record, -1 when there is none (and in a marker)."""
        return self.header[11]

    @property
    def count(self) -> int:
        """Records that it holds now; fewer than its span when it was compacted, 0 when only its trace is left."""
        return self.header[12]

    @property
    def whole(self) -> bool:
        """Whether each offset of its span has its record."""
        header = self.header
        return header[12] == header[6] + 1

    @property
    def body(self) -> memoryview:
        """The records, compressed or not."""
        return self.raw[layout.HEADER_SIZE :]

    def crc_ok(self) -> bool:
        """Whether the stored CRC32C is that of the bytes."""
        return crc32c(self.raw[layout.ATTRIBUTES :]) == self.header[4]

    def marker(self) -> Marker | None:
        """What a control batch says, None for any other batch and for one whose record the cleaner has removed.

        Raises CorruptBatch when the record is not one. Rule: `ControlRecordType.parse`.
        """
        if not self.control or self.count == 0:
            return None
        try:
            return _marker(self.body)
        except (IndexError, ValueError) as reason:
            raise CorruptBatch(None, self.base_offset, f"its control record cannot be read ({reason})") from None


class OldBatch:
    """An entry of magic 0 or 1 over exactly its own bytes: one message, or a compressed wrapper of several.

    Raises CorruptBatch when `raw` is too short. Rule: Kafka's `AbstractLegacyRecordBatch`, `LegacyRecord`.
    """

    __slots__ = ("last_offset", "magic", "raw")

    def __init__(self, raw: memoryview) -> None:
        if len(raw) < layout.LOG_OVERHEAD + layout.OLD_OVERHEAD[0]:
            raise CorruptBatch(None, -1, f"{len(raw)} bytes are too few for a message")
        self.raw = raw
        self.last_offset: int
        self.magic: int
        self.last_offset, _, self.magic = layout.ENTRY.unpack_from(raw)

    def __repr__(self) -> str:
        return f"<OldBatch magic={self.magic} ..{self.last_offset} size={self.size}>"

    @property
    def base_offset(self) -> int:
        """The offset in the header. A wrapper bears that of its *last* message; only decoding tells its first."""
        return self.last_offset

    @property
    def next_offset(self) -> int:
        """The offset behind it."""
        return self.last_offset + 1

    @property
    def size(self) -> int:
        """Bytes, offset and length among them."""
        return len(self.raw)

    @property
    def attributes(self) -> int:
        """The bits, see `layout`; of those only codec and (magic 1) log append time exist."""
        return self.raw[layout.OLD_ATTRIBUTES]

    @property
    def codec(self) -> int:
        """0 for a single message, else how the wrapper's value is compressed."""
        return self.attributes & layout.CODEC_MASK

    @property
    def log_append_time(self) -> bool:
        """Whether the broker stamped it (magic 1)."""
        return self.magic == 1 and self.attributes & layout.LOG_APPEND_TIME_BIT != 0

    def crc_ok(self) -> bool:
        """Whether the stored CRC32 is that of the bytes."""
        stored = int.from_bytes(self.raw[layout.OLD_CRC : layout.MAGIC], "big")
        return crc32(self.raw[layout.MAGIC :]) == stored


def _marker(body: memoryview) -> Marker:
    """Read the single record of a control batch; IndexError or ValueError when it is none."""
    _, at = varint(body, 0)
    _, at = varint(body, at + 1, longest=10)  # behind the record's own attributes: its time delta
    _, at = varint(body, at)
    key, at = _field(body, at)
    value, _ = _field(body, at)
    if len(key) < 4 or int.from_bytes(key[:2], "big", signed=True) < 0:
        raise ValueError("its key is too short or of a negative version")
    kind = int.from_bytes(key[2:4], "big", signed=True)
    if kind not in {layout.ABORT, layout.COMMIT}:
        return Marker(kind, -1)
    if len(value) < 6:
        raise ValueError("its value is too short")
    return Marker(kind, int.from_bytes(value[2:6], "big", signed=True))


def _field(body: memoryview, at: int) -> tuple[memoryview, int]:
    length, at = varint(body, at)
    if length < 0:
        return body[:0], at
    if at + length > len(body):
        raise ValueError("a field reaches beyond the batch")
    return body[at : at + length], at + length


def varint(data: bytes | memoryview, at: int, *, longest: int = 5) -> tuple[int, int]:
    """Read a zigzag number of at most `longest` bytes (10 for a time's delta); returns it and the place behind it.

    Raises IndexError behind the end of `data`, ValueError for a longer one. Rule: `ByteUtils.readVarint`.
    """
    value = shift = 0
    while (byte := data[at]) >= 0x80:
        value |= (byte & 0x7F) << shift
        shift += 7
        at += 1
        if shift >= 7 * longest:
            raise ValueError(f"a number is longer than {longest} bytes")
    # As Java's int and long, which drop what does not fit.
    value = (value | byte << shift) & (_INT if longest == 5 else _LONG)
    return value >> 1 ^ -(value & 1), at + 1


def zigzag(number: int) -> bytes:
    """Write a signed number of at most 64 bits, wrapping as Java's `long` does (`ByteUtils.writeVarlong`)."""
    number = signed(number)
    rest = number << 1 ^ number >> 63
    if rest < 0x80:
        return rest.to_bytes(1, "big")
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def signed(number: int) -> int:
    """Wrap to 64 bits, as sums of Java's `long` do."""
    return (number + _TWO_63) % _TWO_64 - _TWO_63
