"""The independent judge: compares a topic on two clusters, record by record, sharing no code with the mirror.

Both sides are read through librdkafka into columns of (offset, fingerprint), equal columns are equal topics, and
only where they differ are single records read again to say how. A million records take a few seconds.
"""

import time
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Final

from twinlog.testing.errors import BenchFailed
from twinlog.testing.reader import Address, Bounds, Column, Isolation, SeenRecord, TopicReader

EXAMPLES_EACH: Final = 5
POLL_S: Final = 0.2
SHOWN_CHARACTERS: Final = 60
RECORD_FIELDS: Final = tuple(f.name for f in fields(SeenRecord))


class Anomaly(StrEnum):
    """How two topics can differ."""

    LOST = "LOST"
    """A record at the source that is not at the destination."""
    EXTRA = "EXTRA"
    """A record at the destination that is not at the source."""
    CHANGED = "CHANGED"
    """A record at the same offset, with another key, value, header, timestamp or timestamp type."""
    SHIFTED = "SHIFTED"
    """The same record, at another offset."""
    START = "START"
    """The logs start at different offsets."""
    END = "END"
    """The logs end at different offsets, or a partition is on one side only."""


@dataclass(frozen=True, slots=True)
class Example:
    """One difference; an offset is None on the side that has no such record."""

    anomaly: Anomaly
    partition: int
    source_offset: int | None
    destination_offset: int | None
    detail: str

    def __str__(self) -> str:
        places = f"source offset {self.source_offset}, destination offset {self.destination_offset}"
        return f"{self.anomaly} in partition {self.partition}: {places}: {self.detail}"


@dataclass(slots=True)
class Report:
    """What a comparison found: `counts` of every anomaly, the first `examples` of each, all `differing` partitions."""

    topic: str
    partitions: int = 0
    source_records: int = 0
    destination_records: int = 0
    counts: dict[Anomaly, int] = field(default_factory=dict)
    examples: list[Example] = field(default_factory=list)
    differing: set[int] = field(default_factory=set)

    @property
    def identical(self) -> bool:
        """Whether nothing differs."""
        return not self.counts

    def add(self, example: Example) -> None:
        """Count a difference, and keep it if it is among the first of its kind."""
        self.differing.add(example.partition)
        self.counts[example.anomaly] = seen = self.counts.get(example.anomaly, 0) + 1
        if seen <= EXAMPLES_EACH:
            self.examples.append(example)

    def keeps(self, anomaly: Anomaly) -> bool:
        """Whether the next difference of this kind would be kept as an example."""
        return self.counts.get(anomaly, 0) < EXAMPLES_EACH

    def __str__(self) -> str:
        head = (
            f"topic {self.topic}, {self.partitions} partitions: {self.source_records} records at the source, "
            f"{self.destination_records} at the destination"
        )
        if self.identical:
            return f"{head}: identical"
        counts = ", ".join(f"{anomaly} {count}" for anomaly, count in self.counts.items())
        return "\n  ".join([f"{head}: {counts}", *map(str, self.examples)])


@dataclass(frozen=True, slots=True)
class Differences:
    """Offsets at which two columns differ; `shifted` holds (source offset, destination offset)."""

    lost: tuple[int, ...] = ()
    extra: tuple[int, ...] = ()
    changed: tuple[int, ...] = ()
    shifted: tuple[tuple[int, int], ...] = ()


def judge(source: Column, destination: Column) -> Differences:
    """How two columns differ: a record that moved is SHIFTED, not changed, lost or extra."""
    if source.offsets == destination.offsets and source.digests == destination.digests:
        return Differences()
    at_source = dict(zip(source.offsets, source.digests, strict=True))
    at_destination = dict(zip(destination.offsets, destination.digests, strict=True))
    missing = {o: d for o, d in at_source.items() if at_destination.get(o) != d}
    surplus = {o: d for o, d in at_destination.items() if at_source.get(o) != d}
    homes: defaultdict[int, deque[int]] = defaultdict(deque)
    for offset, digest in missing.items():
        homes[digest].append(offset)
    shifted = tuple((homes[digest].popleft(), offset) for offset, digest in surplus.items() if homes[digest])
    lost = set(missing) - {home for home, _ in shifted}
    extra = set(surplus) - {offset for _, offset in shifted}
    return Differences(
        lost=tuple(sorted(lost - extra)),
        extra=tuple(sorted(extra - lost)),
        changed=tuple(sorted(lost & extra)),
        shifted=shifted,
    )


def compare(
    source: Address,
    destination: Address,
    topic: str,
    *,
    isolation: Isolation = "read_committed",
    timestamp_types: bool = True,
    until_stable: bool = False,
    timeout_s: float = 60.0,
) -> Report:
    """Compare a topic on two clusters from the first offset to the high watermarks as they are now.

    isolation: what both sides are read with. A read_uncommitted reader of the source also sees aborted records, which
        a mirror has as blanks; compare so only where nothing was aborted.
    timestamp_types: whether the types count; the mirror of a LogAppendTime topic keeps the times, not the type.
    until_stable: the source ends at its last stable offset; what an open transaction holds back is not missing.
    timeout_s: how long either cluster may stand still.
    """
    options = {"isolation": isolation, "timestamp_types": timestamp_types, "timeout_s": timeout_s}
    one = TopicReader(source, topic, **options)  # type: ignore[arg-type] # one dict for both sides
    two = TopicReader(destination, topic, **options)  # type: ignore[arg-type] # as above
    try:
        return _compare(one, two, until_stable=until_stable)
    finally:
        one.close()
        two.close()


def assert_identical(
    source: Address,
    destination: Address,
    topic: str,
    *,
    isolation: Isolation = "read_committed",
    timestamp_types: bool = True,
    until_stable: bool = False,
    timeout_s: float = 60.0,
) -> Report:
    """As `compare`, and raise AssertionError with the whole report unless the two are identical."""
    report = compare(
        source,
        destination,
        topic,
        isolation=isolation,
        timestamp_types=timestamp_types,
        until_stable=until_stable,
        timeout_s=timeout_s,
    )
    if not report.identical:
        raise AssertionError(str(report))
    return report


def wait_until_level(
    source: Address, destination: Address, topic: str, *, until_stable: bool = False, timeout_s: float = 60.0
) -> None:
    """Wait until the destination's ends have reached what the source's are now, or raise BenchFailed."""
    deadline = time.monotonic() + timeout_s
    one = TopicReader(source, topic, timeout_s=timeout_s)
    two = TopicReader(destination, topic, timeout_s=timeout_s)
    try:
        wanted = _ends(_bounds(one, until_stable=until_stable), until_stable=until_stable)
        while True:
            reached = _ends(two.bounds(), until_stable=False)
            behind = {p: (end, reached.get(p)) for p, end in wanted.items() if reached.get(p, -1) < end}
            if not behind:
                return
            if time.monotonic() > deadline:
                raise BenchFailed(f"{topic} is behind after {timeout_s} s: {{partition: (wanted, reached)}} = {behind}")
            time.sleep(POLL_S)
    finally:
        one.close()
        two.close()


def _bounds(reader: TopicReader, *, until_stable: bool) -> dict[int, Bounds]:
    return reader.bounds() if until_stable else reader.settled_bounds()


def _ends(bounds: dict[int, Bounds], *, until_stable: bool) -> dict[int, int]:
    return {p: b.stable if until_stable else b.end for p, b in bounds.items()}


def _compare(source: TopicReader, destination: TopicReader, *, until_stable: bool) -> Report:
    bounds, mirrored = _bounds(source, until_stable=until_stable), destination.settled_bounds()
    ends, mirrored_ends = _ends(bounds, until_stable=until_stable), _ends(mirrored, until_stable=False)
    report = Report(source.topic, partitions=len(bounds))
    for partition in sorted(bounds.keys() | mirrored.keys()):
        for anomaly, here, there in (
            (Anomaly.START, _start(bounds, partition), _start(mirrored, partition)),
            (Anomaly.END, ends.get(partition), mirrored_ends.get(partition)),
        ):
            if here != there:
                report.add(Example(anomaly, partition, here, there, "the logs' bounds differ"))
    columns = source.columns({p: b.start for p, b in bounds.items()}, ends)
    copies = destination.columns({p: b.start for p, b in mirrored.items()}, mirrored_ends)
    report.source_records = sum(len(column.offsets) for column in columns.values())
    report.destination_records = sum(len(column.offsets) for column in copies.values())
    for partition in sorted(columns.keys() | copies.keys()):
        found = judge(columns.get(partition, Column()), copies.get(partition, Column()))
        for example in _examples(partition, found):
            detailed = report.keeps(example.anomaly)
            report.add(_detailed(example, source, destination) if detailed else example)
    return report


def _start(bounds: dict[int, Bounds], partition: int) -> int | None:
    return bounds[partition].start if partition in bounds else None


def _examples(partition: int, found: Differences) -> Iterator[Example]:
    for offset in found.lost:
        yield Example(Anomaly.LOST, partition, offset, None, "")
    for offset in found.extra:
        yield Example(Anomaly.EXTRA, partition, None, offset, "")
    for offset in found.changed:
        yield Example(Anomaly.CHANGED, partition, offset, offset, "")
    for here, there in found.shifted:
        yield Example(Anomaly.SHIFTED, partition, here, there, "")


def _detailed(example: Example, source: TopicReader, destination: TopicReader) -> Example:
    """The example again, with what the record holds, or which of its fields differ."""
    offsets = example.source_offset, example.destination_offset
    one, two = (
        None if offset is None else reader.record(example.partition, offset)
        for reader, offset in zip((source, destination), offsets, strict=True)
    )
    if one is not None and two is not None and example.anomaly is Anomaly.CHANGED:
        changed = (name for name in RECORD_FIELDS if getattr(one, name) != getattr(two, name))
        detail = "; ".join(f"{n} {_short(getattr(one, n))} became {_short(getattr(two, n))}" for n in changed)
    else:
        record = one or two
        detail = "; ".join(f"{name}={_short(getattr(record, name, None))}" for name in RECORD_FIELDS)
    return Example(example.anomaly, example.partition, *offsets, detail)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}... ({len(text)} characters)"
