"""What raw fetch and raw produce of the same bytes reach, with nothing between them: the bound for any such tool.

Fetch: one connection, all partitions in one request, the next request sent before an answer is looked at; nothing is
kept. Produce: batches fetched and stamped beforehand, under one idempotent producer a partition, in the pattern of
requests that was fastest of those tried. Both: the two at once in one process, since the brokers and a tool share the
machine. With several replicas, produce ends when the high watermark has passed everything, whatever the acks.
"""

import asyncio
import time
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, Final

from bench.fill import Request, leaders, produce
from kafka.protocol.consumer.fetch import FetchRequest

from twinlog.batch.edit import next_sequence, stamped
from twinlog.batch.scan import batches
from twinlog.batch.view import Batch
from twinlog.names import TopicPartition
from twinlog.relay.inbox import tail_of
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops import LATEST, init_producer_id, list_offsets
from twinlog.wire.produce import PartitionBatch

PARTITION_BYTES: Final = 1_048_576
RESPONSE_BYTES: Final = 10_485_760
FETCH_VERSION: Final = 12  # the last that names topics by name
EVERY_S: Final = 0.01
VISIBLE_WITHIN_S: Final = 60.0

Stamped = dict[int, list[PartitionBatch]]


@dataclass(frozen=True)
class Pattern:
    """How raw produce spreads the partitions of a leader: over so many connections, all of one in one request."""

    connections: int


PATTERNS: Final = (Pattern(1), Pattern(2), Pattern(4))


class Reader:
    """Reads a topic of one broker from its beginning to its end, in every partition."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self.positions: dict[int, int] = {}
        self.kept: dict[int, list[memoryview]] | None = None

    async def run(self) -> None:
        """Read everything that is there when this begins."""
        node, parts = next(iter((await leaders(self._cluster, self._topic)).items()))
        listed = await list_offsets(self._cluster, {TopicPartition(self._topic, part): LATEST for part in parts})
        ends = {where.partition: found.offset for where, found in listed.items()}
        self.positions = dict.fromkeys(parts, 0)
        connection = await self._cluster.lane(node, "ceiling")
        while wanted := [part for part, position in self.positions.items() if position < ends[part]]:
            answer = await connection.submit(self._request(wanted), max_version=FETCH_VERSION)
            for data in answer.responses[0].partitions:
                self._take(data.partition_index, memoryview(data.records or b""))

    def _take(self, part: int, records: memoryview) -> None:
        tail = tail_of(records)
        if tail is None:
            return
        if self.kept is not None:
            self.kept.setdefault(part, []).append(records)
        self.positions[part] = tail[0]

    def _request(self, wanted: list[int]) -> FetchRequest:
        parts = [
            FetchRequest.FetchTopic.FetchPartition(
                partition=part,
                current_leader_epoch=-1,
                fetch_offset=self.positions[part],
                last_fetched_epoch=-1,
                log_start_offset=-1,
                partition_max_bytes=PARTITION_BYTES,
            )
            for part in wanted
        ]
        # Those that are behind first, so that all advance alike.
        parts.sort(key=lambda part: self.positions[part.partition])
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=RESPONSE_BYTES,
            isolation_level=1,
            session_id=0,
            session_epoch=-1,
            topics=[FetchRequest.FetchTopic(topic=self._topic, partitions=parts)],
            forgotten_topics_data=[],
            rack_id="",
        )


async def stamped_batches(source: Cluster, destination: Cluster, topic: str) -> Stamped:
    """Fetch everything into memory and stamp it, each partition with a producer id of its own."""
    reader = Reader(source, topic)
    reader.kept = {}
    await reader.run()
    made: Stamped = {}
    for part, pieces in reader.kept.items():
        producer = await init_producer_id(destination)
        sequence, made[part] = 0, []
        for batch in (batch for piece in pieces for batch in batches(piece)):
            assert isinstance(batch, Batch)
            out = stamped(batch, producer_id=producer.id, epoch=producer.epoch, sequence=sequence)
            sequence = next_sequence(sequence, out.count)
            made[part].append(PartitionBatch(part, out.header, out.body))
    return made


async def fetch_alone(source: Cluster, topic: str) -> float:
    """Seconds that raw fetch takes."""
    return await _timed(Reader(source, topic).run())


async def produce_alone(destination: Cluster, topic: str, made: Stamped, pattern: Pattern, *, acks: int) -> float:
    """Seconds that raw produce takes."""
    return await _timed(_produce(destination, topic, made, pattern, acks))


async def both(
    source: Cluster, destination: Cluster, topics: tuple[str, str], made: Stamped, pattern: Pattern, *, acks: int
) -> float:
    """Seconds that both take when they run at once; `topics` are the one read and the one written."""
    reader = Reader(source, topics[0])

    async def at_once() -> None:
        await asyncio.gather(reader.run(), _produce(destination, topics[1], made, pattern, acks))

    return await _timed(at_once())


async def _timed(work: Coroutine[Any, Any, None]) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


async def _produce(cluster: Cluster, topic: str, made: Stamped, pattern: Pattern, acks: int) -> None:
    streams = []
    for node, parts in (await leaders(cluster, topic)).items():
        for at in range(min(pattern.connections, len(parts))):
            lane = await cluster.lane(node, f"ceiling-{at}")
            streams.append(produce(lane, topic, _requests(made, parts[at :: pattern.connections]), acks=acks))
    await asyncio.gather(*streams)
    await _visible(cluster, topic, made)


async def _visible(cluster: Cluster, topic: str, made: Stamped) -> None:
    """Wait until the high watermark has passed every batch; with one replica it has when all are acknowledged."""
    ends = {TopicPartition(topic, part): sum(_count(batch) for batch in sent) for part, sent in made.items()}
    deadline = time.monotonic() + VISIBLE_WITHIN_S
    while True:
        listed = await list_offsets(cluster, dict.fromkeys(ends, LATEST))
        if all(listed[where].offset >= end for where, end in ends.items()):
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"{topic}: the high watermark did not reach the log's end in time.")
        await asyncio.sleep(EVERY_S)


def _count(batch: PartitionBatch) -> int:
    return int.from_bytes(batch.header[-4:], "big")


def _requests(made: Stamped, parts: list[int]) -> Iterator[Request]:
    for turn in range(max(len(made[part]) for part in parts)):
        yield [made[part][turn] for part in parts if turn < len(made[part])]
