"""Two logs walked together: what is found, whatever the batches and fetches, and what cannot be compared."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from twinlog.batch.compare import Pairing
from twinlog.batch.records import Record
from twinlog.verify import partition
from twinlog.verify.report import Outcome, PartitionReport
from twinlog.wire import codes

Build = Callable[..., dict[int, Record]]


def counts(report: PartitionReport) -> dict[str, int]:
    """What was counted, without zeros."""
    names = ("lost", "extra", "changed", "shifted", "compacted")
    return {name: count for name in names if (count := getattr(report, name))}


def numbered(start: int, stop: int) -> dict[int, bytes | None]:
    """A value of its own for each offset."""
    return {offset: b"value %d" % offset for offset in range(start, stop)}


async def test_equal_batches_are_identical(pair: Any, log: Build) -> None:
    """Whoever wrote them; records and bytes are counted."""
    records = log(numbered(0, 50))
    pair.write(records, records, span=50, ours_by=2)
    report = await pair.compare()
    assert report.outcome is Outcome.IDENTICAL
    assert (report.start, report.end, report.records, counts(report)) == (0, 50, 50, {})
    assert report.bytes == sum(map(len, pair.source.batches.values())) == pair.meter.bytes
    assert pair.meter.offsets_done == 50


async def test_other_batches_of_the_same_records_are_identical(pair: Any, log: Build) -> None:
    """Also when no batch ends where one of the other side ends, and holes lie between."""
    records = log({at: value for at, value in numbered(0, 60).items() if at % 11})
    pair.write(records, records, span=61, ours_by=7)
    report = await pair.compare()
    assert (report.outcome, report.records) == (Outcome.IDENTICAL, len(records))


async def test_each_kind_is_named_with_its_offset(pair: Any, log: Build) -> None:
    """A record lost, one extra, one changed, one moved, each alone."""
    ours = numbered(0, 40)
    theirs = dict(ours)
    del theirs[3]
    del ours[10]
    theirs[20] = b"other"
    ours[31] = ours.pop(30)
    pair.write(log(ours), log(theirs), span=40)
    report = await pair.compare()
    assert report.outcome is Outcome.DIFFERENT
    # What stood at 31 is lost: the record from 30 took its place.
    assert counts(report) == {"lost": 1, "extra": 2, "changed": 1, "shifted": 1}
    assert [(f.kind, f.offset) for f in report.differences] == [
        ("lost", 3),
        ("extra", 10),
        ("changed", 20),
        ("shifted", 31),
        ("extra", 31),
    ]


async def test_a_surplus_marker_shifts_everything_behind_it(pair: Any, log: Build) -> None:
    """Each record is found one offset later, also across fetches, and ten are named."""
    ours = numbered(0, 100)
    theirs = {at + (at >= 20): value for at, value in ours.items()}
    pair.write(log(ours), log(theirs), span=101)
    pair.source.end = 100
    report = await pair.compare()
    assert counts(report) == {"shifted": 79, "lost": 1}
    named = [f.offset for f in report.differences if f.kind == "shifted"]
    assert named == list(range(20, 30))
    assert report.differences[0].kind == "end"


async def test_a_lagging_destination_is_reported_by_its_lag(pair: Any, log: Build) -> None:
    """What it lacks is no loss of single records."""
    pair.write(log(numbered(0, 40)), log(numbered(0, 30)), span=40)
    pair.destination.end = 30
    report = await pair.compare()
    assert (report.outcome, counts(report), report.lag, report.end) == (Outcome.DIFFERENT, {}, 10, 30)
    assert "lags by 10 offsets" in report.differences[0].text


async def test_log_starts_that_differ_are_named_once(pair: Any, log: Build) -> None:
    """What lies before the later start is not compared; it may lie inside a batch."""
    pair.write(log(numbered(0, 40)), log(numbered(0, 40)), span=40)
    pair.source.start = 10
    report = await pair.compare()
    assert [f.kind for f in report.differences] == ["start"]
    assert (report.start, report.records, counts(report)) == (10, 30, {})


async def test_a_start_in_doubt_is_a_note_and_no_difference(pair: Any, log: Build) -> None:
    """Both starts are named; what both logs hold is compared all the same."""
    pair.write(log(numbered(0, 40)), log(numbered(0, 40)), span=40)
    pair.destination.start = 10
    report = await pair.compare(start_in_doubt=True)
    assert (report.outcome, report.differences, report.records) == (Outcome.NOT_COMPARED, [], 30)
    assert report.notes[0].startswith("the log starts at 0 at the source and at 10 at the destination: rightly, if")


async def test_nothing_but_blanks(pair: Any) -> None:
    """Two logs without a visible record are alike."""
    pair.source.end = pair.destination.end = 1000
    report = await pair.compare()
    assert (report.outcome, report.end, report.records) == (Outcome.IDENTICAL, 1000, 0)


async def test_a_start_that_moves_meanwhile_is_no_difference(pair: Any, log: Build) -> None:
    """Retention may delete what is about to be read; the comparison goes on behind it and says so."""
    pair.write(log(numbered(0, 40)), log(numbered(0, 40)), span=40)
    fetch = pair.source.fetch

    def deleting(offset: int, max_bytes: int) -> Any:
        if offset >= 5:
            pair.source.start = 20
        return fetch(offset, max_bytes)

    pair.source.fetch = deleting
    report = await pair.compare()
    assert report.outcome is Outcome.IDENTICAL
    assert report.end == 40
    assert "were deleted during the comparison" in report.notes[0]


async def test_an_end_that_is_cut_meanwhile_is_no_result(pair: Any, log: Build) -> None:
    """A log that lost its end (an unclean leader election) must be compared again."""
    pair.write(log(numbered(0, 40)), log(numbered(0, 40)), span=40)
    fetch = pair.destination.fetch

    def losing(offset: int, max_bytes: int) -> Any:
        if offset >= 10:
            pair.destination.end = 4
        return fetch(offset, max_bytes)

    pair.destination.fetch = losing
    report = await pair.compare()
    assert report.outcome is Outcome.NOT_COMPARED
    assert report.error is not None
    assert "its end was cut" in report.error


@pytest.mark.parametrize("side", ["source", "destination"])
async def test_a_corrupt_batch_is_named_with_its_side(pair: Any, log: Build, side: str) -> None:
    """A checksum that differs."""
    pair.write(log(numbered(0, 40)), log(numbered(0, 40)), span=40)
    batches = getattr(pair, side).batches
    base = sorted(batches)[4]
    batches[base] = batches[base][:-1] + bytes([batches[base][-1] ^ 1])
    report = await pair.compare()
    assert report.outcome is Outcome.NOT_COMPARED
    assert report.error is not None
    assert f"corrupt batch at offset {base} on the {side} cluster" in report.error


@pytest.mark.parametrize("side", ["source", "destination"])
async def test_records_that_cannot_be_read_are_named_with_their_side(pair: Any, log: Build, side: str) -> None:
    """Behind a checksum that is right."""
    pair.write(log(numbered(0, 40)), log(numbered(0, 40)), span=40, ours_by=2)
    batches = getattr(pair, side).batches
    batches[8] = resealed(batches[8][:61] + bytes(len(batches[8]) - 61))
    report = await pair.compare()
    assert report.outcome is Outcome.NOT_COMPARED
    assert f"corrupt batch at offset 8 on the {side} cluster" in str(report.error)


def resealed(raw: bytes) -> bytes:
    """A batch with the checksum of what it holds."""
    return raw[:17] + crc32c(raw[21:]).to_bytes(4, "big") + raw[21:]


async def test_a_missing_right_is_no_difference(pair: Any, log: Build) -> None:
    """A broker that refuses to show the records leaves the question open."""
    pair.write(log(numbered(0, 4)), log(numbered(0, 4)), span=4)
    pair.destination.errors = [codes.TOPIC_AUTHORIZATION_FAILED]
    report = await pair.compare()
    assert report.outcome is Outcome.NOT_COMPARED
    assert "TOPIC_AUTHORIZATION_FAILED" in str(report.error)


async def test_a_sample_reads_first_last_and_some_between(pair: Any, log: Build) -> None:
    """A difference in the last window is found, one outside of all windows is not."""
    ours = numbered(0, 400)
    pair.write(log(ours), log(ours | {399: b"other", 60: b"unseen"}), span=400, ours_by=2)
    report = await pair.compare(sample=3)
    assert [(f.kind, f.offset) for f in report.differences] == [("changed", 399)]
    assert 0 < report.records < 100


async def test_a_sample_of_a_short_log_is_all_of_it(pair: Any, log: Build) -> None:
    """Windows that overlap are read once."""
    pair.write(log(numbered(0, 5)), log(numbered(0, 5)), span=5)
    report = await pair.compare(sample=10)
    assert (report.outcome, report.records) == (Outcome.IDENTICAL, 5)


async def test_compacted_on_one_side_is_no_difference(pair: Any, log: Build) -> None:
    """A later record of the key explains it; a record without one is lost; both are counted."""
    keys = {0: b"a", 1: b"b", 2: b"a", 3: b"c", 4: b"b"}
    ours = log(dict.fromkeys(range(5), b"v"), keys)
    theirs = {at: record for at, record in ours.items() if at not in {0, 3}}
    pair.write(ours, theirs, span=5)
    report = await pair.compare(compacted=True)
    assert counts(report) == {"lost": 1, "compacted": 1}
    assert [(f.kind, f.offset) for f in report.differences] == [("lost", 3)]


async def test_doubts_are_judged_in_rounds(pair: Any, log: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that memory stays bounded however many there are."""
    monkeypatch.setattr(partition, "MOST_DOUBTS", 3)
    ours = log(numbered(0, 30))
    pair.write(ours, {29: ours[29]}, span=30)
    report = await pair.compare(compacted=True)
    assert (report.outcome, counts(report)) == (Outcome.IDENTICAL, {"compacted": 29})


async def test_a_sample_of_a_compacted_topic_does_not_read_it_all(pair: Any, log: Build) -> None:
    """What only one side has is counted, and that it was not checked is said."""
    ours = log(numbered(0, 20))
    pair.write(ours, {at: record for at, record in ours.items() if at != 1}, span=20)
    report = await pair.compare(sample=1, compacted=True)
    assert counts(report) == {"compacted": 1}
    assert "not checked" in report.notes[0]


async def test_undecided_records_are_left_out(pair: Any, log: Build) -> None:
    """A destination that ends at the source's last stable offset is as far as it can be."""
    records = log(numbered(0, 10))
    pair.write(records, records, span=10)
    source = partition.Bounds(0, 13, 10)
    report = PartitionReport(0, source, pair.destination.bounds)
    sides: Any = partition.Sides(pair.source, pair.destination)
    where = partition.TopicPartition("orders", 0)
    await partition.Comparison(sides, where, report, manner=pair.manner, meter=pair.meter).run()
    assert (report.outcome, report.undecided) == (Outcome.IDENTICAL, 3)
    assert "open transactions" in report.notes[0]


VALUES = st.dictionaries(st.integers(0, 25), st.sampled_from([b"a", b"b", b"c", b"d"]), max_size=20)


@given(ours=VALUES, theirs=VALUES, fetch_bytes=st.integers(1, 700), at_once=st.integers(1, 500))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_counts_agree_with_a_plain_comparison(
    pair: Any, log: Build, ours: Mapping[int, bytes], theirs: Mapping[int, bytes], fetch_bytes: int, at_once: int
) -> None:
    """However it is fetched and cut, nothing is counted twice or left out."""
    for side in (pair.source, pair.destination):
        side.batches.clear()
        side.fetch_bytes = fetch_bytes
    pair.write(log(ours), log(theirs), span=26)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition, "AT_ONCE_BYTES", at_once)
        patch.setattr(partition, "Pairing", lambda: Pairing(keep_bytes=None))
        report = await pair.compare()
    left = {at for at in ours.keys() | theirs.keys() if ours.get(at) != theirs.get(at)}
    found = counts(report)
    lacking = sum(at in ours for at in left)
    surplus = sum(at in theirs for at in left)
    both = found.get("shifted", 0) + found.get("changed", 0)
    assert report.records == len(ours)
    assert found.get("lost", 0) + both == lacking
    assert found.get("extra", 0) + both == surplus
    assert (report.outcome is Outcome.IDENTICAL) == (not left)
