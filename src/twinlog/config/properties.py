r"""Java properties files, read as Java reads them, but with a line number for every complaint.

The rules are those of `java.util.Properties.load`: `key=value`, `key:value` or `key value`, comments that start
with `#` or `!`, a backslash at a line's end joins the next line, `\uXXXX` and the usual escapes, and of two equal
keys the last wins. Where a file that Java accepts is nearly always a mistake, it is refused instead: a line without
any separator (to Java a key with an empty value), an empty key, half of a surrogate pair. Files are UTF-8.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from twinlog.errors import BadInput

MAX_FILE_BYTES = 1_048_576
"""No configuration comes near 1 MiB (a long chain of certificates has 20 KB); a log file named by mistake does."""

_BLANKS = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_KEY = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Properties(Mapping[str, str]):
    """Keys and values of one file, with the line that each key stands on; `origin` is the file's name."""

    __slots__ = ("_entries", "_lines", "origin")

    def __init__(self, entries: Mapping[str, str], lines: Mapping[str, int | None], origin: str) -> None:
        self._entries = dict(entries)
        self._lines = dict(lines)
        self.origin = origin

    def __getitem__(self, key: str) -> str:
        return self._entries[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"Properties({len(self)} keys of {self.origin})"  # values may be secret

    def line_of(self, key: str) -> int | None:
        """Return the line, counted from 1, on which the entry of `key` begins; None if it has none."""
        return self._lines.get(key)


def read_properties(path: str | Path) -> Properties:
    """Read a properties file; BadInput names the file, and the line where one is to blame."""
    return parse_properties(read_text(path), str(path))


def parse_properties(text: str, origin: str) -> Properties:
    """Parse the text of a properties file; `origin` names it in the BadInput of a malformed line."""
    entries: dict[str, str] = {}
    lines: dict[str, int] = {}
    for number, line in _logical_lines(text):
        try:
            key, value = _split(line)
        except ValueError as problem:
            raise BadInput(f"{origin}:{number}: {problem}.") from None
        entries[key], lines[key] = value, number
    return Properties(entries, lines, origin)


def read_text(path: str | Path) -> str:
    """Return a small UTF-8 file's text (a byte order mark is dropped); BadInput says why it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except IsADirectoryError:
        raise BadInput(f"{path} is a directory, but a file is needed.") from None
    except FileNotFoundError:
        raise BadInput(f"{path} does not exist.") from None
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise BadInput(f"{path} cannot be read: {reason}.") from None
    if len(raw) > MAX_FILE_BYTES:
        raise BadInput(f"{path} is larger than {MAX_FILE_BYTES} bytes; is it the right file?")
    try:
        return raw.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as problem:
        line = len(_LINE_END.findall(raw[: problem.start].decode("utf-8", "replace"))) + 1
        raise BadInput(
            f"{path}:{line}: byte 0x{raw[problem.start]:02x} is not UTF-8; save the file as UTF-8."
        ) from None


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number of the first natural line, logical line); blank and comment lines are left out."""
    logical, start = "", 0
    joins = False  # whether the line before ends with a backslash
    for number, natural in enumerate(_LINE_END.split(text), 1):
        line = natural.lstrip(_BLANKS)
        if not logical:
            if not line or line[0] in "#!":
                continue
            start = number
        joins = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        logical += line[:-1] if joins else line
        if not joins:
            yield start, logical
            logical = ""
    if joins:
        yield start, logical


def _split(line: str) -> tuple[str, str]:
    key = _KEY.match(line)
    assert key is not None  # noqa: S101  (the pattern also matches nothing at all)
    separator = _SEPARATOR.match(line, key.end())
    assert separator is not None  # noqa: S101  (as above)
    value = line[separator.end() :]
    if not value and not separator.group().strip(_BLANKS):
        raise ValueError("this line has no '='; write key=value, or put # before a comment")
    if not key.group():
        raise ValueError("there is no key before the separator")
    return _unescaped(key.group()), _unescaped(value)


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    plain = _ESCAPE.sub(_character, text)
    try:
        return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le")  # joins \ud83d\ude00 to one character
    except UnicodeDecodeError:
        raise ValueError("a \\u escape is half of a surrogate pair; write both halves, or the character") from None


def _character(escape: re.Match[str]) -> str:
    code = escape.group(1)
    if len(code) > 1:
        return chr(int(code[1:], 16))
    if code == "u":
        raise ValueError("\\u must be followed by four hexadecimal digits; write a backslash itself as \\\\")
    return _ESCAPED.get(code, code)
