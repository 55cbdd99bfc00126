"""A report: its outcome, what it lists, and both of its forms."""

import json

from twinlog.batch.compare import Difference, Kind
from twinlog.verify.report import (
    LISTED,
    Bounds,
    Finding,
    Outcome,
    PartitionReport,
    Report,
    as_json,
    as_text,
    refused_json,
)


def part(number: int = 0, *, error: str | None = None) -> PartitionReport:
    """A partition without differences."""
    return PartitionReport(number, Bounds(0, 9, 9), Bounds(0, 9, 9), end=9, records=9, bytes=3_000_000, error=error)


def test_trouble_outweighs_a_difference() -> None:
    """As with `cmp`: what was not compared leaves the question open."""
    different, broken = part(1), part(2, error="it is away.")
    different.add(Difference(Kind.LOST, 3))
    assert Report("t", [part()]).outcome is Outcome.IDENTICAL
    assert Report("t", [part(), different]).outcome is Outcome.DIFFERENT
    assert Report("t", [part(), different, broken]).outcome is Outcome.NOT_COMPARED
    assert Report("t", [], [Finding("partitions", "3 and 1")]).outcome is Outcome.DIFFERENT


def test_a_start_in_doubt_is_no_result_unless_something_else_differs() -> None:
    """What differs otherwise is different whatever the mirror was told; the warning stands before all findings."""
    doubtful = part()
    doubtful.start_in_doubt = True
    report = Report("t", [doubtful], warnings=["its state could not be read"])
    assert report.outcome is Outcome.NOT_COMPARED
    assert as_text(report).splitlines()[2] == "  Warning: its state could not be read"
    assert as_json(report)["warnings"] == ["its state could not be read"]
    assert as_json(report)["partitions"][0]["start_in_doubt"] is True
    doubtful.add(Difference(Kind.LOST, 3))
    assert report.outcome is Outcome.DIFFERENT


def test_the_first_differences_by_offset_are_listed() -> None:
    """Also when later ones are found first; those of the whole partition take no place of theirs."""
    report = part()
    report.differences.append(Finding("end", "end differs"))
    for offset in range(40, 0, -1):
        report.add(Difference(Kind.EXTRA, offset))
    assert report.extra == 40
    assert [f.offset for f in report.differences] == [None, *range(1, LISTED + 1)]


def test_json_says_what_is_known() -> None:
    """`identical` is null where the comparison was not finished."""
    different = part(1)
    different.add(Difference(Kind.LOST, 3))
    told = json.loads(json.dumps(as_json(Report("t", [part(), different], seconds=2.0))))
    assert (told["identical"], told["topic"], told["mb_per_s"], told["error"]) == (False, "t", 3.0, None)
    assert told["partitions"][0]["identical"] is True
    assert told["partitions"][1]["differences"] == [{"kind": "lost", "text": "offset 3: lost", "offset": 3}]
    assert told["partitions"][1]["source"] == {"start": 0, "end": 9, "stable": 9}
    assert as_json(Report("t", [part(error="away")]))["identical"] is None
    refused = refused_json("t", "no such topic")
    assert (refused["identical"], refused["error"], refused["partitions"]) == (None, "no such topic", [])


def test_text_names_what_differs() -> None:
    """Identical partitions only on request, and how many differences are not listed."""
    different = part(1)
    for offset in range(12):
        different.add(Difference(Kind.LOST, offset))
    different.note("a remark")
    different.note("a remark")
    report = Report("orders", [part(), different, part(2, error="it is away.")], seconds=1.0)
    text = as_text(report)
    assert text.startswith("orders: could not be compared")
    assert "partition 1, offsets 0 to 9: 9 records, 12 lost" in text
    assert "and 2 more" in text
    assert text.count("a remark") == 1
    assert "not compared to the end: it is away." in text
    assert "partition 0" not in text
    assert "partition 0" in as_text(report, verbose=True)


def test_text_says_when_it_is_a_sample() -> None:
    """So that nobody takes it for a comparison of everything."""
    assert "identical in what was sampled" in as_text(Report("t", [part()], sampled=5))
    assert as_text(Report("t", [part()])).startswith("t: identical\n  1 partition, 9 records")
