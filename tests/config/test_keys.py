"""Typed keys, and the reader's complaints."""

import pytest

from twinlog.config.keys import LONG_MAX, ConfigKey, Reader, choice, one_of, optional, text_list, whole
from twinlog.config.properties import parse_properties
from twinlog.errors import BadInput, InvalidConfig

SIZE = ConfigKey("size.bytes", whole(1, 100), "7", "A size.", ("old.size",))
PASSWORD = ConfigKey("ssl.key.password", whole(0), "0", "Secret, and a number for the sake of the test.")


def reader(text: str, *, deferred: bool = False) -> Reader:
    """Read a properties text under the name f.properties."""
    return Reader(parse_properties(text, "f.properties"), "elsewhere", error=InvalidConfig, deferred=deferred)


def test_an_absent_key_has_its_default() -> None:
    """The default goes through the parser."""
    assert reader("").get(SIZE) == 7
    assert SIZE.default_value == 7
    assert (SIZE.type, SIZE.allowed, SIZE.secret) == ("int", "a whole number from 1 to 100", False)


def test_a_value_is_trimmed_and_typed() -> None:
    """Blanks around a number do no harm, and an alias is as good as the name."""
    assert reader("size.bytes = 42 \n").get(SIZE) == 42
    assert reader("old.size=+5").get(SIZE) == 5
    assert reader("old.size=5").has(SIZE)
    assert not reader("size.bytes=").has(SIZE)


@pytest.mark.parametrize("value", ["-1", "0", "101", "1.5", "ten", "", "1_0", "٣", "9" * 5000])
def test_a_bad_value_is_named_with_file_line_and_what_is_allowed(value: str) -> None:
    """The sentence holds file, line, key, value and range, and is short."""
    with pytest.raises(InvalidConfig) as problem:
        reader(f"#\nsize.bytes={value}").get(SIZE)
    text = str(problem.value)
    assert text.startswith("f.properties:2: size.bytes is '")
    assert text.endswith("must be a whole number from 1 to 100.")
    assert len(text) < 250


def test_a_secret_value_is_not_shown() -> None:
    """Neither a secret key's value nor what a reference led to appears in a complaint."""
    with pytest.raises(InvalidConfig, match=r"^f.properties:1: ssl.key.password must be a whole number") as problem:
        reader("ssl.key.password=hush").get(PASSWORD)
    assert "hush" not in str(problem.value)


def test_two_names_of_one_key_must_agree() -> None:
    """An alias beside the name is taken when both say the same, and refused otherwise."""
    assert reader("size.bytes=5\nold.size=5").get(SIZE) == 5
    with pytest.raises(InvalidConfig, match=r"f.properties:2: old.size is another name of size.bytes"):
        reader("size.bytes=5\nold.size=6").get(SIZE)


def test_references_are_resolved_or_deferred(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker sees the value, a command that only checks sees the default; a wrong form is refused by both."""
    monkeypatch.setenv("TWINLOG_TEST_SIZE", "9")
    assert reader("size.bytes=${env:TWINLOG_TEST_SIZE}").get(SIZE) == 9
    assert reader("size.bytes=${env:NONE}", deferred=True).get(SIZE) == 7
    for deferred in (True, False):
        with pytest.raises(InvalidConfig, match=r"f.properties:1: size.bytes cannot be used: \$\{vault:a\}"):
            reader("size.bytes=${vault:a}", deferred=deferred).get(SIZE)
    monkeypatch.setenv("TWINLOG_TEST_SIZE", "hush")
    with pytest.raises(InvalidConfig) as problem:
        reader("size.bytes=${env:TWINLOG_TEST_SIZE}").get(SIZE)
    assert "hush" not in str(problem.value)


def test_properties_without_lines_are_named_by_origin() -> None:
    """A plain mapping has no lines; the origin stands for the file."""
    with pytest.raises(BadInput, match=r"^--config: size.bytes is 'x'"):
        Reader({"size.bytes": "x"}, "--config").get(SIZE)


def test_unknown_keys_are_listed_in_the_order_of_the_file() -> None:
    """The caller decides whether they are a warning or an error."""
    assert reader("z=1\nsize.bytes=2\na=3").unknown([SIZE.name]) == ("z", "a")


def test_kinds() -> None:
    """Words in any case, optional values, and lists."""
    assert one_of("SSL", "PLAIN").parse("ssl") == "SSL"
    assert choice({"yes": 1, "": 0}).allowed == "one of yes, (empty)"
    assert optional(whole(1)).parse("") is None
    assert optional(whole(1)).parse("3") == 3
    assert text_list(" a ,, b ") == ("a", "b")
    assert whole(0, LONG_MAX).name == "long"
    with pytest.raises(ValueError, match=r"^$"):
        one_of("true", "false").parse("yes")
