"""The steps by which a topic's destination is made anew, and what takes them back."""

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest

from twinlog.control import anew
from twinlog.control.anew import Anew
from twinlog.control.commands import Alter, FoundTopic, OnTopics, Start, Started, Stop
from twinlog.control.handle import start, stop
from twinlog.control.handle_mirror import alter
from twinlog.control.handle_topics import pause, resume
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import (
    NEVER_RETRY,
    NO_TOPIC_ID,
    Change,
    MirrorRecord,
    PartitionRecord,
    TopicRecord,
)
from twinlog.errors import InvalidClusterMirrorState

SOURCE, OLD, NEW = (UUID(int=n) for n in (1, 2, 3))
REASON = "the source was truncated"
KEPT = Anew(2, {"segment.bytes": "1000000"})
TOPIC = TopicRecord(
    "m", "t", DesiredState.MIRRORING, SOURCE, OLD, 2, recoveries=3, start_at="latest", start_offsets=(7, 8)
)
FOUND = FoundTopic("t", SOURCE, 2, NEW)
FOLLOWS = "mirror.support.unclean.leader.election"
CONFIGS = {"bootstrap.servers": "a:1", "mirror.topics.include": "t.*", FOLLOWS: "t"}


def partition(number: int, state: PartitionState, **more: object) -> PartitionRecord:
    """A partition's record about the old pair of topics."""
    made = PartitionRecord("m", "t", number, state, source_topic_id=SOURCE, destination_topic_id=OLD)
    return replace(made, **more)  # type: ignore[arg-type]  # the record's own names


def failed(number: int, **more: object) -> PartitionRecord:
    """One whose source was truncated."""
    error = f"t-{number}: {REASON}: it diverges at offset 5"
    return replace(partition(number, PartitionState.FAILED, error=error, retry_attempt=NEVER_RETRY), **more)  # type: ignore[arg-type]


def image_of(*changes: Change) -> Image:
    """A mirror of the topic."""
    return Image([MirrorRecord("m", CONFIGS, "S"), TOPIC, *changes])


def begun() -> Image:
    """Behind the first step, with every partition ended."""
    image = image_of(failed(0), partition(1, PartitionState.MIRRORING))
    for change in anew.begin(image, TOPIC, KEPT).records:
        image.apply(change)
    for number in range(2):
        image.apply(partition(number, PartitionState.PAUSED))
    return image


def finish(image: Image, found: FoundTopic = FOUND) -> Started:
    """The last step, which is applied where it is done."""
    handled = start(image, Start("m", (found,), ("t",), anew="t"))
    for change in handled.records:
        image.apply(change)
    return handled.reply


@pytest.mark.parametrize(
    ("changed", "count"),
    [
        ({}, 1),
        ({"retry_attempt": 0}, 0),
        ({"error": "something else"}, 0),
        ({"destination_topic_id": NEW}, 0),
        ({"state": PartitionState.MIRRORING}, 0),
    ],
)
def test_only_what_failed_for_good_for_that_reason_counts(changed: dict[str, object], count: int) -> None:
    """And only of the topics that are meant now."""
    image = image_of(failed(0, **changed), partition(1, PartitionState.MIRRORING))
    assert len(anew.truncated(image, TOPIC, REASON)) == count


def test_every_partition_ends_before_anything_else() -> None:
    """Also one that no worker has seen, and one whose stored state is about other topics."""
    image = image_of(failed(0))
    (record,) = anew.begin(image, TOPIC, KEPT).records
    assert isinstance(record, TopicRecord)
    assert (record.desired, Anew.read(record.anew)) == (DesiredState.PAUSED, KEPT)
    image.apply(record)
    assert anew.unrested(image, record) == [0, 1]
    image.apply(partition(0, PartitionState.PAUSED))
    image.apply(partition(1, PartitionState.PAUSED, destination_topic_id=NEW))
    assert anew.unrested(image, record) == [1]
    refused = finish(image).failed["t"]
    assert isinstance(refused, InvalidClusterMirrorState)
    assert "[1]" in str(refused)


def test_it_is_begun_and_withdrawn_only_as_it_was_seen() -> None:
    """What a command has changed meanwhile stands."""
    image = image_of(failed(0))
    changed = replace(TOPIC, recoveries=9)
    refused: anew.Handled[TopicRecord | None] = anew.Handled((), None)
    assert (anew.begin(image, changed, KEPT), anew.withdraw(image, changed).records) == (refused, ())
    image = begun()
    record = image.topic("m", "t")
    assert record is not None
    assert anew.withdraw(image, record).records == (TOPIC,)


def test_the_last_step_begins_everything_anew_at_once() -> None:
    """The new ids and the desired state with the removal of every partition's; it begins where it began before."""
    image = begun()
    assert finish(image).started == ("t",)
    record = image.topic("m", "t")
    assert record == replace(TOPIC, destination_topic_id=NEW, recoveries=0)
    assert image.partitions_of("m", "t") == []
    assert image.mirrors["m"].looked_include == ()


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(lambda image: pause(image, OnTopics("m", (), ("t",))).records, id="pause"),
        pytest.param(lambda image: resume(image, OnTopics("m", (), ("t",))).records, id="resume"),
        pytest.param(lambda image: stop(image, Stop("m", (), ("t",))).records, id="stop"),
        pytest.param(lambda image: start(image, Start("m", (), ("x",), ("t",))).records, id="exclude"),
    ],
)
def test_an_operators_command_takes_it_back(command: Callable[[Image], tuple[Change, ...]]) -> None:
    """Neither a step nor the last one is done then; a pause stays one, although the topic was PAUSED already."""
    image = begun()
    changes = command(image)
    assert any(isinstance(change, TopicRecord) for change in changes)
    for change in changes:
        image.apply(change)
    record = image.topic("m", "t")
    assert record is not None
    assert not anew.under_way(record)
    assert "t" not in finish(image).started
    assert image.topic("m", "t") == record


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (replace(FOUND, destination_topic_id=OLD), "still the old one"),
        (replace(FOUND, source_topic_id=UUID(int=9)), "recreated at the source"),
    ],
)
def test_the_last_step_is_only_for_the_topics_that_were_meant(found: FoundTopic, said: str) -> None:
    """The old one has to be gone, and the source's must be the same."""
    image = begun()
    assert said in str(finish(image, found).failed["t"])
    record = image.topic("m", "t")
    assert record is not None
    assert anew.under_way(record)


def test_before_the_new_topic_exists_the_step_is_judged_as_possible() -> None:
    """A start judges once before it makes anything."""
    assert finish(begun(), replace(FOUND, destination_topic_id=NO_TOPIC_ID)).started == ("t",)


def _announced() -> Image:
    image = begun()
    record = image.topic("m", "t")
    assert record is not None
    handled = anew.delete(image, record)
    for change in handled.records:
        image.apply(change)
    assert handled.reply == image.topic("m", "t")
    return image


@pytest.mark.parametrize(("there", "refused"), [(OLD, True), (NEW, False), (None, False)])
def test_while_the_old_topic_is_deleted_nobody_takes_it_back(there: UUID | None, *, refused: bool) -> None:
    """Its applications would write to what goes a moment later; once it is gone an operator may do as before."""
    ids = {} if there is None else {"t": there}
    for command in (
        lambda image: stop(image, Stop("m", ("t",), ids=ids)),
        lambda image: pause(image, OnTopics("m", ("t",), ids=ids)),
        lambda image: resume(image, OnTopics("m", ("t",), ids=ids)),
    ):
        handled = command(_announced())
        assert ("t" in handled.reply.failed) is refused
        assert bool(handled.records) is not refused


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(lambda image: start(image, Start("m", (), include=("u",), exclude=("t",))), id="start"),
        pytest.param(lambda image: alter(image, Alter("m", {"mirror.topics.exclude": "u,t"})), id="alter"),
    ],
)
def test_an_exclude_is_refused_while_the_topic_is_renewed(command: Callable[[Image], object]) -> None:
    """Else the topic would be gone for good, or MIRRORING and excluded; before, an exclude takes the matter back."""
    with pytest.raises(InvalidClusterMirrorState, match="Topic 't' of mirror 'm' would match an exclude"):
        command(_announced())
    command(begun())


@pytest.mark.parametrize("excluded", ["t", "t.*"])
def test_the_last_step_is_done_whatever_the_lists_say(excluded: str) -> None:
    """It changes no list, also one that a command has changed meanwhile, and asks none whether the topic may start."""
    image = _announced()
    lists = {**CONFIGS, "mirror.topics.include": "u.*", "mirror.topics.exclude": f"{excluded},v"}
    image.apply(MirrorRecord("m", lists, "S"))
    image.apply(TopicRecord("m", "v", DesiredState.MIRRORING, UUID(int=7), UUID(int=8), 1))
    done = finish(image)
    assert (done.started, done.excluded, done.stopped, done.failed) == (("t",), (), (), {})
    assert image.mirrors["m"].configs == lists
    assert not done.edits


@pytest.mark.parametrize("configs", [{}, {FOLLOWS: "false"}, {FOLLOWS: "u.*"}])
def test_nothing_is_begun_or_announced_once_the_mirror_follows_no_more(configs: dict[str, str]) -> None:
    """What is announced already goes on: the deletion may be on its way."""
    without = MirrorRecord("m", {"bootstrap.servers": "a:1", **configs}, "S")
    image = image_of(failed(0), without)
    assert anew.begin(image, TOPIC, KEPT).reply is None
    for image, announced in ((begun(), False), (_announced(), True)):
        image.apply(without)
        record = image.topic("m", "t")
        assert record is not None
        assert anew.delete(image, record).reply == (record if announced else None)


def test_a_deletion_is_announced_once_and_only_as_it_was_seen() -> None:
    """A worker that goes on where another one died finds it so; one whose partitions moved again may not."""
    image = _announced()
    record = image.topic("m", "t")
    assert record is not None
    assert Anew.read(record.anew) == replace(KEPT, deleting=True)
    assert anew.delete(image, record) == anew.Handled((), record)
    image.apply(partition(1, PartitionState.LOG_ALIGNMENT))
    assert anew.delete(image, record).reply is None
    assert anew.delete(begun(), record).reply is None
    assert Anew.read('{"replication_factor": 2, "configs": {}}').deleting is False
