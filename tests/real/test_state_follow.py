"""`__mirror_state` followed on real brokers: through restarts and moved leaders nothing is lost, doubled or guessed."""

import asyncio
import random
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager

import pytest
from confluent_kafka import Producer

from twinlog.config.client import ClientSettings
from twinlog.control.image import Image
from twinlog.control.lifecycle import PartitionState
from twinlog.control.records import Change, MirrorRecord, PartitionRecord, Record
from twinlog.errors import BadInput, TakeOverAnew, TwinlogError, UnsupportedVersion
from twinlog.names import TopicPartition
from twinlog.state.log import StateLog
from twinlog.state.topic import STATE_TOPIC
from twinlog.state.writer import StateWriter
from twinlog.testing.kafka import LocalKafka
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops import LATEST, one_offset

WORKS_S = 30.0


@pytest.fixture(scope="module")
def own() -> Iterator[LocalKafka]:
    """A broker of this file's own, which may be killed and hold what no twinlog wrote."""
    with LocalKafka() as kafka:
        yield kafka


@asynccontextmanager
async def opened(kafka: LocalKafka) -> AsyncIterator[tuple[Cluster, StateLog]]:
    """A client of a cluster, and the state there."""
    settings = ClientSettings.from_properties({}, bootstrap=kafka.bootstrap, origin="test")
    cluster = await Cluster.connect(settings, client_id="test")
    try:
        yield cluster, await StateLog.open(cluster, create=True)
    finally:
        await cluster.close()


@pytest.fixture
def name() -> str:
    """A mirror or transactional id that no other test has."""
    return f"m-{uuid.uuid4().hex[:12]}"


def mirror(name: str, turn: int) -> MirrorRecord:
    """A mirror's record whose content tells its turn."""
    return MirrorRecord(name, {"turn": str(turn)}, "")


async def eventually(condition: Callable[[], Awaitable[bool]], *, timeout_s: float = 60.0) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(timeout_s):
        while not await condition():  # noqa: ASYNC110  # a broker sends no event
            await asyncio.sleep(0.02)


async def committed(writer: StateWriter, records: Sequence[Change]) -> bool:
    """Try to commit, settling first what the last try left."""
    try:
        if not writer.settled:
            await writer.reestablish()
        await writer.commit(records)
    except TwinlogError:
        return False
    return True


class Following:
    """Follows a log and keeps every change in the order in which it came."""

    def __init__(self, log: StateLog, image: Image) -> None:
        self.image = image
        self.changes: list[Change] = []
        self.task = asyncio.create_task(log.follow(image, self.changes.extend))

    async def until(self, record: Record) -> None:
        """Wait until the image holds a record."""

        async def holds() -> bool:
            assert not self.task.done(), self.task
            return self.image.holds(record)

        await eventually(holds)

    async def stop(self) -> None:
        """Stop following."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    def of(self, name: str) -> list[Change]:
        """The changes of one mirror's own record, in order."""
        return [change for change in self.changes if change.key == ("mirror", name)]


async def test_changes_are_followed(own: LocalKafka, name: str) -> None:
    """A loaded image is kept up to date within a moment, and its changes come in order."""
    async with opened(own) as (cluster, log):
        following = Following(log, await log.load())
        writer = StateWriter(cluster, log, name)
        await writer.fence()
        began = time.monotonic()
        for turn in range(3):
            await writer.commit([mirror(name, turn)])
        await following.until(mirror(name, 2))
        took_s = time.monotonic() - began
        await following.stop()
        assert following.of(name) == [mirror(name, turn) for turn in range(3)]
        assert took_s < 5.0  # 0.3 s on an idle machine


async def test_following_survives_a_restarted_broker(own: LocalKafka, name: str) -> None:
    """After the broker was killed and started again every change comes, once and in order."""
    async with opened(own) as (cluster, log):
        following = Following(log, await log.load())
        writer = StateWriter(cluster, log, name)
        await writer.fence()
        await writer.commit([mirror(name, 0)])
        own[1].kill()
        await asyncio.sleep(random.Random(3).uniform(0.5, 1.5))
        await asyncio.to_thread(own.restart, 1)
        await writer.reestablish()
        for turn in range(1, 5):
            await writer.commit([mirror(name, turn)])
        await following.until(mirror(name, 4))
        await following.stop()
        assert following.of(name) == [mirror(name, turn) for turn in range(5)]


async def test_following_survives_a_moved_leader(destination3: LocalKafka, name: str) -> None:
    """When a broker dies its shards are followed at their new leaders, without a change lost or doubled."""
    async with opened(destination3) as (cluster, log):
        following = Following(log, await log.load())
        writer = StateWriter(cluster, log, name)
        await writer.fence()
        records = [PartitionRecord(name, "t", n, PartitionState.MIRRORING) for n in range(100)]
        await writer.commit(records[:50])
        destination3[2].kill()
        try:
            await eventually(lambda: committed(writer, records[50:]))
            for record in records:
                await following.until(record)
        finally:
            await asyncio.to_thread(destination3.restart, 2)
        await following.stop()
        ours = [change for change in following.changes if isinstance(change, PartitionRecord)]
        assert [ours.count(record) for record in records[:50]] == [1] * 50
        assert following.image.partitions_of(name, "t") == records
        assert (await log.load()).partitions_of(name, "t") == records


async def test_a_lost_position_is_told(own: LocalKafka) -> None:
    """A log that no longer reaches to the image's position is not followed from somewhere else."""
    async with opened(own) as (cluster, log):
        image = await log.load()
        image.positions[3] = await one_offset(cluster, TopicPartition(STATE_TOPIC, 3), LATEST) + 1000
        with pytest.raises(TakeOverAnew, match="Load the state again"):
            async with asyncio.timeout(WORKS_S):
                await log.follow(image, lambda _: None)


@pytest.mark.parametrize(
    ("key", "value", "error", "text"),
    [
        (b'["mirror","x"]', b'{"version":9}', UnsupportedVersion, "newer twinlog"),
        (b'["comet","x"]', b'{"version":0}', UnsupportedVersion, "newer twinlog"),
        (b"nonsense", b"{}", BadInput, "not JSON"),
        (b'["worker","x"]', b'{"version":0}', BadInput, "lacks the field"),
        (b'["mirror","x"]', b'{"version":0,"configs":{},"source_cluster_id":""}', BadInput, "another partition"),
    ],
)
async def test_what_is_not_understood_stops_the_load(
    own: LocalKafka, key: bytes, value: bytes, error: type[TwinlogError], text: str
) -> None:
    """A record of a newer or foreign program is refused with its place; a tombstone clears it."""
    producer = Producer({"bootstrap.servers": own.bootstrap})
    async with opened(own) as (_, log):
        producer.produce(STATE_TOPIC, value, key, partition=0)
        assert producer.flush(WORKS_S) == 0
        with pytest.raises(error, match=rf"__mirror_state-0 at offset \d+: .*{text}"):
            await log.load()
        producer.produce(STATE_TOPIC, None, key, partition=0)
        producer.flush(WORKS_S)
        await log.load()
