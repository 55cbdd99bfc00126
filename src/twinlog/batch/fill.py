"""Records that take up offsets for a while: null values under the key of the record behind them.

A broker takes no batch with holes. Where a compacted topic is copied for the first time, each hole is filled with
tombstones of the key of the next record, in the same batch. That record supersedes them, so a cleaner that reads the
batch once removes them all, and nothing else on their account: whatever they supersede, the record behind them
supersedes, too. A header tells them from a producer's tombstones.
"""

from collections.abc import Iterator
from typing import Final

from twinlog.batch import layout
from twinlog.batch.codecs import decompress
from twinlog.batch.records import Frame, Record, decode
from twinlog.batch.section import framed_at, packed
from twinlog.batch.view import Batch, OldBatch, varint, zigzag

HEADER_NAME: Final = b"twinlog-blank"
"""The name of the one header that a filling record has; its value is null."""

MAX_SPAN: Final = 16_384
"""Offsets of a batch made here, at most."""

_WIDTHS: Final = ((1, 0, 64), (2, 64, 8192), (3, 8192, MAX_SPAN))
"""Bytes of the zigzag number i, the first i that needs them, and the first that needs more."""
_DELTAS: Final = [zigzag(delta) for delta in range(MAX_SPAN)]
_NULL: Final = zigzag(-1)
_AFTER_KEY: Final = _NULL + zigzag(1) + zigzag(len(HEADER_NAME)) + HEADER_NAME + _NULL


def is_filling(record: Record) -> bool:
    """Whether a record is one that was made here."""
    return record.value is None and record.headers == ((HEADER_NAME, None),)


def last_filling(batch: Batch | OldBatch, below: int) -> int:
    """The last offset below `below` at which a batch has a filling record; -1 for none. Raises CorruptBatch."""
    if not isinstance(batch, Batch) or batch.control or not batch.count:
        return -1
    body = bytes(batch.body) if batch.codec == layout.NO_CODEC else decompress(batch.codec, batch.body)
    if HEADER_NAME not in body:
        return -1
    return max((record.offset for record in decode(batch) if record.offset < below and is_filling(record)), default=-1)


def filling_tail(frame: Frame) -> bytes | None:
    """What a filling record in front of `frame` has behind its deltas; None where `frame` has no key."""
    length, at = varint(frame.tail, 0)
    return None if length < 0 else frame.tail[: at + length] + _AFTER_KEY


class Joined:
    """One batch in the making: records at consecutive offsets from `first` on, each with what fills the hole before."""

    __slots__ = ("_first_time", "_max_time", "_parts", "bytes", "codec", "first", "next_offset")

    def __init__(self, codec: int, first: int, timestamp: int) -> None:
        self.codec = codec
        self.first = self.next_offset = first
        self.bytes = 0
        self._first_time = timestamp
        self._max_time = -1
        self._parts: list[bytes] = []

    def add(self, frame: Frame, tail: bytes | None = None) -> None:
        """Add a record; `tail` (see `filling_tail`) is for the offsets up to it, where there are any."""
        time = zigzag(frame.timestamp - self._first_time)
        begin, end = self.next_offset - self.first, frame.offset - self.first
        if tail is not None:
            self._keep(_fillings(begin, end, b"\0" + time, tail))
        elif begin != end:
            raise ValueError(f"offset {self.next_offset} has no record, and nothing to fill it with")
        self._keep([framed_at(frame, time, _DELTAS[end])])
        self._max_time = max(self._max_time, frame.timestamp)
        self.next_offset = frame.offset + 1

    def made(self) -> Batch:
        """The batch, as a producer that is not idempotent would make it."""
        return packed(
            b"".join(self._parts),
            codec=self.codec,
            first=self.first,
            count=self.next_offset - self.first,
            times=(self._first_time, self._max_time),
        )

    def _keep(self, parts: "Iterator[bytes] | list[bytes]") -> None:
        for part in parts:
            self._parts.append(part)
            self.bytes += len(part)


def _fillings(begin: int, end: int, middle: bytes, tail: bytes) -> Iterator[bytes]:
    """Records with the offset deltas `begin` to `end` - 1: they differ in nothing else."""
    for width, low, high in _WIDTHS:
        first, last = max(begin, low), min(end, high)
        if first < last:
            head = zigzag(len(middle) + width + len(tail)) + middle
            yield head + (tail + head).join(_DELTAS[first:last]) + tail
