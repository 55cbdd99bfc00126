"""Soak: many workers and many topics, with what they took.

| test               | covers                                                                            | minutes |
|--------------------|-----------------------------------------------------------------------------------|---------|
| 1, 2 and 4 workers | 64 partitions under load: how evenly they are shared, how long joining, leaving    | 3       |
|                    | and taking over take, what those notice that stay                                  |         |
| 500 topics at once | 500 topics of 6 partitions started by one command, in memory and in time; then a   | 3       |
|                    | second worker takes its half of them                                               |         |
"""

import asyncio
import time
from collections import Counter

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.real.faults import FaultyMirror, Ticker, until, wait_progress
from tests.real.lags import Lags
from tests.real.mirroring import Worker
from tests.soak.soaking import FIGURES

from twinlog.admin.mirrors import MirrorAdmin
from twinlog.config.client import ClientSettings
from twinlog.control.lifecycle import PartitionState
from twinlog.testing.checker import assert_identical
from twinlog.testing.kafka import LocalKafka
from twinlog.testing.load import Flow

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

TOPIC, PARTITIONS = "shared", 64
# What each of so many workers may have of 64 partitions, whichever way the group cuts the shards.
MOST = {1: 64, 2: 36, 3: 26, 4: 21}
JOINED_S, HANDED_OVER_S, REPLACED_S, UNDISTURBED_S = 15.0, 6.0, 15.0, 1.0

TOPICS, PARTITIONS_EACH = 500, 6
ALL = TOPICS * PARTITIONS_EACH
MIRRORING_S = 120.0
# 3,000 partitions: about 15 KB each above what an empty worker has.
MOST_MB = 160.0
# Half of 3,000 partitions taken over at once.
SECOND_TAKES_S = 30.0


def test_1_2_and_4_workers_share_64_partitions_evenly() -> None:
    """Up from one to four, down in order, and a death: each within its bound, and nobody else notices."""
    with (
        LocalKafka() as source,
        LocalKafka() as destination,
        FaultyMirror(source, destination) as mirror,
    ):
        mirror.create(TOPIC, partitions=PARTITIONS)
        mirror.start(TOPIC)
        mirror.wait_mirroring(TOPIC, PARTITIONS)
        with (
            Flow(source, TOPIC, seed=64, records_per_second=300, transactions=False),
            Ticker(source, TOPIC, PARTITIONS),
            Lags(mirror, TOPIC) as lags,
        ):
            wait_progress(mirror, TOPIC)
            time.sleep(3)
            for workers in (2, 3, 4):
                _change(mirror, lags, f"worker {workers} joins", workers)
            _change(mirror, lags, "one of four ends", 3)
            _change(mirror, lags, "it joins again", 4)
            _change(mirror, lags, "one of four is killed", 3, kill=True)
        mirror.assert_twins(TOPIC)


def _change(mirror: FaultyMirror, lags: Lags, what: str, workers: int, *, kill: bool = False) -> None:
    """Bring the team to so many workers, and judge how the partitions fare that move and that do not."""
    before = _by_worker(mirror)
    began = time.monotonic()
    alive = [worker for worker in mirror.workers if worker.alive]
    if workers > len(alive):
        mirror.start_worker()
    elif kill:
        alive[0].kill()
    else:
        assert alive[0].stop(timeout_s=12) == 0
    until(lambda: _shared_by(mirror, workers), timeout_s=60, what=f"{what}: {workers} workers share all partitions")
    took_s = time.monotonic() - began
    wait_progress(mirror, TOPIC)
    owner_before, owner_after = before, _by_worker(mirror)
    moved = [p for p in range(PARTITIONS) if owner_before[p] != owner_after[p]]
    stayed = [p for p in range(PARTITIONS) if owner_before[p] == owner_after[p]]
    moved_s = max(lags.rise_s(p, since=began) for p in moved)
    stayed_s = max(lags.rise_s(p, since=began) for p in stayed)
    counts = sorted(Counter(owner_after.values()).values())
    FIGURES.append(
        f"{what}: shared within {took_s:.1f} s as {counts}; lag of {len(moved)} that moved rose by {moved_s:.1f} s, of "
        f"{len(stayed)} that stayed by {stayed_s:.1f} s"
    )
    print(FIGURES[-1])
    assert stayed_s < UNDISTURBED_S
    assert took_s < JOINED_S + (REPLACED_S if kill else 0)
    assert moved_s < (REPLACED_S if kill else HANDED_OVER_S)
    time.sleep(6)


def _by_worker(mirror: FaultyMirror) -> dict[int, str]:
    return mirror.owners(TOPIC, PARTITIONS)


def _shared_by(mirror: FaultyMirror, workers: int) -> bool:
    """Whether so many workers own all, none of them much more than the others."""
    alive = {worker.pid for worker in mirror.workers if worker.alive}
    names = {name for name, pid in mirror.pids().items() if pid in alive}
    counts = Counter(_by_worker(mirror).values())
    complete = sum(counts.values()) == PARTITIONS and counts.keys() == names and len(names) == workers
    return complete and max(counts.values()) <= MOST[workers]


def test_500_topics_are_mirroring_within_two_minutes_of_one_command() -> None:
    """From the command to the last partition; then a second worker takes half, and everything is identical."""
    with LocalKafka() as source, LocalKafka() as destination:
        _fill(source)
        settings = ClientSettings.from_properties({}, bootstrap=destination.bootstrap, origin="test")
        workers = [Worker(destination.bootstrap)]
        try:
            workers[0].wait_running()
            asyncio.run(_start(settings, source.bootstrap, workers[0]))
            workers.append(Worker(destination.bootstrap))
            asyncio.run(_second_takes_its_half(settings, workers))
            assert all(worker.resident_mb() < MOST_MB for worker in workers)
        finally:
            for worker in workers:
                if worker.alive:
                    worker.stop()
                worker.log_path.unlink()
        for number in range(0, TOPICS, 25):
            assert assert_identical(source, destination, _name(number)).source_records == PARTITIONS_EACH


def _name(number: int) -> str:
    return f"many-{number:03}"


def _fill(kafka: LocalKafka) -> None:
    """All topics, with a record in each partition."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for first in range(0, TOPICS, 100):
        topics = [NewTopic(_name(number), PARTITIONS_EACH, 1) for number in range(first, first + 100)]
        for created in admin.create_topics(topics).values():
            created.result(60)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(TOPICS):
        for partition in range(PARTITIONS_EACH):
            producer.produce(_name(number), b"x" * 100, partition=partition)
        producer.poll(0)
    assert producer.flush(60) == 0


async def _start(settings: ClientSettings, source: str, worker: Worker) -> None:
    async with await MirrorAdmin.connect(settings) as admin:
        await admin.create_mirror("m", {"bootstrap.servers": source})
        began = time.monotonic()
        result = await admin.start_mirror_topics("m", ["many-.*"])
        command_s, peak_mb = time.monotonic() - began, 0.0
        assert (len(result.started), result.failed) == (TOPICS, {})
        while await _mirroring(admin) < ALL:
            peak_mb = max(peak_mb, worker.resident_mb())
            assert time.monotonic() - began < MIRRORING_S
            await asyncio.sleep(0.5)
        peak_mb = max(peak_mb, worker.resident_mb())
    took_s = time.monotonic() - began
    FIGURES.append(
        f"{TOPICS} topics of {PARTITIONS_EACH} partitions: the command took {command_s:.1f} s, all were mirroring "
        f"after {took_s:.1f} s, the worker had {peak_mb:.0f} MB"
    )
    print(FIGURES[-1])
    assert took_s < MIRRORING_S
    assert peak_mb < MOST_MB


async def _mirroring(admin: MirrorAdmin) -> int:
    told = await admin.describe_mirrors()
    return sum(row.state is PartitionState.MIRRORING for row in told.partitions)


async def _second_takes_its_half(settings: ClientSettings, workers: list[Worker]) -> None:
    """Until the figures of all partitions are published by two workers, and fresh."""
    began = time.monotonic()
    async with await MirrorAdmin.connect(settings) as admin:
        while True:
            told = await admin.describe_mirrors()
            counts = Counter(row.worker for row in told.partitions)
            if len(counts) == 2 and min(counts.values()) > ALL // 3 and told.figures_age_ms < 4_000:
                break
            assert time.monotonic() - began < SECOND_TAKES_S, (counts, workers[1].log_text(20))
            await asyncio.sleep(0.5)
    took_s = time.monotonic() - began
    FIGURES.append(
        f"a second worker has taken its half of {ALL} partitions after {took_s:.1f} s: {sorted(counts.values())}"
    )
    print(FIGURES[-1])
