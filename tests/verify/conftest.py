"""Two clusters in memory: logs as batches, fetched in pieces as a broker would, without any connection."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from twinlog.batch.edit import stamped
from twinlog.batch.records import Record, encode
from twinlog.batch.view import Batch
from twinlog.names import TopicPartition
from twinlog.verify.partition import Comparison, Manner, Meter
from twinlog.verify.plan import Sides
from twinlog.verify.report import Bounds, PartitionReport
from twinlog.wire import codes
from twinlog.wire.ops import LogChunk

WHERE = TopicPartition("orders", 0)
PRODUCER_ID = 7


@dataclass
class FakeLog:
    """One side: batches by base offset; `fetch_bytes` is the most that a fetch brings."""

    name: str
    batches: dict[int, bytes] = field(default_factory=dict)
    start: int = 0
    end: int = 0
    fetch_bytes: int = 300
    errors: list[int] = field(default_factory=list)
    fetches: int = 0

    def __str__(self) -> str:
        return f"{self.name} cluster"

    @property
    def bounds(self) -> Bounds:
        """Where it begins and ends; nothing is undecided."""
        return Bounds(self.start, self.end, self.end)

    def write(self, records: Sequence[Record], *, codec: int = 0) -> None:
        """Append a batch of records with consecutive offsets."""
        batch = encode(records, codec=codec)
        # Whoever wrote it, and in which leader's epoch, must make no difference.
        out = stamped(batch, producer_id=PRODUCER_ID + len(self.name), epoch=0, sequence=0)
        raw = bytearray(bytes(out.header) + bytes(out.body))
        raw[:8] = batch.base_offset.to_bytes(8, "big")
        self.batches[batch.base_offset] = bytes(raw)
        self.end = batch.next_offset

    def fetch(self, offset: int, max_bytes: int) -> LogChunk:
        """Answer as a broker: from the batch that holds the offset on, at least one batch."""
        self.fetches += 1
        if self.errors:
            return _refused(self.errors.pop(0))
        if not self.start <= offset <= self.end:
            return _refused(codes.OFFSET_OUT_OF_RANGE)
        found = b""
        for raw in (self.batches[base] for base in sorted(self.batches)):
            if Batch(memoryview(raw)).last_offset < offset:
                continue
            if found and len(found) + len(raw) > min(max_bytes, self.fetch_bytes):
                break
            found += raw
        return LogChunk(memoryview(found), self.end, self.end, self.start, (), 0)


def _refused(error: int) -> LogChunk:
    return LogChunk(memoryview(b""), -1, -1, -1, (), error)


@dataclass
class Pair:
    """Both sides of a partition, and how they are compared."""

    source: FakeLog
    destination: FakeLog
    manner: Manner = field(default_factory=lambda: Manner(None, 0.3, compacted=False))
    meter: Meter = field(default_factory=Meter)

    def write(self, ours: Mapping[int, Record], theirs: Mapping[int, Record], *, span: int, ours_by: int = 3) -> None:
        """Write two logs of the same span of offsets, in batches of `ours_by` and of two records at most."""
        for log, records, size in ((self.source, ours, ours_by), (self.destination, theirs, 2)):
            for run in runs(records, size):
                log.write(run)
            log.end = span

    async def compare(
        self, *, sample: int | None = None, compacted: bool = False, start_in_doubt: bool = False
    ) -> PartitionReport:
        """Compare them; the report of the partition."""
        self.manner = replace(self.manner, sample=sample, compacted=compacted)
        report = PartitionReport(0, self.source.bounds, self.destination.bounds, start_in_doubt=start_in_doubt)
        sides: Any = Sides(self.source, self.destination)  # type: ignore[arg-type] # fakes
        await Comparison(sides, WHERE, report, manner=self.manner, meter=self.meter).run()
        return report


def runs(records: Mapping[int, Record], size: int) -> list[list[Record]]:
    """Records in offset order as runs of consecutive offsets, of at most `size`."""
    found: list[list[Record]] = []
    for offset in sorted(records):
        if found and len(found[-1]) < size and found[-1][-1].offset == offset - 1:
            found[-1].append(records[offset])
        else:
            found.append([records[offset]])
    return found


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Pair:
    """Two empty logs that the comparison reads instead of clusters."""

    async def read_log(log: FakeLog, _tp: TopicPartition, offset: int, *, max_bytes: int, **_: Any) -> LogChunk:
        return log.fetch(offset, max_bytes)

    async def bounds_of(log: FakeLog, _wanted: Any, **_: Any) -> dict[TopicPartition, Bounds]:
        return {WHERE: log.bounds}

    monkeypatch.setattr("twinlog.verify.reader.read_log", read_log)
    monkeypatch.setattr("twinlog.verify.partition.bounds_of", bounds_of)
    return Pair(FakeLog("source"), FakeLog("destination"))


Log = Mapping[int, bytes]


@pytest.fixture(scope="session")
def log() -> Callable[..., dict[int, Record]]:
    """Builds a log: values by offset, all of one key unless keys are given."""

    def build(values: Mapping[int, bytes | None], keys: Mapping[int, bytes | None] | None = None) -> dict[int, Record]:
        return {at: Record(at, 1000, (keys or {}).get(at, b"k"), value) for at, value in values.items()}

    return build
