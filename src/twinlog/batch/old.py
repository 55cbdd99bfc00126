"""Messages of magic 0 and 1, single or in a compressed wrapper, as records.

Rule: `AbstractLegacyRecordBatch` with its `DeepRecordsIterator`, and `LegacyRecord`. One thing is stricter than there:
a wrapper whose last message is cut is refused, since passing on the rest could lose a record silently.
"""

from collections.abc import Iterator
from itertools import pairwise
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from twinlog.batch import layout
from twinlog.batch.codecs import Malformed, decompress
from twinlog.batch.section import Record
from twinlog.batch.view import OldBatch

_INT: Final = Struct(">i")
_LONG: Final = Struct(">q")
_ENTRY: Final = Struct(">qi")


class _Message(NamedTuple):
    """One message, single or inside a wrapper; `offset` as it stands there."""

    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def old_records(batch: OldBatch, *, limit_bytes: int) -> list[Record]:
    """Read all records of an entry, their offsets absolute; raises Malformed (or IndexError on a cut number).

    Timestamps: magic 0 has none (-1); of a wrapper that the broker stamped all get the stamp.
    """
    outer = _message(bytes(batch.raw[layout.LOG_OVERHEAD :]), batch.last_offset)
    codec = outer.attributes & layout.CODEC_MASK
    if codec == layout.NO_CODEC:
        return [_record(outer, outer.offset, None)]
    if outer.value is None:
        raise Malformed("a compressed wrapper has no value")
    if codec > layout.LZ4:
        raise Malformed(f"magic {outer.magic} has no codec {codec}")
    section = decompress(codec, memoryview(outer.value), limit_bytes=limit_bytes)
    return _unwrapped(outer, list(_inner(section)))


def _unwrapped(outer: _Message, inner: list[_Message]) -> list[Record]:
    if not inner:
        raise Malformed("a compressed wrapper is empty")
    stamped = outer.magic == 1 and outer.attributes & layout.LOG_APPEND_TIME_BIT
    stamp = outer.timestamp if stamped else None
    base = _base(outer, inner[-1].offset)
    records = [_record(message, base + message.offset, stamp) for message in inner]
    if any(after.offset <= before.offset for before, after in pairwise(records)):
        raise Malformed("offsets inside a wrapper do not ascend")
    if records[0].offset < 0 or records[-1].offset > outer.offset:
        raise Malformed(f"offsets inside a wrapper are not below its own, {outer.offset}")
    return records


def _base(outer: _Message, last: int) -> int:
    """What to add to inner offsets: those of magic 0 are absolute, of magic 1 relative to a start known by the end."""
    return outer.offset - last if outer.magic == 1 else 0


def _inner(section: bytes) -> Iterator[_Message]:
    at = 0
    while at < len(section):
        if at + _ENTRY.size > len(section):
            raise Malformed("the last message of a wrapper is cut")
        offset, length = _ENTRY.unpack_from(section, at)
        at += _ENTRY.size
        if not layout.OLD_OVERHEAD[0] <= length <= len(section) - at:
            raise Malformed(f"a message of {length} bytes inside a wrapper is too short or too long")
        message = _message(section[at : at + length], offset)
        if message.attributes & layout.CODEC_MASK:
            raise Malformed("a message inside a wrapper is compressed itself")
        _check(section[at : at + length])
        yield message
        at += length


def _check(message: bytes) -> None:
    """Compare the CRC of an inner message; a single or outer one is checked when its buffer is scanned."""
    if crc32(memoryview(message)[4:]) != int.from_bytes(message[:4], "big"):
        raise Malformed("a message inside a wrapper has a wrong checksum")


def _message(data: bytes, offset: int) -> _Message:
    """Read CRC, magic, attributes, (time,) key and value; `data` holds nothing else."""
    magic, attributes = data[4], data[5]
    if magic not in (0, 1):
        raise Malformed(f"a message has magic {magic}")
    if len(data) < layout.OLD_OVERHEAD[magic]:
        raise Malformed(f"a message has {len(data)} bytes only")
    timestamp = _LONG.unpack_from(data, 6)[0] if magic == 1 else layout.NO_TIMESTAMP
    key, at = _nullable(data, layout.OLD_KEY[magic] - layout.LOG_OVERHEAD)
    value, at = _nullable(data, at)
    if at != len(data):
        raise Malformed(f"{len(data) - at} bytes remain in a message")
    return _Message(offset, magic, attributes, timestamp, key, value)


def _nullable(data: bytes, at: int) -> tuple[bytes | None, int]:
    """Read a 32-bit length and as many bytes; any negative length is null (`Utils.sizeDelimited`)."""
    if at + _INT.size > len(data):
        raise Malformed("a length is cut")
    (length,) = _INT.unpack_from(data, at)
    at += _INT.size
    if length < 0:
        return None, at
    if length > len(data) - at:
        raise Malformed(f"a field of {length} bytes reaches beyond its message")
    return data[at : at + length], at + length


def _record(message: _Message, offset: int, stamp: int | None) -> Record:
    timestamp = stamp if stamp is not None and message.magic == 1 else message.timestamp
    return Record(offset, timestamp, message.key, message.value)
