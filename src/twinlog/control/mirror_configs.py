"""What `--describe --configs` answers: each config of a mirror and where it comes from, and the patterns it follows.

Read from the image alone, so it works whether or not a worker is up. Pure.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from twinlog.config.mirror import config_table, may_be_shown
from twinlog.config.patterns import Patterns
from twinlog.control.checks import find_mirror
from twinlog.control.image import Image
from twinlog.control.records import MirrorRecord, TopicRecord
from twinlog.control.selection import EXCLUDE, INCLUDE, Selection, is_name
from twinlog.errors import BadInput

_KEYS = {key.name: key for key in config_table()}


class PatternList(StrEnum):
    """The list that a pattern stands in; an exclude is stronger than any include."""

    INCLUDE = "include"
    EXCLUDE = "exclude"


@dataclass(frozen=True, slots=True)
class ConfigDescription:
    """One config of a mirror.

    `value`: as it is stored, a secret as the reference that leads to it; None where a secret stands there in clear,
    which is never shown. `is_default`: the mirror does not set the key. `doc`: what the key means, "" for a key that
    this version does not know.
    """

    name: str
    value: str | None
    is_default: bool
    is_sensitive: bool
    doc: str


@dataclass(frozen=True, slots=True)
class PatternDescription:
    """One pattern of a mirror's two lists, as create, alter, start and stop have left them.

    `topics`: those of the mirror that it matches, active or stopped, by name. `effect`: what each refresh does with it.
    """

    pattern: str
    list: PatternList
    is_default: bool
    topics: tuple[str, ...]
    effect: str


@dataclass(frozen=True, slots=True)
class MirrorConfigs:
    """A mirror's configs, what it sets itself first, and its patterns, includes first."""

    mirror: str
    source_cluster_id: str
    configs: tuple[ConfigDescription, ...]
    patterns: tuple[PatternDescription, ...]


def describe_configs(
    image: Image, mirrors: Collection[str] | None = None, source_cluster_id: str | None = None
) -> tuple[MirrorConfigs, ...]:
    """The configs and patterns of some mirrors (None: all), of one source cluster (None: any), by mirror.

    Raises UnknownClusterMirror for a mirror that was asked for by name and does not exist.
    """
    names = image.mirrors if mirrors is None else mirrors
    records = [find_mirror(image, name) for name in sorted(names)]
    return tuple(
        MirrorConfigs(
            mirror=record.mirror,
            source_cluster_id=record.source_cluster_id,
            configs=tuple(_configs(record.configs)),
            patterns=tuple(_patterns(record, list(image.topics_of(record.mirror)))),
        )
        for record in records
        if source_cluster_id in {None, record.source_cluster_id}
    )


def _configs(stored: Mapping[str, str]) -> Iterator[ConfigDescription]:
    """Every key: those that are set, then the defaults, both in the order of the table of keys; unknown ones last."""
    known = [name for name in _KEYS if name in stored]
    unknown = sorted(stored.keys() - _KEYS.keys())
    for name in (*known, *(name for name in _KEYS if name not in stored), *unknown):
        key = _KEYS.get(name)
        value = stored[name] if key is None else stored.get(name, key.default)
        shown = may_be_shown(name, value)
        yield ConfigDescription(
            name=name,
            value=value if shown else None,
            is_default=name not in stored,
            is_sensitive=not shown if key is None else key.secret,
            doc="" if key is None else key.doc,
        )


def _patterns(mirror: MirrorRecord, topics: list[TopicRecord]) -> Iterator[PatternDescription]:
    selection = Selection.of(mirror.configs)
    desired = {topic.topic: topic.desired.name for topic in topics}
    for pattern in selection.include:
        found = _matched(pattern, desired)
        effect = _effect_of_include(pattern, found, desired, selection)
        yield PatternDescription(pattern, PatternList.INCLUDE, INCLUDE not in mirror.configs, found, effect)
    for pattern in selection.exclude:
        found = _matched(pattern, desired)
        yield PatternDescription(pattern, PatternList.EXCLUDE, EXCLUDE not in mirror.configs, found, _EXCLUDED)


_EXCLUDED = "a topic that it matches is not started, whatever includes it"


def _effect_of_include(pattern: str, found: Collection[str], desired: Mapping[str, str], selection: Selection) -> str:
    if not is_name(pattern):
        return "a topic of the source that it matches is started, once there is one that is new"
    if pattern in found:
        return f"nothing: the topic is known already, and is to be {desired[pattern]}"
    if _excludes(selection, pattern):
        return "nothing: an exclude pattern matches it"
    return "waited for: the topic is started once the source has it"


def _matched(pattern: str, topics: Collection[str]) -> tuple[str, ...]:
    """The topics that a pattern matches; what cannot be read matches none."""
    try:
        return Patterns((pattern,)).select(sorted(topics))
    except BadInput:
        return ()


def _excludes(selection: Selection, topic: str) -> bool:
    try:
        return selection.excludes(topic)
    except BadInput:
        return False
