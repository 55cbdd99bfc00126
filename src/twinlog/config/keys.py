"""What a configuration key is: its name, what its value may be, its default and one sentence of documentation.

A default is kept as the text a user would write, and goes through the same parser as a user's value.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, TypeVar

from twinlog.config.properties import Properties
from twinlog.config.secrets import SECRET_KEYS, check_references, has_reference, is_reference, resolve
from twinlog.errors import BadInput

T = TypeVar("T")
V = TypeVar("V")

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,20}")


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A type of value: `name` as Kafka's reference pages write it, `allowed` as the end of "must be ...".

    `parse` turns stripped text into a value and raises ValueError, whose text, if any, replaces `allowed`.
    """

    name: str
    allowed: str
    parse: Callable[[str], T]


@dataclass(frozen=True, slots=True)
class ConfigKey(Generic[T]):
    """One key; `default` is the text that stands for an absent key, `aliases` are older names for it."""

    name: str
    kind: Kind[T]
    default: str
    doc: str
    aliases: tuple[str, ...] = ()

    @property
    def type(self) -> str:
        """The type's name for a reference page."""
        return self.kind.name

    @property
    def allowed(self) -> str:
        """What a value may be, for a reference page."""
        return self.kind.allowed

    @property
    def secret(self) -> bool:
        """Whether the value must never be shown."""
        return self.name in SECRET_KEYS

    @property
    def default_value(self) -> T:
        """The value of an absent key."""
        return self.kind.parse(self.default)


def whole(low: int, high: int = INT_MAX) -> Kind[int]:
    """Whole numbers from `low` to `high`, both included."""

    def parse(text: str) -> int:
        if not _WHOLE_NUMBER.fullmatch(text) or not low <= int(text) <= high:
            raise ValueError
        return int(text)

    return Kind("int" if high <= INT_MAX else "long", f"a whole number from {low} to {high}", parse)


def choice(values: Mapping[str, V]) -> Kind[V]:
    """One of a few words, in any case; the mapping gives each word's value."""

    def parse(text: str) -> V:
        for word, value in values.items():
            if word.lower() == text.lower():
                return value
        raise ValueError

    return Kind("string", f"one of {', '.join(word or '(empty)' for word in values)}", parse)


def one_of(*words: str) -> Kind[str]:
    """One of a few words, in any case; the value is the word as given here."""
    return choice({word: word for word in words})


def optional(kind: Kind[T]) -> Kind[T | None]:
    """Make an empty value mean None."""
    return Kind(kind.name, f"{kind.allowed}, or empty", lambda text: kind.parse(text) if text else None)


def text_list(text: str) -> tuple[str, ...]:
    """Split a comma-separated list; empty elements are left out."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


TEXT: Kind[str] = Kind("string", "any text", str)
OPTIONAL_TEXT: Kind[str | None] = optional(TEXT)


class Reader:
    """Reads typed values from properties; every complaint names key, value, file and line.

    Parameters: `error`, the class raised; `deferred`, leave references unresolved: a value that holds one then reads
    as its key's default (a command checks a configuration that only the worker can resolve).
    """

    def __init__(
        self, props: Mapping[str, str], origin: str, *, error: type[BadInput] = BadInput, deferred: bool = False
    ) -> None:
        self._props = props
        self._origin = origin
        self._error = error
        self.deferred = deferred

    def get(self, key: ConfigKey[T]) -> T:
        """Return the value of a key, or its default; `error` if the value is not allowed."""
        name = self.name_of(key)
        if name is None or self.is_deferred(name):
            return key.default_value
        text = self.text(name)
        try:
            return key.kind.parse(text.strip())
        except ValueError as problem:
            must = str(problem) or f"must be {key.allowed}"
            hidden = key.secret or has_reference(self._props[name])
            self.refuse(name, f"{must}" if hidden else f"is {_short(text)}, but {must}")

    def has(self, key: ConfigKey[Any]) -> bool:
        """Say whether the key is there with a value that is not empty."""
        name = self.name_of(key)
        return name is not None and bool(self._props[name].strip())

    def name_of(self, key: ConfigKey[Any]) -> str | None:
        """Return the name or alias under which the key was given; `error` if it was given under two."""
        given = [name for name in (key.name, *key.aliases) if name in self._props]
        if len({self._props[name].strip() for name in given}) > 1:
            self.refuse(given[1], f"is another name of {given[0]}, which has another value; keep one of them")
        return given[0] if given else None

    def raw(self, key: ConfigKey[Any]) -> str:
        """Return a value as it was written, its references unresolved; empty if there is none."""
        return self._props.get(self.name_of(key) or "", "")

    def is_whole_reference(self, key: ConfigKey[Any]) -> bool:
        """Say whether the value of a key is one reference and nothing else."""
        return is_reference(self.raw(key))

    def text(self, name: str) -> str:
        """Return a value with its references resolved (as written while `deferred`)."""
        return self.resolved(name, self._props[name])

    def resolved(self, name: str, value: str) -> str:
        """Resolve the references in (a part of) the value of `name`."""
        try:
            check_references(value)
            return value if self.deferred else resolve(value)
        except BadInput as problem:
            self.refuse(name, f"cannot be used: {str(problem).removesuffix('.')}")

    def is_deferred(self, name: str) -> bool:
        """Say whether the value of `name` is known only where its reference can be resolved."""
        if not has_reference(self._props.get(name, "")):
            return False
        self.text(name)  # refuses an unknown form at once
        return self.deferred

    def unknown(self, known: Iterable[str]) -> tuple[str, ...]:
        """Return the keys that are not among `known`, in the order of the file."""
        names = frozenset(known)
        return tuple(name for name in self._props if name not in names)

    def where(self, name: str) -> str:
        """Return `file:line` of a key, or what stands for it."""
        line = self._props.line_of(name) if isinstance(self._props, Properties) else None
        origin = self._props.origin if isinstance(self._props, Properties) else self._origin
        return origin if line is None else f"{origin}:{line}"

    def refuse(self, name: str, problem: str) -> NoReturn:
        """Raise `error`; its sentence is made of file and line, the name, and the problem."""
        raise self._error(f"{self.where(name)}: {name} {problem}.")


def _short(text: str) -> str:
    return repr(text if len(text) <= 100 else f"{text[:100]}...")
