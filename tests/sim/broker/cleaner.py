"""What Kafka's log cleaner leaves of batches, done by hand. Pure."""

from collections.abc import Callable
from struct import Struct
from typing import Final

from crc32c import crc32c
from tests.sim.broker.log import PartitionLog

from twinlog.batch import layout
from twinlog.batch.codecs import MAX_DECODED_BYTES, compress, decompress
from twinlog.batch.view import Batch, varint

_LENGTH: Final = Struct(">i")
_CRC: Final = Struct(">I")


def clean(log: PartitionLog, keep: Callable[[int], bool], *, below: int, markers: bool = True) -> None:
    """Take out the records below `below` whose offsets are not to be kept; `markers` False takes control records, too.

    Of a batch with nothing left only its header stays where it is a producer's last one (`LogCleaner`), else nothing.
    """
    last = {batch.producer_id: batch.base_offset for batch in log.batches}
    left: list[Batch] = []
    for batch in log.batches:
        if batch.last_offset >= below:
            left.append(batch)
            continue
        kept = (batch if markers else _thinned(batch, lambda _: False)) if batch.control else _thinned(batch, keep)
        is_last = batch.producer_id != layout.NO_PRODUCER and last[batch.producer_id] == batch.base_offset
        if kept.count or is_last:
            left.append(kept)
    log.replace(left)


def _thinned(batch: Batch, keep: Callable[[int], bool]) -> Batch:
    section = decompress(batch.codec, batch.body, limit_bytes=MAX_DECODED_BYTES) if batch.count else b""
    kept: list[bytes] = []
    at = 0
    for _ in range(batch.count):
        length, body = varint(section, at)
        _, delta_at = varint(section, body + 1, longest=10)
        delta, _ = varint(section, delta_at)
        if keep(batch.base_offset + delta):
            kept.append(section[at : body + length])
        at = body + length
    return batch if len(kept) == batch.count else _with_records(batch, kept)


def _with_records(batch: Batch, records: list[bytes]) -> Batch:
    body = compress(batch.codec, b"".join(records)) if records else b""
    raw = bytearray(batch.raw[: layout.HEADER_SIZE]) + body
    _LENGTH.pack_into(raw, layout.LENGTH, len(raw) - layout.LOG_OVERHEAD)
    _LENGTH.pack_into(raw, layout.COUNT, len(records))
    _CRC.pack_into(raw, layout.CRC, crc32c(bytes(raw[layout.ATTRIBUTES :])))
    return Batch(memoryview(bytes(raw)))
