"""What of a fetched answer is sent, and as which bytes. Pure: it decides what is correct, and is tested by itself.

A batch of which all is wanted goes out with a new header in front of the same records. Any other is taken apart: its
records keep key, value, headers and time, and get new, consecutive places, since the destination's offsets are its own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from twinlog.batch import layout
from twinlog.batch.edit import sealed
from twinlog.batch.records import Record, decode, frames_from
from twinlog.batch.scan import Blank, Data
from twinlog.batch.section import Frame, assembled, frame_of
from twinlog.batch.view import Batch, OldBatch
from twinlog.names import TopicPartition

PROVENANCE: Final = b"twinlog.provenance"
_KEPT_BITS: Final = ~(layout.DELETE_HORIZON_BIT | layout.CONTROL_BIT)
_MASK: Final = 0xFFFFFFFF


class Piece(NamedTuple):
    """A batch for one partition of the destination; `first` is the source offset of its first record."""

    partition: int
    batch: Batch
    first: int


@dataclass(frozen=True, slots=True)
class Shape:
    """What is changed on the way: `partitions` (0: kept) spreads by key over so many, `origin` adds provenance.

    `origin` is the source's cluster id, `cut` the destination's: records that came from there are left out.
    """

    partitions: int = 0
    origin: str = ""
    cut: str = ""


KEPT: Final = Shape()
"""Nothing is changed."""


def wanted(
    items: Iterable[Data | Blank], position: int, where: TopicPartition, *, shape: Shape = KEPT, exact: bool = False
) -> tuple[Batch | Blank, ...]:
    """The batches of `items` from `position` on, each with its records in consecutive places.

    A batch is kept as it is where all of it is wanted. Its base offset stays the source's: only a new header is
    written over it. With provenance each record gets its header here, where its offset is known.

    With `exact` a batch is parted at its holes, so that every record has the offset that it has at the source.
    Raises CorruptBatch.
    """
    out: list[Batch | Blank] = []
    for item in items:
        if isinstance(item, Data):
            out += _taken(item.batch, position, where, shape, exact=exact)
    return tuple(out)


def _taken(
    batch: Batch | OldBatch, position: int, where: TopicPartition, shape: Shape, *, exact: bool
) -> Sequence[Batch]:
    if isinstance(batch, OldBatch) or shape.origin:
        records = [record for record in decode(batch, where=where) if record.offset >= position]
        if shape.origin:
            records = [_told(record, where, shape.origin) for record in records if not _came_from(record, shape.cut)]
        frames = [frame_of(record) for record in records]
    elif batch.whole and batch.base_offset >= position and not batch.log_append_time:
        return (batch,)
    else:
        frames = frames_from(batch, from_offset=position, where=where)
    runs = _runs(frames) if exact else [frames]
    return [_consecutive(run, batch.codec) for run in runs if run]


def _runs(frames: Sequence[Frame]) -> Iterable[Sequence[Frame]]:
    """Part frames where an offset is missing."""
    begin = 0
    for at in range(1, len(frames) + 1):
        if at == len(frames) or frames[at].offset != frames[at - 1].offset + 1:
            yield frames[begin:at]
            begin = at


def _consecutive(frames: Sequence[Frame], codec: int) -> Batch:
    """One batch of frames, whose offsets count up from the first's."""
    first = frames[0].offset
    return assembled([frame._replace(offset=first + at) for at, frame in enumerate(frames)], codec)


def pieces(batch: Batch, where: TopicPartition, shape: Shape, *, limit_bytes: int | None = None) -> list[Piece]:
    """`batch` (one of `wanted`) as it goes to the destination; batches above `limit_bytes` are halved.

    A single record above the limit stays one batch: the destination says whether it takes it.
    """
    made = [Piece(where.partition, batch, batch.base_offset)]
    if shape.partitions:
        spread = _spread(decode(batch, where=where), where, shape.partitions)
        made = [
            Piece(partition, _consecutive([frame_of(record) for record in records], batch.codec), batch.base_offset)
            for partition, records in spread.items()
        ]
    if limit_bytes is None:
        return made
    return [small for piece in made for small in _halved(piece, where, limit_bytes, exact=not shape.partitions)]


def _halved(piece: Piece, where: TopicPartition, limit_bytes: int, *, exact: bool) -> list[Piece]:
    batch = piece.batch
    if batch.size <= limit_bytes or batch.count <= 1:
        return [piece]
    frames = frames_from(batch, from_offset=batch.base_offset, where=where)
    half = len(frames) // 2
    halves = [assembled(frames[:half], batch.codec), assembled(frames[half:], batch.codec)]
    # Spread by key, records have left their offsets: then only the whole batch's place is known.
    firsts = [piece.first, piece.first + (half if exact else 0)]
    return [
        small
        for made, first in zip(halves, firsts, strict=True)
        for small in _halved(Piece(piece.partition, made, first), where, limit_bytes, exact=exact)
    ]


def _spread(records: Iterable[Record], where: TopicPartition, partitions: int) -> dict[int, list[Record]]:
    spread: dict[int, list[Record]] = {}
    for record in records:
        spread.setdefault(partition_of(record.key, partitions, otherwise=where.partition), []).append(record)
    return spread


def _told(record: Record, where: TopicPartition, origin: str) -> Record:
    told = f"{origin}/{where.topic}/{where.partition}/{record.offset}".encode()
    return record._replace(headers=(*record.headers, (PROVENANCE, told)))


def _came_from(record: Record, cluster: str) -> bool:
    before = f"{cluster}/".encode()
    return any(name == PROVENANCE and (value or b"").startswith(before) for name, value in record.headers)


def transactional(batch: Batch, *, producer_id: int, epoch: int, sequence: int) -> bytes:
    """The header that makes `batch` a part of a transaction; its body follows as it is.

    As `batch.edit.stamped`, but with the transactional bit set.
    """
    _, _, _, _, _, attributes, delta, base_time, max_time, _, _, _, count = batch.header
    if count != delta + 1 or attributes & (layout.CONTROL_BIT | layout.LOG_APPEND_TIME_BIT):
        raise ValueError(f"{batch!r} with attributes {attributes:#x} has to be rewritten, not stamped")
    bits = attributes & _KEPT_BITS | layout.TRANSACTIONAL_BIT
    summed = layout.CHECKSUMMED.pack(bits, delta, base_time, max_time, producer_id, epoch, sequence, count)
    return sealed(summed, batch.raw[layout.HEADER_SIZE :])


def partition_of(key: bytes | None, partitions: int, *, otherwise: int) -> int:
    """The partition that Java's default partitioner gives to a key; one without a key stays where it was."""
    if key is None:
        return otherwise % partitions
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """The 32-bit murmur2 hash with Kafka's seed, unsigned (`org.apache.kafka.common.utils.Utils.murmur2`)."""
    mixer, length = 0x5BD1E995, len(data)
    value = 0x9747B28C ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * mixer & _MASK
        word = (word ^ word >> 24) * mixer & _MASK
        value = (value * mixer & _MASK) ^ word
    if whole < length:
        value = (value ^ int.from_bytes(data[whole:], "little")) * mixer & _MASK
    value = (value ^ value >> 13) * mixer & _MASK
    return value ^ value >> 15
