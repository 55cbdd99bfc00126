"""Two clusters of real brokers: one broker at the source, one or three at the destination."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

from bench.fill import fill
from bench.loads import STANDARD

from bench import ceiling
from twinlog.config.client import ClientSettings
from twinlog.names import TopicPartition
from twinlog.testing.kafka import LocalKafka
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops import LATEST, delete_topics, list_offsets

WARM_MB: Final = 150
WARM_AT_MOST_S: Final = 40.0
# Warm enough: the best of so many turns gained less than a twentieth over all before.
WARM_SAME: Final = 3
WARM_GAIN: Final = 0.95
REST_S: Final = 2.0
SCRAP: Final = "scrap"

BROKER: Final = {
    # Deleted data is thrown away at once, so that the disk stays out of it.
    "log.segment.delete.delay.ms": "500",
    "log.retention.check.interval.ms": "1000",
    # Transactions are written here without asking a coordinator for each.
    "transaction.partition.verification.enable": "false",
    "log.cleaner.backoff.ms": "500",
}
# As in production: the optimising compiler.
JAVA: Final = ("-XX:TieredStopAtLevel=4", "-Xmx1g")


@dataclass(frozen=True)
class Stage:
    """Both clusters, and connections to them."""

    source: Cluster
    destination: Cluster
    kafkas: tuple[LocalKafka, LocalKafka]

    @property
    def brokers(self) -> int:
        """Brokers of the destination."""
        return len(self.kafkas[1].brokers)

    @property
    def pids(self) -> list[int]:
        """The brokers' processes, and the controllers'."""
        return [node.pid for kafka in self.kafkas for node in kafka.nodes if node.pid is not None]

    async def create_at_source(self, topic: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic at the source."""
        await _created(self.kafkas[0], self.source, topic, partitions, configs)

    async def create_at_destination(
        self, topic: str, partitions: int, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic at the destination."""
        await _created(self.kafkas[1], self.destination, topic, partitions, configs)

    @asynccontextmanager
    async def source_topic(
        self, topic: str, partitions: int, configs: Mapping[str, str] | None = None
    ) -> AsyncIterator[None]:
        """Have a topic at the source until the block ends."""
        await self.create_at_source(topic, partitions, configs)
        try:
            yield
        finally:
            await delete_topics(self.source, [topic])
            await asyncio.sleep(REST_S)

    @asynccontextmanager
    async def targets(self, topics: Mapping[str, int], configs: Mapping[str, str] | None = None) -> AsyncIterator[None]:
        """Have these topics, by their partitions, empty at the destination; delete them and let it come to rest."""
        for topic, partitions in topics.items():
            await self.create_at_destination(topic, partitions, configs)
        try:
            yield
        finally:
            await delete_topics(self.destination, list(topics))
            await asyncio.sleep(REST_S)


@asynccontextmanager
async def staged(brokers: int) -> AsyncIterator[Stage]:
    """Start both clusters and let their compilers see what comes; end them with the block."""
    with _kafka(1) as one, _kafka(brokers) as two:
        source, destination = await _connected(one), await _connected(two)
        stage = Stage(source, destination, (one, two))
        try:
            await _warm(stage)
            yield stage
        finally:
            await source.close()
            await destination.close()


async def _warm(stage: Stage) -> None:
    """Let the brokers' compilers see requests of the kind until they get no faster: else who comes first is slowest."""
    load = replace(STANDARD, megabytes=WARM_MB // stage.brokers)
    deadline = time.perf_counter() + WARM_AT_MOST_S
    took_s: list[float] = []
    while time.perf_counter() < deadline and not _settled(took_s):
        await stage.create_at_source(SCRAP, load.partitions)
        await stage.create_at_destination(SCRAP, load.partitions)
        began = time.perf_counter()
        await fill(stage.source, SCRAP, load)
        await asyncio.gather(ceiling.fetch_alone(stage.source, SCRAP), fill(stage.destination, SCRAP, load))
        took_s.append(time.perf_counter() - began)
        await delete_topics(stage.source, [SCRAP])
        await delete_topics(stage.destination, [SCRAP])
    await asyncio.sleep(REST_S)


def _settled(took_s: list[float]) -> bool:
    """Whether the last turns were no faster than those before them."""
    before, last = took_s[:-WARM_SAME], took_s[-WARM_SAME:]
    return len(before) >= WARM_SAME and min(last) > WARM_GAIN * min(before)


def _kafka(brokers: int) -> LocalKafka:
    return LocalKafka(brokers, config=BROKER, java_options=JAVA)


async def _created(
    kafka: LocalKafka, cluster: Cluster, topic: str, partitions: int, configs: Mapping[str, str] | None
) -> None:
    await asyncio.to_thread(kafka.create_topic, topic, partitions=partitions, config=configs)
    # The metadata names a leader a little before it serves.
    await list_offsets(cluster, {TopicPartition(topic, part): LATEST for part in range(partitions)})


async def _connected(kafka: LocalKafka) -> Cluster:
    settings = ClientSettings.from_properties({}, bootstrap=kafka.bootstrap, origin="the bench")
    return await Cluster.connect(settings, client_id=f"bench-{os.getpid()}")
