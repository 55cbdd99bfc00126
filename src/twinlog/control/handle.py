"""The commands that change mirrors: each looks at the image and returns the records to append and the reply.

Nothing changes here; the records, once committed, are replayed into every image. A command that cannot be done at all
raises a ClusterMirrorError; what fails for one topic is a value in the reply, and the other topics go on.
"""

from collections.abc import Iterable
from dataclasses import replace

from twinlog.config.mirror import MirrorConfig, check_mirror_name
from twinlog.control.anew import check_not_deleting, check_ready
from twinlog.control.checks import (
    check_adoptable,
    check_direction,
    check_ids,
    check_not_elsewhere,
    check_not_failed,
    check_same,
    check_selected,
    check_source,
    check_source_not_recreated,
    check_stopped,
    find_mirror,
    not_ours,
)
from twinlog.control.commands import Create, Created, FoundTopic, Handled, Start, Started, Stop, Stopped
from twinlog.control.handle_mirror import excluded_now
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState
from twinlog.control.looked import Looked
from twinlog.control.records import Change, MirrorRecord, Tombstone, TopicRecord
from twinlog.control.selection import Selection, names_in
from twinlog.errors import ClusterMirrorAlreadyExists, ClusterMirrorError


def create(image: Image, command: Create) -> Handled[Created]:
    """Create a mirror.

    Raises InvalidRequest (name, loop), ClusterMirrorAlreadyExists, InvalidConfig.
    """
    name = command.mirror
    check_mirror_name(name)
    if name in image.mirrors:
        raise ClusterMirrorAlreadyExists(f"Mirror '{name}' already exists")
    configs = MirrorConfig.from_properties(command.configs, command.origin).raw
    check_source(name, command.source_cluster_id, command.destination_cluster_id)
    record = MirrorRecord(name, dict(configs), command.source_cluster_id)
    return Handled((record,), Created(name))


def start(image: Image, command: Start) -> Handled[Started]:
    """Start topics of a mirror and remember its patterns.

    Raises UnknownClusterMirror, InvalidClusterMirrorState (a topic that is being made anew matches an exclude now).
    Patterns are remembered even if no topic is found, except names whose start failed.
    """
    mirror = find_mirror(image, command.mirror, "not found or has no configuration")
    include = command.include or tuple(topic.name for topic in command.topics)
    former = Selection.of(mirror.configs)
    # What nobody asked for by now leaves the lists as they are.
    keeps = command.discovery or command.anew != ""
    wanted = former if keeps else former.started(include, command.exclude)
    sorting = _Starting(image, command, wanted, names_in(include))
    for topic in sorted(command.topics, key=lambda found: found.name):
        sorting.sort(topic)
    kept = tuple(pattern for pattern in include if pattern not in sorting.failed)
    selection = former if keeps else former.started(kept, command.exclude)
    configs = selection.into(mirror.configs)
    stopped = [] if keeps else excluded_now(image, mirror.mirror, wanted)
    reply = Started(
        mirror=mirror.mirror,
        started=tuple(sorting.records),
        already=tuple(sorting.already),
        pending=tuple(sorted(sorting.pending)),
        excluded=tuple(sorting.excluded),
        stopped=tuple(record.topic for record in stopped),
        failed=sorting.failed,
        edits=selection.edits_since(former),
    )
    begun = (change for name in sorting.records for change in sorting.records[name])
    ids = {found.name: found.source_topic_id for found in command.topics if found.partitions > 0}
    left = {**command.unstarted, **{name: ids[name] for name in sorting.failed if name in ids}}
    patterns = [pattern for pattern in include if pattern in selection.include]
    looked = mirror  # where only one topic was looked for, no look is over
    if not command.anew:
        looked = Looked(image, mirror).over(selection, patterns, command.exclude, left=left, begun=sorting.records)
    return Handled((*_changed(mirror, replace(looked, configs=configs)), *begun, *stopped), reply)


def stop(image: Image, command: Stop) -> Handled[Stopped]:
    """Stop topics of a mirror and keep them from being discovered again.

    Raises UnknownClusterMirror. A topic that only a regex matched and that is not this mirror's is left alone.
    """
    mirror = find_mirror(image, command.mirror)
    patterns = command.patterns or command.topics
    named = names_in(patterns)
    former = Selection.of(mirror.configs)
    records: list[TopicRecord] = []
    already: list[str] = []
    failed: dict[str, ClusterMirrorError] = {}
    for name in sorted(named.union(command.topics, own_matches(image, mirror.mirror, patterns))):
        record = image.topic(mirror.mirror, name)
        problem = not_ours(image, mirror.mirror, name, exists=name in command.topics)
        if problem is not None:
            # A name that is only remembered, for a topic that may come, is forgotten by this.
            failed.update({name: problem} if name in named and name not in former.include else {})
        elif record is None or record.desired is DesiredState.STOPPED:
            already.append(name)
        else:
            try:
                check_not_deleting(record, command.ids.get(name))
            except ClusterMirrorError as busy:
                failed[name] = busy
            else:
                records.append(replace(record, desired=DesiredState.STOPPED))
    # A stop by name that is repeated changes nothing: no discovery starts what the mirror has a record of.
    known = {name for name in already if image.topic(mirror.mirror, name) is not None}.difference(former.include)
    kept = tuple(pattern for pattern in patterns if pattern not in failed and pattern not in known)
    selection = former.stopped(kept)
    configs = selection.into(mirror.configs)
    topics = tuple(record.topic for record in records)
    reply = Stopped(mirror.mirror, topics, tuple(already), failed, edits=selection.edits_since(former))
    after = replace(Looked(image, mirror).stopped(selection), configs=configs)
    return Handled((*_changed(mirror, after), *records), reply)


class _Starting:
    """Sorts the found topics of one start command by what becomes of each."""

    def __init__(self, image: Image, command: Start, wanted: Selection, named: frozenset[str]) -> None:
        self._image = image
        self._command = command
        self._wanted = wanted
        self._named = named
        self.records: dict[str, tuple[Change, ...]] = {}
        self.already: list[str] = []
        self.pending = set(named)
        self.excluded: list[str] = []
        self.failed: dict[str, ClusterMirrorError] = {}

    def sort(self, found: FoundTopic) -> None:
        """Put one topic where it belongs."""
        name = found.name
        if found.partitions > 0 or self._image.topic(self._command.mirror, name) is not None:
            self.pending.discard(name)
        if self._command.discovery and not self._is_new(name):
            return
        if self._wanted.excludes(name) and name not in self._named:
            self.excluded.append(name)
            return
        try:
            self._start(found)
        except ClusterMirrorError as problem:
            self.pending.discard(name)
            self.failed[name] = problem

    def _is_new(self, name: str) -> bool:
        """Whether discovery may start it: an operator may have started or stopped it, or its pattern, meanwhile."""
        known = self._image.topic(self._command.mirror, name) is not None
        return not known and self._wanted.includes(name) and not self._wanted.excludes(name)

    def _start(self, found: FoundTopic) -> None:
        mirror = self._command.mirror
        record = self._image.topic(mirror, found.name)
        if found.name != self._command.anew:  # which is the mirror's already, whatever the lists say
            check_selected(mirror, found.name, self._wanted)
        check_direction(mirror, found.name, self._command.reverse)
        check_ids(self._image, mirror, found)
        check_not_elsewhere(self._image, mirror, found.name)
        if found.name == self._command.anew:
            former = check_ready(self._image, record, found)
            # The new log begins where the old one was told to.
            found = replace(found, start_at=former.start_at, start_offsets=former.start_offsets)
            self.records[found.name] = _begun(self._image, mirror, found)
            return
        if record is not None and record.desired is DesiredState.MIRRORING:
            check_same(record, found)
            check_not_failed(self._image, record)
            self.already.append(found.name)
            return
        if record is not None:
            check_stopped(self._image, record)
            check_source_not_recreated(record, found)
        if found.partitions > 0:
            check_adoptable(record, found)
            self.records[found.name] = _begun(self._image, mirror, found)


def _begun(image: Image, mirror: str, found: FoundTopic) -> tuple[Change, ...]:
    """The topic's new record; stored states that are about other topics than these are removed."""
    record = TopicRecord(
        mirror=mirror,
        topic=found.name,
        desired=DesiredState.MIRRORING,
        source_topic_id=found.source_topic_id,
        destination_topic_id=found.destination_topic_id,
        partitions=found.partitions,
        start_at=found.start_at,
        start_offsets=found.start_offsets,
        shared_offsets=found.shared_offsets,
    )
    former = image.topic(mirror, found.name)
    if former is not None and _same_twins(former, found):
        # The log that is there began where it was told to then.
        return (replace(record, start_at=former.start_at, start_offsets=former.start_offsets),)
    stale = image.partitions_of(mirror, found.name)
    return (record, *(Tombstone(partition.key) for partition in stale))


def _same_twins(record: TopicRecord, found: FoundTopic) -> bool:
    return record.ids == (found.source_topic_id, found.destination_topic_id)


def own_matches(image: Image, mirror: str, patterns: Iterable[str]) -> list[str]:
    """The mirror's topics that the patterns match: some may not exist at the destination yet."""
    chosen = Selection(include=tuple(patterns), exclude=())
    return [record.topic for record in image.topics_of(mirror) if chosen.includes(record.topic)]


def _changed(before: MirrorRecord, after: MirrorRecord) -> tuple[MirrorRecord, ...]:
    return () if before == after else (after,)
