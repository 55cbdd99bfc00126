"""What a destination has beyond that which both sides share, told on real logs without a mirror."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from confluent_kafka import Producer
from tests.real.matrix import make_cleaner_eager
from tests.real.mirrored_logs import numbered, transactional, visible, write
from tests.real.test_compacted import COMPACTED, keyed

from twinlog.admin.divergence import Shared, Tail, diverged_tails
from twinlog.batch.scan import batches
from twinlog.batch.view import Batch
from twinlog.config.client import ClientSettings
from twinlog.names import TopicPartition
from twinlog.relay.own_end import own_end
from twinlog.sync.topics import Span
from twinlog.testing.data import EVERYTHING_ALLOWED
from twinlog.testing.kafka import LocalKafka
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops import read_log

WAIT_S = 30.0
SHARED_RECORDS = 50
OLD_MS = 1_700_000_000_000


async def _connected(kafka: LocalKafka) -> Cluster:
    settings = ClientSettings.from_properties({}, bootstrap=kafka.bootstrap, origin="a test")
    return await Cluster.connect(settings, client_id="divergence-test")


@pytest.fixture
async def clusters(source: LocalKafka, destination: LocalKafka) -> AsyncIterator[tuple[Cluster, Cluster]]:
    """Connections to both sides."""
    both = (await _connected(source), await _connected(destination))
    yield both
    for cluster in both:
        await cluster.close()


async def _tails(clusters: tuple[Cluster, Cluster], topic: str, shared: Shared, end: int) -> list[Tail]:
    where = TopicPartition(topic, 0)
    return await diverged_tails(clusters, {where: shared}, {where: Span(0, end)})


@pytest.fixture
def twin(source: LocalKafka, destination: LocalKafka, topic: str) -> str:
    """A topic whose first records are the same on both sides."""
    for kafka in (source, destination):
        kafka.create_topic(topic, 1, config=EVERYTHING_ALLOWED)
        write(kafka, topic, numbered(SHARED_RECORDS, timestamp_ms=OLD_MS))
    return topic


async def test_a_tail_begins_where_the_logs_differ(
    clusters: tuple[Cluster, Cluster], source: LocalKafka, destination: LocalKafka, twin: str
) -> None:
    """However little of what both sides have was recorded, nothing shared is taken for a tail, and all else is."""
    assert await _tails(clusters, twin, Shared(0), SHARED_RECORDS) == []
    write(destination, twin, numbered(10, seed=2, timestamp_ms=OLD_MS))
    end = SHARED_RECORDS + 10
    expected = [Tail(TopicPartition(twin, 0), SHARED_RECORDS, end, 10)]
    for until in (0, 20, SHARED_RECORDS):
        assert await _tails(clusters, twin, Shared(until), end) == expected
    write(source, twin, numbered(30, seed=3, timestamp_ms=OLD_MS))
    for until in (0, 20, SHARED_RECORDS):
        assert await _tails(clusters, twin, Shared(until), end) == expected
    assert await _tails(clusters, twin, Shared(-1), end) == []


async def test_undecided_records_are_a_tail(
    clusters: tuple[Cluster, Cluster], destination: LocalKafka, twin: str
) -> None:
    """Whatever becomes of them, a marker follows that the source does not have."""
    producer = transactional(destination)
    producer.begin_transaction()
    producer.produce(twin, b"undecided", partition=0)
    producer.flush(WAIT_S)
    (tail,) = await _tails(clusters, twin, Shared(10), SHARED_RECORDS + 1)
    assert (tail.first, tail.end, tail.records, tail.undecided) == (SHARED_RECORDS, SHARED_RECORDS + 1, 0, 1)
    producer.abort_transaction(WAIT_S)


async def test_records_of_a_compacted_topic_are_a_tail_where_the_source_has_a_hole(
    clusters: tuple[Cluster, Cluster], source: LocalKafka, destination: LocalKafka, topic: str
) -> None:
    """They never were at the source: that it has compacted others at these offsets explains nothing."""
    make_cleaner_eager(source)
    for kafka in (source, destination):
        kafka.create_topic(topic, 1, config=COMPACTED if kafka is source else {"cleanup.policy": "compact"})
        write(kafka, topic, [one for n in range(SHARED_RECORDS) for one in keyed(f"k{n}", 1)])
    write(destination, topic, [one for n in range(10) for one in keyed(f"own{n}", 1)])
    write(source, topic, keyed("z", 30))
    deadline = time.monotonic() + WAIT_S
    while any(SHARED_RECORDS <= offset < SHARED_RECORDS + 10 for offset in visible(source, topic)):
        assert time.monotonic() < deadline, "the cleaner left the records where they are"
        await asyncio.sleep(0.2)
        write(source, topic, keyed("roll", 1))
    (tail,) = await _tails(clusters, topic, Shared(SHARED_RECORDS), SHARED_RECORDS + 10)
    assert (tail.first, tail.records) == (SHARED_RECORDS, 10)


async def test_a_mirror_s_own_writing_is_told_from_what_others_wrote(
    clusters: tuple[Cluster, Cluster], destination: LocalKafka, topic: str
) -> None:
    """By its producer's ids; what nobody of them wrote is not its own, whatever stands behind it."""
    destination.create_topic(topic, 1)
    where = TopicPartition(topic, 0)
    ours, theirs = (
        Producer({"bootstrap.servers": destination.bootstrap, "enable.idempotence": True}) for _ in range(2)
    )
    for producer, count in ((ours, 10), (theirs, 5), (ours, 3), (theirs, 4)):
        for _ in range(count):
            producer.produce(topic, b"v", partition=0)
        producer.flush(WAIT_S)
    chunk = await read_log(clusters[1], where, 0, max_bytes=1_000_000, read_committed=False)
    found = [batch for batch in batches(chunk.records, where) if isinstance(batch, Batch)]
    own = frozenset({found[0].producer_id})
    assert own != {found[-1].producer_id}
    assert await own_end(clusters[1], where, 0, 22, own) == (18, True)
    assert await own_end(clusters[1], where, 0, 16, own) == (16, True)
    assert await own_end(clusters[1], where, 20, 22, own) == (20, True)
    assert await own_end(clusters[1], where, 7, 22, frozenset()) == (7, True)
