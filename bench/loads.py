"""What is mirrored: a topic filled once, with the same batches for every contestant."""

import asyncio
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from kafka.protocol.producer.produce import ProduceRequest

from twinlog.batch.records import encode
from twinlog.batch.section import Record
from twinlog.wire.cluster import Cluster
from twinlog.wire.connection import Connection
from twinlog.wire.produce import NEWEST_PRODUCE, PRODUCE, PartitionBatch, decode_produced, encode_produce

SEED: Final = 4
DISTINCT_BATCHES: Final = 64  # a megabyte of them, so that nothing compares equal by chance
IN_FLIGHT: Final = 5
TIMEOUT_MS: Final = 30_000


@dataclass(frozen=True)
class Load:
    """A topic's content: `megabytes` (10^6 bytes) of records in equal batches, spread evenly over the partitions."""

    name: str
    megabytes: int
    partitions: int = 4
    record_bytes: int = 1000
    batch_records: int = 16

    def __str__(self) -> str:
        return f"{self.name}: {self.megabytes} MB in {self.partitions} partitions"

    @property
    def batches(self) -> int:
        """Batches in each partition."""
        return self.megabytes * 1_000_000 // (self.record_bytes * self.batch_records * self.partitions)

    @property
    def records(self) -> int:
        """Records in the whole topic."""
        return self.batches * self.batch_records * self.partitions

    def made(self) -> list[bytes]:
        """The distinct batches, stamped with the present time: what the destination counts as fresh."""
        rng = random.Random(SEED)
        now_ms = time.time_ns() // 1_000_000
        return [self._batch(rng, now_ms) for _ in range(DISTINCT_BATCHES)]

    def _batch(self, rng: random.Random, now_ms: int) -> bytes:
        size = self.record_bytes - 18  # key and framing
        records = [Record(at, now_ms, b"%08d" % at, rng.randbytes(size), ()) for at in range(self.batch_records)]
        return bytes(encode(records, codec=0).raw)


STANDARD: Final = Load("1 KB records in 16 KB batches", megabytes=300)

Request = list[PartitionBatch]


async def fill(cluster: Cluster, topic: str, load: Load) -> int:
    """Write the load's batches; returns the bytes of the whole log, headers among them."""
    made = load.made()
    node = (await cluster.topics([topic]))[topic].partitions[0].leader
    connection = await cluster.lane(node, "fill")
    requests = (
        [PartitionBatch(part, made[(turn + part) % len(made)], memoryview(b"")) for part in range(load.partitions)]
        for turn in range(load.batches)
    )
    await produce(connection, topic, requests)
    return sum(len(made[(turn + part) % len(made)]) for turn in range(load.batches) for part in range(load.partitions))


async def produce(connection: Connection, topic: str, requests: Iterator[Request]) -> None:
    """Send the requests one after another, a few under way at once; raises RuntimeError where one is refused."""
    version = connection.version_of(ProduceRequest, NEWEST_PRODUCE)
    room = asyncio.Semaphore(IN_FLIGHT)
    failures: list[str] = []

    def answered(future: asyncio.Future[object]) -> None:
        room.release()
        if error := future.exception():
            failures.append(str(error))
            return
        answer = future.result()
        failures.extend(f"{where}: error {p.code}" for where, p in answer.items() if p.code)  # type: ignore[attr-defined]

    for request in requests:
        await room.acquire()
        if failures:
            room.release()
            break
        chunks = encode_produce(version, [(topic, request)], acks=-1, timeout_ms=TIMEOUT_MS)
        future = connection.submit_frame(PRODUCE, version, chunks, partial(decode_produced, version))
        future.add_done_callback(answered)
    for _ in range(IN_FLIGHT):
        await room.acquire()
    if failures:
        raise RuntimeError(f"The broker refused what was produced to {topic}: {failures[0]}.")
