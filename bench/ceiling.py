"""What raw fetch and raw produce of the same bytes reach, with nothing between them: the bound for any such tool.

Fetch: one connection, all partitions in one request, the next request sent before an answer is looked at; nothing is
kept. Produce: batches fetched and stamped beforehand, under one idempotent producer a partition, in the pattern of
requests that was fastest of those tried. Both: the two at once in one process, since two brokers and a tool share the
machine.
"""

import asyncio
import time
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, Final

from bench.loads import Load, Request, produce
from kafka.protocol.consumer.fetch import FetchRequest

from twinlog.batch.edit import next_sequence, stamped
from twinlog.batch.scan import batches
from twinlog.batch.view import Batch
from twinlog.relay.inbox import tail_of
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops import init_producer_id
from twinlog.wire.produce import PartitionBatch

PARTITION_BYTES: Final = 1_048_576
RESPONSE_BYTES: Final = 10_485_760
FETCH_VERSION: Final = 12  # the last that names topics by name

Stamped = dict[int, list[PartitionBatch]]


@dataclass(frozen=True)
class Pattern:
    """How raw produce spreads the partitions: over `connections`, with `together` of them in one request."""

    connections: int
    together: int


PATTERNS: Final = (Pattern(1, 4), Pattern(2, 2), Pattern(4, 1))


class _Reader:
    """Reads a topic from its beginning to `end` in every partition."""

    def __init__(self, cluster: Cluster, topic: str, load: Load) -> None:
        self._cluster = cluster
        self._topic = topic
        self._end = load.batches * load.batch_records
        self.positions = dict.fromkeys(range(load.partitions), 0)
        self.kept: dict[int, list[memoryview]] | None = None

    async def run(self) -> None:
        node = (await self._cluster.topics([self._topic]))[self._topic].partitions[0].leader
        connection = await self._cluster.lane(node, "ceiling")
        while wanted := [part for part, position in self.positions.items() if position < self._end]:
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


async def stamped_batches(source: Cluster, destination: Cluster, topic: str, load: Load) -> Stamped:
    """Fetch everything into memory and stamp it, each partition with a producer id of its own."""
    reader = _Reader(source, topic, load)
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


async def fetch_alone(source: Cluster, topic: str, load: Load) -> float:
    """Seconds that raw fetch takes."""
    return await _timed(_Reader(source, topic, load).run())


async def produce_alone(destination: Cluster, topic: str, made: Stamped, pattern: Pattern) -> float:
    """Seconds that raw produce takes."""
    return await _timed(_produce(destination, topic, made, pattern))


async def both(
    source: Cluster, destination: Cluster, topics: tuple[str, str], load: Load, made: Stamped, pattern: Pattern
) -> float:
    """Seconds that both take when they run at once; `topics` are the one read and the one written."""
    reader = _Reader(source, topics[0], load)

    async def at_once() -> None:
        await asyncio.gather(reader.run(), _produce(destination, topics[1], made, pattern))

    return await _timed(at_once())


async def _timed(work: Coroutine[Any, Any, None]) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


async def _produce(cluster: Cluster, topic: str, made: Stamped, pattern: Pattern) -> None:
    node = (await cluster.topics([topic]))[topic].partitions[0].leader
    groups = [sorted(made)[at :: pattern.connections] for at in range(pattern.connections)]
    lanes = [await cluster.lane(node, f"ceiling-{at}") for at in range(pattern.connections)]
    await asyncio.gather(
        *(
            produce(lane, topic, _requests(made, group, pattern.together))
            for lane, group in zip(lanes, groups, strict=True)
        )
    )


def _requests(made: Stamped, parts: list[int], together: int) -> Iterator[Request]:
    for turn in range(max(len(made[part]) for part in parts)):
        row = [made[part][turn] for part in parts if turn < len(made[part])]
        for at in range(0, len(row), together):
            yield row[at : at + together]
