"""Which groups are synced at each refresh and which are left alone, on real brokers."""

import contextlib
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.real.commanding import Commands
from tests.real.mirrored_logs import numbered, write
from tests.real.mirroring import Mirror

from twinlog.control.records import MirrorRecord, Skipped
from twinlog.names import TopicPartition as At
from twinlog.testing.checker import wait_until_level
from twinlog.testing.data import create_topic
from twinlog.testing.kafka import LocalKafka
from twinlog.wire.ops_groups import Committed, commit_offsets, committed_offsets

SOON = {"mirror.metadata.refresh.interval.ms": "500"}
WITHIN_S = 20.0
STOPPED_WITHIN_S = 5.0
REFRESHES_S = 1.5
"""Several refreshes pass in it."""
ODD_NAMES = ("", "a#b", "a/b", "a b", "*", ".*", "..", "%2F", "ünï", "two\nlines", "tab\t", "'quoted\"", "x" * 1000)


def member(kafka: LocalKafka, group: str, protocol: str) -> Consumer:
    """A member of a group, by either protocol."""
    where = {"bootstrap.servers": kafka.bootstrap, "group.id": group, "group.protocol": protocol}
    return Consumer({**where, "enable.auto.commit": False})


@pytest.fixture(scope="module")
def mirror(source: LocalKafka, destination: LocalKafka) -> Iterator[Mirror]:
    """A mirror that refreshes twice a second."""
    with Mirror(source, destination, configs=SOON) as mirror:
        yield mirror


@pytest.fixture
def filled(mirror: Mirror, topic: str) -> str:
    """A mirrored topic with 20 records."""
    mirror.create(topic)
    write(mirror.source, topic, numbered(20))
    mirror.start(topic)
    mirror.wait_level(topic)
    return topic


def commit(kafka: LocalKafka, group: str, topic: str, offset: int) -> None:
    """Commit as a client without members does."""
    reader = member(kafka, group, "classic")
    reader.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    reader.close()


def put(mirror: Mirror, group: str, *offsets: tuple[str, int], side: int = 0) -> None:
    """Commit for a group without members, as an administrator does, at the source (0) or the destination (1)."""
    wanted = {At(topic, 0): Committed(offset, f"at {offset}") for topic, offset in offsets}
    assert set(mirror.run(commit_offsets(mirror.clusters[side], group, wanted)).values()) == {0}


def committed(mirror: Mirror, group: str) -> dict[str, int]:
    """What a group has committed at the destination, by topic; each offset has the note that came with it."""
    told = mirror.run(committed_offsets(mirror.clusters[1], group))
    # librdkafka ends notes with a zero byte
    assert all(one.metadata.rstrip("\0") == f"at {one.offset}" for one in told.values())
    return {at.topic: one.offset for at, one in told.items()}


def synced(mirror: Mirror, topic: str, wanted: dict[str, int]) -> None:
    """Wait until groups have these offsets of a topic at the destination."""
    seen: dict[str, int | None] = {}

    def there() -> bool:
        seen.update({group: committed(mirror, group).get(topic) for group in wanted})
        return seen == wanted

    mirror.wait_for(there, lambda: f"{seen} instead of {wanted}", WITHIN_S)


def skipped(mirror: Mirror) -> Iterable[Skipped]:
    """What the last refresh left alone."""
    record = mirror._image.skipped.get(mirror.name)
    return () if record is None else record.items


def named(mirror: Mirror, group: str, reason: str) -> None:
    """Wait until a group is listed with that reason."""
    mirror.wait_for(
        lambda: any(one.kind == "group" and one.name == group and reason in one.reason for one in skipped(mirror)),
        lambda: f"{group!r} with {reason!r} among {skipped(mirror)}",
        WITHIN_S,
    )


@contextlib.contextmanager
def altered(mirror: Mirror, configs: dict[str, str]) -> Iterator[None]:
    """Let the mirror have other configs for a while."""
    usual = MirrorRecord(mirror.name, mirror._configs, mirror.clusters[0].cluster_id)
    mirror.put(replace(usual, configs={**mirror._configs, **configs}))
    try:
        yield
    finally:
        mirror.put(usual)


def test_groups_with_awkward_names_are_synced(mirror: Mirror, filled: str) -> None:
    """Names that are awkward elsewhere are only names here."""
    wanted = {name and f"{name}-{filled}": at for at, name in enumerate(ODD_NAMES)}
    for group, at in wanted.items():
        put(mirror, group, (filled, at))
    synced(mirror, filled, wanted)
    assert not [one for one in skipped(mirror) if one.name and one.name in wanted]


def joined(members: list[Consumer]) -> None:
    """Wait until each has partitions."""
    deadline = time.monotonic() + WITHIN_S
    while not all(one.assignment() for one in members):
        assert time.monotonic() < deadline, [one.assignment() for one in members]
        for one in members:
            one.poll(0.1)


def test_groups_that_live_at_the_source_are_followed(mirror: Mirror, filled: str) -> None:
    """Of both protocols: what their members commit is at the destination soon after."""
    groups = [f"{protocol}-{filled}" for protocol in ("classic", "consumer")]
    with contextlib.ExitStack() as stack:
        members = [member(mirror.source, group, group.split("-")[0]) for group in groups]
        for one in members:
            stack.callback(one.close)
            one.subscribe([filled])
        joined(members)
        for at in (3, 8):
            for one in members:
                one.commit(offsets=[TopicPartition(filled, 0, at, f"at {at}")], asynchronous=False)
            synced(mirror, filled, dict.fromkeys(groups, at))
        assert not [one for one in skipped(mirror) if one.name in groups]


def test_live_groups_and_stopped_topics_are_left_alone(mirror: Mirror, filled: str) -> None:
    """Live ones of either protocol are named with the reason; what is committed after the stop stays."""
    live, moved = [f"{word}-{filled}" for word in ("classic", "consumer")], f"moved-{filled}"
    with contextlib.ExitStack() as stack:
        members = []
        for group in live:
            members.append(member(mirror.destination, group, group.split("-")[0]))
            stack.callback(members[-1].close)
            members[-1].subscribe([filled])
        joined(members)
        for group in (*live, moved):
            put(mirror, group, (filled, 4))
        synced(mirror, filled, {moved: 4})
        for group in live:
            named(mirror, group, "has members at the destination")
            assert committed(mirror, group) == {}
    synced(mirror, filled, dict.fromkeys(live, 4))
    mirror.stop(filled)
    put(mirror, moved, (filled, 12), side=1)
    put(mirror, moved, (filled, 6))
    time.sleep(REFRESHES_S)
    assert committed(mirror, moved) == {filled: 12}


def test_a_client_that_commits_without_ever_joining_is_synced(mirror: Mirror, filled: str) -> None:
    """Its group has no members and no protocol, at either side."""
    group = f"simple-{filled}"
    for at in (6, 4):
        commit(mirror.source, group, filled, at)
        mirror.wait_for(
            lambda at=at: mirror.run(committed_offsets(mirror.clusters[1], group)).get(At(filled, 0)) == Committed(at),
            lambda at=at: f"{group} is not at {at}",
            WITHIN_S,
        )
    assert not [one for one in skipped(mirror) if one.name == group]


def test_only_offsets_of_mirrored_topics_are_brought_over(mirror: Mirror, filled: str) -> None:
    """What else the group has stays as it is on both sides, and is named."""
    other, group = f"{filled}-other", f"partial-{filled}"
    mirror.create(other)
    put(mirror, group, (filled, 3), (other, 0))
    put(mirror, group, (other, 0), side=1)
    synced(mirror, filled, {group: 3})
    named(mirror, group, f"in topics that are not mirrored here are left alone: {other}.")
    assert committed(mirror, group) == {filled: 3, other: 0}


def test_the_source_counts_while_a_topic_is_mirrored_and_deleting_does_not(mirror: Mirror, filled: str) -> None:
    """An offset that was moved at the destination is put back; those of a group that the source has lost stay."""
    group, gone = f"back-{filled}", f"gone-{filled}"
    put(mirror, group, (filled, 9))
    put(mirror, gone, (filled, 8))
    synced(mirror, filled, {group: 9, gone: 8})
    put(mirror, group, (filled, 15), side=1)
    synced(mirror, filled, {group: 9})
    put(mirror, group, (filled, 2))
    synced(mirror, filled, {group: 2})
    admin = AdminClient({"bootstrap.servers": mirror.source.bootstrap})
    admin.delete_consumer_groups([gone])[gone].result(WITHIN_S)
    time.sleep(REFRESHES_S)
    assert committed(mirror, gone) == {filled: 8}


def test_a_group_that_is_ahead_is_left_there_where_going_back_is_switched_off(mirror: Mirror, filled: str) -> None:
    """So a group that was moved over early keeps what it has read; it is named, and others are brought over."""
    here, there = f"moved-{filled}", f"stays-{filled}"
    configs = {"mirror.groups.include": f".*-{filled}", "mirror.groups.sync.backwards": "false"}
    put(mirror, here, (filled, 5))
    put(mirror, there, (filled, 5))
    synced(mirror, filled, {here: 5, there: 5})
    with altered(mirror, configs):
        put(mirror, here, (filled, 11), side=1)
        put(mirror, there, (filled, 7))
        synced(mirror, filled, {there: 7})
        named(mirror, here, f"{filled}-0: ahead at the destination, and not set back.")
        assert committed(mirror, here) == {filled: 11}
        put(mirror, here, (filled, 13))
        synced(mirror, filled, {here: 13})
    with altered(mirror, {"mirror.groups.include": "none-of-them"}):
        named(mirror, "*", "passes mirror.groups.include and mirror.groups.exclude")


def test_a_stop_brings_over_what_was_committed_right_before_it(
    mirror: Mirror, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """When the command returns it is there, long before the next refresh; nothing is set back by it."""
    run = Commands(mirror.destination, mirror.source, tmp_path, capsys)
    live, ahead, late = (f"{word}-{topic}" for word in ("live", "ahead", "late"))
    own = run.mirror(mirror_groups_include=f".*-{topic}", mirror_metadata_refresh_interval_ms="120000")
    create_topic(mirror.source, topic)
    write(mirror.source, topic, numbered(20))
    with closing(member(mirror.source, live, "consumer")) as reader:
        run.done("--start", "--mirror", own, "--topics", topic)
        wait_until_level(mirror.source, mirror.destination, topic)
        reader.subscribe([topic])
        joined([reader])
        put(mirror, ahead, (topic, 15), side=1)
        put(mirror, ahead, (topic, 6))
        reader.commit(offsets=[TopicPartition(topic, 0, 7, "at 7")], asynchronous=False)
        began = time.monotonic()
        run.done("--stop", "--mirror", own, "--topics", topic)
        took_s = time.monotonic() - began
        assert [committed(mirror, group) for group in (live, ahead)] == [{topic: 7}, {topic: 15}]
        assert took_s < STOPPED_WITHIN_S
    put(mirror, late, (topic, 9))
    time.sleep(REFRESHES_S)
    assert committed(mirror, late) == {}
    run.done("--delete", "--mirror", own)
