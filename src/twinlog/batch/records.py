"""Decode, encode and rewrite batches: the slow paths, for what cannot be passed on as it is.

Rewriting a batch of magic 2 touches lengths and deltas only; keys, values and headers are carried as bytes.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from twinlog.batch.codecs import MAX_DECODED_BYTES
from twinlog.batch.old import old_records
from twinlog.batch.section import Frame, Record, assembled, frame_of, frames, record_of
from twinlog.batch.view import Batch, OldBatch
from twinlog.errors import CorruptBatch
from twinlog.names import TopicPartition

__all__ = ["MAX_DECODED_BYTES", "Frame", "Record", "decode", "encode", "frames_from", "rewritten"]

_SMALL_BYTES: Final = 16 << 10
"""A rewritten batch is split rather than larger than its original; but nobody sets max.message.bytes below this."""


def decode(
    batch: Batch | OldBatch, *, where: TopicPartition | None = None, limit_bytes: int = MAX_DECODED_BYTES
) -> list[Record]:
    """Read every record of a batch of any magic, in offset order.

    The checksum was checked by `scan`. Raises CorruptBatch, naming `where`, for anything that Kafka's own reader
    refuses, for offsets that do not ascend within the batch's span, and beyond `limit_bytes` of decompressed data.
    """
    with _reading(batch, where):
        if isinstance(batch, OldBatch):
            return old_records(batch, limit_bytes=limit_bytes)
        return [record_of(frame) for frame in frames(batch, limit_bytes=limit_bytes)]


def frames_from(batch: Batch, *, from_offset: int, where: TopicPartition | None = None) -> list[Frame]:
    """The records from `from_offset` on, as far as rewriting needs them. Raises CorruptBatch as `decode` does."""
    with _reading(batch, where):
        return [frame for frame in frames(batch, limit_bytes=MAX_DECODED_BYTES) if frame.offset >= from_offset]


def encode(records: Sequence[Record], *, codec: int) -> Batch:
    """Make one magic 2 batch (CreateTime, no producer) of records with consecutive offsets.

    Raises ValueError when there is none, or when an offset is missing: a broker refuses gaps (`LogValidator`).
    """
    run = [frame_of(record) for record in records]
    if not run or any(frame.offset != run[0].offset + at for at, frame in enumerate(run)):
        raise ValueError("a batch needs records, and their offsets consecutive")
    return assembled(run, codec)


def rewritten(
    batch: Batch | OldBatch,
    *,
    from_offset: int,
    where: TopicPartition | None = None,
    limit_bytes: int = MAX_DECODED_BYTES,
) -> list[Batch]:
    """Turn a data batch into batches that a CreateTime topic takes as they are, without what lies below `from_offset`.

    A whole batch of magic 2 is returned itself. Else the same codec is kept, and: holes part it into contiguous
    batches; a broker's stamp (LogAppendTime) becomes every record's own time; magic 0 and 1 become magic 2, as a broker
    up-converts them (`LogValidator`). None grows beyond the original while it can be halved. Raises CorruptBatch.
    """
    if isinstance(batch, Batch) and batch.whole and batch.base_offset >= from_offset and not batch.log_append_time:
        return [batch]
    with _reading(batch, where):
        kept = [frame for frame in _frames(batch, limit_bytes) if frame.offset >= from_offset]
    bound = max(batch.size, _SMALL_BYTES)
    return [made for run in _runs(kept) for made in _bounded(run, batch.codec, bound)]


def _frames(batch: Batch | OldBatch, limit_bytes: int) -> Iterator[Frame]:
    if isinstance(batch, Batch):
        return frames(batch, limit_bytes=limit_bytes)
    return map(frame_of, old_records(batch, limit_bytes=limit_bytes))


def _runs(kept: Sequence[Frame]) -> Iterator[Sequence[Frame]]:
    """Part frames where an offset is missing."""
    start = 0
    for at in range(1, len(kept) + 1):
        if at == len(kept) or kept[at].offset != kept[at - 1].offset + 1:
            yield kept[start:at]
            start = at


def _bounded(run: Sequence[Frame], codec: int, bound: int) -> list[Batch]:
    """Halve a run until each batch is at most `bound` bytes or a single record."""
    made = assembled(run, codec)
    if made.size <= bound or len(run) == 1:
        return [made]
    half = len(run) // 2
    return _bounded(run[:half], codec, bound) + _bounded(run[half:], codec, bound)


@contextmanager
def _reading(batch: Batch | OldBatch, where: TopicPartition | None) -> Iterator[None]:
    """Turn whatever reading hostile bytes raises into the one error that names the batch."""
    try:
        yield
    except IndexError:
        raise CorruptBatch(where, batch.base_offset, "a record reaches beyond the end") from None
    except ValueError as reason:
        raise CorruptBatch(where, batch.base_offset, str(reason)) from None
