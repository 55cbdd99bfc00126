"""Linear-time expressions: they agree with Python's `re`, and refuse what RE2 refuses."""

import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from twinlog.config.regex import MAX_CACHED_STEPS, MAX_DEPTH, Automaton, RegexError, parse_regex, size

ATOMS = st.sampled_from(
    [
        *"abc.-_^${}",
        *(r"\.", r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"\x61", "a{", "(?:)"),
        *("[ab]", "[^ab]", "[a-c1]", r"[\d-]", r"[^\W_]", "[]a]", "[a-]"),
    ]
)
QUANTIFIERS = st.sampled_from(["*", "+", "?", "*?", "+?", "??", "{2}", "{0,2}", "{1,}", "{0}", "{1,3}?"])
QUANTIFIED = st.sampled_from(["a", ".", "[ab]", r"\d"])


def combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Build larger expressions out of smaller ones."""
    return (
        st.lists(inner, min_size=1, max_size=3).map("".join)
        | st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"({'|'.join(parts)})")
        | st.tuples(inner, QUANTIFIERS).map(lambda pair: f"(?:{pair[0]}){pair[1]}")
        | st.tuples(QUANTIFIED, QUANTIFIERS).map("".join)
        | inner.map(lambda part: f"({part})")
    )


EXPRESSIONS = st.recursive(ATOMS, combined, max_leaves=6)
SUBJECTS = st.text(alphabet="abcABC1_.-{} é", max_size=6)


def matches(expression: str, text: str) -> bool:
    """Match a whole text against one expression."""
    return Automaton([parse_regex(expression)]).matches(text)


@given(EXPRESSIONS, SUBJECTS, st.booleans())
@example("^$", "", False)
@example("a$|^b", "b", False)
@example("(a*)*", "aa", False)
@example("(?:a|b$)*", "ab", False)
@example("(?P<first>a)(?P<second>b)", "ab", False)
def test_expressions_match_what_python_matches(expression: str, text: str, any_case: bool) -> None:  # noqa: FBT001
    """On random expressions and texts the automaton and Python's engine agree."""
    python = re.compile(expression, re.ASCII | (re.IGNORECASE if any_case else 0))
    assert matches(f"(?i){expression}" if any_case else expression, text) == bool(python.fullmatch(text))


@given(st.text(alphabet=r"ab\()[]{}*+?|^$-.,:?P<n>!=12dDx4i") | st.text())
def test_any_text_is_an_expression_or_a_regex_error(text: str) -> None:
    """No text makes the parser fail in another way, and every error has a position in the text."""
    position = 0
    try:
        tree = parse_regex(text)
    except RegexError as problem:
        position = problem.position
    else:
        assert size(tree) > 0
        Automaton([tree]).matches("ab")
    assert 0 <= position <= len(text)


@pytest.mark.parametrize(
    ("expression", "position", "reason"),
    [
        ("*", 0, r"nothing stands before this '\*'.*'\.\*' stands for any text"),
        ("a|+", 2, "nothing stands before this"),
        ("{2}", 0, "nothing stands before this"),
        ("a**", 1, "two quantifiers"),
        ("a*+", 2, "possessive"),
        ("^*", 1, "an anchor cannot be repeated"),
        ("a{3,2}", 1, "n must not be above m"),
        ("a{1001}", 1, "at most 1000"),
        ("a{99999999999999}", 1, "at most 1000"),
        ("x(a", 1, "is not closed"),
        ("a)", 1, "closes nothing"),
        ("a[b", 1, "is not closed"),
        ("[b-a]", 1, "not in order"),
        (r"[a-\d]", 1, "not in order"),
        ("[[:alpha:]]", 1, "is not supported"),
        ("a\\", 1, "nothing follows this backslash"),
        ("[\\", 1, "nothing follows this backslash"),
        (r"(a)\1", 3, "references back"),
        (r"\ba", 0, r"\\b is not supported"),
        (r"a\Z", 1, r"\\Z is not supported"),
        ("(?=a)", 0, "looking ahead or behind"),
        ("(?<!a)b", 0, "looking ahead or behind"),
        ("(?>a)", 0, "this kind of group"),
        ("a(?i)", 1, "this kind of group"),
        ("(" * (MAX_DEPTH + 1) + ")" * (MAX_DEPTH + 1), MAX_DEPTH + 1, "groups stand in each other"),
        ("(a{1000}){1000}", 0, "more than"),
    ],
)
def test_what_cannot_be_matched_is_refused_where_it_stands(expression: str, position: int, reason: str) -> None:
    """Each mistake and each construct outside of RE2 has its reason and its position."""
    with pytest.raises(RegexError, match=reason) as problem:
        parse_regex(expression)
    assert problem.value.position == position


@pytest.mark.parametrize("expression", ["(a|a)*b", "(a*)*b", "(a+)+b", ".*.*.*.*.*.*b", "(a?){200}a{200}b"])
def test_no_expression_takes_long(expression: str) -> None:
    """What makes a backtracking engine hang costs no more than any other expression."""
    started = time.process_time()
    assert not matches(expression, "a" * 249)
    assert time.process_time() - started < 5


def test_what_is_remembered_is_bounded() -> None:
    """An automaton that meets ever new characters forgets rather than grows."""
    automaton = Automaton([parse_regex(".*")])
    for code in range(0x4E00, 0x4E00 + MAX_CACHED_STEPS + 10):
        assert automaton.matches(chr(code))
    assert len(automaton._steps) <= MAX_CACHED_STEPS
