"""The judge of copies finds what it is there to find."""

import pytest
from tests.real.reo_copies import trouble


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["2:0", "2:1", "2:2"], ()),
        (["2:0", "2:2"], ("1 lost (2:1)",)),
        (["2:0", "2:1", "2:1", "2:2"], ("1 more than once (2:1)",)),
        (["2:0", "2:2", "2:1"], ("out of order",)),
        (["2:0", "2:1", "1:2"], ("1 lost (2:2)", "1 foreign (1:2)")),
        ([], ("0 records", "3 lost")),
    ],
)
def test_lost_doubled_foreign_and_disordered_records_are_told_apart(values: list[str], words: tuple[str, ...]) -> None:
    """Of three records that partition 2 has to hold."""
    said = trouble(2, values, 3)
    assert bool(said) == bool(words)
    assert all(word in said for word in words), said
