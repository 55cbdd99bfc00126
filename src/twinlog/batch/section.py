"""The record section of magic 2: records as rewriting sees them (`Frame`) and as readers do (`Record`).

Only the slow paths come here. What cannot be read raises Malformed, or ValueError or IndexError from a number that is
cut; `records` turns each into a CorruptBatch. Rule: `org.apache.kafka.common.record.DefaultRecord` (KIP-98, KIP-82).
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from twinlog.batch import layout
from twinlog.batch.codecs import Malformed, compress, decompress
from twinlog.batch.edit import sealed
from twinlog.batch.view import Batch, signed, varint, zigzag

_MIN_RECORD: Final = 7
"""Bytes of the smallest record: length, attributes, two deltas, no key, no value, no headers."""


class Record(NamedTuple):
    """What a reader gets: `timestamp` in ms (-1: none), null and empty told apart, headers in order with repeats."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


class Frame(NamedTuple):
    """One record as far as rewriting it needs; `tail` is all from the key's length on, byte for byte."""

    offset: int
    timestamp: int
    attributes: int
    tail: bytes


def frames(batch: Batch, *, limit_bytes: int) -> Iterator[Frame]:
    """Yield the records of a magic 2 batch, each checked as far as its own bounds.

    With the delete horizon bit set, deltas are relative to that horizon, since the cleaner writes them so
    (`MemoryRecordsBuilder`); so they are always relative to what stands in the base timestamp field.
    """
    if not 0 <= batch.count <= batch.last_offset_delta + 1:
        raise Malformed(f"it claims {batch.count} records in {batch.last_offset_delta + 1} offsets")
    if batch.count == 0:
        return
    section = decompress(batch.codec, batch.body, limit_bytes=limit_bytes)
    if batch.count * _MIN_RECORD > len(section):
        raise Malformed(f"it claims {batch.count} records in {len(section)} bytes")
    at, after = 0, -1
    for _ in range(batch.count):
        delta, frame, at = _frame(section, at, batch)
        if not after < delta <= batch.last_offset_delta:
            raise Malformed(f"offset delta {delta} is out of order or beyond its span")
        after = delta
        yield frame
    if at != len(section):
        raise Malformed(f"{len(section) - at} bytes remain behind its last record")


def _frame(section: bytes, at: int, batch: Batch) -> tuple[int, Frame, int]:
    """Read one record; returns its offset delta, the frame, and the place behind it."""
    length, at = varint(section, at)
    end = at + length
    if length < 0 or end > len(section):
        raise Malformed(f"a record of {length} bytes reaches beyond the end")
    attributes = section[at]
    time_delta, at = varint(section, at + 1, longest=10)
    delta, at = varint(section, at)
    if at > end:
        raise Malformed(f"a record of {length} bytes is too short")
    timestamp = batch.max_timestamp if batch.log_append_time else signed(batch.base_timestamp + time_delta)
    return delta, Frame(batch.base_offset + delta, timestamp, attributes, section[at:end]), end


def record_of(frame: Frame) -> Record:
    """Read a frame's tail, all of it."""
    tail = frame.tail
    key, at = _nullable(tail, 0)
    value, at = _nullable(tail, at)
    count, at = varint(tail, at)
    if not 0 <= count <= len(tail) - at:
        raise Malformed(f"a record claims {count} headers")
    headers = []
    for _ in range(count):
        name, at = _nullable(tail, at)
        content, at = _nullable(tail, at)
        if name is None:
            raise Malformed("a header has no name")
        headers.append((name, content))
    if at != len(tail):
        raise Malformed(f"{len(tail) - at} bytes remain in a record")
    return Record(frame.offset, frame.timestamp, key, value, tuple(headers))


def _nullable(tail: bytes, at: int) -> tuple[bytes | None, int]:
    """Read a length and as many bytes; any negative length is null (`Utils.readBytes`)."""
    length, at = varint(tail, at)
    if length < 0:
        return None, at
    end = at + length
    if end > len(tail):
        raise Malformed(f"a field of {length} bytes reaches beyond its record")
    return tail[at:end], end


def frame_of(record: Record) -> Frame:
    """Write a record's tail."""
    parts = [_with_length(record.key), _with_length(record.value), zigzag(len(record.headers))]
    for name, content in record.headers:
        parts += (_with_length(name), _with_length(content))
    return Frame(record.offset, record.timestamp, 0, b"".join(parts))


def _with_length(data: bytes | None) -> bytes:
    return b"\x01" if data is None else zigzag(len(data)) + data


def assembled(run: Sequence[Frame], codec: int) -> Batch:
    """Make one batch of frames whose offsets are consecutive, as a producer would that is not idempotent.

    The base timestamp is the first record's; the highest is at least -1, as the broker would compute it
    (`LogValidator`), so that the broker takes the batch without touching it.
    """
    first = run[0]
    return packed(
        b"".join(_framed(frame, first) for frame in run),
        codec=codec,
        first=first.offset,
        count=len(run),
        times=(first.timestamp, max(layout.NO_TIMESTAMP, *(frame.timestamp for frame in run))),
    )


def packed(section: bytes, *, codec: int, first: int, count: int, times: tuple[int, int]) -> Batch:
    """Put a header before a record section of `count` records from offset `first` on; `times`: base and highest."""
    body = compress(codec, section)
    summed = layout.CHECKSUMMED.pack(
        codec, count - 1, *times, layout.NO_PRODUCER, layout.NO_EPOCH, layout.NO_SEQUENCE, count
    )
    head = sealed(summed, body)[layout.LENGTH :]
    return Batch(memoryview(b"".join((first.to_bytes(8, "big"), head, body))))


def _framed(frame: Frame, first: Frame) -> bytes:
    return framed_at(frame, zigzag(frame.timestamp - first.timestamp), zigzag(frame.offset - first.offset))


def framed_at(frame: Frame, time_delta: bytes, offset_delta: bytes) -> bytes:
    """Write a record with its deltas, which are given as they are written."""
    length = zigzag(1 + len(time_delta) + len(offset_delta) + len(frame.tail))
    return b"".join((length, frame.attributes.to_bytes(1, "big"), time_delta, offset_delta, frame.tail))
