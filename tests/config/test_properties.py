"""Properties files: as Java reads them, with a file and a line in every complaint."""

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.config.properties import MAX_FILE_BYTES, Properties, parse_properties, read_properties
from twinlog.errors import BadInput

PIECES = st.sampled_from([*"ab=: \t\f\\\n\r#!u0é", "\\\n", "\r\n", "\\u0041", "\\ud83d\\ude00", "\\ud83d", "\u2028"])
ENTRY = st.tuples(st.text(min_size=1), st.text())


def escaped(text: str, *, key: bool) -> str:
    """Write a key or value so that every Java reads it back: everything but letters and digits is escaped."""
    units = text.encode("utf-16-be", "surrogatepass")
    codes = [int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2)]
    plain = [chr(code) if chr(code).isalnum() and code < 128 else f"\\u{code:04x}" for code in codes]
    return "".join(plain) if key or not plain else " " + "".join(plain)


@given(st.text() | st.lists(PIECES).map("".join))
def test_any_text_is_properties_or_bad_input(text: str) -> None:
    """Whatever a file holds, the parser returns properties or raises BadInput with file and line."""
    complaint = "a.properties:1: none"
    try:
        parsed = parse_properties(text, "a.properties")
    except BadInput as problem:
        complaint = str(problem)
    else:
        assert all(parsed.line_of(key) for key in parsed)
    assert re.match(r"a\.properties:[1-9][0-9]*: ", complaint)


@given(st.lists(ENTRY), st.sampled_from("=: "), st.sampled_from(["\n", "\r\n", "\r"]))
def test_what_is_written_escaped_is_read_back(entries: list[tuple[str, str]], separator: str, end: str) -> None:
    """Escaped entries come back as they were, the last of equal keys winning, whatever separator and line end."""
    written = [
        f"{escaped(key, key=True)}{separator if value else '='}{escaped(value, key=False)}" for key, value in entries
    ]
    assert dict(parse_properties(end.join(written), "x")) == dict(entries)


@given(st.lists(PIECES).map("".join))
def test_valid_files_read_as_a_character_by_character_reader_reads_them(text: str) -> None:
    """On every text that is accepted, a dumb transcription of Java's two loops gives the same entries."""
    try:
        parsed = parse_properties(text, "x")
    except BadInput:
        return
    assert dict(parsed) == slow_reader(text)


def slow_reader(text: str) -> dict[str, str]:
    """Read properties one character at a time, as the prose of `java.util.Properties.load` says."""
    entries: dict[str, str] = {}
    rest = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    while rest:
        line = rest.pop(0).lstrip(" \t\f")
        if line.startswith(("#", "!")):
            continue
        while line and odd_backslashes(line):
            line = line[:-1] + (rest.pop(0).lstrip(" \t\f") if rest else "")
            if not rest and odd_backslashes(line):
                line = line[:-1]
        if line:
            key, value = slow_split(line)
            entries[key] = value
    return entries


def odd_backslashes(line: str) -> bool:
    """Say whether the line's last backslash is not itself escaped."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def slow_split(line: str) -> tuple[str, str]:
    """Split at the first separator that no backslash escapes, and resolve the escapes."""
    at = 0
    while at < len(line) and line[at] not in "=: \t\f":
        at += 2 if line[at] == "\\" else 1
    rest = line[at:].lstrip(" \t\f")
    if rest[:1] in {"=", ":"}:
        rest = rest[1:].lstrip(" \t\f")
    return slow_unescape(line[:at]), slow_unescape(rest)


def slow_unescape(text: str) -> str:
    """Resolve escapes from left to right."""
    out = ""
    while text:
        if text.startswith("\\u"):
            out, text = out + chr(int(text[2:6], 16)), text[6:]
        elif text.startswith("\\"):
            out, text = out + {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(text[1], text[1]), text[2:]
        else:
            out, text = out + text[0], text[1:]
    return out.encode("utf-16", "surrogatepass").decode("utf-16")


def test_a_typical_file() -> None:
    """Comments, separators, continuation lines and escapes of an ordinary file are understood."""
    text = "# source\n! too\n\n a = 1 \nb:two\nc three words\nd = x,\\\n    y\nlong\\ key\\==\\u00e9\\tz\na=2\n"
    parsed = parse_properties(text, "m.properties")
    assert dict(parsed) == {"a": "2", "b": "two", "c": "three words", "d": "x,y", "long key=": "é\tz"}
    assert (parsed.line_of("a"), parsed.line_of("d"), parsed.line_of("long key=")) == (10, 7, 9)
    assert parsed.line_of("missing") is None
    assert parsed.origin == "m.properties"
    assert "two" not in repr(parsed)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a=1\nbootstrap.servers\n", "x:2: this line has no '='"),
        ("a=1\n\n\\\n", "x:3: this line has no '='"),
        ("= value", "x:1: there is no key before the separator"),
        ("a=\\u12", r"x:1: \\u must be followed by four hexadecimal digits"),
        ("a=C:\\users", r"x:1: \\u must be followed by four hexadecimal digits"),
        ("a=\\ud83d", r"x:1: a \\u escape is half of a surrogate pair"),
    ],
)
def test_a_malformed_line_is_named(text: str, complaint: str) -> None:
    """What is nearly always a mistake is refused with file, line and reason."""
    with pytest.raises(BadInput, match=rf"^{complaint}"):
        parse_properties(text, "x")


def test_a_file_is_read_as_utf_8_without_its_byte_order_mark(tmp_path: Path) -> None:
    """A file that a Windows editor saved reads like any other."""
    path = tmp_path / "a.properties"
    path.write_bytes("\ufeffa=é\r\n".encode())
    parsed = read_properties(path)
    assert isinstance(parsed, Properties)
    assert dict(parsed) == {"a": "é"}
    assert parsed.origin == str(path)


def test_bytes_that_are_no_utf_8_are_named_by_line(tmp_path: Path) -> None:
    """A Latin-1 file is refused with the line and the byte."""
    path = tmp_path / "a.properties"
    path.write_bytes(b"a=1\r\nb=caf\xe9\n")
    with pytest.raises(BadInput, match=r"a.properties:2: byte 0xe9 is not UTF-8"):
        read_properties(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """A missing file, a directory, a huge file and an impossible name are each refused with a reason."""
    huge = tmp_path / "huge"
    huge.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    for path, reason in (
        (tmp_path / "none", "does not exist"),
        (tmp_path, "is a directory"),
        (huge, "is larger than"),
        (huge / "below", "cannot be read: Not a directory"),
        ("nul\0", "cannot be read: embedded null byte"),
    ):
        with pytest.raises(BadInput, match=reason):
            read_properties(path)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission(tmp_path: Path) -> None:
    """The system's reason is passed on."""
    path = tmp_path / "a"
    path.touch(mode=0)
    with pytest.raises(BadInput, match="cannot be read: Permission denied"):
        read_properties(path)
