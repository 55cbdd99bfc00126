"""A cluster of three brokers, simulated or real, and what the behaviour tests do to it, in the same words for both."""

import asyncio
import time
from typing import Final, Protocol

from kafka.protocol.metadata import MetadataRequest

from twinlog.batch import layout
from twinlog.batch.blank import filler_batch
from twinlog.batch.scan import batches
from twinlog.batch.view import Batch
from twinlog.names import TopicPartition
from twinlog.testing.kafka import LocalKafka
from twinlog.wire import ops
from twinlog.wire.cluster import Cluster, Leader
from twinlog.wire.metadata import topic_infos
from twinlog.wire.produce import MarkerRun

EXPIRATION_MS: Final = 30_000  # longer than a broker needs to be killed and started
EXPIRATION_CHECK_MS: Final = 500
SESSION_S: Final = 4.0
MONTH_MS: Final = 30 * 86_400_000
EVERYTHING: Final = 1 << 20
BROKER_CONFIG: Final = {
    "producer.id.expiration.ms": str(EXPIRATION_MS),
    "producer.id.expiration.check.interval.ms": str(EXPIRATION_CHECK_MS),
}


class Brokers(Protocol):
    """What can be done to brokers and their clock."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, as the brokers read them."""

    async def pause(self, node: int) -> None:
        """SIGSTOP."""

    async def resume(self, node: int) -> None:
        """SIGCONT."""

    async def kill(self, node: int) -> None:
        """SIGKILL."""

    async def stop(self, node: int) -> None:
        """SIGTERM, and wait for the end."""

    async def start(self, node: int) -> None:
        """Start it again, and wait until it serves."""


class Bench:
    """One test's topic on that cluster; `where` is its only partition."""

    def __init__(self, client: Cluster, brokers: Brokers, topic: str) -> None:
        self.client = client
        self.brokers = brokers
        self.where = TopicPartition(topic, 0)

    # Setting up

    async def create(self, replicas: int = 1, **configs: str) -> Leader:
        """Create the topic; configs are written with underscores. Returns the partition's leader."""
        named = {key.replace("_", "."): value for key, value in configs.items()}
        allowed = {"message.timestamp.before.max.ms": str(2**63 - 1), "retention.ms": "-1"}
        await ops.create_topic(
            self.client,
            self.where.topic,
            partitions=1,
            replication_factor=replicas,
            configs={"min.insync.replicas": str(max(1, replicas - 1)), **allowed, **named},
        )
        async with asyncio.timeout(30):
            for node in sorted(self.client.brokers):
                await self._known_at(node, replicas)
        return await self.client.find_leader(self.where, refresh=True)

    async def _known_at(self, node: int, replicas: int) -> None:
        """Wait until a broker knows the topic, with all its replicas in sync, and knows whether it leads."""
        kind = MetadataRequest.MetadataRequestTopic
        request = MetadataRequest(topics=[kind(name=self.where.topic)], allow_auto_topic_creation=False)
        while True:
            told = topic_infos(await self.client.call(request, node=node))[self.where.topic]
            part = told.partitions.get(0)
            if part is not None and len(part.isr) == replicas and part.leader >= 0:
                listed = await ops.list_offsets(self.client, {self.where: ops.LATEST})
                if part.leader != node or listed[self.where].error == 0:
                    return
            await asyncio.sleep(0.05)

    async def producer(self) -> int:
        """A producer id that nobody else has."""
        return (await ops.init_producer_id(self.client)).id

    # Writing

    def batch(
        self,
        count: int,
        producer_id: int = -1,
        epoch: int = -1,
        sequence: int = -1,
        *,
        age_ms: int = 0,
        transactional: bool = False,
        key: bytes | None = None,
    ) -> bytes:
        """A batch of tiny records that are `age_ms` old."""
        made = filler_batch(
            count,
            producer_id=producer_id,
            epoch=epoch,
            sequence=sequence,
            transactional=transactional,
            timestamp_ms=self.brokers.now_ms() - age_ms,
            key=key,
            codec=layout.NO_CODEC,
        )
        return made.header + bytes(made.body)

    async def send(
        self, count: int, producer_id: int, epoch: int, sequence: int, *, acks: int = -1, age_ms: int = 0
    ) -> tuple[int, int]:
        """Produce a batch; returns the code and the offset that it has."""
        batch = self.batch(count, producer_id, epoch, sequence, age_ms=age_ms)
        return await self.put(batch, acks=acks)

    async def put(self, batch: bytes, *, acks: int = -1, transactional_id: str | None = None) -> tuple[int, int]:
        """Produce these bytes; returns the code and the offset that the batch has."""
        told = await ops.produce_batch(
            self.client, self.where, batch, acks=acks, transactional_id=transactional_id, timeout_ms=10_000
        )
        return told.error, told.base_offset

    async def mark(
        self, producer_id: int, epoch: int, count: int = 1, *, coordinator_epoch: int = 0, node: int = 0
    ) -> int:
        """Write abort markers to the leader, or to `node`; returns the code."""
        node = node or (await self.client.find_leader(self.where)).node
        run = MarkerRun(self.where.topic, 0, producer_id, epoch, count, coordinator_epoch)
        return (await ops.write_markers(self.client, node, [run]))[self.where]

    # Looking

    async def end(self) -> int:
        """The true log end."""
        return await ops.one_offset(self.client, self.where, ops.LATEST, replica_id=ops.DEBUGGER)

    async def high_watermark(self) -> int:
        """Up to where every replica in sync has the log."""
        return await ops.one_offset(self.client, self.where, ops.LATEST)

    async def start(self) -> int:
        """Where the log begins."""
        return await ops.one_offset(self.client, self.where, ops.EARLIEST)

    async def read(self, offset: int = 0, *, committed: bool = False, max_bytes: int = EVERYTHING) -> ops.LogChunk:
        """Fetch once."""
        return await ops.read_log(
            self.client, self.where, offset, max_bytes=max_bytes, read_committed=committed, timeout_s=20
        )

    async def log(self) -> list[Batch]:
        """All batches of the log, in order, up to the high watermark."""
        found: list[Batch] = []
        offset = await self.start()
        while True:
            chunk = await self.read(offset)
            assert chunk.error == 0
            more = [batch for batch in batches(chunk.records, self.where) if isinstance(batch, Batch)]
            if not more:
                return found
            found += more
            offset = found[-1].next_offset

    async def remembered(self, producer_id: int) -> ops.ActiveProducer | None:
        """What the leader remembers of a producer."""
        known = await ops.describe_producers(self.client, self.where)
        return next((producer for producer in known if producer.producer_id == producer_id), None)

    async def until_forgotten(self, producer_id: int) -> None:
        """Wait until the leader has forgotten a producer."""
        async with asyncio.timeout(2 * EXPIRATION_MS / 1000):
            while True:
                if await self.remembered(producer_id) is None:
                    return
                await asyncio.sleep(0.2)

    async def past_a_check(self) -> None:
        """Wait until the leader has looked for producers to forget, at least once."""
        await asyncio.sleep(3 * EXPIRATION_CHECK_MS / 1000)

    async def leader_other_than(self, node: int) -> Leader:
        """Wait until another broker leads."""
        async with asyncio.timeout(30):
            while True:
                told = (await self.client.topics([self.where.topic], avoid_node=node)).get(self.where.topic)
                part = told.partitions.get(0) if told is not None else None
                if part is not None and part.leader not in {node, -1}:
                    return Leader(part.leader, part.leader_epoch)
                await asyncio.sleep(0.1)

    async def led_by(self, node: int) -> None:
        """Wait until a broker leads, and knows it."""
        async with asyncio.timeout(30):
            while True:
                leader = await self.client.find_leader(self.where, refresh=True)
                if leader.node == node:
                    await self._known_at(node, 3)
                    return
                await asyncio.sleep(0.1)

    async def in_sync(self, count: int) -> None:
        """Wait until that many replicas are in sync, and none is behind."""
        async with asyncio.timeout(60):
            while True:
                told = (await self.client.topics([self.where.topic])).get(self.where.topic)
                part = told.partitions.get(0) if told is not None else None
                if part is not None and part.leader >= 0 and len(part.isr) == count:
                    listed = (await ops.list_offsets(self.client, {self.where: ops.LATEST}))[self.where]
                    if listed.error == 0 and listed.offset == await self.end():
                        return
                await asyncio.sleep(0.1)


class RealBrokers:
    """Real ones."""

    def __init__(self, kafka: LocalKafka) -> None:
        self._kafka = kafka

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return int(time.time() * 1000)

    async def pause(self, node: int) -> None:
        """SIGSTOP."""
        self._kafka[node].pause()

    async def resume(self, node: int) -> None:
        """SIGCONT."""
        self._kafka[node].resume()

    async def kill(self, node: int) -> None:
        """SIGKILL."""
        await asyncio.to_thread(self._kafka[node].kill)

    async def stop(self, node: int) -> None:
        """SIGTERM, and wait for the end."""
        await asyncio.to_thread(self._kafka[node].stop)

    async def start(self, node: int) -> None:
        """Start it again, and wait until it serves."""
        await asyncio.to_thread(self._kafka[node].start)
        await asyncio.to_thread(self._kafka.wait_ready)
