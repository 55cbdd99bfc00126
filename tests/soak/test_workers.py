"""Soak: workers killed and frozen at random while every kind of data flows, and while ownership moves.

| test                       | covers                                                                     | minutes |
|----------------------------|----------------------------------------------------------------------------|---------|
| killed 200 times           | SIGKILL of one of two workers, by chance in the middle of a takeover        | 20 to 30 |
| one worker at a time       | SIGKILL of the only worker, 30 times, with nobody to take over               | 8 to 12 |
| frozen and killed          | three workers, SIGSTOP of 0.1 to 15 s, SIGKILL: ownership moves all the time | 10      |
| frozen before a send       | 40 times a worker stops itself between the look at its lease and the send,   | 20      |
|                            | and its successor thaws it right before its own first markers                |         |
| rolling upgrade            | three workers replaced one after another, three times, under load            | 3       |

All of it scales with TWINLOG_SOAK_SCALE.
"""

import random
import threading
import time
from collections import Counter

import pytest
from tests.real.faults import Ends, FaultyMirror, Ticker, freeze, kill_workers, thaw, wait_progress
from tests.real.freezing import MARKERS_AND_DATA, Freezer, freezer
from tests.real.mirroring import Worker
from tests.soak.soaking import Soak, scaled, scaled_s

from twinlog.testing.data import EVERYTHING_ALLOWED
from twinlog.testing.kafka import LocalKafka
from twinlog.testing.load import Flow

pytestmark = [pytest.mark.soak, pytest.mark.timeout(4800)]

PARTITIONS = 24
TOPIC = "soaked"
# From `shared by two` to `moving again`: no partition may be idle for longer in a rolling upgrade.
IDLE_S = 20.0
# Enough for a long run of blanks, which goes by way of a transaction.
ABORTED_RUN = 12_000
# Each freeze may cost a partition, which is FAILED then; a topic is used for so many.
FREEZES_A_TOPIC = 4


def test_workers_killed_200_times_while_everything_flows() -> None:
    """Two at a time, a fresh one for each that was killed."""
    check_killing("workers killed at random", times=200, workers=2)


def test_the_only_worker_killed_30_times() -> None:
    """Nobody is there to take over; the next one starts while the group still waits for the dead one."""
    check_killing("the only worker killed", times=30, workers=1)


def check_killing(title: str, *, times: int, workers: int) -> None:
    """Kill so many times, scaled, while everything flows; both sides are twins afterwards."""
    rng = random.Random(times)
    with (
        Soak(title) as soak,
        LocalKafka() as source,
        LocalKafka() as destination,
        FaultyMirror(source, destination, workers=workers) as mirror,
    ):
        start(mirror)
        kills = scaled(times)
        with Flow(source, TOPIC, seed=times, records_per_second=600, aborted_run=ABORTED_RUN) as flow:
            kill_workers(mirror, TOPIC, rng, times=kills)
        soak.note("kills", kills)
        assert soak.assert_twins(mirror, TOPIC) == flow.acknowledged


def test_three_workers_frozen_and_killed_while_ownership_moves() -> None:
    """Each of three is stopped for 0.1 to 15 s or killed, independently of the others, for ten minutes."""
    with (
        Soak("three workers frozen and killed") as soak,
        LocalKafka() as source,
        LocalKafka() as destination,
        FaultyMirror(source, destination, workers=0) as mirror,
    ):
        mirror.start_worker()
        start(mirror)
        ends_at = time.monotonic() + scaled_s(600, least=60)
        with Flow(source, TOPIC, seed=15, records_per_second=600, aborted_run=ABORTED_RUN) as flow:
            threads = [threading.Thread(target=torment, args=(mirror, seed, ends_at, soak.done)) for seed in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            wait_progress(mirror, TOPIC)
        assert soak.assert_twins(mirror, TOPIC) == flow.acknowledged


def test_workers_frozen_between_the_look_at_the_lease_and_the_send() -> None:
    """What comes of it is FAILED where it is not identical: never silent, and no partition of another worker."""
    rng = random.Random(40)
    with (
        Soak("frozen before a send") as soak,
        LocalKafka() as source,
        LocalKafka() as destination,
        FaultyMirror(source, destination, workers=0) as mirror,
        freezer() as freezing,
    ):
        for _ in range(2):
            mirror.start_worker(freezing.script)
        for number in range(scaled(10, least=2)):
            # Of a compacted topic the comparison at a takeover forgives more; nothing is compacted within this time.
            policy = {"cleanup.policy": "compact" if number % 2 else "delete"}
            topic = f"{TOPIC}-{number}"
            mirror.create(topic, partitions=PARTITIONS, config={**EVERYTHING_ALLOWED, **policy})
            freeze_on_a_topic(mirror, freezing, topic, rng, soak)
        soak.note("freezes", freezing.frozen)
        soak.note("thawed by the successor before its markers", freezing.thawed_by_successor)
        assert freezing.thawed_by_successor > 0


def freeze_on_a_topic(mirror: FaultyMirror, freezing: Freezer, topic: str, rng: random.Random, soak: Soak) -> None:
    """Some freezes while a topic of its own is written to; then both sides are compared and the topic is stopped."""
    mirror.start(topic)
    mirror.wait_mirroring(topic, PARTITIONS)
    with Flow(mirror.source, topic, seed=rng.randrange(1000), records_per_second=400):
        for _ in range(FREEZES_A_TOPIC):
            victim = sender(mirror, topic, rng)
            if victim is not None and freezing.freeze_until_succeeded(victim, rng, MARKERS_AND_DATA):
                time.sleep(rng.uniform(3.0, 8.0))
    report = mirror.assert_twins_or_failed(topic)
    soak.note("records", report.source_records)
    soak.note("partitions FAILED", len(mirror.failed(topic)))
    soak.note("partitions with a difference, all FAILED", len(report.differing))
    mirror.stop(topic)


def sender(mirror: FaultyMirror, topic: str, rng: random.Random) -> Worker | None:
    """A worker that owns a partition of the topic which is not FAILED."""
    owners, pids, failed = mirror.owners(topic, PARTITIONS), mirror.pids(), set(mirror.failed(topic))
    owning = {pids.get(owner) for partition, owner in owners.items() if partition not in failed}
    return rng.choice([worker for worker in mirror.workers if worker.alive and worker.pid in owning] or [None])


def test_rolling_upgrade_of_all_workers_under_load() -> None:
    """Each of three workers is terminated and replaced, three times over: no partition is idle for more than 20 s."""
    with (
        Soak("rolling upgrade") as soak,
        LocalKafka() as source,
        LocalKafka() as destination,
        FaultyMirror(source, destination, workers=3) as mirror,
    ):
        start(mirror)
        with (
            Flow(source, TOPIC, seed=3, records_per_second=600),
            Ticker(source, TOPIC, PARTITIONS),
            Ends(mirror, TOPIC) as ends,
        ):
            began = time.monotonic()
            for _ in range(scaled(9, least=3)):
                oldest = next(worker for worker in mirror.workers if worker.alive)
                assert oldest.stop(timeout_s=12) == 0
                mirror.start_worker()
                wait_progress(mirror, TOPIC)
                soak.note("workers replaced")
                time.sleep(3)
            longest = max(ends.longest_pause_s(p, since=began) for p in range(PARTITIONS))
            soak.note("ms was the longest pause of a partition", round(longest * 1000))
            assert longest < IDLE_S
        soak.assert_twins(mirror, TOPIC)


def start(mirror: FaultyMirror) -> None:
    """One topic, mirroring."""
    mirror.create(TOPIC, partitions=PARTITIONS)
    mirror.start(TOPIC)
    mirror.wait_mirroring(TOPIC, PARTITIONS)


def torment(mirror: FaultyMirror, seed: int, ends_at: float, done: Counter[str]) -> None:
    """Freeze and thaw a worker of one's own, now and then kill it and begin with another."""
    rng = random.Random(seed)
    worker = mirror.start_worker()
    while time.monotonic() < ends_at:
        time.sleep(rng.uniform(0.5, 10.0))
        if rng.random() < 0.25:
            worker.kill()
            worker = mirror.start_worker()
            done["kills"] += 1
            continue
        freeze(worker)
        time.sleep(rng.choice([rng.uniform(0.1, 4.0), rng.uniform(4.0, 15.0)]))
        thaw(worker)
        done["freezes"] += 1
