"""The types of values that only a mirror has."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.config.keys import Kind
from twinlog.config.kinds import (
    ACLS_SYNC_MODE,
    BLANK_MODE,
    PATTERNS,
    START_OFFSET,
    THROTTLED_REPLICAS,
    UNCLEAN,
    AclsSyncMode,
    BlankMode,
    StartOffset,
)


def test_modes() -> None:
    """Modes are enums whose values are the words of the configuration."""
    assert BLANK_MODE.parse("Marker") is BlankMode.MARKER
    assert ACLS_SYNC_MODE.parse("additive") is AclsSyncMode.ADDITIVE


@pytest.mark.parametrize(("mode", "why"), [("transaction", "other offsets"), ("Tombstone", "every consumer gets")])
def test_modes_that_are_not_offered_are_refused_with_the_reason(mode: str, why: str) -> None:
    """Whoever knows the word from a design learns why it is no choice."""
    with pytest.raises(ValueError, match=f"{why}.*only marker is offered"):
        BLANK_MODE.parse(mode)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("Earliest", "earliest"),
        ("latest", "latest"),
        ("0", 0),
        ("1700000000123", 1_700_000_000_123),
        ("2023-11-14T22:13:20.123Z", 1_700_000_000_123),
        ("2023-11-14T23:13:20.123+01:00", 1_700_000_000_123),
        ("2023-11-14 22:13:20", 1_700_000_000_000),
    ],
)
def test_start_offsets(text: str, at: str | int) -> None:
    """The two words, milliseconds, and times, which are UTC where they say nothing else."""
    start = START_OFFSET.parse(text)
    assert start == StartOffset(at)
    assert start.timestamp_ms == (at if isinstance(at, int) else None)


@pytest.mark.parametrize("text", ["", "now", "-1", "1969-01-01", "9" * 19, "9" * 30, "2023-13-01"])
def test_impossible_start_offsets(text: str) -> None:
    """What is no time since 1970 is refused, and what is allowed is left to the key to say."""
    with pytest.raises(ValueError, match=r"^$"):
        START_OFFSET.parse(text)


@pytest.mark.parametrize(
    ("text", "topics"),
    [("False", []), ("", []), ("TRUE", ["orders", "bills-1", "x"]), ("orders, bills.*", ["orders", "bills-1"])],
)
def test_a_source_that_lost_records_is_followed_by_all_topics_by_some_or_by_none(text: str, topics: list[str]) -> None:
    """The KIP says it of a topic; here the mirror's config says of which."""
    followed = UNCLEAN.parse(text)
    assert [name for name in ("orders", "bills-1", "x") if followed.matches(name)] == topics


def test_broken_expressions_for_topics_that_follow_are_refused() -> None:
    """As in every list of topics."""
    with pytest.raises(ValueError, match="cannot be used"):
        UNCLEAN.parse("a(")


def test_throttled_replicas() -> None:
    """A star covers everything, a topic all of its partitions, a pair one."""
    assert THROTTLED_REPLICAS.parse("a,*").covers("x", 3)
    some = THROTTLED_REPLICAS.parse("a, b:0, c:*")
    covered = [(topic, number) for topic in "abcd" for number in (0, 1) if some.covers(topic, number)]
    assert covered == [("a", 0), ("a", 1), ("b", 0), ("c", 0), ("c", 1)]
    assert not THROTTLED_REPLICAS.parse("").covers("a", 0)
    for text, complaint in (("a b", "not valid"), (":1", "not be empty"), ("a:-1", "^$"), ("a:9999999999", "^$")):
        with pytest.raises(ValueError, match=complaint):
            THROTTLED_REPLICAS.parse(text)


@pytest.mark.parametrize("kind", [PATTERNS, START_OFFSET, THROTTLED_REPLICAS, BLANK_MODE])
def test_any_text_is_a_value_or_a_value_error(kind: Kind[Any]) -> None:
    """No text makes a parser fail in another way."""
    parse: Callable[[str], Any] = kind.parse

    @given(st.text() | st.text(alphabet="ab:*,-T019Z("))
    def check(text: str) -> None:
        with suppress(ValueError):
            parse(text)

    check()
