"""Share groups go on at the destination, where both sides have them; whatever is in the way is named."""

import contextlib
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import ShareConsumer
from tests.real.mirrored_logs import numbered, write
from tests.real.mirroring import Mirror

from twinlog.config.mirror import MirrorConfig
from twinlog.errors import BrokerError
from twinlog.names import TopicPartition as At
from twinlog.sync import groups, share_groups
from twinlog.testing.kafka import LocalKafka
from twinlog.testing.reader import QUIET
from twinlog.wire.ops_groups import Committed, commit_offsets, committed_offsets
from twinlog.wire.ops_share import alter_share_start_offsets, share_start_offsets

SOON = {"mirror.metadata.refresh.interval.ms": "500"}
WITHIN_S = 30.0
RECORDS, MORE = 20, 5


@pytest.fixture(scope="module")
def mirror(source: LocalKafka, destination: LocalKafka) -> Iterator[Mirror]:
    """A mirror that refreshes twice a second."""
    with Mirror(source, destination, configs=SOON) as mirror:
        yield mirror


@pytest.fixture
def filled(mirror: Mirror, topic: str) -> str:
    """A mirrored topic with records."""
    mirror.create(topic)
    write(mirror.source, topic, numbered(RECORDS))
    mirror.start(topic)
    mirror.wait_level(topic)
    return topic


def member(kafka: LocalKafka, group: str, **settings: object) -> ShareConsumer:
    """A member of a share group."""
    return ShareConsumer({"bootstrap.servers": kafka.bootstrap, "group.id": group, **QUIET, **settings})


def done_with(kafka: LocalKafka, group: str, topic: str, wanted: set[int]) -> bool:
    """Let a member get and accept records until it has all that are wanted; whether it got no others."""
    seen: set[int] = set()
    deadline = time.monotonic() + WITHIN_S
    with contextlib.closing(member(kafka, group)) as reader:
        reader.subscribe([topic])
        while not seen >= wanted:
            assert time.monotonic() < deadline, f"{group} got {sorted(seen)} only"
            for message in reader.poll(0.3):
                assert message.error() is None
                seen.add(message.offset())
        reader.commit_sync(WITHIN_S)
    return seen == wanted


def begins(mirror: Mirror, group: str, at: dict[At, int]) -> None:
    """Wait until a share group begins there at the destination."""
    told: list[object] = []

    def there() -> bool:
        try:
            told.append(mirror.run(share_start_offsets(mirror.clusters[1], group)))
        except BrokerError as error:  # it is not there yet
            told.append(error)
        return told[-1] == at

    mirror.wait_for(there, lambda: f"{group} at {told[-1]}, not {at}", WITHIN_S)


def reasons(mirror: Mirror) -> dict[str, str]:
    """What the last refresh left alone of groups, and why."""
    record = mirror._image.skipped.get(mirror.name)
    return {} if record is None else {one.name: one.reason for one in record.items if one.kind == "group"}


def test_a_share_group_goes_on_with_the_records_that_it_had_not_done_with(mirror: Mirror, filled: str) -> None:
    """It is created at the destination, follows the source, and a member gets there what it would have got here."""
    group, at = f"share-{filled}", At(filled, 0)
    mirror.run(alter_share_start_offsets(mirror.clusters[0], group, {at: 0}))
    begins(mirror, group, {at: 0})
    assert done_with(mirror.source, group, filled, set(range(RECORDS)))
    write(mirror.source, filled, numbered(MORE))
    assert done_with(mirror.source, group, filled, set(range(RECORDS, RECORDS + MORE)))
    begins(mirror, group, {at: RECORDS})  # the source's brokers store it with what is done after it
    mirror.run(alter_share_start_offsets(mirror.clusters[0], group, {at: 13}))
    begins(mirror, group, {at: 13})
    for kafka in (mirror.source, mirror.destination):
        assert done_with(kafka, group, filled, set(range(13, RECORDS + MORE)))


def test_a_share_group_that_lives_at_the_destination_is_left_alone(mirror: Mirror, filled: str) -> None:
    """And named; once its member has left it follows again."""
    group, at = f"live-{filled}", At(filled, 0)
    with contextlib.closing(member(mirror.destination, group)) as reader:
        reader.subscribe([filled])
        mirror.run(alter_share_start_offsets(mirror.clusters[0], group, {at: 7}))

        def named() -> bool:
            reader.poll(0.1)
            return "has members" in reasons(mirror).get(group, "")

        mirror.wait_for(named, lambda: str(reasons(mirror)), WITHIN_S)
        assert mirror.run(share_start_offsets(mirror.clusters[1], group)).get(at, 0) == 0
    begins(mirror, group, {at: 7})
    mirror.wait_for(lambda: group not in reasons(mirror), lambda: str(reasons(mirror)), WITHIN_S)
    assert mirror.run(share_start_offsets(mirror.clusters[1], group)) == {at: 7}


def test_names_that_mean_another_kind_are_refused_for_that_group_alone(mirror: Mirror, filled: str) -> None:
    """Either way round; both ways out are named, the other groups go on, and deleting the one in the way is enough."""
    at = At(filled, 0)
    source, destination = mirror.clusters
    consumers_here, shares_here, fine = (f"{word}-{filled}" for word in ("consumers-here", "shares-here", "fine"))
    mirror.run(commit_offsets(destination, consumers_here, {at: Committed(1)}))
    mirror.run(alter_share_start_offsets(destination, shares_here, {at: 1}))
    mirror.run(alter_share_start_offsets(source, consumers_here, {at: 5}))
    mirror.run(commit_offsets(source, shares_here, {at: Committed(6)}))
    mirror.run(commit_offsets(source, fine, {at: Committed(7)}))

    def named() -> bool:
        said = reasons(mirror)
        return said.keys() >= {consumers_here, shares_here}

    mirror.wait_for(named, lambda: str(reasons(mirror)), WITHIN_S)
    for group, kinds in ((consumers_here, ("share", "consumer")), (shares_here, ("consumer", "share"))):
        assert reasons(mirror)[group] == (
            f"GroupIdNotFoundException: '{group}' is a {kinds[0]} group at the source and a {kinds[1]} group at the "
            f"destination. Delete the {kinds[1]} group at the destination, or add the name to mirror.groups.exclude."
        )
    assert mirror.run(committed_offsets(destination, consumers_here)) == {at: Committed(1)}
    assert mirror.run(share_start_offsets(destination, shares_here)) == {at: 1}
    assert mirror.run(committed_offsets(destination, fine)) == {at: Committed(7)}


def test_what_is_behind_is_named_by_topic_until_a_sync_has_been(
    mirror: Mirror, topic: str, source: LocalKafka, destination: LocalKafka
) -> None:
    """Consumer groups and share groups; a group that the filters leave out is not behind."""
    mirror.create(topic)
    write(source, topic, numbered(RECORDS))
    write(destination, topic, numbered(RECORDS))
    at, (here, there) = At(topic, 0), reversed(mirror.clusters)
    names = [f"{word}-{topic}" for word in ("consumer", "share", "excluded")]
    config = MirrorConfig.from_properties(
        {
            "bootstrap.servers": source.bootstrap,
            "mirror.groups.include": f".*-{topic}",
            "mirror.groups.exclude": "ex.*",
        },
        "test",
    )
    mirror.run(commit_offsets(there, names[0], {at: Committed(3)}))
    mirror.run(alter_share_start_offsets(there, names[1], {at: 4}))
    mirror.run(commit_offsets(there, names[2], {at: Committed(3)}))
    assert mirror.run(groups.behind(there, here, config, {topic})) == {topic: names[:2]}
    assert mirror.run(groups.behind(there, here, config, set())) == {}
    done = mirror.run(groups.sync(there, here, config, {topic}))
    assert (done.synced, done.skipped, done.errors) == ((names[0],), (), 0)
    assert mirror.run(groups.behind(there, here, config, {topic})) == {topic: [names[1]]}
    done = mirror.run(share_groups.sync(there, here, config, {topic}))
    assert (done.synced, done.skipped, done.errors) == ((names[1],), (), 0)
    assert mirror.run(groups.behind(there, here, config, {topic})) == {}
