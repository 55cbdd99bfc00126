"""Writes a load to a topic by raw requests: the same batches for every contestant."""

import asyncio
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

from bench.loads import DISTINCT_BATCHES, SEED, Load
from kafka.protocol.producer.produce import ProduceRequest

from twinlog.batch import layout
from twinlog.batch.edit import next_sequence, sealed
from twinlog.batch.view import Batch
from twinlog.wire.cluster import Cluster
from twinlog.wire.connection import Connection
from twinlog.wire.ops import Producer, init_producer_id
from twinlog.wire.produce import (
    NEWEST_MARKERS,
    NEWEST_PRODUCE,
    PRODUCE,
    WRITE_TXN_MARKERS,
    MarkerRun,
    PartitionBatch,
    decode_markers,
    decode_produced,
    encode_markers,
    encode_produce,
)

IN_FLIGHT: Final = 5
TIMEOUT_MS: Final = 30_000
MARKER_BYTES: Final = 78
TRANSACTIONAL_ID: Final = "bench"
NOTHING: Final = memoryview(b"")
COMPACTED_WITHIN_S: Final = 90.0
COMPACTING: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.bytes": str(1_048_576),  # a partition's last segment is never compacted
}

Request = Sequence[PartitionBatch]


@dataclass(frozen=True)
class Filled:
    """What a topic holds: bytes of its log, records that a reader sees, offsets (the sum of all log ends)."""

    bytes: int
    records: int
    offsets: int


async def fill(cluster: Cluster, topic: str, load: Load) -> Filled:
    """Write the load's batches; the topic's leaders may be on several brokers where it has no transactions."""
    if load.transaction_records:
        return await _fill_transactions(cluster, topic, load)
    if load.compacted:
        return await _fill_keys(cluster, topic, load)
    made = load.made()
    streams = [
        produce(await cluster.lane(node, "fill"), topic, _requests(made, parts, load.batches))
        for node, parts in (await leaders(cluster, topic)).items()
    ]
    await asyncio.gather(*streams)
    size = sum(len(made[(turn + part) % len(made)]) for turn in range(load.batches) for part in range(load.partitions))
    return Filled(size, load.records, load.records)


async def leaders(cluster: Cluster, topic: str) -> dict[int, list[int]]:
    """The partitions of a topic that each broker leads."""
    info = (await cluster.topics([topic]))[topic]
    found: dict[int, list[int]] = {}
    for number, partition in sorted(info.partitions.items()):
        found.setdefault(partition.leader, []).append(number)
    return found


def _requests(made: list[bytes], parts: list[int], batches: int) -> Iterator[Request]:
    for turn in range(batches):
        yield [PartitionBatch(part, made[(turn + part) % len(made)], NOTHING) for part in parts]


async def produce(connection: Connection, topic: str, requests: Iterable[Request], *, acks: int = -1) -> None:
    """Send the requests one after another, a few under way at once; raises RuntimeError where one is refused."""
    pipe = Pipe(connection, topic)
    for request in requests:
        await pipe.produce(request, acks=acks)
    await pipe.drain()


class Pipe:
    """Keeps some requests under way on one connection; raises RuntimeError where one is refused."""

    def __init__(self, connection: Connection, topic: str, in_flight: int = IN_FLIGHT) -> None:
        self._connection = connection
        self._topic = topic
        self._in_flight = in_flight
        self._room = asyncio.Semaphore(in_flight)
        self._failures: list[str] = []
        self._version = connection.version_of(ProduceRequest, NEWEST_PRODUCE)

    async def produce(self, batches: Request, *, acks: int = -1, transactional_id: str | None = None) -> None:
        """Send one batch a partition."""
        await self._wait()
        chunks = encode_produce(
            self._version,
            [(self._topic, batches)],
            acks=acks,
            timeout_ms=TIMEOUT_MS,
            transactional_id=transactional_id,
        )
        decode = partial(decode_produced, self._version)
        self._connection.submit_frame(PRODUCE, self._version, chunks, decode).add_done_callback(self._produced)

    async def markers(self, chunks: list[bytes]) -> None:
        """Send a WriteTxnMarkers request that is encoded already."""
        await self._wait()
        decode = partial(decode_markers, NEWEST_MARKERS)
        future = self._connection.submit_frame(WRITE_TXN_MARKERS, NEWEST_MARKERS, chunks, decode)
        future.add_done_callback(self._marked)

    async def drain(self) -> None:
        """Await every answer."""
        for _ in range(self._in_flight):
            await self._room.acquire()
        for _ in range(self._in_flight):
            self._room.release()
        self._check()

    async def _wait(self) -> None:
        await self._room.acquire()
        if self._failures:
            self._room.release()
            self._check()

    def _check(self) -> None:
        if self._failures:
            raise RuntimeError(f"The broker refused what was written to {self._topic}: {self._failures[0]}.")

    def _produced(self, future: "asyncio.Future[dict[Any, Any]]") -> None:
        self._done(future, lambda answer: answer.code)

    def _marked(self, future: "asyncio.Future[dict[Any, Any]]") -> None:
        self._done(future, lambda code: code)

    def _done(self, future: "asyncio.Future[dict[Any, Any]]", code_of: Any) -> None:
        self._room.release()
        if error := future.exception():
            self._failures.append(str(error))
            return
        self._failures.extend(f"{where}: error {code_of(a)}" for where, a in future.result().items() if code_of(a))


class Transactor:
    """Writes transactional batches and their markers to the partitions of a topic, all under one producer.

    Nobody begins or ends these transactions at a coordinator: the brokers have `transaction.partition.verification` off
    and take the markers directly, so that thousands a second can be made. A log looks the same either way.
    """

    def __init__(self, pipe: Pipe, topic: str, partitions: Sequence[int], producer: Producer) -> None:
        self.partitions = tuple(partitions)
        self._pipe = pipe
        self._producer = producer
        self._sequences = dict.fromkeys(partitions, 0)
        self.offsets = 0
        self.bytes = 0
        runs = [MarkerRun(topic, part, producer.id, producer.epoch, 1) for part in partitions]
        self._ends = {commit: _markers(runs, commit=commit) for commit in (True, False)}

    @classmethod
    async def on(cls, cluster: Cluster, topic: str, parts: Sequence[int]) -> "Transactor":
        """Take a producer id; all of the partitions have the same leader."""
        node = (await cluster.topics([topic]))[topic].partitions[parts[0]].leader
        pipe = Pipe(await cluster.lane(node, "fill"), topic, in_flight=2 * IN_FLIGHT)
        return cls(pipe, topic, parts, await init_producer_id(cluster, TRANSACTIONAL_ID))

    async def write(self, bodies: dict[int, Batch]) -> None:
        """Send one batch for each of some partitions, inside their transactions."""
        made = []
        for part, batch in bodies.items():
            header = _transactional(batch, self._producer, self._sequences[part])
            made.append(PartitionBatch(part, header, batch.body))
            self._sequences[part] = next_sequence(self._sequences[part], batch.count)
            self.offsets += batch.count
            self.bytes += batch.size
        await self._pipe.produce(made, transactional_id=TRANSACTIONAL_ID)

    async def end(self, *, commit: bool) -> None:
        """End the transaction of every partition."""
        await self._pipe.markers(self._ends[commit])
        self.offsets += len(self.partitions)
        self.bytes += len(self.partitions) * MARKER_BYTES

    async def drain(self) -> None:
        """Await every answer."""
        await self._pipe.drain()


def _transactional(batch: Batch, producer: Producer, sequence: int) -> bytes:
    _, _, _, _, _, attributes, delta, base_time, max_time, _, _, _, count = batch.header
    bits = attributes | layout.TRANSACTIONAL_BIT
    summed = layout.CHECKSUMMED.pack(bits, delta, base_time, max_time, producer.id, producer.epoch, sequence, count)
    return sealed(summed, batch.body)


def _markers(runs: list[MarkerRun], *, commit: bool) -> list[bytes]:
    """A request with one marker for each partition."""
    chunks = [bytes(chunk) for chunk in encode_markers(NEWEST_MARKERS, runs)]
    if not commit:
        return chunks
    # The result stands behind the producer's id and epoch, and is an abort as that function writes it.
    committed = [bytearray(chunk) for chunk in chunks[1:-1]]
    for marker in committed:
        marker[10] = 1
    return [chunks[0], *(bytes(marker) for marker in committed), chunks[-1]]


async def _fill_transactions(cluster: Cluster, topic: str, load: Load) -> Filled:
    parts = range(load.partitions)
    made = [Batch(memoryview(raw)) for raw in load.made()]
    transactor = await Transactor.on(cluster, topic, parts)
    each = load.transaction_records // load.batch_records
    whole = load.batches - load.batches % each
    for turn in range(whole):
        await transactor.write({part: made[(turn + part) % len(made)] for part in parts})
        if turn % each == each - 1:
            await transactor.end(commit=True)
    await transactor.drain()
    records = whole * load.batch_records * load.partitions
    return Filled(transactor.bytes, records, transactor.offsets)


async def _fill_keys(cluster: Cluster, topic: str, load: Load) -> Filled:
    """No key that is to stay comes twice, so no two batches are alike."""
    rng, now_ms = random.Random(SEED), time.time_ns() // 1_000_000
    values = [load.values(rng) for _ in range(DISTINCT_BATCHES)]
    size = 0

    def requests() -> Iterator[Request]:
        nonlocal size
        for turn in range(load.batches):
            made = [load.batch(now_ms, turn, values[(turn + part) % len(values)]) for part in range(load.partitions)]
            size += sum(map(len, made))
            yield [PartitionBatch(part, batch, NOTHING) for part, batch in enumerate(made)]

    node = next(iter(await leaders(cluster, topic)))
    await produce(await cluster.lane(node, "fill"), topic, requests())
    return Filled(size, load.records, load.records)


async def compaction(folder: Path, topic: str, filled: Filled, load: Load) -> None:
    """Wait until the broker has compacted what `fill` wrote; its partitions are in `folder`."""
    deadline = time.monotonic() + COMPACTED_WITHIN_S
    most = filled.bytes // load.keep_one_in * 2 + load.partitions * int(COMPACTING["segment.bytes"])
    size, still = filled.bytes, 0
    while still < 3 or size > most:
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"{topic}: compaction had not come to rest when the time was over; {size} bytes are left."
            )
        await asyncio.sleep(1.0)
        now = _log_bytes(folder, topic)
        still = still + 1 if now == size else 0
        size = now


def _log_bytes(folder: Path, topic: str) -> int:
    files = chain.from_iterable(path.glob("*.log") for path in folder.glob(f"{topic}-*"))
    return sum(path.stat().st_size for path in files)
