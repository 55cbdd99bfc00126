"""`sasl.jaas.config` as Kafka's clients write it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.config.jaas import parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_an_ordinary_entry() -> None:
    """Module, flag and quoted options are read; the package of the module is dropped."""
    entry = parse_jaas(f'{PLAIN} required\n  username="al ice" password=\'p"w;=\' serviceName=a/b;')
    assert entry.module == "PlainLoginModule"
    assert entry.options == {"username": "al ice", "password": 'p"w;=', "serviceName": "a/b"}
    assert "al ice" not in repr(entry)


def test_comments_and_escapes() -> None:
    """Java comments are skipped, and a backslash in quotes takes the next character as it is."""
    entry = parse_jaas(f'/* who */ {PLAIN} Required // flag\n password="a\\"b\\\\c\\n";')
    assert entry.options == {"password": 'a"b\\c\n'}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "must read"),
        (PLAIN, "must read"),
        (f'{PLAIN} username="a";', "must read"),
        (f'{PLAIN} required username="a"', "semicolon"),
        (f"{PLAIN} required; {PLAIN} required;", "one entry"),
        (f'{PLAIN} required username "a";', "option 1 is not"),
        (f"{PLAIN} required a=b password==;", "option 2 is not"),
        (f'{PLAIN} required password="hush;', "quote not closed"),
    ],
)
def test_what_is_no_entry_is_refused_without_its_values(text: str, complaint: str) -> None:
    """Each mistake has its own reason, and none shows a value."""
    with pytest.raises(ValueError, match=complaint) as problem:
        parse_jaas(text)
    assert "hush" not in str(problem.value)


@given(st.text(alphabet="ab =;'\"/*\\\n"))
def test_any_text_is_an_entry_or_a_value_error(text: str) -> None:
    """No text makes the parser fail in another way."""
    complaint = "none"
    try:
        parse_jaas(f"M required {text}")
    except ValueError as problem:
        complaint = str(problem)
    assert complaint


@given(st.text())
def test_any_password_can_be_quoted(password: str) -> None:
    """A password with backslashes and quotes escaped comes back as it was."""
    quoted = password.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    assert parse_jaas(f'M required password="{quoted}";').options == {"password": password}
