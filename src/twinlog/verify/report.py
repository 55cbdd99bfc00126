"""What a comparison found, as values, as text for people and as one JSON object for programs."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Any, Final

from twinlog.batch.compare import Difference, Kind

LISTED: Final = 10
"""Differences of a partition that are named; the counts tell the rest."""

_MEGA: Final = 1_000_000


class Outcome(IntEnum):
    """The result as an exit code, as `cmp` and `diff` have it: trouble outweighs a difference."""

    IDENTICAL = 0
    DIFFERENT = 1
    NOT_COMPARED = 2


@dataclass(frozen=True, slots=True)
class Bounds:
    """One side of a partition: its first offset, its end (the high watermark), and its last stable offset."""

    start: int
    end: int
    stable: int


@dataclass(frozen=True, slots=True)
class Finding:
    """One named difference.

    `kind` is lost, extra, changed or shifted (`offset` is the source's, of an extra record the destination's), start,
    end or partitions.
    """

    kind: str
    text: str
    offset: int | None = None


@dataclass(slots=True)
class PartitionReport:
    """One partition.

    `start` and `end` are the offsets compared, the second one excluded; `records` and `bytes` what the source has
    there. `lag` is how many offsets the destination still lacks at its end, `undecided` how many the source has behind
    its last stable offset. `chosen_start` is where the mirror was told to begin (0: nowhere): what the source has
    before it is not compared. `start_in_doubt`: the destination's log begins later than the source's, and whether that
    was chosen could not be told. `compacted` records stand on one side only, rightly so (see `compaction`). With
    `error` set the comparison of this partition could not be finished.
    """

    partition: int
    source: Bounds
    destination: Bounds
    start: int = 0
    end: int = 0
    records: int = 0
    bytes: int = 0
    lag: int = 0
    undecided: int = 0
    lost: int = 0
    extra: int = 0
    changed: int = 0
    shifted: int = 0
    compacted: int = 0
    chosen_start: int = 0
    start_in_doubt: bool = False
    differences: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    error: str | None = None

    @property
    def outcome(self) -> Outcome:
        """How this partition came out."""
        if self.error is not None:
            return Outcome.NOT_COMPARED
        if self.differences:
            return Outcome.DIFFERENT
        return Outcome.NOT_COMPARED if self.start_in_doubt else Outcome.IDENTICAL

    def add(self, difference: Difference) -> None:
        """Count a record's difference, and keep it if it is among the first by offset."""
        kind = difference.kind.value
        setattr(self, kind, getattr(self, kind) + 1)
        named = [one for one in self.differences if one.kind in _RECORD_KINDS]
        if len(named) == LISTED:
            highest = max(named, key=_by_offset)
            if difference.offset >= _by_offset(highest):
                return
            self.differences.remove(highest)
        self.differences.append(Finding(kind, str(difference), difference.offset))
        self.differences.sort(key=_by_offset)

    def note(self, text: str) -> None:
        """Keep a remark, once."""
        if text not in self.notes:
            self.notes.append(text)


_RECORD_KINDS: Final = frozenset(kind.value for kind in Kind)


def _by_offset(finding: Finding) -> int:
    """Sort what concerns the whole partition before what concerns single records."""
    return finding.offset if finding.offset is not None else -1


@dataclass(slots=True)
class Report:
    """A topic. `differences`, `warnings` and `notes` concern it as a whole; `sampled` is the number of windows, if any.

    A warning says what could not be told, so that the outcome may be in doubt.
    """

    topic: str
    partitions: list[PartitionReport] = field(default_factory=list)
    differences: list[Finding] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    sampled: int | None = None
    seconds: float = 0.0

    @property
    def outcome(self) -> Outcome:
        """How the topic came out: the worst of its partitions."""
        own = Outcome.DIFFERENT if self.differences else Outcome.IDENTICAL
        return max((own, *(part.outcome for part in self.partitions)))

    @property
    def records(self) -> int:
        """The source's records that were compared."""
        return sum(part.records for part in self.partitions)

    @property
    def bytes(self) -> int:
        """The bytes of the source's batches that were compared."""
        return sum(part.bytes for part in self.partitions)

    @property
    def mb_per_s(self) -> float:
        """Millions of the source's bytes a second; as many were read from the destination."""
        return self.bytes / _MEGA / self.seconds if self.seconds > 0 else 0.0


def as_json(report: Report) -> dict[str, Any]:
    """Return the report as the object that `--json` prints.

    `identical` is true, false, or null when some partition could not be compared (its `error` says why).
    """
    return {
        "identical": identical(report.outcome),
        "topic": report.topic,
        "sampled": report.sampled,
        "seconds": round(report.seconds, 3),
        "mb_per_s": round(report.mb_per_s, 1),
        "differences": [asdict(finding) for finding in report.differences],
        "warnings": report.warnings,
        "notes": report.notes,
        "error": None,
        "partitions": [{"identical": identical(part.outcome)} | asdict(part) for part in report.partitions],
    }


def refused_json(topic: str, error: str) -> dict[str, Any]:
    """Return the same object for a topic that could not be compared at all."""
    return as_json(Report(topic)) | {"identical": None, "error": error}


def identical(outcome: Outcome) -> bool | None:
    """Return an outcome as JSON has it: None when it is not known."""
    return None if outcome is Outcome.NOT_COMPARED else outcome is Outcome.IDENTICAL


def as_text(report: Report, *, verbose: bool = False) -> str:
    """Return the report for people; with `verbose` identical partitions have their lines too."""
    return "\n".join(_lines(report, verbose=verbose))


def _lines(report: Report, *, verbose: bool) -> Iterator[str]:
    count = len(report.partitions)
    yield f"{report.topic}: {_WORDS[report.outcome]}{_sampled(report)}"
    yield (
        f"  {count} {'partition' if count == 1 else 'partitions'}, {report.records:,} records, "
        f"{report.bytes / _MEGA:,.1f} MB in {report.seconds:.1f} s ({report.mb_per_s:,.0f} MB/s of each side)"
    )
    yield from (f"  Warning: {warning}" for warning in report.warnings)
    yield from (f"  {finding.text}" for finding in report.differences)
    yield from (f"  note: {note}" for note in report.notes)
    for part in report.partitions:
        if verbose or part.outcome is not Outcome.IDENTICAL or part.notes:
            yield from _partition_lines(part)


_WORDS: Final = {
    Outcome.IDENTICAL: "identical",
    Outcome.DIFFERENT: "different",
    Outcome.NOT_COMPARED: "could not be compared",
}


def _sampled(report: Report) -> str:
    if report.sampled is None:
        return ""
    return f" in what was sampled (first, last and {report.sampled} more windows a partition; the rest was not read)"


def _partition_lines(part: PartitionReport) -> Iterator[str]:
    counts = [f"{part.records:,} records"]
    counts += [f"{count:,} {name}" for name in (*sorted(_RECORD_KINDS), "compacted") if (count := getattr(part, name))]
    yield f"  partition {part.partition}, offsets {part.start} to {part.end}: {', '.join(counts)}"
    if part.error is not None:
        yield f"    not compared to the end: {part.error}"
    yield from (f"    {finding.text}" for finding in part.differences)
    hidden = part.lost + part.extra + part.changed + part.shifted - LISTED
    if hidden > 0:
        yield f"    and {hidden:,} more"
    yield from (f"    note: {note}" for note in part.notes)
