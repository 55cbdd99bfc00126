"""One, two and four workers: throughput together, and what it takes when one comes, goes or dies."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from bench.fill import Pipe, fill, leaders
from bench.loads import LOADS, Load
from bench.meter import MB, watch
from bench.stage import Stage

from bench import twinlog_run
from twinlog.batch.records import encode
from twinlog.batch.section import Record
from twinlog.control.image import Image
from twinlog.control.sharding import shard_of
from twinlog.names import TopicPartition
from twinlog.state.log import StateLog
from twinlog.wire.ops import LATEST, list_offsets
from twinlog.wire.produce import PartitionBatch

LOAD: Final = LOADS["p64"]
COUNTS: Final = (1, 2, 4)
TOPIC: Final = "shared"
TICK_S = SAMPLE_S = 0.05
JOINED_S: Final = 12.0  # a group of workers has come to rest by then
TIMEOUT_S: Final = 60.0
FAIR: Final = 0.8
"""A newcomer has its share when it owns so much of an even one; hashes spread partitions unevenly over shards."""


async def throughput(stage: Stage, load: Load, workers: int) -> dict[str, float]:
    """So many workers that are there already begin with a topic at the same moment."""
    async with stage.source_topic(TOPIC, load.partitions), stage.targets({TOPIC: load.partitions}):
        filled = await fill(stage.source, TOPIC, load)
        await twinlog_run.start_topics(stage, [])
        with ExitStack() as stack:
            processes = [stack.enter_context(twinlog_run.worker(stage.kafkas[1])) for _ in range(workers)]
            await asyncio.sleep(JOINED_S)
            await twinlog_run.start_topics(stage, [TOPIC])
            span = await watch(stage, TOPIC, load.partitions, filled.offsets, pid=processes[0].pid, timeout_s=TIMEOUT_S)
    return {"mb_per_second": filled.bytes / MB * span.offsets / filled.offsets / span.seconds}


@dataclass
class Watch:
    """Writes a record to every partition all the time, and notes when each partition's end at the destination moves."""

    stage: Stage
    partitions: int
    moved: dict[int, list[float]] = field(default_factory=dict)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Do so until the block ends."""
        tasks = [asyncio.create_task(self._tick()), asyncio.create_task(self._sample())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _tick(self) -> None:
        node = next(iter(await leaders(self.stage.source, TOPIC)))
        pipe = Pipe(await self.stage.source.lane(node, "tick"), TOPIC)
        while True:
            batch = encode([Record(0, time.time_ns() // 1_000_000, b"tick", b"tick", ())], codec=0)
            await pipe.produce([PartitionBatch(p, bytes(batch.raw), memoryview(b"")) for p in range(self.partitions)])
            await asyncio.sleep(TICK_S)

    async def _sample(self) -> None:
        asked = {TopicPartition(TOPIC, p): LATEST for p in range(self.partitions)}
        ends: dict[int, int] = {}
        while True:
            for where, listed in (await list_offsets(self.stage.destination, asked)).items():
                if listed.offset != ends.get(where.partition):
                    ends[where.partition] = listed.offset
                    self.moved.setdefault(where.partition, []).append(time.perf_counter())
            await asyncio.sleep(SAMPLE_S)

    def longest_pause_s(self, partitions: Iterable[int], since: float) -> float:
        """The longest time after `since` in which the end of one of these did not move; 0 for none."""
        return max((self._pause_s(p, since) for p in partitions), default=0.0)

    def _pause_s(self, partition: int, since: float) -> float:
        times = [since, *(at for at in self.moved.get(partition, []) if at > since), time.perf_counter()]
        return max(later - earlier for earlier, later in pairwise(times))

    def all_moved_since(self, partitions: Iterable[int], since: float) -> bool:
        """Whether the end of each of these has moved."""
        return all(self.moved.get(p, [0.0])[-1] > since for p in partitions)


@dataclass
class Owners:
    """Which worker owns which partition, as the state says."""

    log: StateLog
    image: Image
    partitions: int

    def of(self, pid: int) -> set[int]:
        """What the worker with this process id has claimed."""
        ids = {record.worker for record in self.image.workers.values() if record.pid == pid}
        shards = self.image.shards
        mine = {number for number, shard in shards.items() if shard.worker in ids and shard.held}
        return {p for p in range(self.partitions) if shard_of(twinlog_run.MIRROR, TOPIC, p, self.log.shards) in mine}


async def changes(stage: Stage, partitions: int) -> dict[str, float]:
    """A second worker comes, ends in order, comes again and is killed; seconds of everything."""
    async with stage.source_topic(TOPIC, partitions), stage.targets({TOPIC: partitions}):
        log = await twinlog_run.start_topics(stage, [TOPIC])
        image = await log.load(to_stable=True)
        following = asyncio.create_task(log.follow(image, lambda *_: None))
        owners, seen = Owners(log, image, partitions), Watch(stage, partitions)
        try:
            with twinlog_run.worker(stage.kafkas[1]):
                async with seen.running():
                    return await _scenes(stage, owners, seen, range(partitions))
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


async def _scenes(stage: Stage, owners: Owners, seen: Watch, everyone: range) -> dict[str, float]:
    begun = time.perf_counter()
    await _until(lambda: seen.all_moved_since(everyone, begun), "the first worker mirrors everything")
    await asyncio.sleep(JOINED_S / 2)
    found: dict[str, float] = {}
    for scene, number in (("handover", signal.SIGTERM), ("takeover", signal.SIGKILL)):
        with twinlog_run.worker(stage.kafkas[1]) as second:
            moved, joined = await _join(owners, seen, everyone, second.pid)
            ended = time.perf_counter()
            os.kill(second.pid, number)
            await _end(owners, seen, moved, second.pid)
            await asyncio.sleep(1.0)
        found = {
            **joined,
            **found,
            f"{scene}_moved_pause": seen.longest_pause_s(moved, ended),
            f"{scene}_others_pause": seen.longest_pause_s(set(everyone) - moved, ended),
        }
    return found


async def _join(owners: Owners, seen: Watch, everyone: range, pid: int) -> tuple[set[int], dict[str, float]]:
    """Wait until a newcomer has its share; which partitions those are, and how long everything took."""
    began = time.perf_counter()
    await _until(lambda: len(owners.of(pid)) >= FAIR * len(everyone) / 2, "the second worker takes its share")
    taken = time.perf_counter()
    await asyncio.sleep(JOINED_S / 2)
    moved = owners.of(pid)
    return moved, {
        "join": taken - began,
        "join_moved_pause": seen.longest_pause_s(moved, began),
        "join_others_pause": seen.longest_pause_s(set(everyone) - moved, began),
    }


async def _end(owners: Owners, seen: Watch, moved: set[int], pid: int) -> None:
    """Wait until others have what a worker had, and mirror it."""
    await _until(lambda: not owners.of(pid), "its partitions are taken over")
    back = time.perf_counter()
    await _until(lambda: seen.all_moved_since(moved, back), "its partitions move again")


async def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.perf_counter() + TIMEOUT_S
    while not condition():
        if time.perf_counter() > deadline:
            raise TimeoutError(f"Not within {TIMEOUT_S:.0f} s: {what}.")
        await asyncio.sleep(SAMPLE_S)


async def measure(stage: Stage) -> dict[str, Any]:
    """Throughput with one, two and four, then the changes."""
    found: dict[str, Any] = {"throughput": {}}
    for workers in COUNTS:
        found["throughput"][str(workers)] = told = await throughput(stage, LOAD, workers)
        print(f"  {workers} workers: {told['mb_per_second']:.1f} MB/s", flush=True)
    found["seconds"] = await changes(stage, LOAD.partitions)
    for name, seconds in found["seconds"].items():
        print(f"  {name.replace('_', ' ')}: {seconds:.2f} s", flush=True)
    return found
