"""Lists of names and expressions, and the rules of topic names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.config.patterns import MAX_ELEMENTS, Patterns, check_topic_name, split_patterns
from twinlog.errors import BadInput


@pytest.mark.parametrize(
    ("text", "elements"),
    [
        ("", ()),
        (" a , b ,,", ("a", "b")),
        ("a{1,3},b{2,},c{2}", ("a{1,3}", "b{2,}", "c{2}")),
        (r"a\,b,c", (r"a\,b", "c")),
        ("a{x,y}", ("a{x", "y}")),
        ("a\\", ("a\\",)),
    ],
)
def test_commas_separate_except_in_a_quantifier_or_behind_a_backslash(text: str, elements: tuple[str, ...]) -> None:
    """A list splits where a reader would split it, and reads the same once it is written."""
    assert split_patterns(text) == elements
    assert split_patterns(",".join(elements)) == elements


def test_elements_match_whole_names() -> None:
    """A list matches as `^(a|b)$` does."""
    patterns = Patterns.parse("orders,payments-.*,v[0-9]{1,2}")
    names = ["orders", "orders2", "my-orders", "payments-", "payments-eu", "v7", "v123"]
    assert patterns.select(names) == ("orders", "payments-", "payments-eu", "v7")
    assert not Patterns().matches("")
    assert not Patterns()
    assert patterns


def test_a_name_means_no_other_name() -> None:
    """Its dots are dots; with anything that no name has, they stand for any character."""
    names = ["orders.v1", "orders-v1", "orders.v12"]
    assert Patterns.parse("orders.v1").select(names) == ("orders.v1",)
    assert Patterns.parse("(orders.v1)").select(names) == ("orders.v1", "orders-v1")
    assert Patterns.parse("orders.v1.*").select(names) == tuple(names)


def test_an_alternation_inside_an_element_stays_inside() -> None:
    """`a|b` in one element does not tear the anchors of the whole."""
    assert Patterns.parse("a|b,^c$").select(["a", "b", "c", "ab", "ac"]) == ("a", "b", "c")


def test_lists_are_values() -> None:
    """Lists compare by their elements, are written as they were given, and grow and shrink by elements."""
    patterns = Patterns.parse("a, b")
    assert str(patterns) == "a,b"
    assert patterns == Patterns(("a", "b"))
    assert hash(patterns) == hash(Patterns(("a", "b")))
    assert patterns.added(Patterns.parse("b,c")).elements == ("a", "b", "c")
    assert patterns.without(Patterns.parse("b,c")).elements == ("a",)


def test_a_wrong_element_is_quoted_with_reason_and_position() -> None:
    """Of a list with one mistake, the element that has it is named."""
    with pytest.raises(BadInput, match=r"the pattern 'b\(c' is not valid at character 2: this '\(' is not closed\."):
        Patterns.parse("a,b(c")


def test_lists_are_bounded() -> None:
    """Neither too many elements nor elements too large together are taken."""
    with pytest.raises(BadInput, match="too many"):
        Patterns(("a",) * (MAX_ELEMENTS + 1))
    with pytest.raises(BadInput, match="too large"):
        Patterns(("a{1000}",) * 400)


def test_a_thousand_names_are_fine() -> None:
    """A list of many plain names works, as start leaves one behind."""
    names = [f"team.service-{number}.events" for number in range(1000)]
    patterns = Patterns(tuple(names))
    assert patterns.select(names) == tuple(names)
    assert not patterns.matches("team.service-1000.events")


@given(st.text(alphabet="ab.,{}12\\()[*"))
def test_any_text_is_a_list_or_bad_input(text: str) -> None:
    """No text makes the parser fail in another way."""
    try:
        patterns = Patterns.parse(text)
    except BadInput:
        return
    assert Patterns.parse(str(patterns)) == patterns


def test_topic_names() -> None:
    """Kafka's rules of topic names, each with its sentence."""
    assert check_topic_name("a.B_c-9" + "x" * 242) == "a.B_c-9" + "x" * 242
    for name, reason in (
        ("", "must not be empty"),
        (".", "cannot be named"),
        ("..", "cannot be named"),
        ("x" * 250, "249 are the most"),
        ("a b", "is not valid"),
        ("é", "is not valid"),
        ("a\n", "is not valid"),
    ):
        with pytest.raises(BadInput, match=reason):
            check_topic_name(name)
