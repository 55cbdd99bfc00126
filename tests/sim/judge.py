"""Watches both logs and says at once where a reader of the destination would see what the source does not have.

The *reading* of an offset is what a read_committed consumer gets there: a record, or nothing. The judge keeps the
source's readings as the source's log grows, and holds each append at the destination against them in the moment in
which it is made. What it finds has a name.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from twinlog.batch.records import Record, decode
from twinlog.batch.view import Batch
from twinlog.names import TopicPartition

COMMIT = 1


class Anomaly(NamedTuple):
    """One way in which the destination is not the source's twin."""

    kind: str
    where: TopicPartition
    offset: int
    at_s: float
    detail: str

    def __str__(self) -> str:
        return f"{self.kind} at {self.where} offset {self.offset}, {self.at_s:.3f} s: {self.detail}"


@dataclass
class Truth:
    """The readings of one source partition; below `end` all is decided, and no later leader will lack it."""

    records: dict[int, Record] = field(default_factory=dict)
    removed: set[int] = field(default_factory=set)
    start: int = 0
    log_end: int = 0
    high_watermark: int = 0
    _open: dict[int, list[Record]] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """Where what is undecided begins."""
        first_open = min((records[0].offset for records in self._open.values()), default=self.log_end)
        return min(first_open, self.high_watermark)

    def appended(self, batch: Batch) -> None:
        """Take one batch that the source's leader has appended."""
        self.log_end = batch.next_offset
        if batch.control:
            marker = batch.marker()
            decided = self._open.pop(batch.producer_id, [])
            if marker is not None and marker.type == COMMIT:
                self.records.update((record.offset, record) for record in decided)
            return
        records = decode(batch)
        if batch.transactional:
            self._open.setdefault(batch.producer_id, []).extend(records)
        else:
            self.records.update((record.offset, record) for record in records)

    def compacted(self, offsets: Iterable[int]) -> None:
        """Records that the cleaner has taken away: a reader gets nothing there any more."""
        self.removed.update(offset for offset in offsets if offset in self.records)

    def rebuild(self, batches: Iterable[Batch]) -> None:
        """Read the whole log again, after its end was cut off; what compaction had taken is remembered."""
        self.records = {offset: record for offset, record in self.records.items() if offset in self.removed}
        self._open.clear()
        self.log_end = self.start
        for batch in batches:
            self.appended(batch)


class Judge:
    """Holds one destination partition against its source."""

    def __init__(self, where: TopicPartition, truth: Truth) -> None:
        self.where = where
        self.truth = truth
        self.appends = 0
        self.end = 0
        self.anomalies: list[Anomaly] = []

    def appended(self, batch: Batch, at_s: float) -> None:
        """Judge one batch in the moment in which the destination's leader appends it."""
        self.appends += 1
        self.end = max(self.end, batch.next_offset)
        self.anomalies += self.compare([batch], at_s)

    def compare(self, batches: Iterable[Batch], at_s: float) -> list[Anomaly]:
        """What is wrong with these batches of the destination's log, as the source stands."""
        found: list[Anomaly] = []
        for batch in batches:
            for kind, offset, detail in self._wrongs(batch):
                found.append(Anomaly(kind, self.where, offset, at_s, f"{detail} in {describe(batch)}"))
        return found

    def _wrongs(self, batch: Batch) -> Iterable[tuple[str, int, str]]:
        truth = self.truth
        marker = batch.marker() if batch.control else None
        if marker is not None and marker.type == COMMIT:
            yield "committed filler", batch.base_offset, "nothing here may ever be committed"
        filler = batch.transactional and not batch.control
        records = {} if batch.control or filler else {record.offset: record for record in decode(batch)}
        for offset in range(max(batch.base_offset, truth.start), batch.next_offset):
            there, here = truth.records.get(offset), records.get(offset)
            if offset >= truth.end:
                yield "beyond the source", offset, f"the source is decided only up to {truth.end}"
            elif here is None:
                if there is not None and offset not in truth.removed:
                    yield "lost", offset, f"the source has {there!r}"
            elif there is None:
                yield "surplus", offset, f"the source has nothing, the destination {here!r}"
            elif here != there:
                yield "changed", offset, f"the source has {there!r}, the destination {here!r}"


def describe(batch: Batch) -> str:
    """One batch in a few words, for a trace."""
    kind = "marker" if batch.control else "filler" if batch.transactional else "data"
    return (
        f"{kind} {batch.base_offset}..{batch.last_offset} of ({batch.producer_id}, {batch.producer_epoch}, "
        f"{batch.base_sequence})"
    )
