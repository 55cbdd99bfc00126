"""What there is to compare, and what the ends of two logs say."""

import pytest

from twinlog.errors import BadInput
from twinlog.verify.plan import bound_findings, chosen, compared, windows
from twinlog.verify.report import Bounds


def test_all_partitions_unless_some_are_wanted() -> None:
    """Of those that both sides have."""
    assert chosen({0, 1, 2}, {0, 1, 2}, None).numbers == (0, 1, 2)
    assert chosen({0, 1, 2}, {0, 1, 2}, {2, 0}).numbers == (0, 2)
    assert not chosen({0, 1}, {0, 1}, {0}).differences


def test_another_number_of_partitions_is_a_difference() -> None:
    """The common ones are compared all the same, and the sentence names both numbers."""
    found = chosen({0, 1, 2}, {0}, None)
    assert found.numbers == (0,)
    assert "3 partitions, the destination 1" in found.differences[0].text
    assert chosen({0, 1, 2}, {0}, {2}).numbers == ()


def test_a_partition_that_neither_side_has_is_a_mistake() -> None:
    """It is named."""
    with pytest.raises(BadInput, match="no partition 7, 9 on either"):
        chosen({0, 1}, {0, 1}, {1, 9, 7})


@pytest.mark.parametrize(
    ("source", "destination", "kinds"),
    [
        (Bounds(0, 9, 9), Bounds(0, 9, 9), []),
        (Bounds(0, 9, 7), Bounds(0, 7, 7), []),  # undecided at the source: as far as it can be
        (Bounds(0, 9, 7), Bounds(0, 9, 7), []),
        (Bounds(5, 9, 9), Bounds(4, 9, 9), ["start"]),
        (Bounds(0, 9, 9), Bounds(0, 8, 8), ["end"]),
        (Bounds(0, 9, 9), Bounds(0, 10, 10), ["end"]),
        (Bounds(0, 9, 9), Bounds(0, 10, 9), ["end"]),  # somebody else's transaction
        (Bounds(3, 9, 9), Bounds(0, 2, 2), ["start", "end"]),
    ],
)
def test_what_differs_in_where_logs_begin_and_end(source: Bounds, destination: Bounds, kinds: list[str]) -> None:
    """As a read_committed reader meets it."""
    assert [finding.kind for finding in bound_findings(source, destination)] == kinds


def test_a_chosen_start_is_where_the_destination_should_begin() -> None:
    """Unless the source's log begins behind it by now."""
    source, later = Bounds(5, 9, 9), Bounds(8, 9, 9)
    assert not list(bound_findings(source, Bounds(7, 9, 9), 7))
    assert not list(bound_findings(later, later, 7))
    (found,) = bound_findings(source, Bounds(8, 9, 9), 7)
    assert not list(bound_findings(source, Bounds(8, 9, 9), start_in_doubt=True))
    assert "5 at the source, of which offset 7 was chosen to begin with, 8 at the destination" in found.text


def test_only_what_both_logs_hold_is_compared() -> None:
    """From the later start to the earlier end; nothing where they do not meet."""
    assert compared(Bounds(3, 20, 18), Bounds(0, 15, 15)) == range(3, 15)
    assert len(compared(Bounds(30, 40, 40), Bounds(0, 15, 15))) == 0


def test_windows_are_spread_evenly() -> None:
    """Between both ends, without repeats where there is little to spread over."""
    assert list(windows(range(100, 200), 3)) == [125, 150, 175]
    assert list(windows(range(5, 7), 10)) == [5, 6]
    assert list(windows(range(0), 3)) == [0]
    assert not list(windows(range(100), 0))
