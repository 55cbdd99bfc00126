"""Pause, resume and recover against the rules of KIP-1279, section 2.3, and our decisions."""

from collections.abc import Callable, Iterable
from uuid import UUID

import pytest

from twinlog.control.commands import Handled, Moved, OnTopics
from twinlog.control.handle_topics import pause, recover, resume
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import NEVER_RETRY, Change, MirrorRecord, PartitionRecord, TopicRecord
from twinlog.errors import (
    InvalidClusterMirrorState,
    MirrorTopicBeingStopped,
    MirrorTopicNotPaused,
    TopicNotInClusterMirror,
    UnknownClusterMirror,
    UnknownTopicOrPartition,
)

Command = Callable[[Image, OnTopics], Handled[Moved]]
MIRRORING, PAUSED, STOPPED = DesiredState.MIRRORING, DesiredState.PAUSED, DesiredState.STOPPED


def topic(name: str, desired: DesiredState, *, of: str = "m", recoveries: int = 0) -> TopicRecord:
    """A topic's record."""
    return TopicRecord(of, name, desired, UUID(int=1), UUID(int=2), 2, recoveries)


def image(*records: Change) -> Image:
    """Mirrors m and n with these records."""
    return Image([MirrorRecord(name, {"bootstrap.servers": "a:1"}, "S") for name in "mn"] + list(records))


def run(command: Command, records: Iterable[Change], *topics: str, patterns: tuple[str, ...] = ()) -> Handled[Moved]:
    """Run a command on topics of mirror m."""
    return command(image(*records), OnTopics("m", topics, patterns))


def test_pause_and_resume_change_what_is_desired_and_nothing_else() -> None:
    """There and back leaves the record as it was, recoveries included."""
    before = topic("t", MIRRORING, recoveries=3)
    there = run(pause, [before], "t")
    assert there == Handled((topic("t", PAUSED, recoveries=3),), Moved("m", ("t",), (), {}))
    back = run(resume, there.records, "t")
    assert back == Handled((before,), Moved("m", ("t",), (), {}))


@pytest.mark.parametrize(("command", "desired"), [(pause, PAUSED), (resume, MIRRORING), (recover, MIRRORING)])
def test_what_is_so_already_is_no_error_and_writes_nothing(command: Command, desired: DesiredState) -> None:
    """Pause of a paused, resume of a mirrored topic, and a recovery where nothing has failed."""
    assert run(command, [topic("t", desired)], "t") == Handled((), Moved("m", (), ("t",), {}))


@pytest.mark.parametrize(
    ("command", "error"),
    [(pause, MirrorTopicBeingStopped), (resume, MirrorTopicNotPaused), (recover, InvalidClusterMirrorState)],
)
def test_a_stopped_topic_is_refused_by_name_and_left_alone_by_a_regex(command: Command, error: type[Exception]) -> None:
    """The others go on: one topic's failure is a value."""
    records = [topic("a", STOPPED), topic("b", MIRRORING), topic("c", PAUSED)]
    by_name = run(command, records, "a", "b", "c").reply
    assert [(name, type(problem)) for name, problem in by_name.failed.items()] == [("a", error)]
    assert sorted(by_name.moved + by_name.already) == ["b", "c"]
    by_regex = run(command, records, "a", "b", "c", patterns=("[abc]",)).reply
    assert (by_regex.failed, by_regex.moved, by_regex.already) == ({}, by_name.moved, by_name.already)


@pytest.mark.parametrize("command", [pause, resume, recover])
def test_what_is_not_the_mirrors_is_refused(command: Command) -> None:
    """A topic of another mirror, of no mirror, and one that is nowhere; each with the KIP's error."""
    reply = command(
        image(topic("theirs", MIRRORING, of="n")), OnTopics("m", ("theirs", "free"), ("theirs", "free", "gone"))
    ).reply
    assert {name: type(problem) for name, problem in reply.failed.items()} == {
        "theirs": TopicNotInClusterMirror,
        "free": UnknownClusterMirror,
        "gone": UnknownTopicOrPartition,
    }
    with pytest.raises(UnknownClusterMirror, match="Mirror 'x' not found"):
        command(image(), OnTopics("x", ("t",)))


def test_a_regex_finds_the_mirrors_topics_that_the_destination_does_not_have() -> None:
    """What is to be paused may have been deleted by hand, or not be made yet."""
    assert run(pause, [topic("t-1", MIRRORING), topic("u", MIRRORING)], patterns=("t-.*",)).reply.moved == ("t-1",)


@pytest.mark.parametrize("desired", [MIRRORING, PAUSED])
def test_recover_counts_one_more_for_topics_with_failed_partitions(desired: DesiredState) -> None:
    """Also for what is never retried by itself; topics without a failed partition stay as they are."""
    failed = PartitionRecord("m", "t", 1, PartitionState.FAILED, retry_attempt=NEVER_RETRY)
    fine = PartitionRecord("m", "u", 0, PartitionState.MIRRORING)
    records = [topic("t", desired, recoveries=1), topic("u", MIRRORING), failed, fine]
    handled = run(recover, records, patterns=(".*",))
    assert handled == Handled((topic("t", desired, recoveries=2),), Moved("m", ("t",), ("u",), {}))
