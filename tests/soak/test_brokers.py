"""Soak: brokers of the destination killed, paused, restarted or all away, and the network at its worst.

| test              | covers                                                                        | minutes |
|-------------------|-------------------------------------------------------------------------------|---------|
| leaders die       | 3 brokers, RF 3, min ISR 2: one at a time is killed, stopped or paused, under | 10      |
|                   | transactions; leaders move; workers are killed, too                           |         |
| all away for 30 s | every broker of the destination down, three times                             | 3       |
| network           | 200 times answers to appends are swallowed, 100 random faults of either side  | 15      |
"""

import random
import time

import pytest
from tests.real.faults import FaultyMirror, disturb, elect_leaders, wait_progress

from twinlog.testing.kafka import PROXIED, LocalKafka
from twinlog.testing.load import Flow

pytestmark = [pytest.mark.soak, pytest.mark.timeout(2400)]

PARTITIONS = 6
TOPIC = "soaked"


def start(mirror: FaultyMirror) -> None:
    """One topic, mirroring."""
    mirror.create(TOPIC, partitions=PARTITIONS)
    mirror.start(TOPIC)
    mirror.wait_mirroring(TOPIC, PARTITIONS)


def test_leaders_and_coordinators_die_freeze_and_move_under_transactions() -> None:
    """One broker at a time, so that two in-sync replicas remain; every third time a worker is killed meanwhile."""
    rng = random.Random(3)
    with (
        LocalKafka() as source,
        LocalKafka(3) as destination,
        FaultyMirror(source, destination, workers=2) as mirror,
    ):
        start(mirror)
        ends_at = time.monotonic() + 600
        with Flow(source, TOPIC, seed=3, records_per_second=500) as flow:
            while time.monotonic() < ends_at:
                hurt(destination, rng)
                if rng.random() < 0.33:
                    rng.choice([w for w in mirror.workers if w.alive]).kill()
                    mirror.start_worker()
                destination.wait_ready()
                wait_progress(mirror, TOPIC)
                elect_leaders(destination)
        assert mirror.assert_twins(TOPIC) == flow.acknowledged


def hurt(cluster: LocalKafka, rng: random.Random) -> None:
    """Kill, stop or pause one broker, and bring it back after some seconds."""
    broker = cluster[rng.choice(list(cluster.brokers))]
    match rng.choice(["kill", "stop", "pause", "pause"]):
        case "kill":
            broker.kill()
            time.sleep(rng.uniform(0.0, 8.0))
            broker.start()
        case "stop":
            broker.stop()
            time.sleep(rng.uniform(0.0, 8.0))
            broker.start()
        case "pause":
            broker.pause()
            time.sleep(rng.uniform(0.2, 12.0))
            broker.resume()


def test_all_brokers_of_the_destination_away_for_30_s() -> None:
    """The worker stays, and goes on by itself when they are back."""
    with (
        LocalKafka() as source,
        LocalKafka(3) as destination,
        FaultyMirror(source, destination) as mirror,
    ):
        start(mirror)
        with Flow(source, TOPIC, seed=30, records_per_second=500) as flow:
            for _ in range(3):
                wait_progress(mirror, TOPIC)
                for broker in destination.brokers.values():
                    broker.kill()
                time.sleep(30)
                for broker in destination.brokers.values():
                    broker.start()
                destination.wait_ready()
                began = time.monotonic()
                wait_progress(mirror, TOPIC)
                print(f"everything moves again {time.monotonic() - began:.1f} s after the brokers are back")
        assert mirror.assert_twins(TOPIC) == flow.acknowledged
        assert mirror.workers[0].alive


def test_network_at_its_worst() -> None:
    """200 times the answers to appends are swallowed and the connections cut; then any fault at any byte."""
    rng = random.Random(200)
    with (
        LocalKafka(proxied=True) as source,
        LocalKafka(proxied=True) as destination,
        FaultyMirror(
            source,
            destination,
            source_address=source.bootstrap_of(PROXIED),
            destination_address=destination.bootstrap_of(PROXIED),
        ) as mirror,
    ):
        start(mirror)
        with Flow(source, TOPIC, seed=200, records_per_second=600) as flow:
            for turn in range(200):
                destination.proxy[1].swallow(after_bytes=rng.randrange(1, 5_000))
                time.sleep(rng.uniform(0.05, 1.0))
                destination.proxy[1].resume()
                time.sleep(rng.uniform(0.0, 3.0))
                if turn % 20 == 0:
                    wait_progress(mirror, TOPIC)
            for _ in range(100):
                disturb(rng.choice([source, destination]).proxy[1], rng)
                time.sleep(rng.uniform(0.0, 2.0))
            wait_progress(mirror, TOPIC)
        assert mirror.assert_twins(TOPIC) == flow.acknowledged
