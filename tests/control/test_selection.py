"""A mirror's include and exclude lists, and how commands edit them (KIP-1279, sections 1.3 and 2.3)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.control.selection import EXCLUDE, INCLUDE, Edits, Selection, is_name, names_in
from twinlog.errors import BadInput

ENTRIES = st.lists(st.sampled_from(["a", "b", "c.*", "d|e", "__.*", "f{1,2}"]), max_size=5).map(tuple)


def test_nothing_is_included_and_internal_topics_are_excluded_by_default() -> None:
    """The defaults are those of the configs' table."""
    assert Selection.of({}) == Selection((), ("__.*",))
    assert Selection.of({INCLUDE: "a, b.{1,2}", EXCLUDE: ""}) == Selection(("a", "b.{1,2}"), ())


def test_patterns_match_whole_names() -> None:
    """An entry matches a whole name, and nothing is matched by an empty list."""
    chosen = Selection(("a|b", "c.*"), ("cx",))
    assert [name for name in ("a", "ab", "c1", "cx", "d") if chosen.includes(name)] == ["a", "c1", "cx"]
    assert [name for name in ("cx", "cxx") if chosen.excludes(name)] == ["cx"]
    assert Selection((), ("c.*", "d", "cx")).excluding("cx") == ("c.*", "cx")


def test_a_bad_expression_is_named() -> None:
    """A pattern that is no expression is refused by its text."""
    with pytest.raises(BadInput, match=r"a\["):
        Selection(("a[",), ()).includes("a")


def test_names_and_expressions_are_told_apart() -> None:
    """What can be a topic's name is taken for one."""
    assert names_in(["a", "my.topic-1_x", "a.*", "a|b", "", "x" * 250]) == {"a", "my.topic-1_x"}
    assert not is_name("^a")


def test_start_moves_entries_to_its_lists() -> None:
    """What is started is included and no longer excluded; excludes the reverse, and they win."""
    before = Selection(("a", "b"), ("c", "d.*"))
    assert before.started(["c", "a"], []) == Selection(("a", "b", "c"), ("d.*",))
    assert before.started(["e.*"], ["b"]) == Selection(("a", "e.*"), ("c", "d.*", "b"))
    assert before.started(["e"], ["e"]) == Selection(("a", "b"), ("c", "d.*", "e"))


def test_stop_takes_an_entry_out_or_excludes_it() -> None:
    """An entry of the include list is removed from it, any other is added to the exclude list."""
    before = Selection(("a", "b.*"), ("__.*",))
    assert before.stopped(["a"]) == Selection(("b.*",), ("__.*",))
    assert before.stopped(["b1", "__.*"]) == Selection(("a", "b.*"), ("__.*", "b1"))


def test_edits_are_what_came_into_each_list_and_what_left_it() -> None:
    """By entry, as a command has changed them; names whose start failed are not saved."""
    before = Selection(("a", "b.*"), ("c",))
    started = before.started(["c", "d"], ["a"])
    assert started.edits_since(before) == Edits(("c", "d"), ("a",), ("a",), ("c",))
    assert started.edits_since(before).without(["d"]) == Edits(("c",), ("a",), ("a",), ("c",))
    stopped = before.stopped(["b.*", "e"])
    assert stopped.edits_since(before) == Edits((), ("e",), ("b.*",), ())
    assert not before.edits_since(before)
    assert before.edits_since(stopped)


@given(ENTRIES, ENTRIES, ENTRIES, ENTRIES)
def test_no_entry_stands_twice(
    include: tuple[str, ...], exclude: tuple[str, ...], one: tuple[str, ...], two: tuple[str, ...]
) -> None:
    """After any command each list has each given entry once, and no given entry is in both lists."""
    before = Selection(tuple(dict.fromkeys(include)), tuple(dict.fromkeys(exclude)))
    for after, given_entries in ((before.started(one, two), {*one, *two}), (before.stopped(one), {*one})):
        assert len(set(after.include)) == len(after.include)
        assert len(set(after.exclude)) == len(after.exclude)
        assert not set(after.include) & set(after.exclude) & given_entries


def test_unchanged_lists_stay_as_they_were_written() -> None:
    """Only a changed list is written back, so that a config keeps the user's spelling."""
    configs = {INCLUDE: "a , b", "other": "1"}
    assert Selection.of(configs).into(configs) == configs
    assert Selection.of(configs).stopped(["c"]).into(configs) == configs | {EXCLUDE: "__.*,c"}
