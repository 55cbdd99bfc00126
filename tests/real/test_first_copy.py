"""The first copy of a compacted topic with many holes: filled, and holes again before it is MIRRORING."""

import random
import time
from collections.abc import Iterator
from itertools import product

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from tests.real.mirrored_logs import alter, put, transactional, visible, write
from tests.real.mirroring import Mirror

from twinlog.batch.fill import HEADER_NAME, last_filling
from twinlog.batch.scan import batches
from twinlog.control.lifecycle import PartitionState
from twinlog.names import TopicPartition
from twinlog.testing.checker import assert_identical
from twinlog.testing.data import EVERYTHING_ALLOWED, Made
from twinlog.testing.kafka import LocalKafka
from twinlog.wire.cluster import Cluster
from twinlog.wire.metadata import Leader
from twinlog.wire.ops import describe_configs, read_log

WAIT_S = 60.0
COMPACTED = EVERYTHING_ALLOWED | {
    "cleanup.policy": "compact",
    "segment.bytes": str(1_048_576),
    "segment.ms": "60000",
    "min.cleanable.dirty.ratio": "0.01",
}
KEPT = 6_000
OLD_MS = 3_600_000


def _cleaner_every(kafka: LocalKafka, backoff_ms: int) -> None:
    entry = ConfigEntry("log.cleaner.backoff.ms", str(backoff_ms), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(WAIT_S)


@pytest.fixture(scope="module", autouse=True)
def _eager_source(source: LocalKafka) -> None:
    """Let the source's cleaner look often for something to clean."""
    _cleaner_every(source, 100)


@pytest.fixture(autouse=True)
def _eager_destination(destination: LocalKafka) -> None:
    """Let the destination's cleaner look often, too, but where a test says otherwise."""
    _cleaner_every(destination, 100)


@pytest.fixture
def mirror(source: LocalKafka, destination: LocalKafka) -> Iterator[Mirror]:
    """A mirror whose worker is the only one, so that its log tells all; some tests end it."""
    with Mirror(source, destination) as mirror:
        yield mirror


def scattered(kept: int, now_ms: int, *, seed: int) -> list[Made]:
    """Nine of ten records will be gone: runs of all lengths, whole batches among them, from an hour ago on."""
    rng = random.Random(seed)
    records: list[bytes] = []
    for number in range(kept):
        hole = rng.choice([0, 1, 2, 9, 15, 16, 17, 33]) if rng.random() < 0.97 else rng.randint(100, 400)
        records += [b"gone"] * hole + [b"kept-%d" % number]
    return [Made(key, b"%d" % n * 5, [], now_ms - OLD_MS + n) for n, key in enumerate(records)]


def holed(mirror: Mirror, topic: str, *, partitions: int = 1, codec: str = "none", kept: int = KEPT) -> None:
    """A topic of which the source's cleaner has removed most records; its last segment holds one more."""
    mirror.create(topic, partitions=partitions, config=COMPACTED)
    fill(mirror.source, topic, partitions=partitions, codec=codec, kept=kept)


def fill(source: LocalKafka, topic: str, *, partitions: int, codec: str, kept: int) -> None:
    """Write, roll, and wait for the source's cleaner."""
    now_ms = int(time.time() * 1000)
    settings = {"batch.num.messages": 16, "linger.ms": 20, "compression.type": codec}
    for partition in range(partitions):
        write(source, topic, scattered(kept, now_ms, seed=partition), partition=partition, **settings)
    alter(source, topic, {"segment.ms": "100"})
    time.sleep(0.3)
    for partition in range(partitions):
        write(source, topic, [Made(b"roll", b"x", [])], partition=partition)
    deadline = time.monotonic() + WAIT_S
    while any(len(visible(source, topic, partition)) > kept + 3 for partition in range(partitions)):
        assert time.monotonic() < deadline, "the source is not compacted"
        time.sleep(0.3)


def logs(mirror: Mirror) -> list[str]:
    """What the workers wrote, line by line."""
    return "".join(worker.log_text() for worker in mirror.workers).splitlines()


def fillings(kafka: LocalKafka, topic: str, partitions: int = 1) -> int:
    """How many filling records a reader of the topic sees."""
    return sum(
        record.headers == ((HEADER_NAME.decode(), None),)
        for partition in range(partitions)
        for record in visible(kafka, topic, partition).values()
    )


async def shown_by(cluster: Cluster, where: TopicPartition, node: int) -> list[int]:
    """The filling records, the last of each batch, that one replica shows."""
    position, found = 0, []
    while True:
        chunk = await read_log(
            cluster, where, position, max_bytes=1_000_000, read_committed=False, leader=Leader(node, -1)
        )
        assert not chunk.error
        if not len(chunk.records):
            return found
        for batch in batches(chunk.records, where):
            position = batch.next_offset
            last = last_filling(batch, position)
            found += [last] if last >= 0 else []


def overrides(mirror: Mirror, topic: str) -> dict[str, str | None]:
    """What the destination topic itself sets of the cleaner's configs."""
    told = mirror.run(describe_configs(mirror.clusters[1], "topic", [topic]))[topic]
    names = ("segment.ms", "min.cleanable.dirty.ratio")
    return {name: told[name].value for name in names if told[name].overridden}


def settled(mirror: Mirror, topic: str, *, copies: int = 1) -> int:
    """Wait until the topic is MIRRORING, and compare; `copies` partitions must have been filled."""
    mirror.wait_level(topic, timeout_s=WAIT_S)
    over = [line for line in logs(mirror) if topic in line and "the first copy is over" in line]
    assert len(over) == copies, over
    assert fillings(mirror.destination, topic, copies) == 0
    assert overrides(mirror, topic) == {}
    return assert_identical(mirror.source, mirror.destination, topic).source_records


def end_of(mirror: Mirror, topic: str) -> int:
    """The destination's end of partition 0."""
    return mirror.ends(topic)[0]


@pytest.mark.parametrize(
    "codec",
    ["none", "zstd", *(pytest.param(codec, marks=pytest.mark.soak) for codec in ("gzip", "snappy", "lz4"))],
)
def test_holes_are_holes_again(mirror: Mirror, topic: str, codec: str) -> None:
    """With every codec: identical, and nothing is left of what filled the holes; nothing more is ever written."""
    holed(mirror, topic, codec=codec)
    mirror.start(topic)
    assert settled(mirror, topic) >= KEPT


def test_many_partitions_with_live_data(mirror: Mirror, topic: str) -> None:
    """Records and transactions arrive while six partitions are filled and cleaned."""
    holed(mirror, topic, partitions=6, kept=3_000)
    mirror.start(topic)
    for number in range(20):
        for partition in range(6):
            write(mirror.source, topic, [Made(b"live-%d" % number, b"v", [])], partition=partition)
        if number % 5 == 0:
            producer = transactional(mirror.source)
            for commit in (True, False):
                producer.begin_transaction()
                put(producer, topic, [Made(b"in-%d-%s" % (number, str(commit).encode()), b"v", [])])
                (producer.commit_transaction if commit else producer.abort_transaction)(WAIT_S)
    assert settled(mirror, topic, copies=6) >= 6 * 3_000


@pytest.mark.timeout(240)
def test_killed_while_it_fills(source: LocalKafka, destination: LocalKafka, topic: str) -> None:
    """Killed at random moments, some of them before the first record and some behind the last: identical."""
    rng = random.Random(5)
    _cleaner_every(destination, 3_000)
    with Mirror(source, destination) as mirror:
        holed(mirror, topic, partitions=2, kept=12_000)
        mirror.start(topic)
        mirror.wait_for(lambda: any("are filled for the cleaner" in line for line in logs(mirror)), str, WAIT_S)
        for _ in range(4):
            time.sleep(rng.uniform(0.2, 6.0))
            mirror.workers[-1].kill()
            mirror.start_worker()
        mirror.wait_level(topic, timeout_s=WAIT_S)
        assert any("are filled for the cleaner" in line for line in logs(mirror))
        assert fillings(destination, topic, 2) == 0
        assert overrides(mirror, topic) == {}
        assert assert_identical(source, destination, topic).source_records >= 24_000


def test_restarted_and_stopped_while_it_waits_for_the_cleaner(
    source: LocalKafka, destination: LocalKafka, topic: str
) -> None:
    """LOG_ALIGNMENT until the cleaner comes, over a restart and a stop, which puts the configs back at once."""
    _cleaner_every(destination, 3_600_000)
    with Mirror(source, destination) as mirror:
        holed(mirror, topic)
        time.sleep(1)
        mirror.start(topic)
        end = mirror.ends(topic, at_source=True)[0]
        mirror.wait_for(lambda: end_of(mirror, topic) == end, lambda: f"ends at {end_of(mirror, topic)}", WAIT_S)
        assert fillings(destination, topic) > 10_000
        assert mirror.states(topic) == {0: PartitionState.LOG_ALIGNMENT}
        mirror.wait_for(lambda: len(overrides(mirror, topic)) == 2, lambda: str(overrides(mirror, topic)), WAIT_S)
        assert mirror.workers[-1].stop() == 0
        mirror.start_worker().wait_running()
        mirror.stop(topic)
        mirror.wait_state(topic, PartitionState.STOPPED)
        assert overrides(mirror, topic) == {}
        mirror.start(topic)
        mirror.wait_state(topic, PartitionState.LOG_ALIGNMENT)
        _cleaner_every(destination, 100)
        assert settled(mirror, topic) >= KEPT


def test_records_from_the_future_are_not_preceded_by_filling(mirror: Mirror, topic: str) -> None:
    """Behind a record that would keep the segment from rolling, holes are markers."""
    mirror.create(topic, config=COMPACTED)
    write(mirror.source, topic, [Made(b"later", b"v", [], int(time.time() * 1000) + 86_400_000)])
    fill(mirror.source, topic, partitions=1, codec="none", kept=3_000)
    mirror.start(topic)
    assert settled(mirror, topic) >= 3_000


@pytest.mark.timeout(300)
def test_three_replicas(source: LocalKafka, destination3: LocalKafka, topic: str) -> None:
    """Each replica's own cleaner has to have been there: whichever leads afterwards shows the source's records."""
    with Mirror(source, destination3) as mirror:
        source.create_topic(topic, 2, config=COMPACTED)
        mirror.create_at_destination(topic, partitions=2, config=COMPACTED)
        fill(source, topic, partitions=2, codec="lz4", kept=KEPT)
        mirror.start(topic)
        mirror.wait_level(topic, timeout_s=2 * WAIT_S)
        assert any("are filled for the cleaner" in line for line in logs(mirror))
        assert overrides(mirror, topic) == {}
        for partition, node in product((0, 1), (1, 2, 3)):
            assert not mirror.run(shown_by(mirror.clusters[1], TopicPartition(topic, partition), node))
        assert assert_identical(source, destination3, topic).source_records >= 2 * KEPT
