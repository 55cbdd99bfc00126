"""Create, start and stop against the rules of KIP-1279, section 2.3, and our decisions."""

from collections.abc import Iterable
from dataclasses import replace
from uuid import UUID

import pytest

from twinlog.control.commands import Create, Created, FoundTopic, Handled, Start, Started, Stop, Stopped
from twinlog.control.handle import create, start, stop
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import (
    NO_TOPIC_ID,
    Change,
    MirrorRecord,
    PartitionRecord,
    Tombstone,
    TopicRecord,
    topic_id_text,
)
from twinlog.control.selection import Edits
from twinlog.errors import (
    ClusterMirrorAlreadyExists,
    ClusterMirrorError,
    InconsistentTopicId,
    InvalidConfig,
    InvalidRequest,
    MirrorTopicNotStopped,
    TopicAlreadyExists,
    TopicAlreadyInClusterMirror,
    TopicNotInClusterMirror,
    UnknownClusterMirror,
    UnknownTopicOrPartition,
)

SOURCE_ID, DESTINATION_ID, OTHER_ID = (UUID(int=n) for n in (1, 2, 3))
CONFIGS = {"bootstrap.servers": "source:9092"}
INCLUDE, EXCLUDE = "mirror.topics.include", "mirror.topics.exclude"


def mirror(name: str = "m", **configs: str) -> MirrorRecord:
    """A mirror's record."""
    return MirrorRecord(name, CONFIGS | {key.replace("_", "."): value for key, value in configs.items()}, "S")


def topic(name: str = "t", desired: DesiredState = DesiredState.MIRRORING, of: str = "m") -> TopicRecord:
    """A topic's record."""
    return TopicRecord(of, name, desired, SOURCE_ID, DESTINATION_ID, 2)


def found(name: str = "t", **changed: object) -> FoundTopic:
    """A topic as found, twin of `topic()`."""
    return replace(FoundTopic(name, SOURCE_ID, 2, DESTINATION_ID), **changed)  # type: ignore[arg-type]


def fresh(name: str) -> FoundTopic:
    """A topic that is only at the source, with an id of its own."""
    return FoundTopic(name, UUID(int=sum(name.encode()) << 64), 2)


def after(image: Image, handled: Handled[object]) -> Image:
    """Replay what a command would commit."""
    for record in handled.records:
        image.apply(record)
    return image


def started(records: Iterable[Change], command: Start) -> tuple[Started, Image]:
    """Run a start on an image of some records."""
    image = Image(records)
    handled = start(image, command)
    return handled.reply, after(image, handled)


def stopped(records: Iterable[Change], command: Stop) -> tuple[Stopped, Image]:
    """Run a stop on an image of some records."""
    image = Image(records)
    handled = stop(image, command)
    return handled.reply, after(image, handled)


def selection(image: Image) -> tuple[str | None, str | None]:
    """Mirror m's stored include and exclude lists."""
    configs = image.mirrors["m"].configs
    return configs.get(INCLUDE), configs.get(EXCLUDE)


# Create


def test_create_stores_the_configs() -> None:
    """A mirror is its configs and its source's id; nothing else is written."""
    handled = create(Image(), Create("m", CONFIGS, "S", "D"))
    assert handled == Handled((MirrorRecord("m", CONFIGS, "S"),), Created("m"))


def test_create_refuses_a_second_mirror_of_a_name() -> None:
    """In the KIP's words."""
    with pytest.raises(ClusterMirrorAlreadyExists, match=r"^Mirror 'm' already exists$"):
        create(Image([mirror()]), Create("m", CONFIGS, "S", "D"))


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ü", "x" * 250, "a\n"])
def test_create_refuses_a_bad_name(name: str) -> None:
    """A name is 1 to 249 of the characters that a topic's name may have."""
    with pytest.raises(InvalidRequest, match="249"):
        create(Image(), Create(name, CONFIGS, "S", "D"))


def test_create_refuses_bad_configs() -> None:
    """An unknown key is refused by name, before anything is stored."""
    with pytest.raises(InvalidConfig, match=r"mirror\.topic\.include"):
        create(Image(), Create("m", CONFIGS | {"mirror.topic.include": "a"}, "S", "D"))


def test_create_refuses_a_cluster_as_its_own_source() -> None:
    """A mirror of a cluster into itself is a loop; an unknown source id is no reason to refuse."""
    with pytest.raises(InvalidRequest, match=r"^Detected mirror loop for mirror: m"):
        create(Image(), Create("m", CONFIGS, "D", "D"))
    assert create(Image(), Create("m", CONFIGS, "", "D")).reply == Created("m")
    assert create(Image(), Create("m", CONFIGS, "", "")).reply == Created("m")


# Start


def test_start_stores_topics_and_patterns() -> None:
    """What was found is desired MIRRORING with its ids; the patterns are kept for discovery."""
    reply, image = started([mirror()], Start("m", (found(), fresh("u")), ("t", "u.*"), ("x",)))
    assert reply == Started("m", ("t", "u"), (), (), (), (), {}, Edits(("t", "u.*"), ("x",)))
    assert image.topic("m", "t") == topic()
    assert image.topic("m", "u") == TopicRecord(
        "m", "u", DesiredState.MIRRORING, fresh("u").source_topic_id, NO_TOPIC_ID, 2
    )
    assert selection(image) == ("t,u.*", "__.*,x")


def test_start_without_patterns_means_the_names() -> None:
    """Names given alone are included as names."""
    _, image = started([mirror()], Start("m", (found(),)))
    assert selection(image) == ("t", None)


def test_start_of_an_unknown_mirror() -> None:
    """In the KIP's words."""
    with pytest.raises(UnknownClusterMirror, match=r"^Mirror 'm' not found or has no configuration$"):
        start(Image(), Start("m", (found(),)))


def test_start_with_nothing_found_keeps_the_patterns() -> None:
    """Discovery finds later what is not there yet; names are reported as pending."""
    reply, image = started([mirror()], Start("m", (found("u", partitions=0),), ("u", "v", "w.*")))
    assert (reply.started, reply.pending) == ((), ("u", "v"))
    assert selection(image) == ("u,v,w.*", None)
    assert image.topics_of("m") == []


def test_start_leaves_out_what_only_an_expression_matched_and_an_exclude_excludes() -> None:
    """Internal topics found by `.*` are no error, they are left out."""
    reply, image = started([mirror()], Start("m", (found(), fresh("__internal")), (".*",)))
    assert (reply.started, reply.excluded, reply.failed) == (("t",), ("__internal",), {})
    assert image.topic("m", "__internal") is None


def test_start_takes_names_out_of_the_exclude_list() -> None:
    """A topic stopped by name is excluded by name; starting it includes it again."""
    records = [mirror(mirror_topics_exclude="__.*,t"), topic(desired=DesiredState.STOPPED)]
    reply, image = started(records, Start("m", (found(),), ("t",)))
    assert reply.started == ("t",)
    assert selection(image) == ("t", "__.*")


def test_start_stops_active_topics_that_are_excluded_now() -> None:
    """An exclude is enforced on running topics."""
    reply, image = started([mirror(), topic("x1"), topic("y1")], Start("m", (), (".*",), ("x.*",)))
    assert reply.stopped == ("x1",)
    assert [record.desired.name for record in image.topics_of("m")] == ["STOPPED", "MIRRORING"]


def test_start_of_a_running_topic_does_nothing() -> None:
    """Already MIRRORING is fine, and its record is not written again."""
    looked = replace(mirror(mirror_topics_include="t"), looked_include=("t",), looked_exclude=("__.*",))
    handled = start(Image([looked, topic()]), Start("m", (found(),), ("t",)))
    assert handled.records == ()
    assert (handled.reply.started, handled.reply.already) == ((), ("t",))


def test_start_again_keeps_what_is_known_of_the_same_twins() -> None:
    """The stored states (P, checked offset) of the same two topics stay; of others they are removed."""
    state = PartitionRecord("m", "t", 0, PartitionState.STOPPED, producer_id=7)
    records = [mirror(), topic(desired=DesiredState.STOPPED), state]
    _, image = started(records, Start("m", (found(),)))
    assert image.partition("m", "t", 0) == state
    handled = start(Image(records), Start("m", (found(destination_topic_id=NO_TOPIC_ID),)))
    assert Tombstone(state.key) in handled.records
    handled = start(Image(records), Start("m", (found(destination_topic_id=OTHER_ID),)))
    assert Tombstone(state.key) in handled.records


STOPPED_TOPIC = topic(desired=DesiredState.STOPPED)


@pytest.mark.parametrize(
    ("records", "command", "error", "text"),
    [
        ((), Start("m", (found(),), ("t",), ("t.*",)), InvalidRequest, r"\(t\.\*\).*exclude=\[__\.\*\]'"),
        ((), Start("m", (found(),), ("t",), ("t",)), InvalidRequest, "exclude pattern"),
        ((), Start("m", (found(),), ("u.*",)), InvalidRequest, "none of the patterns"),
        ((), Start("m", (found(),), reverse={"t": "back"}), InvalidRequest, "^Detected mirror loop for mirror: m"),
        ((), Start("m", (found(expected_id=OTHER_ID),)), InconsistentTopicId, topic_id_text(OTHER_ID)),
        ((), Start("m", (found(adoptable=False),)), TopicAlreadyExists, "exists at the destination"),
        ((topic("s"),), Start("m", (found(),)), TopicAlreadyExists, "belongs to topic 's'"),
        ((mirror("n"), topic(of="n")), Start("m", (found(),)), TopicAlreadyInClusterMirror, "mirror 'n'"),
        ((topic(desired=DesiredState.PAUSED),), Start("m", (found(),)), MirrorTopicNotStopped, "--resume"),
        ((topic(),), Start("m", (found(source_topic_id=OTHER_ID),)), InconsistentTopicId, "recreated at the source"),
        (
            (topic(),),
            Start("m", (found(destination_topic_id=OTHER_ID),)),
            InconsistentTopicId,
            "recreated at the destination",
        ),
        (
            (STOPPED_TOPIC,),
            Start("m", (found(source_topic_id=OTHER_ID),)),
            InconsistentTopicId,
            "recreated at the source",
        ),
        (
            (STOPPED_TOPIC, PartitionRecord("m", "t", 1, PartitionState.STOPPING)),
            Start("m", (found(),)),
            MirrorTopicNotStopped,
            "partition 1 is STOPPING",
        ),
        (
            (topic(), PartitionRecord("m", "t", 1, PartitionState.FAILED, error="It diverged.", retry_attempt=-1)),
            Start("m", (found(),)),
            MirrorTopicNotStopped,
            "partition 1 says: It diverged",
        ),
        (
            (STOPPED_TOPIC,),
            Start("m", (found(destination_topic_id=OTHER_ID, adoptable=False),)),
            TopicAlreadyExists,
            "exists at the destination",
        ),
    ],
)
def test_a_topic_that_cannot_start_is_a_value(
    records: tuple[Change, ...], command: Start, error: type[ClusterMirrorError], text: str
) -> None:
    """Each rule breaks one topic with a sentence; another topic of the same command starts, and only it is included."""
    other = fresh("u1")
    reply, image = started(
        [mirror(), *records],
        replace(command, topics=(*command.topics, other), include=(*(command.include or ("t",)), "u1")),
    )
    assert reply.started == ("u1",)
    assert list(reply.failed) == ["t"]
    with pytest.raises(error, match=text):
        raise reply.failed["t"]
    assert image.topic("m", "u1") is not None
    assert "t" not in (selection(image)[0] or "").split(",")


@pytest.mark.parametrize(
    "changed",
    [
        found(),
        found(adoptable=False),
        found(expected_id=SOURCE_ID),
        found(source_topic_id=NO_TOPIC_ID),
        found(source_topic_id=OTHER_ID, destination_topic_id=NO_TOPIC_ID),
        found(source_topic_id=OTHER_ID, destination_topic_id=OTHER_ID),
    ],
)
def test_a_stopped_topic_starts_again(changed: FoundTopic) -> None:
    """As the same twin, without ids (brokers before 2.8), or anew once its destination was deleted or replaced."""
    records = [mirror(), STOPPED_TOPIC, PartitionRecord("m", "t", 0, PartitionState.STOPPED)]
    reply, image = started(records, Start("m", (changed,)))
    assert (reply.started, reply.failed) == (("t",), {})
    record = image.topic("m", "t")
    assert record is not None
    assert record.source_topic_id == changed.source_topic_id
    assert record.destination_topic_id == changed.destination_topic_id


def test_a_topic_stopped_in_another_mirror_may_start() -> None:
    """Only an active topic belongs to its mirror."""
    reply, image = started([mirror(), mirror("n"), topic(of="n", desired=DesiredState.STOPPED)], Start("m", (found(),)))
    assert reply.started == ("t",)
    active = image.active_in("t")
    assert active is not None
    assert active.mirror == "m"


# Stop


def test_stop_forgets_a_name_that_was_only_remembered() -> None:
    """A typo at start is remembered for a topic that may come; stopping it by name takes that back."""
    reply, image = stopped([mirror(mirror_topics_include="t,tpyo"), topic()], Stop("m", (), ("tpyo",)))
    assert (reply.stopped, reply.failed) == ((), {})
    assert reply.edits == Edits(taken_back_include=("tpyo",))
    assert "tpyo" not in (selection(image)[0] or "").split(",")


@pytest.mark.parametrize("desired", [DesiredState.MIRRORING, DesiredState.PAUSED])
def test_stop_changes_what_is_desired(desired: DesiredState) -> None:
    """A running and a paused topic can be stopped; ids and partitions stay."""
    reply, image = stopped([mirror(), topic(desired=desired)], Stop("m", ("t",)))
    assert reply == Stopped("m", ("t",), (), {}, Edits(saved_exclude=("t",)))
    assert image.topic("m", "t") == topic(desired=DesiredState.STOPPED)
    assert selection(image) == (None, "__.*,t")


def test_stop_of_a_stopped_topic_is_fine() -> None:
    """Nothing is written for it."""
    records = [mirror(mirror_topics_exclude="t"), STOPPED_TOPIC]
    handled = stop(Image(records), Stop("m", ("t",)))
    assert handled.records == ()
    assert handled.reply == Stopped("m", (), ("t",), {})


def test_stop_edits_the_patterns() -> None:
    """A pattern of the include list leaves it, any other is excluded, so that nothing is discovered again."""
    records = [mirror(mirror_topics_include="t,u.*"), topic("t"), topic("u1")]
    reply, image = stopped(records, Stop("m", ("t", "u1"), ("t", "u1")))
    assert reply.stopped == ("t", "u1")
    assert selection(image) == ("u.*", "__.*,u1")


def test_stop_by_an_expression_leaves_other_topics_alone() -> None:
    """`.*` stops all of the mirror's topics, those too that the destination does not have yet, and no others."""
    records = [mirror(), mirror("n"), topic("t"), topic("later"), topic("theirs", of="n")]
    reply, image = stopped(records, Stop("m", ("plain", "t", "theirs"), (".*",)))
    assert reply == Stopped("m", ("later", "t"), (), {}, Edits(saved_exclude=(".*",)))
    assert image.topic("n", "theirs") == topic("theirs", of="n")


@pytest.mark.parametrize(
    ("topics", "patterns", "error", "text"),
    [
        ((), ("nowhere",), UnknownTopicOrPartition, "does not exist"),
        (("plain",), ("plain",), UnknownClusterMirror, "in no mirror"),
        (("theirs",), ("theirs",), TopicNotInClusterMirror, "belongs to mirror 'n'"),
        (("moved",), ("moved",), TopicNotInClusterMirror, "belongs to mirror 'n'"),
        (("plain",), (), UnknownClusterMirror, "in no mirror"),
    ],
)
def test_a_topic_that_cannot_stop_is_a_value(
    topics: tuple[str, ...], patterns: tuple[str, ...], error: type[ClusterMirrorError], text: str
) -> None:
    """A topic given by name that is not this mirror's fails, alone, and is not excluded."""
    records = [mirror(), mirror("n"), topic("t"), topic("theirs", of="n"), topic("moved", of="n")]
    records.append(topic("moved", DesiredState.STOPPED))
    command = Stop("m", (*topics, "t"), (*patterns, "t") if patterns else ())
    reply, image = stopped(records, command)
    assert reply.stopped == ("t",)
    (problem,) = reply.failed.values()
    with pytest.raises(error, match=text):
        raise problem
    assert selection(image) == (None, "__.*,t")


def test_stop_of_an_unknown_mirror() -> None:
    """In the KIP's words."""
    with pytest.raises(UnknownClusterMirror, match=r"^Mirror 'm' not found$"):
        stop(Image(), Stop("m", ("t",)))


@pytest.mark.parametrize(
    "meanwhile",
    [
        mirror(mirror_topics_include="other.*"),  # the pattern was taken back
        mirror(mirror_topics_include="t.*", mirror_topics_exclude="t2"),
        topic("t2", DesiredState.STOPPED),  # started and stopped
        topic("t2", DesiredState.PAUSED),
    ],
)
def test_discovery_starts_nothing_that_was_decided_otherwise_meanwhile(meanwhile: Change) -> None:
    """What it found is judged by the state as it is when the start is written, and no list is changed by it."""
    records = [mirror(mirror_topics_include="t.*"), topic("t1", DesiredState.STOPPED), meanwhile]
    command = Start("m", (found("t1"), fresh("t2")), include=("t.*", "t2"), discovery=True)
    before = Image(records)
    reply, image = started(records, command)
    assert (reply.started, reply.failed, reply.stopped) == ((), {}, ())
    assert image.mirrors["m"].configs == before.mirrors["m"].configs
    assert image.topics_of("m") == before.topics_of("m")


def test_discovery_starts_what_is_new_and_leaves_the_lists_alone() -> None:
    """An exclude that a command would take out stays, and what was stopped stays so."""
    lists = {"mirror_topics_include": "t.*", "mirror_topics_exclude": "t3"}
    records = [mirror(**lists), topic("t1", DesiredState.STOPPED)]
    command = Start("m", (found("t1"), fresh("t2")), include=("t.*", "t3"), discovery=True)
    reply, image = started(records, command)
    assert reply.started == ("t2",)
    assert image.mirrors["m"].configs == mirror(**lists).configs
    desired = {record.topic: record.desired for record in image.topics_of("m")}
    assert desired == {"t1": DesiredState.STOPPED, "t2": DesiredState.MIRRORING}


def test_a_stop_by_name_that_is_repeated_changes_no_list() -> None:
    """It is how the last mirrored offsets are looked at again; a later start by a pattern finds the topic."""
    records = [mirror(mirror_topics_include="other"), topic("t", DesiredState.STOPPED)]
    reply, image = stopped(records, Stop("m", ("t",), ("t",)))
    assert (reply.already, bool(reply.edits)) == (("t",), False)
    assert image.mirrors["m"].configs == mirror(mirror_topics_include="other").configs
    reply, image = stopped(records, Stop("m", ("t",), ("t.*",)))
    assert reply.edits.saved_exclude == ("t.*",)
