"""Compare what readers see in two logs, offset by offset, and name each difference.

A fast look at whole batches first, or at several joined as one; records are decoded only where bytes differ. Blanks are
not compared: a control record, a filler and a hole are all the same to a reader. A record that compaction has removed
on one side only is reported as well; whether that is allowed is for the caller to decide.
"""

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from twinlog.batch import layout
from twinlog.batch.join import as_one
from twinlog.batch.records import Record, decode
from twinlog.batch.scan import Blank, Data
from twinlog.batch.view import Batch, OldBatch
from twinlog.names import TopicPartition

DEFAULT_LIMIT: Final = 100
"""Differences listed unless told otherwise: more than anybody reads; the counts tell the rest."""

_COMPARED: Final = layout.CODEC_MASK | layout.LOG_APPEND_TIME_BIT | layout.CONTROL_BIT
"""Attribute bits that say how to read the body; transaction and delete horizon do not."""

KEEP_BYTES: Final = 16 << 20
"""How much `Pairing` holds back while it waits for a twin; of records of 1 KB that is a horizon of 13,000."""

_RECORD_BYTES: Final = 250
"""What a record costs in memory beside its key, value and headers."""

_FIELDS: Final = ("timestamp", "key", "value", "headers")
_SHOWN_BYTES: Final = 40
"""Of a field in a message: enough to recognise a record by."""


class Kind(Enum):
    """What is wrong at an offset."""

    LOST = "lost"
    """The source has a record there, the destination none."""
    EXTRA = "extra"
    """The destination has a record there, the source none."""
    CHANGED = "changed"
    """Both have one, and its fields differ."""
    SHIFTED = "shifted"
    """The source's record stands at another offset of the destination."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference; `offset` is the source's, for EXTRA the destination's.

    `fields` names what differs (CHANGED); `destination_offset` is where the record went (SHIFTED).
    """

    kind: Kind
    offset: int
    fields: tuple[str, ...] = ()
    destination_offset: int | None = None
    source: Record | None = field(default=None, repr=False)
    destination: Record | None = field(default=None, repr=False)

    def __str__(self) -> str:
        if self.kind is Kind.SHIFTED:
            return f"offset {self.offset}: shifted, it stands at offset {self.destination_offset} of the destination"
        if self.source is None or self.destination is None:
            return f"offset {self.offset}: {self.kind.value}"
        sides = (f"{name} {_shown(self.source, name)} became {_shown(self.destination, name)}" for name in self.fields)
        return f"offset {self.offset}: changed, {'; '.join(sides)}"


@dataclass(frozen=True, slots=True)
class Differences:
    """`listed` are the first ones in offset order, `counts` tells how many there are of each kind."""

    listed: tuple[Difference, ...]
    counts: Mapping[Kind, int]

    @property
    def total(self) -> int:
        """All differences, listed or not."""
        return sum(self.counts.values())


def same_bytes(a: Batch, b: Batch) -> bool:
    """Whether two batches hold the same records by their bytes alone, so that nothing need be decoded.

    False means only that a closer look is needed: a rewritten batch holds the same records in other bytes. Compares
    offsets, codec, the way times are kept, times, count and body, but no producer, leader epoch or transaction.
    """
    head_a, head_b = a.header, b.header
    return (
        head_a[0] == head_b[0]
        and head_a[6:9] == head_b[6:9]
        and head_a[12] == head_b[12]
        and not (head_a[5] ^ head_b[5]) & _COMPARED
        and len(a.raw) == len(b.raw)
        and _equal(a.body, b.body)
    )


def _equal(a: memoryview, b: memoryview) -> bool:
    """Compare bytes by memcmp: 15 to 25 GB/s from 16 KB on, one copy included.

    Two memoryviews are compared element by element (0.6 GB/s); bytes against a memoryview likewise.
    """
    return bytearray(a) == b


@dataclass(frozen=True, slots=True)
class Unmatched:
    """Records, by offset and in offset order, that the two sides of a range do not have alike.

    `records` is how many the source has in the range, the equal ones too.
    """

    source: Mapping[int, Record]
    destination: Mapping[int, Record]
    records: int


def differences(
    source: Sequence[Data | Blank],
    destination: Sequence[Data | Blank],
    *,
    first: int,
    last: int,
    limit: int = DEFAULT_LIMIT,
    where: TopicPartition | None = None,
) -> Differences:
    """Compare the records at offsets `first` to `last`, both included, of two scans; at most `limit` are listed.

    Each scan must be in offset order and cover the range. Only differing batches are decoded, and kept in memory
    until the end. Raises CorruptBatch, naming `where`, when one of those cannot be read.
    """
    left = unmatched(source, destination, first=first, last=last, where=where)
    pairing = Pairing(keep_bytes=None)
    found = sorted([*pairing.add(left), *pairing.rest()], key=lambda difference: difference.offset)
    counts = Counter(dict.fromkeys(Kind, 0))
    counts.update(difference.kind for difference in found)
    return Differences(tuple(found[:limit]), counts)


def unmatched(
    source: Iterable[Data | Blank],
    destination: Iterable[Data | Blank],
    *,
    first: int,
    last: int,
    where: TopicPartition | None = None,
) -> Unmatched:
    """Return what differs at offsets `first` to `last`, both included, of two scans that cover them.

    Equal batches are left out by their bytes, without decoding. Raises CorruptBatch as `differences` does.
    """
    ours = [item.batch for item in source if isinstance(item, Data)]
    theirs = [item.batch for item in destination if isinstance(item, Data)]
    left, right, alike = _differing(ours, theirs)
    in_source, in_destination = _records(left, first, last, where), _records(right, first, last, where)
    equal = sum(_count(batch, first, last) for batch in alike)
    records = equal + len(in_source)
    for offset in [offset for offset, record in in_source.items() if in_destination.get(offset) == record]:
        del in_source[offset], in_destination[offset]
    return Unmatched(in_source, in_destination, records)


def _differing(
    ours: Sequence[Batch | OldBatch], theirs: Sequence[Batch | OldBatch]
) -> tuple[list[Batch | OldBatch], list[Batch | OldBatch], list[Batch]]:
    """The batches of either side that the other does not have by their bytes, and those of ours that it has."""
    left: list[Batch | OldBatch] = []
    right: list[Batch | OldBatch] = []
    equal: list[Batch] = []
    at = there = 0
    while at < len(ours) and there < len(theirs):
        one, other = ours[at].base_offset, theirs[there].base_offset
        here, twins = _alike(ours, at, theirs, there) if one == other else ([], [])
        if here:
            equal += here
            at, there = at + len(here), there + len(twins)
            continue
        if one <= other:
            left.append(ours[at])
            at += 1
        if other <= one:
            right.append(theirs[there])
            there += 1
    return [*left, *ours[at:]], [*right, *theirs[there:]], equal


def _alike(
    ours: Sequence[Batch | OldBatch], at: int, theirs: Sequence[Batch | OldBatch], there: int
) -> tuple[list[Batch], list[Batch]]:
    """What begins there and is the same by its bytes: a batch on either side, or one that holds several joined."""
    one, other = ours[at], theirs[there]
    last = max(one.last_offset, other.last_offset)
    here, twins = _up_to(ours, at, last), _up_to(theirs, there, last)
    left, right = _whole(here), _whole(twins)
    return (here, twins) if left is not None and right is not None and same_bytes(left, right) else ([], [])


def _whole(run: Sequence[Batch]) -> Batch | None:
    """The run as one batch; None where it is empty or cannot be one."""
    return run[0] if len(run) == 1 else as_one(run) if run else None


def _up_to(batches: Sequence[Batch | OldBatch], at: int, last: int) -> list[Batch]:
    """The batches from `at` on that end with offset `last`; none where one begins beyond, or is of another format."""
    run: list[Batch] = []
    for place in range(at, len(batches)):
        batch = batches[place]
        if not isinstance(batch, Batch) or batch.last_offset > last:
            return []
        run.append(batch)
        if batch.last_offset == last:
            return run
    return []


def _count(batch: Batch, first: int, last: int) -> int:
    """Records of a batch within the range."""
    base, end = batch.base_offset, batch.last_offset
    if first <= base and end <= last:
        return batch.count
    if batch.whole:
        return max(0, min(end, last) - max(base, first) + 1)
    return sum(first <= record.offset <= last for record in decode(batch))


def _records(
    batches: Iterable[Batch | OldBatch], first: int, last: int, where: TopicPartition | None
) -> dict[int, Record]:
    return {
        record.offset: record
        for batch in batches
        for record in decode(batch, where=where)
        if first <= record.offset <= last
    }


class Pairing:
    """Gives each unmatched record its name, range after range in offset order.

    A record is SHIFTED when one of equal content (time, key, value, headers) stands unmatched at another offset; the
    first is paired with the first. So that this works across ranges, at most `keep_bytes` (None: all) of records wait
    for their twin; what waits longest is settled by its offset alone: CHANGED, LOST or EXTRA.
    """

    def __init__(self, *, keep_bytes: int | None = KEEP_BYTES) -> None:
        self._keep_bytes = keep_bytes
        self._ours = _Waiting()
        self._theirs = _Waiting()

    def add(self, left: Unmatched) -> Iterator[Difference]:
        """Take in the next range; yields what is certain now. Each range must lie behind the ones before."""
        yield from self._arrive(left)
        most = self._keep_bytes
        while most is not None and self._ours.bytes + self._theirs.bytes > most:
            yield self._settled()

    def rest(self) -> Iterator[Difference]:
        """Yield, in offset order, all that has no twin until now; nothing waits any more."""
        while self._ours.by_offset or self._theirs.by_offset:
            yield self._settled()

    def _arrive(self, left: Unmatched) -> Iterator[Difference]:
        for theirs in left.destination.values():
            ours = self._ours.twin_of(theirs)
            if ours is None:
                self._theirs.put(theirs)
            else:
                yield _shifted(ours, theirs)
        for record in left.source.values():
            twin = self._theirs.twin_of(record)
            if twin is None:
                self._ours.put(record)
            else:
                yield _shifted(record, twin)

    def _settled(self) -> Difference:
        offset = min(waiting.first for waiting in (self._ours, self._theirs) if waiting.by_offset)
        ours, theirs = self._ours.take(offset), self._theirs.take(offset)
        if ours is None:
            return Difference(Kind.EXTRA, offset, destination=theirs)
        if theirs is None:
            return Difference(Kind.LOST, offset, source=ours)
        return Difference(Kind.CHANGED, offset, _changed(ours, theirs), source=ours, destination=theirs)


class _Waiting:
    """One side's unmatched records, in offset order, and by content."""

    def __init__(self) -> None:
        self.by_offset: OrderedDict[int, Record] = OrderedDict()
        self.bytes = 0
        self._places: defaultdict[tuple[object, ...], deque[int]] = defaultdict(deque)

    @property
    def first(self) -> int:
        """The lowest offset."""
        return next(iter(self.by_offset))

    def put(self, record: Record) -> None:
        """Add a record behind all others."""
        self.by_offset[record.offset] = record
        self._places[record[1:]].append(record.offset)
        self.bytes += _weight(record)

    def twin_of(self, record: Record) -> Record | None:
        """Remove and return the first record of equal content."""
        places = self._places.get(record[1:])
        return self.take(places[0]) if places else None

    def take(self, offset: int) -> Record | None:
        """Remove and return the record at an offset."""
        record = self.by_offset.pop(offset, None)
        if record is not None:
            places = self._places[record[1:]]
            places.remove(offset)  # always among the first: both are emptied from the front
            if not places:
                del self._places[record[1:]]
            self.bytes -= _weight(record)
        return record


def _weight(record: Record) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return _RECORD_BYTES + len(record.key or b"") + len(record.value or b"") + headers


def _shifted(ours: Record, theirs: Record) -> Difference:
    return Difference(Kind.SHIFTED, ours.offset, destination_offset=theirs.offset, source=ours, destination=theirs)


def _changed(ours: Record, theirs: Record) -> tuple[str, ...]:
    return tuple(name for name in _FIELDS if getattr(ours, name) != getattr(theirs, name))


def _shown(record: Record, name: str) -> str:
    """Show a field, cut: a record may be large, and so may its headers."""
    text = repr(_cut(getattr(record, name)))
    return text if len(text) <= 4 * _SHOWN_BYTES else text[: 4 * _SHOWN_BYTES] + "..."


def _cut(content: object) -> object:
    return content[:_SHOWN_BYTES] if isinstance(content, bytes) else content
