"""The judgement itself, on columns made by hand: every way in which two partitions can differ has one name."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from twinlog.testing.checker import Anomaly, Differences, Example, Report, judge
from twinlog.testing.reader import Column


def column(records: dict[int, int]) -> Column:
    """A column of offset to fingerprint."""
    return Column(array("q", records.keys()), array("q", records.values()))


def test_equal_columns_do_not_differ() -> None:
    """The same records at the same offsets are identical, with holes too."""
    assert judge(column({0: 7, 5: 8}), column({0: 7, 5: 8})) == Differences()


def test_a_missing_record_is_lost() -> None:
    """What only the source has is LOST."""
    assert judge(column({0: 7, 1: 8, 2: 9}), column({0: 7, 2: 9})) == Differences(lost=(1,))


def test_a_surplus_record_is_extra() -> None:
    """What only the destination has is EXTRA, a second copy of a record too."""
    assert judge(column({0: 7}), column({0: 7, 1: 8})) == Differences(extra=(1,))
    assert judge(column({0: 7}), column({0: 7, 1: 7})) == Differences(extra=(1,))


def test_another_record_at_the_same_offset_is_changed() -> None:
    """A different fingerprint at one offset is CHANGED, once."""
    assert judge(column({0: 7, 1: 8}), column({0: 7, 1: 9})) == Differences(changed=(1,))


def test_everything_behind_a_surplus_offset_is_shifted() -> None:
    """A surplus marker moves all records behind it; each is SHIFTED, none lost, extra or changed."""
    found = judge(column({0: 7, 1: 8, 2: 9}), column({0: 7, 2: 8, 3: 9}))
    assert found == Differences(shifted=((1, 2), (2, 3)))


def test_two_records_that_changed_places_are_shifted() -> None:
    """A reordering is two records at each other's offset."""
    assert set(judge(column({0: 7, 1: 8}), column({0: 8, 1: 7})).shifted) == {(0, 1), (1, 0)}


records = st.dictionaries(st.integers(0, 20), st.integers(0, 5))


@given(records, records)
def test_every_difference_is_named_once(source: dict[int, int], destination: dict[int, int]) -> None:
    """Each record that has no twin at its offset appears in exactly one place of the judgement."""
    found = judge(column(source), column(destination))
    unmatched_source = sorted(o for o, d in source.items() if destination.get(o) != d)
    unmatched_destination = sorted(o for o, d in destination.items() if source.get(o) != d)
    assert sorted([*found.lost, *found.changed, *(s for s, _ in found.shifted)]) == unmatched_source
    assert sorted([*found.extra, *found.changed, *(d for _, d in found.shifted)]) == unmatched_destination
    assert all(source[s] == destination[d] for s, d in found.shifted)


def test_a_report_names_counts_and_first_examples() -> None:
    """All differences are counted, the first few of each kind are shown with both offsets."""
    report = Report("t", partitions=1)
    for offset in range(100):
        report.add(Example(Anomaly.LOST, 0, offset, None, "key=b'k'"))
    assert not report.identical
    assert report.counts == {Anomaly.LOST: 100}
    assert str(report).count("\n") == 5
    assert "LOST 100" in str(report)
    assert "source offset 4, destination offset None: key=b'k'" in str(report)


def test_a_report_names_every_partition_that_differs() -> None:
    """Only the first differences of a kind are examples; the partitions of all are known."""
    report = Report("t")
    for partition in range(9):
        report.add(Example(Anomaly.LOST, partition, 1, None, ""))
    assert len(report.examples) < 9
    assert report.differing == set(range(9))
