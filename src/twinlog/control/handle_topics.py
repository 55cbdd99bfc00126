"""Pause, resume and recover: what an operator asks of topics that a mirror has already (KIP-1279, section 2.3)."""

from collections.abc import Callable
from dataclasses import replace

from twinlog.control.anew import check_not_deleting
from twinlog.control.checks import find_mirror, not_ours
from twinlog.control.commands import Handled, Moved, OnTopics
from twinlog.control.handle import own_matches
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import TopicRecord
from twinlog.control.selection import names_in
from twinlog.errors import (
    ClusterMirrorError,
    InvalidClusterMirrorState,
    MirrorTopicBeingStopped,
    MirrorTopicNotPaused,
)

Judge = Callable[[Image, TopicRecord], TopicRecord]
"""The topic's next record, or the same one where there is nothing to do; raises a ClusterMirrorError to refuse."""


def pause(image: Image, command: OnTopics) -> Handled[Moved]:
    """Pause topics: nothing is appended to them until they are resumed. Raises UnknownClusterMirror."""
    return _each(image, command, _paused)


def resume(image: Image, command: OnTopics) -> Handled[Moved]:
    """Resume paused topics. Raises UnknownClusterMirror."""
    return _each(image, command, _resumed)


def recover(image: Image, command: OnTopics) -> Handled[Moved]:
    """Have FAILED partitions tried again, also those that are not retried. Raises UnknownClusterMirror."""
    return _each(image, command, _recovered)


def _each(image: Image, command: OnTopics, judge: Judge) -> Handled[Moved]:
    """Judge each topic; one that only a regex matched is left alone where it is refused."""
    mirror = find_mirror(image, command.mirror).mirror
    patterns = command.patterns or command.topics
    named = names_in(patterns)
    moved: list[TopicRecord] = []
    already: list[str] = []
    failed: dict[str, ClusterMirrorError] = {}
    for name in sorted(named.union(command.topics, own_matches(image, mirror, patterns))):
        try:
            before = _own(image, mirror, name, exists=name in command.topics)
            after = judge(image, before)
            if after.anew != before.anew:
                check_not_deleting(before, command.ids.get(name))
        except ClusterMirrorError as problem:
            failed.update({name: problem} if name in named else {})
            continue
        if after == before:
            already.append(name)
        else:
            moved.append(after)
    return Handled(tuple(moved), Moved(mirror, tuple(record.topic for record in moved), tuple(already), failed))


def _own(image: Image, mirror: str, topic: str, *, exists: bool) -> TopicRecord:
    problem = not_ours(image, mirror, topic, exists=exists)
    record = image.topic(mirror, topic)
    if problem is not None:
        raise problem
    if record is None:
        raise AssertionError(f"A topic of mirror {mirror} without a record: {topic}")
    return record


def _paused(_image: Image, record: TopicRecord) -> TopicRecord:
    if record.desired is DesiredState.STOPPED:
        raise MirrorTopicBeingStopped(
            f"Topic '{record.topic}' of mirror '{record.mirror}' is STOPPED; only what is mirrored can be paused."
        )
    # A topic that is being made anew is PAUSED for that, and would not stay so: now it does.
    return replace(record, desired=DesiredState.PAUSED, anew="")


def _resumed(_image: Image, record: TopicRecord) -> TopicRecord:
    if record.desired is DesiredState.STOPPED:
        raise MirrorTopicNotPaused(
            f"Topic '{record.topic}' of mirror '{record.mirror}' is STOPPED, not PAUSED; start it with --start."
        )
    return replace(record, desired=DesiredState.MIRRORING, anew="")


def _recovered(image: Image, record: TopicRecord) -> TopicRecord:
    if record.desired is DesiredState.STOPPED:
        raise InvalidClusterMirrorState(
            f"Topic '{record.topic}' of mirror '{record.mirror}' is STOPPED, so there is nothing to recover; start it "
            f"with --start."
        )
    states = {partition.state for partition in image.partitions_of(record.mirror, record.topic)}
    return replace(record, recoveries=record.recoveries + 1) if PartitionState.FAILED in states else record
