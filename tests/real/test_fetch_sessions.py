"""Incremental fetch sessions with real source brokers: what goes over the wire, and that nothing is lost with one."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Producer
from kafka.protocol.consumer.fetch import FetchRequest
from tests.real.mirroring import Mirror

from twinlog.batch.scan import Blank, readable
from twinlog.batch.view import Batch, OldBatch
from twinlog.config.client import ClientSettings
from twinlog.control.lifecycle import PartitionState
from twinlog.errors import TwinlogError
from twinlog.names import TopicPartition
from twinlog.relay.budget import Budget
from twinlog.relay.fetch import FetchSettings, Source
from twinlog.relay.inbox import Inbox
from twinlog.relay.progress import Chunk, Progress
from twinlog.service.worker import Worker
from twinlog.testing.kafka import LocalKafka
from twinlog.wire import codes
from twinlog.wire.cluster import Cluster
from twinlog.wire.connection import Connection

pytestmark = pytest.mark.timed

WITHIN_S = 30.0
QUIET = 40
# Of a client, over all brokers of the source, while one of its partitions has no leader and all others are quiet.
REQUESTS_PER_S = 12.0


class Wire:
    """Every Fetch request and answer of this process, as they went out and came in."""

    def __init__(self) -> None:
        self.seen: list[tuple[FetchRequest, Any]] = []
        self.requests: Counter[int] = Counter()

    @property
    def full(self) -> int:
        """Requests that named everything."""
        return sum(request.session_epoch == 0 for request, _ in self.seen)

    @property
    def errors(self) -> set[int]:
        """Error codes of whole answers."""
        return {answer.error_code for _, answer in self.seen}

    def named(self) -> set[int]:
        """The partitions that requests have named."""
        return {part.partition for request, _ in self.seen for topic in request.topics for part in topic.partitions}

    def clear(self) -> None:
        """Begin anew."""
        self.seen.clear()
        self.requests.clear()


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    """What goes over connections from here on."""
    wire = Wire()
    request, send = Connection.request, Connection._send

    async def watched(self: Connection, message: Any, **more: Any) -> Any:
        answer = await request(self, message, **more)
        if isinstance(message, FetchRequest):
            wire.seen.append((message, answer))
        return answer

    def counted(self: Connection, *args: Any, **more: Any) -> Any:
        wire.requests[self.peer.port] += 1
        return send(self, *args, **more)

    monkeypatch.setattr(Connection, "request", watched)
    monkeypatch.setattr(Connection, "_send", counted)
    return wire


@asynccontextmanager
async def reading(kafka: LocalKafka) -> AsyncIterator[Source]:
    """A source as a worker has it."""
    settings = ClientSettings.from_properties({}, bootstrap=kafka.bootstrap)
    cluster = await Cluster.connect(settings, client_id="test-fetch", label="source")
    fetch = FetchSettings(wait_max_ms=200, backoff_ms=100)
    source = Source(cluster, mirror="m", settings=fetch, budget=Budget(32 << 20))
    try:
        yield source
    finally:
        await source.close()


def _span(batch: Batch | OldBatch) -> tuple[int, int]:
    return batch.base_offset, batch.last_offset


class Reader:
    """One partition's pump: takes what comes, comes back after a refusal, and counts records by their offsets."""

    def __init__(self, source: Source, where: TopicPartition, topic_id: UUID | None) -> None:
        self.where = where
        self.position = 0
        self.refusals = 0
        self._source = source
        self._topic_id = topic_id
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            progress = Progress(self.where, self.position, 7, 0, 0, 0)
            try:
                inbox = await self._source.subscribe(progress, topic_id=self._topic_id, destination_leader=1)
            except TwinlogError:
                await asyncio.sleep(0.2)
                continue
            try:
                await self._take(inbox)
            finally:
                self._source.unsubscribe(inbox)

    async def _take(self, inbox: Inbox) -> None:
        while True:
            fetched = await inbox.get()
            if not isinstance(fetched, Chunk):
                self.refusals += 1
                await asyncio.sleep(0.1)
                return
            assert fetched.position == self.position
            scan = readable(
                fetched.records,
                position=self.position,
                stable=fetched.last_stable_offset,
                aborted=fetched.aborted,
                where=self.where,
            )
            for item in scan.items:
                first, last = (item.first, item.last) if isinstance(item, Blank) else _span(item.batch)
                assert first == self.position
                self.position = last + 1

    async def stop(self) -> None:
        """Leave."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def join(source: Source, topic: str, partitions: range) -> list[Reader]:
    """Subscribe to some partitions."""
    info = (await source.cluster.topics([topic]))[topic]
    topic_id = info.id if info.id.int else None
    return [Reader(source, TopicPartition(topic, number), topic_id) for number in partitions]


def produce(kafka: LocalKafka, topic: str, partitions: range, *, each: int = 1) -> None:
    """So many records to each partition, acknowledged."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 5})
    for number in partitions:
        for at in range(each):
            producer.produce(topic, b"%d" % at, partition=number)
    assert producer.flush(30) == 0


async def until(what: Callable[[], bool], described: Callable[[], Any] = lambda: "") -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + WITHIN_S
    while not what():
        assert time.monotonic() < deadline, described()
        await asyncio.sleep(0.02)


async def reached(readers: list[Reader], end: int) -> None:
    """Wait until everyone has read up to `end`."""
    await until(
        lambda: all(reader.position == end for reader in readers), lambda: [reader.position for reader in readers]
    )


async def produced(kafka: LocalKafka, topic: str, partitions: range, *, each: int = 1) -> None:
    """`produce`, beside what else runs."""
    await asyncio.to_thread(produce, kafka, topic, partitions, each=each)


async def settled(wire: Wire) -> None:
    """Wait until a request that names nobody has been answered: everyone is in the session."""
    wire.clear()
    await until(lambda: bool(wire.seen) and not wire.seen[-1][0].topics)


async def test_quiet_partitions_are_in_no_request(source: LocalKafka, topic: str, wire: Wire) -> None:
    """Once they have joined, only those that got something are named, with their new positions."""
    source.create_topic(topic, QUIET)
    await produced(source, topic, range(QUIET))
    async with reading(source) as from_source:
        readers = await join(from_source, topic, range(QUIET))
        await reached(readers, 1)
        await settled(wire)
        wire.clear()
        await produced(source, topic, range(3), each=2)
        await reached(readers[:3], 3)
        await until(lambda: len(wire.seen) > 5)
        assert wire.named() == {0, 1, 2}
        assert wire.errors == {0}
        assert wire.full == 0


async def test_partitions_that_leave_and_come_back(source: LocalKafka, topic: str, wire: Wire) -> None:
    """Nobody gets what is another's, nobody loses anything; no new session is needed for that."""
    source.create_topic(topic, 12)
    async with reading(source) as from_source:
        readers = await join(from_source, topic, range(12))
        await produced(source, topic, range(12), each=2)
        await reached(readers, 2)
        for reader in readers[6:]:
            await reader.stop()
        await settled(wire)
        await produced(source, topic, range(12), each=2)
        await reached(readers[:6], 4)
        again = await join(from_source, topic, range(6, 12))
        await reached(again, 4)
        await produced(source, topic, range(12))
        await reached([*readers[:6], *again], 5)
        assert wire.errors == {0}
        assert wire.full <= 1


async def test_figures_follow_what_is_not_returned(source: LocalKafka, topic: str) -> None:
    """An open transaction moves the high watermark alone; its end, the last stable offset."""
    source.create_topic(topic)
    async with reading(source) as from_source:
        (reader,) = await join(from_source, topic, range(1))
        await produced(source, topic, range(1))
        await reached([reader], 1)
        producer = Producer({"bootstrap.servers": source.bootstrap, "transactional.id": topic})
        await asyncio.to_thread(producer.init_transactions, 20)
        producer.begin_transaction()
        producer.produce(topic, b"open", partition=0)
        await asyncio.to_thread(producer.flush, 20)
        inbox = next(iter(next(iter(from_source._fetchers.values()))[0]._inboxes.values()))
        await until(lambda: inbox.figures.high_watermark == 2, lambda: inbox.figures)
        assert inbox.figures.last_stable_offset == 1
        await asyncio.to_thread(producer.abort_transaction, 20)
        await until(lambda: inbox.figures.last_stable_offset == 3, lambda: inbox.figures)


async def test_session_that_the_broker_has_given_up(source: LocalKafka, topic: str, wire: Wire) -> None:
    """As when others need its place: the next request is refused, the one after it begins anew; nobody notices."""
    source.create_topic(topic, 6)
    async with reading(source) as from_source:
        readers = await join(from_source, topic, range(6))
        await produced(source, topic, range(6))
        await reached(readers, 1)
        await settled(wire)
        # A broker may refuse what asks for a topic that it has just been told of.
        before = [reader.refusals for reader in readers]
        node = next(iter(from_source.cluster.brokers))
        closing = FetchRequest(session_id=wire.seen[-1][0].session_id, session_epoch=-1, max_wait_ms=0, topics=[])
        await from_source.cluster.call(closing, node=node, lane="close", timeout_s=10, max_version=12)
        await until(lambda: codes.FETCH_SESSION_ID_NOT_FOUND in wire.errors)
        await produced(source, topic, range(6))
        await reached(readers, 2)
        await settled(wire)
        assert [reader.refusals for reader in readers] == before


async def test_broker_with_no_place_for_a_session(topic: str, wire: Wire) -> None:
    """Its places are shared out among eight shards, so that one is none: everything is asked for each time."""
    with LocalKafka(config={"max.incremental.fetch.session.cache.slots": "1"}) as crowded:
        crowded.create_topic(topic, 6)
        async with reading(crowded) as from_source:
            readers = await join(from_source, topic, range(6))
            for turn in range(1, 4):
                await produced(crowded, topic, range(6))
                await reached(readers, turn)
        assert {answer.session_id for _, answer in wire.seen} == {0}
        assert wire.errors == {0}
        assert wire.full == len(wire.seen)


async def test_session_that_ends_with_its_broker(topic: str, wire: Wire) -> None:
    """A restart: everyone is refused, comes back, and goes on in a new session where it stood."""
    with LocalKafka() as restarted:
        restarted.create_topic(topic, 8)
        async with reading(restarted) as from_source:
            readers = await join(from_source, topic, range(8))
            await produced(restarted, topic, range(8))
            await reached(readers, 1)
            await asyncio.to_thread(restarted.restart, 1)
            await produced(restarted, topic, range(8))
            await reached(readers, 2)
            assert all(reader.refusals for reader in readers)
            await settled(wire)
            assert wire.seen[-1][0].session_epoch > 0


async def test_broker_that_keeps_no_session(wire: Wire) -> None:
    """One from before Kafka 1.1 knows none: everything is asked for each time, as ever."""
    with LocalKafka(version="1.0.2") as old:
        old.create_topic("orders", 4)
        async with reading(old) as from_source:
            readers = await join(from_source, "orders", range(4))
            for turn in range(1, 4):
                await produced(old, "orders", range(4))
                await reached(readers, turn)
        assert wire.full == len(wire.seen) > 3
        assert not any(reader.refusals for reader in readers)


@pytest.fixture(scope="module")
def pair() -> Iterator[LocalKafka]:
    """A source of two brokers."""
    with LocalKafka(2) as kafka:
        yield kafka


def leaders_of(mirror: Mirror, topic: str) -> dict[int, int]:
    """Each partition's leader at the source."""
    info = mirror.run(mirror.clusters[0].topics([topic]))[topic]
    return {number: part.leader for number, part in info.partitions.items()}


async def test_leaders_that_move(pair: LocalKafka, topic: str) -> None:
    """Each partition follows its leader to the other broker's session and back."""
    pair.create_topic(topic, 10, replication_factor=2, config={"min.insync.replicas": "1"})
    async with reading(pair) as from_source:
        readers = await join(from_source, topic, range(10))
        await produced(pair, topic, range(10))
        await reached(readers, 1)
        for turn, broker in enumerate((1, 2), start=2):
            await asyncio.to_thread(pair.restart, broker)
            await produced(pair, topic, range(10))
            await reached(readers, turn)
        assert any(reader.refusals for reader in readers)


async def test_partition_without_a_leader_is_no_tight_loop(
    pair: LocalKafka, destination: LocalKafka, topic: str, wire: Wire, record_property: Callable[[str, object], None]
) -> None:
    """The broker that leads it is away for long: few requests, and all other partitions are mirrored."""
    pair.create_topic(topic, 20, replication_factor=1)
    with Mirror(pair, destination, workers=0) as mirror:
        mirror.create_at_destination(topic, partitions=20)
        mirror.start(topic)
        stopping = asyncio.Event()
        settings = ClientSettings.from_properties({}, bootstrap=destination.bootstrap)
        worker = asyncio.create_task(Worker(settings).run(stopping))
        try:
            await until(lambda: set(mirror.states(topic).values()) == {PartitionState.MIRRORING})
            led = [number for number, node in leaders_of(mirror, topic).items() if node == 1]
            assert 0 < len(led) < 20
            await asyncio.to_thread(pair[2].kill)
            await asyncio.sleep(8.0)  # backoffs have grown
            wire.clear()
            await asyncio.sleep(10.0)
            ports = {port for node in pair.brokers.values() for port in node.ports.values()}
            rate = sum(count for port, count in wire.requests.items() if port in ports) / 10.0
            record_property("requests_per_second", rate)
            print(f"requests per second to the source: {rate:.1f}")  # a figure to be read with -s
            assert rate < REQUESTS_PER_S
            for number in led:
                await produced(pair, topic, range(number, number + 1))
            await until(lambda: all(mirror.ends(topic)[number] == 1 for number in led), lambda: mirror.ends(topic))
        finally:
            stopping.set()
            await asyncio.wait_for(worker, 20)
            pair[2].start()
            pair.wait_ready()
