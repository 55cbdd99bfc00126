"""Which topics a mirror wants: its include and exclude lists, and how start and stop edit them.

Both lists hold names and regexes, comma separated, and match whole names. What is excluded is out, whatever includes
it. Commands edit entries, never what a regex means: a start with `orders` does not take `ord.*` out of the exclude
list.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from twinlog.config.mirror import MirrorConfig
from twinlog.config.patterns import Patterns, split_patterns

INCLUDE = "mirror.topics.include"
EXCLUDE = "mirror.topics.exclude"

_DEFAULTS = MirrorConfig()
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_name(pattern: str) -> bool:
    """Whether a pattern can be read as the name of one topic, and then is: `my.topic` means that topic."""
    return _TOPIC_NAME.fullmatch(pattern) is not None


def names_in(patterns: Iterable[str]) -> frozenset[str]:
    """The patterns that name one topic."""
    return frozenset(filter(is_name, patterns))


@dataclass(frozen=True, slots=True)
class Edits:
    """How a command edits a mirror's lists: the entries that come into each (`saved`) and leave it (`taken_back`)."""

    saved_include: tuple[str, ...] = ()
    saved_exclude: tuple[str, ...] = ()
    taken_back_include: tuple[str, ...] = ()
    taken_back_exclude: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any((self.saved_include, self.saved_exclude, self.taken_back_include, self.taken_back_exclude))

    def without(self, names: Iterable[str]) -> "Edits":
        """The edits of the same command with these names left out of what it includes."""
        return replace(self, saved_include=_without(self.saved_include, names))


NO_EDITS = Edits()


@dataclass(frozen=True)
class Selection:
    """A mirror's include and exclude entries, in the order given."""

    include: tuple[str, ...]
    exclude: tuple[str, ...]

    @classmethod
    def of(cls, configs: Mapping[str, str]) -> "Selection":
        """Read the selection from a mirror's stored configs."""
        return cls(
            _entries(configs, INCLUDE, _DEFAULTS.topics_include), _entries(configs, EXCLUDE, _DEFAULTS.topics_exclude)
        )

    def includes(self, topic: str) -> bool:
        """Whether an include entry matches."""
        return self._include.matches(topic)

    def excludes(self, topic: str) -> bool:
        """Whether an exclude entry matches."""
        return self._exclude.matches(topic)

    def excluding(self, topic: str) -> tuple[str, ...]:
        """The exclude entries that match."""
        return tuple(entry for entry in self.exclude if Patterns((entry,)).matches(topic))

    def started(self, include: Iterable[str], exclude: Iterable[str]) -> "Selection":
        """After a start: each given entry stands in its own list, and no longer in the other (excludes win)."""
        exclude = tuple(exclude)
        include = tuple(entry for entry in include if entry not in exclude)
        return Selection(
            _joined(_without(self.include, exclude), include),
            _joined(_without(self.exclude, include), exclude),
        )

    def stopped(self, patterns: Iterable[str]) -> "Selection":
        """After a stop: an entry of the include list leaves it, any other becomes an exclude entry."""
        patterns = tuple(patterns)
        unknown = _without(patterns, self.include)
        return Selection(_without(self.include, patterns), _joined(self.exclude, unknown))

    def into(self, configs: Mapping[str, str]) -> dict[str, str]:
        """The configs with this selection in them; unchanged lists are left as they were written."""
        former = Selection.of(configs)
        changed = dict(configs)
        if self.include != former.include:
            changed[INCLUDE] = ",".join(self.include)
        if self.exclude != former.exclude:
            changed[EXCLUDE] = ",".join(self.exclude)
        return changed

    def edits_since(self, former: "Selection") -> Edits:
        """What has changed from `former` to this one, each list in its order."""
        return Edits(
            saved_include=_without(self.include, former.include),
            saved_exclude=_without(self.exclude, former.exclude),
            taken_back_include=_without(former.include, self.include),
            taken_back_exclude=_without(former.exclude, self.exclude),
        )

    @cached_property
    def _include(self) -> Patterns:
        return Patterns(self.include)

    @cached_property
    def _exclude(self) -> Patterns:
        return Patterns(self.exclude)


def _entries(configs: Mapping[str, str], key: str, default: Patterns) -> tuple[str, ...]:
    return split_patterns(configs[key]) if key in configs else default.elements


def _without(entries: Iterable[str], gone: Iterable[str]) -> tuple[str, ...]:
    gone = frozenset(gone)
    return tuple(entry for entry in entries if entry not in gone)


def _joined(entries: Iterable[str], more: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*entries, *more)))
