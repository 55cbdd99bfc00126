r"""Regular expressions that always match in linear time, as RE2J (which Kafka checks patterns with) does.

Python's `re` backtracks: `(a|a)*b` against a name of 249 letters never ends, and the names come from another cluster.
Here an expression becomes an automaton that reads each character once. What cannot be done that way (references
back, looking ahead or behind, possessive quantifiers, word boundaries) is refused, as RE2 refuses most of it.

Understood: literals, `.`, `[a-z]`, `[^a-z]`, `\d \w \s` and their negations (ASCII), `\n \t \r \f \x41`, a backslash
before punctuation, groups `(...)`, `(?:...)`, `(?P<name>...)`, `|`, `* + ?`, `{n}`, `{n,}`, `{n,m}` (also lazy, which
changes nothing for a full match), `^`, `$`, and `(?i)` at the very start.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

MAX_REPEAT = 1000
"""RE2's own bound on n and m of {n,m}."""
MAX_DEPTH = 50
"""Groups in groups; the parser is recursive."""
MAX_NODES = 5_000
"""Size of one expression once its {n,m} are written out; (a{1000}){1000} is a mistake or an attack."""
MAX_CACHED_STEPS = 20_000
"""Remembered steps of an automaton, some 2 MB; then remembering starts anew."""

_COUNT = re.compile(r"\{([0-9]+)(,?)([0-9]*)\}")
_GROUP = re.compile(r"\?(?::|P?<([A-Za-z_]\w*)>)")
_HEX = re.compile(r"x([0-9A-Fa-f]{2})")
_LOOKING = ("?=", "?!", "?<=", "?<!")
_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_TOP = "\U0010ffff"

Ranges = tuple[tuple[str, str], ...]
_CLASSES: dict[str, Ranges] = {
    "d": (("0", "9"),),
    "w": (("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z")),
    "s": (("\t", "\n"), ("\f", "\r"), (" ", " ")),
}


class RegexError(ValueError):
    """An expression is malformed or not supported; `position` counts characters from 0."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(reason)
        self.position = position


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of (or, negated, outside of) some ranges."""

    ranges: Ranges
    negated: bool = False
    any_case: bool = False

    def holds(self, char: str) -> bool:
        """Say whether a character is in the set."""
        forms = {char, char.lower(), char.upper()} if self.any_case else (char,)
        return any(low <= form <= high for form in forms for low, high in self.ranges) != self.negated


@dataclass(frozen=True, slots=True)
class Edge:
    """`^` or `$`."""

    start: bool


@dataclass(frozen=True, slots=True)
class Row:
    """One part after another."""

    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Either:
    """One of several."""

    options: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """The same part `low` to `high` times (None: without end)."""

    part: "Node"
    low: int
    high: int | None


Node = Chars | Edge | Row | Either | Repeat


def parse_regex(text: str) -> Node:
    """Parse one expression; RegexError says what is wrong and where."""
    parser = _Parser(text)
    tree = parser.either(0)
    if parser.at < len(text):
        parser.fail("this ')' closes nothing")
    if size(tree) > MAX_NODES:
        raise RegexError(f"with its {{n,m}} written out it has more than {MAX_NODES} parts", 0)
    return tree


def size(node: Node) -> int:
    """Return how many states an expression becomes, about."""
    match node:
        case Row(parts) | Either(parts):
            return 1 + sum(map(size, parts))
        case Repeat(part, low, high):
            return 1 + size(part) * max(1, low if high is None else high)
        case _:
            return 1


class _Parser:
    """A recursive descent over one expression; `at` is the next character."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.any_case = text.startswith("(?i)")
        self.at = 4 if self.any_case else 0

    def fail(self, reason: str, at: int | None = None) -> NoReturn:
        raise RegexError(reason, self.at if at is None else at)

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def take(self) -> str:
        char = self.peek()
        self.at += 1
        return char

    def either(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            self.fail(f"more than {MAX_DEPTH} groups stand in each other")
        options = [self.row(depth)]
        while self.peek() == "|":
            self.at += 1
            options.append(self.row(depth))
        return options[0] if len(options) == 1 else Either(tuple(options))

    def row(self, depth: int) -> Node:
        parts: list[Node] = []
        while self.peek() not in {"", "|", ")"}:
            parts.append(self.repeated(self.atom(depth)))
        return Row(tuple(parts))

    def repeated(self, part: Node) -> Node:
        start = self.at
        bounds = self.bounds()
        if bounds is None:
            return part
        if isinstance(part, Edge):
            self.fail("an anchor cannot be repeated", start)
        if self.peek() == "?":
            self.at += 1
        elif self.peek() == "+":
            self.fail("possessive quantifiers are not supported (RE2 has none)")
        if self.bounds() is not None:
            self.fail("two quantifiers follow each other; put the first in a group", start)
        return Repeat(part, *bounds)

    def bounds(self) -> tuple[int, int | None] | None:
        simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        if self.peek() in simple:
            return simple[self.take()]
        found = _COUNT.match(self.text, self.at)
        if found is None:
            return None
        low = int(found[1][:5])
        high = low if not found[2] else int(found[3][:5]) if found[3] else None
        if max(low, high or 0) > MAX_REPEAT or (high is not None and high < low):
            self.fail(f"in {{n,m}}, n must not be above m, and both at most {MAX_REPEAT}")
        self.at = found.end()
        return low, high

    def atom(self, depth: int) -> Node:
        char = self.take()
        match char:
            case "(":
                return self.group(depth)
            case "[":
                return self.character_class()
            case "\\":
                return self.escape()
            case ".":
                return Chars((("\n", "\n"),), negated=True)
            case "^" | "$":
                return Edge(char == "^")
            case "*" | "+" | "?":
                hint = "; '.*' stands for any text" if char == "*" else ""
                self.fail(f"nothing stands before this '{char}' that it could repeat{hint}", self.at - 1)
            case _ if char == "{" and _COUNT.match(self.text, self.at - 1):
                self.fail("nothing stands before this '{' that it could repeat", self.at - 1)
        return self.literal(char)

    def literal(self, char: str) -> Chars:
        return Chars(((char, char),), any_case=self.any_case)

    def group(self, depth: int) -> Node:
        opened = self.at - 1
        if self.text.startswith(_LOOKING, self.at):
            self.fail("looking ahead or behind is not supported (RE2 has none)", opened)
        if self.peek() == "?":
            named = _GROUP.match(self.text, self.at)
            if named is None:
                self.fail("this kind of group is not supported; use (...), (?:...) or, at the very start, (?i)", opened)
            self.at = named.end()
        inner = self.either(depth + 1)
        if self.take() != ")":
            self.fail("this '(' is not closed", opened)
        return inner

    def escape(self) -> Chars:
        slash = self.at - 1
        char = self.take()
        if char.lower() in _CLASSES and char:
            return Chars(_CLASSES[char.lower()], negated=char.isupper())
        return self.literal(self.escaped(char, slash))

    def escaped(self, char: str, slash: int) -> str:
        """Return the one character that an escape stands for."""
        if not char:
            self.fail("nothing follows this backslash", slash)
        hexadecimal = _HEX.match(self.text, slash + 1)
        if hexadecimal:
            self.at = hexadecimal.end()
            return chr(int(hexadecimal[1], 16))
        if char in "123456789":
            self.fail("references back to a group are not supported (RE2 has none)", slash)
        if char.isalnum() and char not in _CONTROL:
            self.fail(f"\\{char} is not supported", slash)
        return _CONTROL.get(char, char)

    def character_class(self) -> Chars:
        opened = self.at - 1
        negated = self.peek() == "^"
        self.at += negated
        ranges: list[tuple[str, str]] = []
        first = True
        while first or self.peek() != "]":
            if not self.peek():
                self.fail("this '[' is not closed", opened)
            ranges.extend(self.class_part())
            first = False
        self.at += 1
        return Chars(tuple(ranges), negated, self.any_case)

    def class_part(self) -> Ranges:
        start = self.at
        low = self.class_char()
        if not isinstance(low, str):
            return low
        if self.peek() != "-" or self.text[self.at + 1 : self.at + 2] in {"]", ""}:
            return ((low, low),)
        self.at += 1
        high = self.class_char()
        if not isinstance(high, str) or high < low:
            self.fail("this range is not in order", start)
        return ((low, high),)

    def class_char(self) -> str | Ranges:
        start = self.at
        char = self.take()
        if char == "[" and self.peek() == ":":
            self.fail("[:name:] is not supported; use \\d, \\w or ranges", start)
        if char != "\\":
            return char
        char = self.take()
        if char and char in _CLASSES:
            return _CLASSES[char]
        if char and char.lower() in _CLASSES:
            return _outside(_CLASSES[char.lower()])
        return self.escaped(char, start)


def _outside(ranges: Ranges) -> Ranges:
    """Return the ranges between (sorted, disjoint) ranges."""
    gaps: list[tuple[str, str]] = []
    low = "\0"
    for first, last in ranges:
        if low < first:
            gaps.append((low, chr(ord(first) - 1)))
        low = chr(ord(last) + 1)
    return (*gaps, (low, _TOP))


@dataclass(slots=True)
class _State:
    """A state of the automaton: reads `reads` on the way to `next`, or stands at an anchor, or only leads on."""

    next: list[int]
    reads: Chars | None = None
    edge: Edge | None = None

    def leads_on(self, *, at_start: bool, at_end: bool) -> bool:
        """Say whether the next states are reached from here without reading a character."""
        if self.edge is not None:
            return at_start if self.edge.start else at_end
        return self.reads is None


@dataclass(slots=True)
class Automaton:
    """Matches a whole text against any of some expressions, in time linear in the text.

    Sets of states are remembered as they are met (a lazy DFA), so that most characters cost one look-up.
    """

    expressions: Sequence[Node]
    _states: list[_State] = field(default_factory=list, init=False, repr=False)
    _start: frozenset[int] = field(default=frozenset(), init=False, repr=False)
    _steps: dict[tuple[frozenset[int], str], frozenset[int]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        final = self._add(_State([]))
        entries = [self._build(node, final) for node in self.expressions]
        self._start = self._closure(entries, at_start=True)

    def matches(self, text: str) -> bool:
        """Say whether one of the expressions matches the whole text."""
        at = self._start
        for char in text:
            if not at:
                return False
            at = self._step(at, char)
        return 0 in self._closure(at, at_start=not text, at_end=True)  # state 0 is the final one

    def _step(self, at: frozenset[int], char: str) -> frozenset[int]:
        known = self._steps.get((at, char))
        if known is not None:
            return known
        if len(self._steps) >= MAX_CACHED_STEPS:
            self._steps.clear()
        reading = ((self._states[number].reads, self._states[number].next) for number in at)
        reached = self._closure(to for reads, following in reading if reads and reads.holds(char) for to in following)
        self._steps[at, char] = reached
        return reached

    def _closure(self, numbers: Iterable[int], *, at_start: bool = False, at_end: bool = False) -> frozenset[int]:
        """Return all states reached without reading: those that read, the final one, and the anchors that wait."""
        found: set[int] = set()
        todo = list(numbers)
        while todo:
            number = todo.pop()
            if number in found:
                continue
            found.add(number)
            state = self._states[number]
            if state.leads_on(at_start=at_start, at_end=at_end):
                todo.extend(state.next)
        return frozenset(found)

    def _add(self, state: _State) -> int:
        self._states.append(state)
        return len(self._states) - 1

    def _build(self, node: Node, then: int) -> int:
        """Add the states of a node that leads on to state `then`; return its first."""
        match node:
            case Chars():
                return self._add(_State([then], reads=node))
            case Edge():
                return self._add(_State([then], edge=node))
            case Row(parts):
                for part in reversed(parts):
                    then = self._build(part, then)
                return then
            case Either(options):
                return self._add(_State([self._build(option, then) for option in options]))
            case Repeat():
                return self._build_repeat(node, then)

    def _build_repeat(self, node: Repeat, then: int) -> int:
        if node.high is None:
            loop = self._add(_State([then]))
            self._states[loop].next.append(self._build(node.part, loop))
            then = loop
        else:
            out = then
            for _ in range(node.high - node.low):
                then = self._add(_State([self._build(node.part, then), out]))
        for _ in range(node.low):
            then = self._build(node.part, then)
        return then
