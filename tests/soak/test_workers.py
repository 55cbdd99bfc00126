"""Soak: workers killed and frozen at random while every kind of data flows, and while ownership moves.

| test                       | covers                                                                     | minutes |
|----------------------------|----------------------------------------------------------------------------|---------|
| killed 200 times           | SIGKILL of one of two workers, by chance in the middle of a takeover        | 20 to 30 |
| one worker at a time       | SIGKILL of the only worker, 30 times, with nobody to take over               | 8 to 12 |
| frozen and killed          | three workers, SIGSTOP of 0.1 to 15 s, SIGKILL: ownership moves all the time | 10      |
| rolling upgrade            | three workers replaced one after another, three times, under load            | 3       |
"""

import random
import threading
import time

import pytest
from tests.real.faults import Ends, FaultyMirror, Ticker, freeze, kill_workers, thaw, wait_progress

from twinlog.testing.kafka import LocalKafka
from twinlog.testing.load import Flow

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

PARTITIONS = 8
TOPIC = "soaked"
# From `shared by two` to `moving again`: no partition may be idle for longer in a rolling upgrade.
IDLE_S = 20.0


def test_workers_killed_200_times_while_everything_flows() -> None:
    """Two at a time, a fresh one for each that was killed."""
    rng = random.Random(200)
    with (
        LocalKafka() as source,
        LocalKafka() as destination,
        FaultyMirror(source, destination, workers=2) as mirror,
    ):
        start(mirror)
        with Flow(source, TOPIC, seed=200, records_per_second=600) as flow:
            kill_workers(mirror, TOPIC, rng, times=200)
        assert mirror.assert_twins(TOPIC) == flow.acknowledged


def test_the_only_worker_killed_30_times() -> None:
    """Nobody is there to take over; the next one starts while the group still waits for the dead one."""
    rng = random.Random(30)
    with (
        LocalKafka() as source,
        LocalKafka() as destination,
        FaultyMirror(source, destination) as mirror,
    ):
        start(mirror)
        with Flow(source, TOPIC, seed=30, records_per_second=600) as flow:
            kill_workers(mirror, TOPIC, rng, times=30)
        assert mirror.assert_twins(TOPIC) == flow.acknowledged


def test_three_workers_frozen_and_killed_while_ownership_moves() -> None:
    """Each of three is stopped for 0.1 to 15 s or killed, independently of the others, for ten minutes."""
    with (
        LocalKafka() as source,
        LocalKafka() as destination,
        FaultyMirror(source, destination, workers=0) as mirror,
    ):
        mirror.start_worker()
        start(mirror)
        ends_at = time.monotonic() + 600
        with Flow(source, TOPIC, seed=15, records_per_second=600) as flow:
            threads = [threading.Thread(target=torment, args=(mirror, seed, ends_at)) for seed in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            wait_progress(mirror, TOPIC)
        assert mirror.assert_twins(TOPIC) == flow.acknowledged


def test_rolling_upgrade_of_all_workers_under_load() -> None:
    """Each of three workers is terminated and replaced, three times over: no partition is idle for more than 20 s."""
    with (
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
            for _ in range(9):
                oldest = next(worker for worker in mirror.workers if worker.alive)
                assert oldest.stop(timeout_s=12) == 0
                mirror.start_worker()
                wait_progress(mirror, TOPIC)
                time.sleep(3)
            longest = max(ends.longest_pause_s(p, since=began) for p in range(PARTITIONS))
            print(f"the longest pause of a partition was {longest:.1f} s")
            assert longest < IDLE_S
        mirror.assert_twins(TOPIC)


def start(mirror: FaultyMirror) -> None:
    """One topic, mirroring."""
    mirror.create(TOPIC, partitions=PARTITIONS)
    mirror.start(TOPIC)
    mirror.wait_mirroring(TOPIC, PARTITIONS)


def torment(mirror: FaultyMirror, seed: int, ends_at: float) -> None:
    """Freeze and thaw a worker of one's own, now and then kill it and begin with another."""
    rng = random.Random(seed)
    worker = mirror.start_worker()
    while time.monotonic() < ends_at:
        time.sleep(rng.uniform(0.5, 10.0))
        if rng.random() < 0.25:
            worker.kill()
            worker = mirror.start_worker()
            continue
        freeze(worker)
        time.sleep(rng.choice([rng.uniform(0.1, 4.0), rng.uniform(4.0, 15.0)]))
        thaw(worker)
