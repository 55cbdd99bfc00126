"""Lists of names and regular expressions, as `--topics` and the include and exclude keys take them.

Elements are separated by commas. One that can be read as a name (letters, digits, dots, underscores and hyphens alone)
is that name and no other: `orders.v1` does not mean `orders-v1`, and who stops the one does not stop the other. Any
other element is a regular expression that must match the whole name, as if the list were written `^(a|b)$`. A comma
inside a quantifier, as in `a{1,3}`, and one behind a backslash do not separate.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from twinlog.config.regex import Automaton, Node, RegexError, parse_regex, size
from twinlog.errors import BadInput

MAX_ELEMENTS = 10_000
"""A mirror of named topics may list thousands of them; more belong into an expression."""
MAX_SIZE = 300_000
"""Bounds memory (some 60 MB) and the time until a list is ready (about a second)."""
MAX_NAME = 249
"""The longest topic name that Kafka allows (`org.apache.kafka.common.internals.Topic`)."""

_ELEMENT = re.compile(r"(?:\\.|\{[0-9]+,[0-9]*\}|[^,\\]|\\\Z)+", re.DOTALL)
_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Patterns:
    """What a comma-separated list of names and expressions matches; equal when the elements are."""

    elements: tuple[str, ...] = ()
    _automaton: Automaton = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.elements) > MAX_ELEMENTS:
            raise BadInput(f"{len(self.elements)} patterns are too many; {MAX_ELEMENTS} are the most.")
        expressions = [_parsed(element) for element in self.elements]
        if sum(map(size, expressions)) > MAX_SIZE:
            raise BadInput(
                f"the patterns are too large together; {MAX_SIZE} characters, {{n,m}} written out, are the most."
            )
        automaton = Automaton(expressions)
        object.__setattr__(self, "_automaton", automaton)

    @classmethod
    def parse(cls, text: str) -> "Patterns":
        """Parse a list; BadInput quotes the element that is wrong, with the reason and the position in it."""
        return cls(split_patterns(text))

    def matches(self, name: str) -> bool:
        """Say whether a whole name matches one of the elements; takes time linear in the name's length."""
        return self._automaton.matches(name)

    def select(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the names that match, in their order."""
        return tuple(name for name in names if self.matches(name))

    def added(self, other: "Patterns") -> "Patterns":
        """Return a list that also has another's elements, each once."""
        return Patterns(tuple(dict.fromkeys((*self.elements, *other.elements))))

    def without(self, other: "Patterns") -> "Patterns":
        """Return a list that lacks another's elements (the same text, not what it matches)."""
        return Patterns(tuple(element for element in self.elements if element not in other.elements))

    def __bool__(self) -> bool:
        return bool(self.elements)

    def __str__(self) -> str:
        return ",".join(self.elements)


def split_patterns(text: str) -> tuple[str, ...]:
    """Split a list at its separating commas; spaces around elements and empty elements are dropped."""
    return tuple(part for found in _ELEMENT.findall(text) if (part := found.strip()))


def check_topic_name(name: str) -> str:
    """Return a name that Kafka accepts for a topic; BadInput says which of its rules is broken."""
    shown = repr(name if len(name) <= MAX_NAME else f"{name[:MAX_NAME]}...")
    if not name:
        raise BadInput("a topic name must not be empty.")
    if name in {".", ".."}:
        raise BadInput(f"a topic cannot be named {shown}.")
    if len(name) > MAX_NAME:
        raise BadInput(f"the topic name {shown} has {len(name)} characters; {MAX_NAME} are the most.")
    if not _TOPIC.fullmatch(name):
        raise BadInput(f"the topic name {shown} is not valid; ASCII letters, digits, '.', '_' and '-' are allowed.")
    return name


def _parsed(element: str) -> Node:
    try:
        return parse_regex(element.replace(".", r"\.") if _TOPIC.fullmatch(element) else element)
    except RegexError as problem:
        shown = element if len(element) <= 200 else f"{element[:200]}..."
        raise BadInput(f"the pattern {shown!r} is not valid at character {problem.position + 1}: {problem}.") from None
