"""How the status of a copy is shown."""

from twinlog.cli.reo import _table


def test_what_was_not_copied_yet_says_where_it_begins() -> None:
    """And what would not begin shows no number, but the reason."""
    common = {"topic": "orders", "end": 9}
    rows = [
        {**common, "partition": 0, "position": 7, "begins": None, "lag": 2, "error": ""},
        {**common, "partition": 1, "position": None, "begins": 4, "lag": 5, "error": ""},
        {**common, "partition": 2, "position": None, "begins": None, "lag": None, "error": "created again"},
    ]
    lines = [line.split("  ") for line in _table(rows).splitlines()]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    assert sorted(cells[0]) == ["end", "error", "lag", "partition", "position", "topic"]
    assert "7" in cells[1]
    assert "nothing copied yet, begins at 4" in cells[2]
    assert cells[3][-1] == "created again"
    assert cells[3].count("-") == 2
    assert "None" not in _table(rows)


def test_without_partitions_only_the_heads_are_shown() -> None:
    """Nothing matches."""
    assert _table([]).split() == ["topic", "partition", "position", "end", "lag", "error"]
