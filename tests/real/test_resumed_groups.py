"""Groups that go on at the destination read exactly what they would have read at the source, told by real members."""

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from tests.real.mirrored_logs import delete_records, put, transactional, visible, write, write_transaction
from tests.real.mirroring import Mirror

from twinlog.control.lifecycle import PartitionState
from twinlog.names import TopicPartition as At
from twinlog.testing.data import EVERYTHING_ALLOWED, Made
from twinlog.testing.kafka import LocalKafka
from twinlog.testing.reader import QUIET, Isolation, SeenRecord, seen
from twinlog.wire.ops_groups import Committed, commit_offsets, committed_offsets

SOON = {"mirror.metadata.refresh.interval.ms": "500"}
WITHIN_S = 30.0
AT_ONCE = 6
COMPACTED = EVERYTHING_ALLOWED | {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0",
    "max.compaction.lag.ms": "100",
}
KEYS = 5
MARKED, BEHEADED, EMPTIED, PLAIN = range(4)
ABORTED = {*range(6, 11), *range(20, 23)}
"""Of partition MARKED; its markers are at 5, 11, 17 and 23."""

Protocol = Literal["classic", "consumer"]
Read = dict[tuple[str, int, int], SeenRecord]
"""By topic, partition and offset."""


@pytest.fixture(scope="module", autouse=True)
def _eager_cleaner(source: LocalKafka) -> None:
    """Let the source's cleaner look every 0.1 s for something to clean, not every 15 s."""
    entry = ConfigEntry("log.cleaner.backoff.ms", "100", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": source.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(WITHIN_S)


@pytest.fixture(scope="module")
def mirror(source: LocalKafka, destination: LocalKafka) -> Iterator[Mirror]:
    """A mirror that refreshes twice a second."""
    with Mirror(source, destination, configs=SOON) as mirror:
        yield mirror


def records(count: int) -> list[Made]:
    """Records of which no two are alike, in key, value, headers and time."""
    return [
        Made(b"k%d" % n if n % 3 else None, b"v%d" % n, [("h", b"%d" % n), ("none", None)], 1_000 + n)
        for n in range(count)
    ]


def fill(kafka: LocalKafka, topic: str) -> None:
    """Committed 0-4, aborted 6-10, committed 12-16, plain 18 and 19, aborted 20-22; the rest as the names say."""
    for commit in (True, False, True):
        write_transaction(kafka, topic, records(5), commit=commit)
    write(kafka, topic, records(2))
    write_transaction(kafka, topic, records(3), commit=False)
    write(kafka, topic, records(30), partition=BEHEADED)
    write(kafka, topic, records(20), partition=EMPTIED)
    write(kafka, topic, records(10), partition=PLAIN)
    delete_records(kafka, topic, {BEHEADED: 10, EMPTIED: 20})


def fill_with_holes(mirror: Mirror, topic: str) -> int:
    """Let the cleaner leave the last record of each key, among 60; returns the end."""
    kept = [Made(b"%d" % (n if n in {0, 1, 20, 45} else 99), b"%d" % n, [("h", None)], 2_000 + n) for n in range(60)]
    write(mirror.source, topic, kept)
    time.sleep(0.15)
    write(mirror.source, topic, [Made(b"roll", b"", [])])
    mirror.wait_for(
        lambda: list(visible(mirror.source, topic)) == [0, 1, 20, 45, 59, 60],
        lambda: f"holes, not {list(visible(mirror.source, topic))}",
        WITHIN_S,
    )
    return 61


def member(kafka: LocalKafka, group: str, protocol: Protocol, isolation: Isolation = "read_committed") -> Consumer:
    """A member that goes on where its group is, and at the log's start where that is gone."""
    return Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            **QUIET,
            "fetch.wait.max.ms": 50,
        }
    )


def resumed(kafka: LocalKafka, group: str, topics: list[str], protocol: Protocol, isolation: Isolation) -> Read:
    """All that a member of the group reads, up to the end of every partition."""
    reader = member(kafka, group, protocol, isolation)
    reader.subscribe(topics)
    read: Read = {}
    ended: set[tuple[str, int]] = set()
    deadline = time.monotonic() + WITHIN_S
    try:
        while len(ended) < len(topics) + PLAIN:
            assert time.monotonic() < deadline, f"group {group} reached the end of {ended} only"
            message = reader.poll(0.2)
            if message is None:
                continue
            error = message.error()
            where = (message.topic(), message.partition())
            if error is None:
                assert (*where, message.offset()) not in read
                read[*where, message.offset()] = seen(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(where)
    finally:
        reader.close()
    return read


def joined_and_left(kafka: LocalKafka, group: str, protocol: Protocol, at: Mapping[At, Committed]) -> None:
    """Commit as a member of the group, which then leaves."""
    reader = member(kafka, group, protocol)
    reader.subscribe(sorted({tp.topic for tp in at}))
    deadline = time.monotonic() + WITHIN_S
    while len(reader.assignment()) < len(at):
        assert time.monotonic() < deadline, f"group {group} was assigned {reader.assignment()} only"
        reader.poll(0.1)
    offsets = [TopicPartition(tp.topic, tp.partition, one.offset, one.metadata) for tp, one in at.items()]
    reader.commit(offsets=offsets, asynchronous=False)
    reader.close()


def positions(topic: str, holes: str) -> list[dict[At, Committed]]:
    """Where each group stands: the n-th of it in every partition; notes tell them apart."""
    places = {
        At(topic, MARKED): (0, 3, 5, 6, 8, 11, 12, 17, 18, 19, 21, 24),
        At(topic, BEHEADED): (10, 11, 29, 30, 5, 0, 10, 20, 10, 15, 29, 30),
        At(topic, EMPTIED): (20, 20, 0, 19),
        At(topic, PLAIN): (0, 9, 10, 5),
        At(holes, 0): (0, 1, 2, 10, 19, 20, 21, 44, 46, 58, 60, 61),
    }
    return [
        {tp: Committed(offsets[n % len(offsets)], f"note {n}") for tp, offsets in places.items()} for n in range(12)
    ]


def synced(mirror: Mirror, wanted: Mapping[str, Mapping[At, Committed]]) -> None:
    """Wait until groups have these offsets and notes at the destination."""
    told: dict[str, Mapping[At, Committed]] = {}

    def there() -> bool:
        for group in wanted:
            found = mirror.run(committed_offsets(mirror.clusters[1], group))
            # librdkafka ends notes with a zero byte
            told[group] = {tp: Committed(one.offset, one.metadata.rstrip("\0")) for tp, one in found.items()}
        return told == wanted

    mirror.wait_for(there, lambda: f"{told} instead of {wanted}", WITHIN_S)


def within_the_log(at: Mapping[At, Committed]) -> dict[At, Committed]:
    """What the destination is given: below the log's start nothing can be committed that means anything."""
    starts = {BEHEADED: 10, EMPTIED: 20}
    lowest = {tp: 0 if tp.topic.endswith("-holes") else starts.get(tp.partition, 0) for tp in at}
    return {tp: one if one.offset >= lowest[tp] else Committed(lowest[tp]) for tp, one in at.items()}


def test_groups_resume_at_the_destination_with_exactly_the_records_they_would_have_read(
    mirror: Mirror, topic: str
) -> None:
    """Twelve groups, each at other places: starts, ends, holes, on and behind markers, in aborted data, deleted."""
    holes = f"{topic}-holes"
    mirror.create(topic, partitions=4)
    mirror.create(holes, config=COMPACTED)
    fill(mirror.source, topic)
    assert fill_with_holes(mirror, holes) == mirror.ends(holes, at_source=True)[0]
    groups = {f"{topic}-{n}": at for n, at in enumerate(positions(topic, holes))}
    protocols: dict[str, Protocol] = {group: ("classic", "consumer")[n % 2] for n, group in enumerate(groups)}
    members = list(groups)[:AT_ONCE]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda group: joined_and_left(mirror.source, group, protocols[group], groups[group]), members))
    for group in groups.keys() - members:
        assert set(mirror.run(commit_offsets(mirror.clusters[0], group, groups[group])).values()) == {0}
    for name in (topic, holes):
        mirror.start(name)
        mirror.wait_level(name)
    synced(mirror, {group: within_the_log(at) for group, at in groups.items()})
    for name in (topic, holes):
        mirror.stop(name)
        mirror.wait_state(name, PartitionState.STOPPED)

    def read(kafka: LocalKafka, group: str, isolation: Isolation) -> Read:
        return resumed(kafka, group, [topic, holes], protocols[group], isolation)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        asked = [(kafka, group) for kafka in (mirror.source, mirror.destination) for group in groups]
        decided = list(pool.map(lambda one: read(*one, "read_committed"), asked))
        everything = list(pool.map(lambda one: read(*one, "read_uncommitted"), asked))
    for n, group in enumerate(groups):
        there, here = decided[n], decided[n + len(groups)]
        assert here == there, group
        assert everything[n + len(groups)] == here, f"{group}: what was aborted is not copied"
        aborted = everything[n].keys() - there.keys()
        assert aborted == {(topic, MARKED, at) for at in ABORTED if at >= groups[group][At(topic, MARKED)].offset}
        assert (holes, 0, 60) in here or groups[group][At(holes, 0)].offset == 61


def test_a_group_ahead_of_the_mirror_is_held_at_the_end_and_raised_later(mirror: Mirror, topic: str) -> None:
    """It has read what a transaction has not decided: never a lag below 0, and in the end its own offset and note."""
    mirror.create(topic)
    write(mirror.source, topic, records(5))
    producer = transactional(mirror.source)
    producer.begin_transaction()
    put(producer, topic, records(4))
    group, at = f"{topic}-ahead", At(topic, 0)
    mirror.run(commit_offsets(mirror.clusters[0], group, {at: Committed(9, "mine")}))
    mirror.start(topic)
    mirror.wait_level(topic, until_stable=True)
    synced(mirror, {group: {at: Committed(5)}})
    producer.commit_transaction(WITHIN_S)
    mirror.wait_level(topic)
    synced(mirror, {group: {at: Committed(9, "mine")}})
    there, here = (resumed_from(kafka, group, topic) for kafka in (mirror.source, mirror.destination))
    assert here == there == []


def resumed_from(kafka: LocalKafka, group: str, topic: str) -> list[int]:
    """The offsets that a member of the group reads of a topic with one partition."""
    reader = member(kafka, group, "classic")
    try:
        (at,) = reader.committed([TopicPartition(topic, 0)], WITHIN_S)
        reader.assign([at])
        offsets: list[int] = []
        while (message := reader.poll(WITHIN_S)) is not None and message.error() is None:
            offsets.append(message.offset())
        assert message is not None
        return offsets
    finally:
        reader.close()
