"""Soak: brokers of either side killed, paused, restarted, moved, or all away.

| test              | covers                                                                             | minutes |
|-------------------|------------------------------------------------------------------------------------|---------|
| leaders die       | 3 brokers, RF 3, min ISR 2: one is killed, stopped or paused, every other time the | 12      |
|                   | coordinator of a worker's or a partition's transactional id; leaders move; the     |         |
|                   | source's broker and workers die, too; blanks in short and long runs all the time   |         |
| one away for 60 s | 64 partitions under load, one of three brokers killed, back after 60 s, ten times  | 15      |
| all away          | every broker of the destination down for half a minute, and for ten minutes        | 12      |
| leaderless        | a partition's only replica is away, on either side: no tight loop, others go on    | 4       |
| reassigned        | all replicas of a partition move to other brokers, on either side, ten times       | 3       |

All of it scales with TWINLOG_SOAK_SCALE.
"""

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psutil
import pytest
from tests.real.brokers import coordinator_of, hurt, reassign
from tests.real.faults import Ends, FaultyMirror, Ticker, elect_leaders, until, wait_progress
from tests.soak.soaking import Soak, scaled, scaled_s

from twinlog.names import TopicPartition
from twinlog.testing.data import EVERYTHING_ALLOWED
from twinlog.testing.kafka import PROXIED, LocalKafka
from twinlog.testing.load import Flow
from twinlog.testing.proxy import Direction
from twinlog.wire.cluster import Cluster

pytestmark = [pytest.mark.soak, pytest.mark.timeout(2400)]

PARTITIONS = 6
TOPIC = "soaked"
ABORTED_RUN = 12_000
# A broker that returns first has to be in sync again, then its partitions' takeovers follow.
CAUGHT_UP_S = 60.0
# Partitions that are led elsewhere may notice a dead broker for so long; and where it coordinates the lease of their
# worker, which runs out after 3 s, until the controller has given the broker up (`broker.session.timeout.ms`, 4 s).
LED_ELSEWHERE_S, WITHOUT_COORDINATOR_S = 5.0, 9.0
# While a partition has no leader: of one core, and bytes of requests a second to all brokers of a side.
IDLE_CPU, IDLE_BYTES_PER_S = 0.3, 20_000


def start(mirror: FaultyMirror, partitions: int = PARTITIONS) -> None:
    """One topic, mirroring."""
    mirror.create(TOPIC, partitions=partitions)
    mirror.start(TOPIC)
    mirror.wait_mirroring(TOPIC, partitions)


def test_leaders_and_coordinators_die_freeze_and_move_under_transactions() -> None:
    """One broker at a time, so that two in-sync replicas remain; the source and workers are killed in between."""
    rng = random.Random(3)
    with (
        Soak("leaders and coordinators of three brokers") as soak,
        LocalKafka() as source,
        LocalKafka(3) as destination,
        FaultyMirror(source, destination, workers=2) as mirror,
    ):
        start(mirror)
        ends_at = time.monotonic() + scaled_s(720, least=100)
        with Flow(source, TOPIC, seed=3, records_per_second=500, aborted_run=ABORTED_RUN):
            while time.monotonic() < ends_at:
                soak.note(f"brokers {hurt(destination, victim(mirror, rng, soak), rng)}")
                if rng.random() < 0.33:
                    rng.choice([w for w in mirror.workers if w.alive]).kill()
                    mirror.start_worker()
                    soak.note("workers killed")
                if rng.random() < 0.2:
                    source[1].kill()
                    time.sleep(rng.uniform(0.0, 5.0))
                    source[1].start()
                    source.wait_ready()
                    soak.note("kills of the source's broker")
                destination.wait_ready()
                wait_progress(mirror, TOPIC)
                elect_leaders(destination)
        assert soak.assert_twins(mirror, TOPIC) > 0


def victim(mirror: FaultyMirror, rng: random.Random, soak: Soak) -> int:
    """A broker by chance, or the coordinator of a worker's lease or of a partition's long runs."""
    if rng.random() < 0.5:
        return rng.choice(list(mirror.destination.brokers))
    ids = [f"twinlog-fill-{mirror.name}-{TOPIC}-{rng.randrange(PARTITIONS)}"]
    ids += [f"twinlog-worker-{worker}" for worker, pid in mirror.pids().items() if pid in alive_pids(mirror)]
    soak.note("of them coordinators")
    return coordinator_of(mirror, rng.choice(ids))


def lease_coordinators(mirror: FaultyMirror) -> set[int]:
    """The brokers that coordinate the workers' leases."""
    alive = alive_pids(mirror)
    return {coordinator_of(mirror, f"twinlog-worker-{worker}") for worker, pid in mirror.pids().items() if pid in alive}


def alive_pids(mirror: FaultyMirror) -> set[int]:
    """The processes of the workers that run."""
    return {worker.pid for worker in mirror.workers if worker.alive}


def test_one_broker_away_for_60_s_again_and_again() -> None:
    """Partitions led elsewhere hardly notice; all have caught up within a minute of its return."""
    rng = random.Random(60)
    away_s = scaled_s(60, least=15)
    with (
        Soak("one of three brokers away") as soak,
        LocalKafka() as source,
        LocalKafka(3) as destination,
        FaultyMirror(source, destination, workers=2) as mirror,
    ):
        start(mirror, 64)
        with (
            Flow(source, TOPIC, seed=60, records_per_second=2000) as flow,
            Ticker(source, TOPIC, 64, every_s=0.2),
            Ends(mirror, TOPIC, every_s=0.2) as ends,
        ):
            until(lambda: all(map(mirror.shards_of, mirror.workers)), timeout_s=60, what="both workers own shards")
            for _ in range(scaled(10, least=2)):
                wait_progress(mirror, TOPIC)
                number = rng.choice(list(destination.brokers))
                bound_s = WITHOUT_COORDINATOR_S if number in lease_coordinators(mirror) else LED_ELSEWHERE_S
                elsewhere = [p for p, leader in mirror.leaders(TOPIC).items() if leader != number]
                began = time.monotonic()
                destination[number].kill()
                time.sleep(away_s)
                soak.note("kills")
                pause_s = max(ends.longest_pause_s(p, since=began) for p in elsewhere)
                note_most(soak, f"ms stood those led elsewhere still ({bound_s:g} s are allowed)", pause_s)
                assert pause_s < bound_s
                destination[number].start()
                destination.wait_ready()
                back = time.monotonic()
                wait_progress(mirror, TOPIC, timeout_s=CAUGHT_UP_S)
                note_most(soak, "ms at most until all moved again", time.monotonic() - back)
                elect_leaders(destination)
            assert flow.acknowledged > 0
        soak.assert_twins(mirror, TOPIC)


def note_most(soak: Soak, what: str, seconds: float) -> None:
    """Keep the longest, in milliseconds."""
    soak.done[what] = max(soak.done[what], round(seconds * 1000))


@pytest.mark.parametrize("minutes", [0.5, 10.0])
def test_all_brokers_of_the_destination_away(minutes: float) -> None:
    """The worker stays, does not spin meanwhile, and goes on by itself when they are back."""
    with (
        Soak(f"all brokers away for {minutes} min") as soak,
        LocalKafka() as source,
        LocalKafka(3) as destination,
        FaultyMirror(source, destination) as mirror,
    ):
        start(mirror)
        with Flow(source, TOPIC, seed=30, records_per_second=200) as flow:
            wait_progress(mirror, TOPIC)
            for broker in destination.brokers.values():
                broker.kill()
            with cpu_below(IDLE_CPU, mirror.workers[0].pid, soak):
                time.sleep(scaled_s(minutes * 60))
            lines = mirror.workers[0].log_text().count("\n")
            for broker in destination.brokers.values():
                broker.start()
            destination.wait_ready()
            began = time.monotonic()
            wait_progress(mirror, TOPIC)
            soak.note("ms until all moved again", round(1000 * (time.monotonic() - began)))
            soak.note("lines logged until then", lines)
        assert soak.assert_twins(mirror, TOPIC) == flow.acknowledged
        assert mirror.workers[0].alive


@contextmanager
def cpu_below(share: float, pid: int, soak: Soak) -> Iterator[None]:
    """What a process uses of one core meanwhile stays below `share`."""
    process = psutil.Process(pid)
    before, began = process.cpu_times(), time.monotonic()
    resident = process.memory_info().rss
    yield
    used = sum(process.cpu_times()[:2]) - sum(before[:2])
    took = used / (time.monotonic() - began)
    soak.note("‰ of a core used meanwhile", round(1000 * took))
    soak.note("KiB more memory held after it", max(0, process.memory_info().rss - resident) >> 10)
    assert took < share, f"{took:.2f} of a core"


def test_a_partition_without_a_leader_is_waited_for_without_haste() -> None:
    """On either side: bounded requests, hardly any CPU, others do not stand still, and it goes on by itself."""
    with (
        Soak("no leader") as soak,
        LocalKafka(3, proxied=True) as source,
        LocalKafka(3, proxied=True) as destination,
        FaultyMirror(
            source,
            destination,
            source_address=source.bootstrap_of(PROXIED),
            destination_address=destination.bootstrap_of(PROXIED),
        ) as mirror,
    ):
        for topic, copies in (("fragile-source", (1, 3)), ("fragile-destination", (3, 1)), (TOPIC, (3, 3))):
            create_with_copies(mirror, topic, copies)
            mirror.start(topic)
            mirror.wait_mirroring(topic, PARTITIONS)
        for cluster, fragile in ((source, "fragile-source"), (destination, "fragile-destination")):
            with Flow(source, fragile, seed=1, records_per_second=50), Ticker(source, TOPIC, PARTITIONS):
                wait_progress(mirror, fragile)
                away_and_back(mirror, cluster, soak)
                wait_progress(mirror, TOPIC)
        for topic in ("fragile-source", "fragile-destination", TOPIC):
            soak.assert_twins(mirror, topic)


def create_with_copies(mirror: FaultyMirror, topic: str, copies: Sequence[int]) -> None:
    """A topic on both sides, with so many replicas on each."""
    for cluster, count in zip((mirror.source, mirror.destination), copies, strict=True):
        config = {**EVERYTHING_ALLOWED, "min.insync.replicas": "1" if count == 1 else "2"}
        cluster.create_topic(topic, PARTITIONS, replication_factor=count, config=config)
    mirror.watched.add(topic)


def away_and_back(mirror: FaultyMirror, cluster: LocalKafka, soak: Soak) -> None:
    """Kill a broker that nobody can stand in for; once the others lead what they can, look at what the worker does."""
    number = max(cluster.brokers)
    cluster[number].kill()
    wait_progress(mirror, TOPIC)
    sent = request_bytes(cluster)
    began = time.monotonic()
    with Ends(mirror, TOPIC) as ends, cpu_below(IDLE_CPU, mirror.workers[0].pid, soak):
        time.sleep(scaled_s(60, least=15))
        pause = max(ends.longest_pause_s(p, since=began) for p in range(PARTITIONS))
    rate = (request_bytes(cluster) - sent) / (time.monotonic() - began)
    soak.note("bytes of requests a second meanwhile", round(rate))
    assert rate < IDLE_BYTES_PER_S
    assert pause < LED_ELSEWHERE_S, f"another partition stood still for {pause:.1f} s"
    cluster[number].start()
    cluster.wait_ready()


def request_bytes(cluster: LocalKafka) -> int:
    """What was sent to all brokers through their proxies so far."""
    return sum(proxy.passed_bytes(Direction.REQUESTS) for proxy in cluster.proxy)


def test_all_replicas_of_a_partition_move_to_other_brokers() -> None:
    """Not taken for a deleted topic, though the old leader no longer knows the partition."""
    rng = random.Random(57)
    with (
        Soak("reassigned") as soak,
        LocalKafka(3) as source,
        LocalKafka(3) as destination,
        FaultyMirror(source, destination) as mirror,
    ):
        create_with_copies(mirror, TOPIC, (1, 1))
        mirror.start(TOPIC)
        mirror.wait_mirroring(TOPIC, PARTITIONS)
        with Flow(source, TOPIC, seed=57, records_per_second=500):
            for _ in range(scaled(10, least=2)):
                for side in mirror.clusters:
                    move_elsewhere(mirror, side, TopicPartition(TOPIC, rng.randrange(PARTITIONS)), rng)
                    wait_progress(mirror, TOPIC)
                    soak.note("moves")
                    assert not mirror.failed(TOPIC)
        soak.assert_twins(mirror, TOPIC)


def move_elsewhere(mirror: FaultyMirror, side: Cluster, where: TopicPartition, rng: random.Random) -> None:
    """Move a partition's only replica to another broker, and wait until it is there."""

    def replicas() -> list[int]:
        return list(mirror.run(side.topics([where.topic]))[where.topic].partitions[where.partition].replicas)

    wanted = rng.choice([number for number in mirror.destination.brokers if number not in replicas()])
    mirror.run(side.call(reassign(side, where, [wanted]), node=Cluster.CONTROLLER))
    mirror.wait_for(lambda: replicas() == [wanted], lambda: f"{where} is on {replicas()}", 60)
