"""Soak: copies killed and frozen at random, in every mode and stage, and the brokers of both sides restarted.

| test              | covers                                                                          | minutes |
|-------------------|---------------------------------------------------------------------------------|---------|
| killed            | SIGKILL 100 times at random moments: direct, proxy, each stage of two apart      | 3 each  |
| instances sharing | three of direct mode at four shares: any is killed and started again, 30 times    | 3      |
| two by mistake    | two processes of one name, SIGSTOP and SIGCONT at random; who ends is started anew | 10 each |
| brokers           | one at the source, three at the destination: stopped in order or killed, 12 times | 5 each  |

A reader with nothing of the copy's own code counts every record by where it is from. Scales with TWINLOG_SOAK_SCALE.
"""

import random
import signal
import time
from pathlib import Path
from typing import Final

import pytest
from tests.real.reo_copies import PARTITIONS, WAYS, Copy, Flow, Scene, kill_again_and_again
from tests.soak.soaking import Soak, scaled, scaled_s

from twinlog.testing.kafka import LocalKafka

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

TOPIC: Final = "copied"
KILLS: Final = 100
BROKER_RESTARTS: Final = 12
SHARING_KILLS: Final = 30
ARRIVES_WITHIN_S: Final = 300.0
# Frozen for longer than the destination keeps a transaction open: it is then ended there, and the copy must notice.
SHORT_TRANSACTIONS: Final = {"TRANSACTION_TIMEOUT_MS": "15000"}
LONGEST_FREEZE_S: Final = 22.0

VICTIMS: Final = {"direct": ("direct", 0), "proxy": ("proxy", 0), "stage 1": ("apart", 0), "stage 2": ("apart", 1)}
"""Which way of copying is run, and which of its processes is killed."""


def assert_copied(soak: Soak, scene: Scene, flow: Flow) -> None:
    """Nothing lost, nothing twice, in order; counts the records."""
    soak.note("records", scene.assert_each_once(flow, within_s=ARRIVES_WITHIN_S))


@pytest.mark.parametrize("victim", VICTIMS)
def test_copies_killed_100_times(victim: str, tmp_path: Path) -> None:
    """At random moments, also while they begin; the other stage, where there is one, goes on meanwhile."""
    way, at = VICTIMS[victim]
    with (
        Soak(f"{victim} killed") as soak,
        LocalKafka() as source,
        LocalKafka() as destination,
        Scene(source, destination, TOPIC, tmp_path) as scene,
    ):
        copies = scene.begin_way(way)
        with scene.flow(per_second=1_000) as flow:
            soak.note("kills", kill_again_and_again([copies[at]], random.Random(victim), times=scaled(KILLS)))
        assert_copied(soak, scene, flow)


def test_instances_that_share_killed_at_random(tmp_path: Path) -> None:
    """Direct mode: shares move from the dead to the living and to those that come back; one transaction each."""
    with (
        Soak("three of direct sharing, killed") as soak,
        LocalKafka() as source,
        LocalKafka() as destination,
        Scene(source, destination, TOPIC, tmp_path) as scene,
    ):
        copies = [scene.begin("--shares 4") for _ in range(3)]
        with scene.flow(per_second=400) as flow:
            kills = kill_again_and_again(copies, random.Random("sharing"), times=scaled(SHARING_KILLS), longest_s=8.0)
            soak.note("kills", kills)
        assert_copied(soak, scene, flow)


@pytest.mark.parametrize("way", ["direct", "proxy"])
def test_two_copies_by_mistake_frozen_and_thawed_at_random(way: str, tmp_path: Path) -> None:
    """Each is stopped for up to longer than its transactions live; one that ends is started again at random."""
    chance = random.Random(way)
    with (
        Soak(f"two of {way}, frozen at random") as soak,
        LocalKafka() as source,
        LocalKafka() as destination,
        Scene(source, destination, TOPIC, tmp_path) as scene,
    ):
        both = [scene.begin(WAYS[way][0], **SHORT_TRANSACTIONS) for _ in range(2)]
        with scene.flow(per_second=400) as flow:
            ends_at = time.monotonic() + scaled_s(600)
            while time.monotonic() < ends_at:
                disturb(soak, chance.choice(both), chance)
        for copy in both:
            copy.send(signal.SIGCONT)
        if not any(copy.alive for copy in both):
            both[0].start(**SHORT_TRANSACTIONS)
        assert_copied(soak, scene, flow)


def disturb(soak: Soak, copy: Copy, chance: random.Random) -> None:
    """Start it if it has ended; else freeze it for a while, and thaw it."""
    if not copy.alive:
        assert copy.process is None or copy.process.returncode == 1, copy.text()
        soak.note("ends of the one that was taken over from")
        time.sleep(chance.uniform(0.0, 3.0))
        copy.start(**SHORT_TRANSACTIONS)
        time.sleep(chance.uniform(0.0, 3.0))
        return
    copy.send(signal.SIGSTOP)
    time.sleep(chance.choice([0.1, 1.0, 5.0, LONGEST_FREEZE_S]) * chance.uniform(0.5, 1.0))
    copy.send(signal.SIGCONT)
    soak.note("freezes")
    time.sleep(chance.uniform(0.0, 2.0))


@pytest.mark.parametrize("way", ["direct", "proxy"])
def test_brokers_of_both_sides_restarted(way: str, tmp_path: Path) -> None:
    """In order or by SIGKILL, the next one at once or a little later; the copy stays, and goes on by itself."""
    chance = random.Random(way)
    with (
        Soak(f"{way}, brokers restarted") as soak,
        LocalKafka() as source,
        LocalKafka(3) as destination,
        Scene(source, destination, TOPIC, tmp_path) as scene,
    ):
        copies = scene.begin_way(way)
        with scene.flow(per_second=400) as flow:
            for _ in range(scaled(BROKER_RESTARTS)):
                kafka = chance.choice([source, destination, destination])
                number = chance.choice(list(kafka.brokers))
                if chance.random() < 0.5:
                    kafka[number].kill()
                    time.sleep(chance.uniform(0.0, 5.0))
                kafka.restart(number)
                soak.note("restarts of brokers")
                time.sleep(chance.uniform(0.0, 8.0))
        assert_copied(soak, scene, flow)
        assert [copy.alive for copy in copies] == [True] * len(copies), copies[0].text()
        soak.note("partitions", PARTITIONS)
