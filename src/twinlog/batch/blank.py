"""Filler: batches of tiny records, to take up offsets that hold nothing at the source."""

from functools import lru_cache
from typing import Final

from twinlog.batch import layout
from twinlog.batch.codecs import compress
from twinlog.batch.edit import Outgoing, sealed
from twinlog.batch.view import zigzag

MAX_FILLER: Final = 1_000_000
"""Records a batch: 0.76 MB with zstd, below the 1 MB that a stock topic takes.

Level 3 takes 0.03 s for it; 6 gains 5% in three times the time, 9 and up lose. Gzip makes 1.4 MB, lz4 4 MB.
"""

_WIDTHS: Final = ((1, 0, 64), (2, 64, 8192), (3, 8192, 1 << 20))
"""Bytes of the zigzag number i, the first i that needs them, and the first that needs more."""


def filler(count: int, *, key: bytes | None = None, codec: int = layout.ZSTD) -> bytes:
    """Return the record section of `count` records with null values, each as small as a record can be.

    `key` is in each record; a compacted topic demands one. `codec` is one of layout's. The time of every record is the
    batch's base timestamp. The last few results are kept.

    Raises ValueError for a count outside 1..MAX_FILLER or an unknown codec. Rule: `DefaultRecord`; `LogValidator` reads
    each record, and rebuilds the batch unless offset deltas are 0, 1, 2 and so on.
    """
    if not 1 <= count <= MAX_FILLER:
        raise ValueError(f"a filler batch holds 1 to {MAX_FILLER} records, not {count}")
    return _section(count, key, codec)


@lru_cache(maxsize=8)  # below 8 MB when compressed; a long prefix is many batches of one count
def _section(count: int, key: bytes | None, codec: int) -> bytes:
    records = b"".join(
        _records(first, min(count, end) - first, width, key) for width, first, end in _WIDTHS if count > first
    )
    return compress(codec, records)


def filler_batch(
    count: int,
    *,
    producer_id: int,
    epoch: int,
    sequence: int,
    transactional: bool,
    timestamp_ms: int,
    key: bytes | None = None,
    codec: int = layout.ZSTD,
    first: int = 0,
) -> Outgoing:
    """Make a batch of `count` filler records that all have the time `timestamp_ms`.

    `first` is the offset that its first record must get; `count`, `key` and `codec` as in `filler`.
    """
    body = filler(count, key=key, codec=codec)
    summed = layout.CHECKSUMMED.pack(
        codec | (layout.TRANSACTIONAL_BIT if transactional else 0),
        count - 1,
        timestamp_ms,
        timestamp_ms,
        producer_id,
        epoch,
        sequence,
        count,
    )
    return Outgoing(sealed(summed, body), memoryview(body), first, count, timestamp_ms)


def _records(first: int, count: int, width: int, key: bytes | None) -> bytearray:
    """Records `first` and on, whose offset deltas all have `width` bytes: one record repeated, the deltas laid in."""
    key_field = zigzag(-1) if key is None else zigzag(len(key)) + key
    end = key_field + zigzag(-1) + zigzag(0)  # null value, no headers
    length = zigzag(2 + width + len(end))
    record = length + bytes(2 + width) + end  # attributes 0, time delta 0, room for the offset delta
    block = bytearray(record * count)
    at = len(length) + 2
    for place in range(width):
        block[at + place :: len(record)] = _column(first, count, place, last=place == width - 1)
    return block


def _column(first: int, count: int, place: int, *, last: bool) -> bytes:
    """Byte number `place` of the zigzag numbers of `count` deltas from `first` on.

    It stands still for `run` deltas and comes round after `period`: the lowest bit of a number is its sign.
    """
    run, digits = (1, range(0, 128, 2)) if place == 0 else (64 * 128 ** (place - 1), range(128))
    period = run * len(digits)
    flag = 0 if last else 0x80
    cycle = b"".join(bytes([digit | flag]) * run for digit in digits)
    start = first % period
    return (cycle * ((start + count) // period + 1))[start : start + count]
