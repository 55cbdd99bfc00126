"""What is written to the source while all else happens: content of every kind that a twin has to have.

Plain batches, transactions that are committed, aborted or left open for a while, several of them interleaved, runs of
markers, long runs of aborted records, and, where the topic is compacted, holes.
"""

import asyncio
from collections.abc import Iterator
from itertools import count
from random import Random
from typing import Protocol

from tests.sim.broker.cleaner import clean
from tests.sim.broker.log import PartitionLog, control_batch
from tests.sim.cluster import SimCluster
from tests.sim.judge import Truth
from tests.sim.loop import SimLoop
from tests.sim.settings import Settings

from twinlog.batch import layout
from twinlog.batch.edit import sealed
from twinlog.batch.records import Record, encode
from twinlog.batch.view import Batch
from twinlog.names import TopicPartition

MONTH_MS = 30 * 86_400_000
# Of which compaction keeps the last record each.
KEYS = 7
# Producers of the source are told from those of the destination at a glance.
FIRST_PRODUCER = 900_000


class Stage(Protocol):
    """Where the load is written (`world.World`)."""

    settings: Settings
    loop: SimLoop
    source: SimCluster
    partitions: list[TopicPartition]
    truths: dict[TopicPartition, Truth]


class Load:
    """Writes for as long as the world's unrest lasts, and ends with every transaction decided."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._rng = Random(f"load {stage.settings.seed}")
        self._values = count()
        self._producers = count(FIRST_PRODUCER)
        self._open: dict[TopicPartition, list[tuple[int, bool]]] = {where: [] for where in stage.partitions}

    async def run(self) -> None:
        """Write now and then."""
        stage, rng = self._stage, self._rng
        ends = stage.loop.time() + stage.settings.lasts_s
        while stage.loop.time() < ends:
            self._write(rng.choice(stage.partitions))
            await asyncio.sleep(rng.uniform(0.0, 2.0) * stage.settings.load_every_s)
        for where in stage.partitions:
            while not self._decide(where):  # noqa: ASYNC110  # its leader is away, and no event tells when it is back
                await asyncio.sleep(0.5)

    def _write(self, where: TopicPartition) -> None:
        rng, settings = self._rng, self._stage.settings
        if self._open[where] and rng.random() < 0.3:
            self._end(where)
        if rng.random() >= settings.transactions:
            for _ in range(rng.randint(1, 7)):
                self._append(where, self._batch(rng.randint(1, 4)))
            return
        kind = rng.random()
        if settings.long_runs and kind < 0.15:
            self._aborted(where, rng.randint(50, 160))
        elif kind < 0.3:
            for _ in range(rng.randint(1, 12)):
                self._append(where, self._marker(next(self._producers), commit=rng.random() < 0.5))
        elif self._open[where] and kind < 0.65:
            self._end(where)
        else:
            self._begin(where)

    def _begin(self, where: TopicPartition) -> None:
        """Begin a transaction; some end at once, others stay open."""
        producer = next(self._producers)
        for at in range(self._rng.randint(1, 3)):
            self._append(where, self._batch(self._rng.randint(1, 3), producer=producer, sequence=3 * at))
        self._open[where].append((producer, self._rng.random() < 0.6))
        if self._rng.random() < 0.7 or len(self._open[where]) > 3:
            self._end(where)

    def _end(self, where: TopicPartition) -> None:
        producer, commit = self._open[where][0]
        if self._append(where, self._marker(producer, commit=commit)):
            del self._open[where][0]

    def _aborted(self, where: TopicPartition, length: int) -> None:
        producer = next(self._producers)
        self._append(where, self._batch(length, producer=producer))
        self._open[where].append((producer, False))
        self._end(where)

    def _decide(self, where: TopicPartition) -> bool:
        """End what is open; says whether nothing is any more."""
        while self._open[where]:
            before = len(self._open[where])
            self._end(where)
            if len(self._open[where]) == before:
                return False
        return True

    # Batches

    def _batch(self, length: int, *, producer: int = layout.NO_PRODUCER, sequence: int = 0) -> Batch:
        rng, stage = self._rng, self._stage
        now_ms = stage.source.wall_ms()
        stamp = now_ms - MONTH_MS if stage.settings.old_records and rng.random() < 0.8 else now_ms
        records = [
            Record(at, stamp + at, b"k%d" % rng.randrange(KEYS), b"v%d" % next(self._values), ())
            for at in range(length)
        ]
        plain = encode(records, codec=0)
        if producer == layout.NO_PRODUCER:
            return plain
        summed = layout.CHECKSUMMED.pack(
            layout.TRANSACTIONAL_BIT,
            length - 1,
            plain.base_timestamp,
            plain.max_timestamp,
            producer,
            0,
            sequence,
            length,
        )
        body = bytes(plain.body)
        return Batch(memoryview(sealed(summed, body) + body))

    def _marker(self, producer: int, *, commit: bool) -> Batch:
        now_ms = self._stage.source.wall_ms()
        return control_batch(producer, 0, commit=commit, coordinator_epoch=0, now_ms=now_ms)

    def _append(self, where: TopicPartition, batch: Batch) -> bool:
        """Let the partition's leader append it, if it has one that runs."""
        source = self._stage.source
        node = source.leader_of(where)
        if node not in source.up:
            return False
        return source.append(where, batch)

    # What a cleaner and a retention do

    def compact(self, where: TopicPartition) -> None:
        """Keep of each key the last record, and some more."""
        truth, rng = self._stage.truths[where], self._rng
        below = truth.end
        last = {record.key: offset for offset, record in sorted(truth.records.items())}
        gone = {o for o, record in truth.records.items() if o < below and last[record.key] != o and rng.random() < 0.7}
        for log in self._logs(where):
            clean(log, lambda offset: offset not in gone, below=min(below, log.high_watermark))
        truth.compacted(gone)

    def trim(self, where: TopicPartition, start: int) -> None:
        """Let the source's log begin at `start`."""
        for log in self._logs(where):
            log.delete_before(min(start, log.high_watermark))
        self._stage.truths[where].start = start

    def _logs(self, where: TopicPartition) -> Iterator[PartitionLog]:
        for broker in self._stage.source.brokers.values():
            if where in broker.replicas:
                yield broker.replicas[where].log
