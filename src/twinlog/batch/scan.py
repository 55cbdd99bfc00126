"""A fetched buffer: its batches, and what of them a read_committed reader would see."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from twinlog.batch import layout
from twinlog.batch.view import Batch, OldBatch
from twinlog.errors import CorruptBatch
from twinlog.names import TopicPartition


@dataclass(frozen=True, slots=True)
class Data:
    """A batch that holds records which a reader sees."""

    batch: Batch | OldBatch


@dataclass(frozen=True, slots=True)
class Blank:
    """Offsets `first` to `last`, both included, at which a reader finds nothing."""

    first: int
    last: int


class Aborted(NamedTuple):
    """One entry of a fetch response's list of aborted transactions that touch the fetched range."""

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class Scan:
    """What `readable` found: `items` in offset order from the position on, without a gap between them.

    `next_offset` is where the next fetch begins (the position itself, when nothing was found), `bytes` how much of
    the buffer was used.
    """

    items: tuple[Data | Blank, ...]
    next_offset: int
    bytes: int


def batches(
    buffer: memoryview, where: TopicPartition | None = None, *, check: bool = True
) -> Iterator[Batch | OldBatch]:
    """Cut a fetched buffer into its batches, without copying; a batch cut off at the end is left out.

    A broker returns the first batch whole whatever its size (KIP-74), so a buffer with bytes but without a batch comes
    from something else. With `check` each checksum is computed.

    Raises CorruptBatch, naming `where` and the batch's offset, for bytes that no broker writes: a length below the
    format's least or beyond `layout.MAX_BATCH_BYTES`, an unknown magic, a checksum that differs, a count or delta that
    is negative or contradicts the other, an unknown codec, offsets that run backwards.
    Rule: `ByteBufferLogInputStream`, `DefaultRecordBatch.ensureValid`.
    """
    entry, at, reached, size = layout.ENTRY.unpack_from, 0, -1, len(buffer)
    while size - at >= layout.ENTRY_SIZE:
        offset, length, magic = entry(buffer, at)
        if not layout.OLD_OVERHEAD[0] <= length <= layout.MAX_BATCH_BYTES:
            raise CorruptBatch(where, offset, f"its length says {length} bytes")
        if not reached < offset < layout.MAX_OFFSET:
            raise CorruptBatch(where, offset, f"its offset is out of order behind {reached}")
        end = at + layout.LOG_OVERHEAD + length
        if end > size:
            return
        batch = _batch(buffer[at:end], magic, where, offset)
        if check and not batch.crc_ok():
            raise CorruptBatch(where, offset, "its checksum differs")
        yield batch
        reached, at = batch.last_offset, end


def _batch(raw: memoryview, magic: int, where: TopicPartition | None, offset: int) -> Batch | OldBatch:
    if magic == layout.MAGIC_2:
        if len(raw) < layout.HEADER_SIZE:
            raise CorruptBatch(where, offset, f"{len(raw)} bytes are too few for a header")
        batch = Batch(raw)
        _judge(batch, where)
        return batch
    if magic not in (0, 1):
        raise CorruptBatch(where, offset, f"its magic is {magic}")
    if len(raw) < layout.LOG_OVERHEAD + layout.OLD_OVERHEAD[magic]:
        raise CorruptBatch(where, offset, f"{len(raw)} bytes are too few for a message of magic {magic}")
    return OldBatch(raw)


def _judge(batch: Batch, where: TopicPartition | None) -> None:
    """Refuse a header whose numbers contradict each other."""
    base, _, _, _, _, attributes, delta, _, _, _, _, _, count = batch.header
    if attributes & layout.CODEC_MASK > layout.ZSTD:
        raise CorruptBatch(where, base, f"its codec is {attributes & layout.CODEC_MASK}")
    if delta < 0 or not 0 <= count <= delta + 1:
        raise CorruptBatch(where, base, f"it says {count} records in {delta + 1} offsets")
    if base + delta >= layout.MAX_OFFSET:
        raise CorruptBatch(where, base, f"its last offset is {base + delta}")


class _Aborts:
    """Which producers' batches are aborted, as the scan goes on through the log.

    A producer becomes aborted when a batch reaches the first offset of one of its aborted transactions, and is no
    longer at its abort marker. Rule: `CompletedFetch.nextFetchedRecord`.
    """

    __slots__ = ("_ahead", "_producers", "_where")

    def __init__(self, aborted: Iterable[Aborted], where: TopicPartition | None) -> None:
        self._ahead = sorted(aborted, key=attrgetter("first_offset"), reverse=True)
        self._producers: set[int] = set()
        self._where = where

    def hides(self, batch: Batch) -> bool:
        """Take notice of the batch, and say whether it belongs to an aborted transaction."""
        if not (self._ahead or self._producers):
            return False  # the common case, and this is the hot path
        producer = batch.producer_id
        if producer <= layout.NO_PRODUCER:
            return False
        self._advance(batch.last_offset)
        if batch.control and self._ends(batch):
            self._producers.discard(producer)
            return False
        return batch.transactional and producer in self._producers

    def _advance(self, last_offset: int) -> None:
        ahead = self._ahead
        while ahead and ahead[-1].first_offset <= last_offset:
            self._producers.add(ahead.pop().producer_id)

    def _ends(self, batch: Batch) -> bool:
        try:
            marker = batch.marker()
        except CorruptBatch as corrupt:
            raise CorruptBatch(self._where, corrupt.offset, corrupt.reason) from None
        return marker is not None and marker.type == layout.ABORT


def readable(
    buffer: memoryview,
    *,
    position: int,
    stable: int,
    aborted: Iterable[Aborted] = (),
    where: TopicPartition | None = None,
) -> Scan:
    """Say what a read_committed reader finds in a fetched buffer from `position` on, up to `stable`.

    `stable` is the last stable offset: the scan ends before the first batch that reaches it. `aborted` is the fetch
    response's list, in any order. Every offset from `position` to `next_offset` lies in exactly one item: in Data, or
    in a Blank, which joins whatever lies between two Data: markers, aborted and empty batches, offsets that no batch
    has. Holes inside a batch are left inside its Data, and a first batch that starts below `position` is Data whole
    (one that ends below it is left out, as is what comes after a batch cut off at the end).

    Raises CorruptBatch as `batches` does. Rule: `CompletedFetch`, with isolation.level=read_committed.
    """
    aborts = _Aborts(aborted, where)
    items: list[Data | Blank] = []
    done = reached = position  # up to `done` all is in items, from there to `reached` is blank so far
    used = 0
    for batch in batches(buffer, where):
        last = batch.last_offset
        if last >= stable:
            break
        used += len(batch.raw)
        if _visible(batch, aborts) and last >= position:
            first = batch.base_offset if batch.magic == layout.MAGIC_2 or not batch.codec else done
            if first > done:
                items.append(Blank(done, first - 1))
            items.append(Data(batch))
            done = last + 1
        if last >= reached:
            reached = last + 1
    if reached > done:
        items.append(Blank(done, reached - 1))
    return Scan(tuple(items), reached, used)


def _visible(batch: Batch | OldBatch, aborts: _Aborts) -> bool:
    """Whether a reader finds a record in it; each batch is shown here once and in order."""
    if isinstance(batch, OldBatch):
        return True
    return not aborts.hides(batch) and batch.count > 0 and not batch.control
