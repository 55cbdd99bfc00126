"""Which topics of a mirror's patterns were there when it first looked for them: the others were born later.

Where a mirror begins (`mirror.start.offset.spec`) is said of what exists when its patterns are set up. A topic that is
born later is mirrored from its beginning, since nothing of it is older than the mirror. So the mirror's record says for
which patterns a look at the source's topics is over, be it by a start command or by discovery. A topic that matches
them and has no record of its own was born later, but for those that the first look found and could not start.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from uuid import UUID

from twinlog.control.image import Image
from twinlog.control.records import MirrorRecord, topic_id_text
from twinlog.control.selection import Selection

MOST_UNSTARTED = 1_000
"""Topics remembered as found and not started; one beyond them counts as born later, so that more is copied of it."""


class Looked:
    """What a mirror's record says of the looks for its patterns."""

    def __init__(self, image: Image, mirror: MirrorRecord) -> None:
        self._image = image
        self._mirror = mirror
        self._now = Selection.of(mirror.configs)
        include, exclude = mirror.looked_include, mirror.looked_exclude
        if not include and image.topics_of(mirror.mirror):
            # Started by an older twinlog, which did not write down that it had looked.
            include, exclude = self._now.include, self._now.exclude
        # An entry that was taken back meanwhile, and comes again, is set up anew.
        self._before = Selection(tuple(entry for entry in include if entry in self._now.include), exclude)

    @property
    def complete(self) -> bool:
        """Whether the record says of the present patterns, and of no others, that they were looked for."""
        mirror, now = self._mirror, self._now
        return set(mirror.looked_include) == set(now.include) and set(mirror.looked_exclude) == set(now.exclude)

    def born_later(self, topic: str, topic_id: UUID) -> bool:
        """Whether a topic of the source came into being after the first look for the patterns that it matches."""
        if self._image.topic(self._mirror.mirror, topic) is not None:
            return False
        if _entry(topic, topic_id) in self._mirror.unstarted:
            return False
        return self._before.includes(topic) and not self._before.excludes(topic) and not self._now.excludes(topic)

    def over(
        self,
        selection: Selection,
        patterns: Collection[str],
        exclude: Collection[str],
        *,
        left: Mapping[str, UUID],
        begun: Collection[str],
    ) -> MirrorRecord:
        """The record after a look for `patterns`, with `selection` as the mirror's from then on.

        `exclude`: what the same command excludes. `left`, `begun`: topics that were found, not started and started.
        """
        if not patterns:
            return self._mirror  # every name that was given is refused
        covered = all(entry in patterns for entry in selection.include) or not self._before.include
        excluded = selection if covered else self._before.started(patterns, exclude)
        found = {name: _entry(name, topic_id) for name, topic_id in left.items()}
        added = {entry for name, entry in found.items() if not self.born_later(name, left[name])}
        kept = {entry for entry in self._mirror.unstarted if found.get(_name(entry), entry) == entry}
        waiting = [e for e in added | kept if _name(e) not in begun and self._waits(selection, _name(e))]
        return replace(
            self._mirror,
            looked_include=tuple(e for e in selection.include if e in patterns or e in self._before.include),
            looked_exclude=excluded.exclude,
            unstarted=tuple(sorted(waiting)[:MOST_UNSTARTED]),
        )

    def stopped(self, selection: Selection) -> MirrorRecord:
        """The record after a stop, which leaves `selection`: it takes entries back or excludes more, so no look is due.

        Where one was due before, it still is.
        """
        if not self.complete:
            return self._mirror
        return replace(self._mirror, looked_include=selection.include, looked_exclude=selection.exclude)

    def _waits(self, selection: Selection, topic: str) -> bool:
        unknown = self._image.topic(self._mirror.mirror, topic) is None
        return unknown and selection.includes(topic) and not selection.excludes(topic)


def _entry(topic: str, topic_id: UUID) -> str:
    # A slash is in no topic's name.
    return f"{topic}/{topic_id_text(topic_id)}"


def _name(entry: str) -> str:
    return entry.split("/", 1)[0]
