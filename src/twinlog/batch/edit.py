"""A batch as it goes out: a new header in front of the same records."""

from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from twinlog.batch import layout
from twinlog.batch.view import Batch

_KEPT_BITS: Final = ~(layout.TRANSACTIONAL_BIT | layout.DELETE_HORIZON_BIT)
_REFUSED_BITS: Final = layout.CONTROL_BIT | layout.LOG_APPEND_TIME_BIT


@dataclass(slots=True)
class Outgoing:
    """A batch to be produced: `header` then `body`, joined by whoever writes them to a socket.

    `first` is the offset that its first record must get, `count` its records (one an offset), `max_timestamp` the
    highest time of a record in ms, -1 for none. One is made for every batch, and a frozen class costs four times as
    much to make; nobody changes one.
    """

    header: bytes
    body: memoryview
    first: int
    count: int
    max_timestamp: int

    @property
    def last(self) -> int:
        """The offset that its last record must get."""
        return self.first + self.count - 1

    @property
    def size(self) -> int:
        """Bytes, the header among them."""
        return layout.HEADER_SIZE + len(self.body)


def stamped(batch: Batch, *, producer_id: int, epoch: int, sequence: int) -> Outgoing:
    """Put our producer id, epoch and base sequence on a batch; the records are neither copied nor looked at.

    Base offset becomes 0, since a broker rebuilds a batch with any other; the leader epoch -1; the transactional bit is
    cleared. So is the delete horizon bit (KIP-534), and `base_timestamp` stays as it is: where the cleaner put the
    horizon there, it wrote the records' time deltas relative to it, so the times stay the same
    (`MemoryRecordsBuilder`: baseTimestamp = deleteHorizonMs).

    Raises ValueError for a batch that cannot go out like this: a marker, one stamped by its broker, one with holes or
    without records (`records.rewritten` makes the last three into ones that can).
    """
    base, _, _, _, _, attributes, delta, base_time, max_time, _, _, _, count = batch.header
    if attributes & _REFUSED_BITS or count != delta + 1:
        raise ValueError(f"{batch!r} with attributes {attributes:#x} has to be rewritten, not stamped")
    body = batch.raw[layout.HEADER_SIZE :]
    summed = layout.CHECKSUMMED.pack(
        attributes & _KEPT_BITS, delta, base_time, max_time, producer_id, epoch, sequence, count
    )
    return Outgoing(sealed(summed, body), body, base, count, max_time)


def sealed(summed: bytes, body: memoryview | bytes) -> bytes:
    """Complete a header: length, magic 2 and CRC32C before `summed`, its part that the CRC covers; base offset 0."""
    length = layout.HEADER_SIZE - layout.LOG_OVERHEAD + len(body)
    crc = crc32c(body, crc32c(summed))
    return layout.BEFORE_CHECKSUM.pack(0, length, layout.NO_LEADER_EPOCH, layout.MAGIC_2, crc) + summed


def next_sequence(sequence: int, count: int) -> int:
    """Return the base sequence of the batch behind one of `count` records; after 2**31 - 1 comes 0.

    Rule: `DefaultRecordBatch.incrementSequence`.
    """
    return (sequence + count) & layout.MAX_SEQUENCE
