"""Alter and delete against the rules of KIP-1279, section 2.3, and our decisions."""

from uuid import UUID

import pytest

from twinlog.config.properties import Properties
from twinlog.control.commands import Alter, Altered, Delete, Deleted
from twinlog.control.handle_mirror import alter, delete
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import (
    Change,
    MirrorRecord,
    PartitionRecord,
    Skipped,
    SkippedRecord,
    Tombstone,
    TopicRecord,
)
from twinlog.errors import (
    ClusterMirrorNotEmpty,
    InvalidClusterMirrorState,
    InvalidConfig,
    InvalidRequest,
    UnknownClusterMirror,
)

RETRIES, EXCLUDE = "mirror.failed.retry.max.attempts", "mirror.topics.exclude"
CONFIGS = {"bootstrap.servers": "source:9092", RETRIES: "4"}


def topic(name: str, desired: DesiredState = DesiredState.MIRRORING, of: str = "m") -> TopicRecord:
    """A topic's record."""
    return TopicRecord(of, name, desired, UUID(int=1), UUID(int=2), 2)


def image(*records: Change) -> Image:
    """Mirror m with these records."""
    return Image([MirrorRecord("m", CONFIGS, "S"), *records])


def test_alter_sets_and_removes() -> None:
    """The rest of the configs and the source's id stay; what was changed is told."""
    handled = alter(image(), Alter("m", {"mirror.metadata.refresh.interval.ms": "5000"}, (RETRIES,)))
    configs = {"bootstrap.servers": "source:9092", "mirror.metadata.refresh.interval.ms": "5000"}
    assert handled.records == (MirrorRecord("m", configs, "S"),)
    assert handled.reply == Altered("m", (RETRIES, "mirror.metadata.refresh.interval.ms"), reconnects=False)


@pytest.mark.parametrize(("key", "reconnects"), [(EXCLUDE, False), ("mirror.acls.include", False), (RETRIES, False)])
def test_filters_and_periods_do_not_reconnect(key: str, reconnects: bool) -> None:  # noqa: FBT001  # a table's column
    """They take effect at the next refresh."""
    assert alter(image(), Alter("m", {key: "TOPIC" if "acls" in key else "7"})).reply.reconnects is reconnects


def test_what_the_connection_is_made_with_reconnects() -> None:
    """Another address of the source."""
    reply = alter(image(), Alter("m", {"bootstrap.servers": "other:9092"})).reply
    assert reply == Altered("m", ("bootstrap.servers",), reconnects=True)


def test_an_alteration_without_effect_writes_nothing() -> None:
    """The same value again, and a key removed that has none."""
    handled = alter(image(), Alter("m", {RETRIES: "4"}, (EXCLUDE,)))
    assert (handled.records, handled.reply) == ((), Altered("m", (), reconnects=False))


def test_an_exclude_that_matches_active_topics_stops_them() -> None:
    """As a start's exclude does; topics that are stopped already stay as they are."""
    state = image(topic("a-1"), topic("a-2", DesiredState.PAUSED), topic("a-3", DesiredState.STOPPED), topic("b"))
    handled = alter(state, Alter("m", {EXCLUDE: "a-.*"}))
    assert handled.records[1:] == (topic("a-1", DesiredState.STOPPED), topic("a-2", DesiredState.STOPPED))
    assert handled.reply.stopped == ("a-1", "a-2")


@pytest.mark.parametrize(
    ("command", "error", "words"),
    [
        (Alter("m", {"mirror.topic.include": "a"}), InvalidConfig, "mirror.topic.include"),
        (Alter("m", {RETRIES: "many"}), InvalidConfig, RETRIES),
        (Alter("m", {}, ("no.such.key",)), InvalidConfig, "no.such.key"),
        (Alter("m", {}, ("bootstrap.servers",)), InvalidConfig, "bootstrap.servers"),
        (Alter("m", {RETRIES: "1"}, (RETRIES,)), InvalidRequest, "both to be set and to be removed"),
        (Alter("m", {}), InvalidRequest, "No configs were given"),
        (Alter("x", {RETRIES: "1"}), UnknownClusterMirror, "Mirror 'x' not found"),
    ],
)
def test_what_is_wrong_is_refused_when_altered(command: Alter, error: type[Exception], words: str) -> None:
    """By the name of the key, before anything is stored; also where what is left would not do."""
    with pytest.raises(error, match=words):
        alter(image(), command)


def test_a_key_is_removed_under_any_of_its_names() -> None:
    """And cannot be set and removed at once under two."""
    state = image(MirrorRecord("m", {**CONFIGS, "mirror.acls.include": "TOPIC"}, "S"))
    handled = alter(state, Alter("m", {}, ("mirror.acl.include",)))
    assert handled.reply.changed == ("mirror.acls.include",)
    assert handled.records == (MirrorRecord("m", CONFIGS, "S"),)
    with pytest.raises(InvalidRequest, match="both to be set and to be removed"):
        alter(state, Alter("m", {"mirror.acls.include": "GROUP"}, ("mirror.acl.include",)))


def test_an_error_in_a_file_names_its_line() -> None:
    """Of the file that the new configs come from."""
    changes = Properties({RETRIES: "many"}, {RETRIES: 3}, "new.properties")
    with pytest.raises(InvalidConfig, match=r"^new\.properties:3: "):
        alter(image(), Alter("m", changes, (), "new.properties"))


def stopped(*states: PartitionState) -> list[Change]:
    """Topic t, desired STOPPED, and what is stored about its partitions."""
    partitions = [PartitionRecord("m", "t", number, state) for number, state in enumerate(states)]
    return [topic("t", DesiredState.STOPPED), *partitions]


def test_delete_removes_all_that_is_stored_about_a_mirror_and_nothing_else() -> None:
    """Mirror, topics, partitions and skipped; another mirror's records stay."""
    others = [MirrorRecord("n", CONFIGS, "S"), topic("u", of="n"), PartitionRecord("n", "u", 0, PartitionState.PAUSED)]
    skipped = SkippedRecord("m", 1, (Skipped("group", "g", "live"),))
    state = image(*stopped(PartitionState.STOPPED, PartitionState.STOPPED), topic("v", DesiredState.STOPPED), skipped)
    for record in others:
        state.apply(record)
    handled = delete(state, Delete("m"))
    assert handled.reply == Deleted("m", ("t", "v"))
    assert all(isinstance(record, Tombstone) for record in handled.records)
    for record in handled.records:
        state.apply(record)
    assert ("m" in state.mirrors, state.topics_of("m"), state.partitions_of("m", "t"), state.skipped) == (
        False,
        [],
        [],
        {},
    )
    assert all(state.holds(record) for record in others)


@pytest.mark.parametrize("desired", [DesiredState.MIRRORING, DesiredState.PAUSED])
def test_delete_refuses_while_a_topic_is_active_or_paused(desired: DesiredState) -> None:
    """In the KIP's words."""
    with pytest.raises(ClusterMirrorNotEmpty, match=r"^Mirror 'm' still has active or paused topic 't'$"):
        delete(image(topic("t", desired)), Delete("m"))


@pytest.mark.parametrize("state", sorted(set(PartitionState) - {PartitionState.STOPPED}))
def test_delete_refuses_while_a_partition_is_not_stopped(state: PartitionState) -> None:
    """A worker may still write to it; the partition and its state are named."""
    with pytest.raises(InvalidClusterMirrorState, match=f"t-1 is {state.name}"):
        delete(image(*stopped(PartitionState.STOPPED, state)), Delete("m"))


def test_delete_of_an_unknown_mirror() -> None:
    """In the KIP's words."""
    with pytest.raises(UnknownClusterMirror, match=r"^Mirror 'x' not found$"):
        delete(image(), Delete("x"))
