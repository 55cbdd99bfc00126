"""Workers and brokers die, freeze and lose their connections while every kind of data flows: both sides stay identical.

The independent checker compares them at the end of each test. The long versions are in `tests/soak`.
"""

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from tests.real.faults import FaultyMirror, disturb, kill_workers, wait_progress

from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.testing.data import EVERYTHING_ALLOWED
from twinlog.testing.kafka import PROXIED, LocalKafka
from twinlog.testing.load import Flow, Load

PARTITIONS = 4
SEED = 20


@pytest.mark.timeout(300)
def test_workers_killed_twenty_times_while_everything_flows(
    source: LocalKafka, destination: LocalKafka, topic: str
) -> None:
    """SIGKILL at random moments, some in the middle of a takeover, a fresh worker each time; two run at a time."""
    with FaultyMirror(source, destination, workers=2) as mirror:
        mirror.create(topic, partitions=PARTITIONS)
        mirror.start(topic)
        mirror.wait_mirroring(topic, PARTITIONS)
        with Flow(source, topic, seed=SEED, records_per_second=600) as flow:
            while_moving = kill_workers(mirror, topic, random.Random(SEED), times=20, longest_wait_s=2.0)
        assert while_moving > 5
        assert mirror.assert_twins(topic) == flow.acknowledged


@pytest.mark.timeout(300)
def test_destination_brokers_killed_and_paused_while_blanks_are_written(
    source: LocalKafka, destination3: LocalKafka, topic: str
) -> None:
    """Of three brokers (RF 3, min ISR 2) one is killed and started again, and one is paused, under transactions."""
    rng = random.Random(SEED)
    with FaultyMirror(source, destination3) as mirror:
        mirror.create(topic, partitions=PARTITIONS)
        mirror.start(topic)
        mirror.wait_mirroring(topic, PARTITIONS)
        with Flow(source, topic, seed=SEED, records_per_second=150) as flow:
            wait_progress(mirror, topic)
            victim = rng.choice(list(destination3.brokers))
            destination3[victim].kill()
            time.sleep(5)
            destination3[victim].start()
            destination3.wait_ready(brokers=[victim])
            wait_progress(mirror, topic)
            for _ in range(2):
                frozen = destination3[rng.choice([n for n in destination3.brokers if n != victim])]
                frozen.pause()
                time.sleep(rng.uniform(2, 6))
                frozen.resume()
                wait_progress(mirror, topic)
        assert mirror.assert_twins(topic) >= flow.acknowledged


@pytest.mark.timeout(180)
def test_clusters_go_away_and_come_back_under_load(source: LocalKafka, destination: LocalKafka, topic: str) -> None:
    """The only broker of a side is killed and comes back: the worker goes on by itself.

    A worker that is told to end meanwhile does so within 10 s, though it can hand nothing over, and fails nothing.
    """
    with FaultyMirror(source, destination) as mirror:
        mirror.create(topic, partitions=PARTITIONS)
        mirror.start(topic)
        mirror.wait_mirroring(topic, PARTITIONS)
        with Flow(source, topic, seed=SEED, records_per_second=300):
            for cluster, away_s, ends in ((source, 1.0, False), (destination, 6.0, False), (destination, 3.0, True)):
                wait_progress(mirror, topic)
                cluster[1].kill()
                time.sleep(away_s)
                began = time.monotonic()
                if ends:
                    mirror.stop_workers()
                    assert time.monotonic() - began < 10
                cluster[1].start()
                cluster.wait_ready()
                back = time.monotonic()
                if ends:
                    mirror.start_worker()
                mirror.wait_for(lambda: not failed(mirror, topic), lambda: str(failed(mirror, topic)), 1)
                wait_progress(mirror, topic)
                print(f"everything moves again {time.monotonic() - back:.1f} s after the broker is back")
            assert sum(worker.alive for worker in mirror.workers) == 1
        assert mirror.assert_twins(topic) > 0


def failed(mirror: FaultyMirror, topic: str) -> list[int]:
    """The partitions that are FAILED."""
    return [p for p, state in mirror.states(topic).items() if state is PartitionState.FAILED]


@pytest.fixture(scope="module")
def proxied() -> Iterator[tuple[LocalKafka, LocalKafka]]:
    """Two clusters of one broker, each behind a proxy."""
    with LocalKafka(proxied=True) as source, LocalKafka(proxied=True) as destination:
        yield source, destination


@contextmanager
def proxied_mirror(clusters: tuple[LocalKafka, LocalKafka], topic: str) -> Iterator[FaultyMirror]:
    """A running mirror that knows the proxies' addresses only."""
    addresses = [cluster.bootstrap_of(PROXIED) for cluster in clusters]
    with FaultyMirror(*clusters, source_address=addresses[0], destination_address=addresses[1]) as mirror:
        mirror.create(topic, partitions=PARTITIONS)
        mirror.start(topic)
        mirror.wait_mirroring(topic, PARTITIONS)
        yield mirror


def test_connections_cut_stalled_and_slowed_at_random(proxied: tuple[LocalKafka, LocalKafka], topic: str) -> None:
    """Between worker and source, and between worker and destination, at any byte."""
    rng = random.Random(SEED)
    source, destination = proxied
    with proxied_mirror(proxied, topic) as mirror:
        with Flow(source, topic, seed=SEED, records_per_second=500) as flow:
            for _ in range(10):
                disturb(rng.choice([source, destination]).proxy[1], rng)
                time.sleep(rng.uniform(0.0, 1.5))
            wait_progress(mirror, topic)
        assert mirror.assert_twins(topic) == flow.acknowledged


def test_answers_swallowed_and_then_the_connection_cut(proxied: tuple[LocalKafka, LocalKafka], topic: str) -> None:
    """Appends whose acknowledgement never comes are neither lost nor written twice, and need no restart."""
    rng = random.Random(SEED)
    source, destination = proxied
    with proxied_mirror(proxied, topic) as mirror:
        with Flow(source, topic, seed=SEED, records_per_second=800) as flow:
            for _ in range(4):
                destination.proxy[1].swallow(after_bytes=rng.randrange(1, 3_000))
                time.sleep(rng.uniform(0.1, 1.5))
                destination.proxy[1].resume()
                wait_progress(mirror, topic)
        assert mirror.assert_twins(topic) == flow.acknowledged


TWO = 2


@pytest.mark.timeout(180)
def test_topics_deleted_recreated_and_overtaken_are_failed_with_the_reason(
    source: LocalKafka, destination: LocalKafka, topic: str
) -> None:
    """Each kind of trouble fails its own topic only, says why, and stop works from there and with the source down."""
    names = {kind: f"{topic}-{kind}" for kind in ("fine", "dst-gone", "dst-new", "src-gone", "src-new", "overtaken")}
    with FaultyMirror(source, destination) as mirror:
        for name in names.values():
            mirror.create(name, partitions=TWO)
            fill(source, name)
            mirror.start(name)
        for name in names.values():
            mirror.wait_mirroring(name, TWO)
            mirror.assert_twins(name)
        delete(destination, names["dst-gone"])
        delete(source, names["src-gone"])
        for cluster, kind in ((destination, "dst-new"), (source, "src-new")):
            delete(cluster, names[kind])
            cluster.create_topic(names[kind], TWO, config=EVERYTHING_ALLOWED)
        fill(source, names["src-new"], 500)
        errors = {
            kind: mirror.wait_failed(names[kind], timeout_s=30) for kind in names if kind.endswith(("gone", "new"))
        }
        assert "destination topic is deleted" in errors["dst-gone"]
        assert "source topic is deleted" in errors["src-gone"]
        assert "destination topic was deleted and created again" in errors["dst-new"]
        assert "source topic was deleted and created again" in errors["src-new"]
        assert sum(mirror.ends(names["dst-new"]).values()) == 0, "the new topic was written to"

        overtake(mirror, names["overtaken"])
        fill(source, names["fine"])
        mirror.assert_twins(names["fine"])
        assert set(mirror.states(names["fine"]).values()) == {PartitionState.MIRRORING}

        source[1].kill()
        for name in names.values():
            mirror.desire(name, DesiredState.STOPPED)
        for name in names.values():
            for partition in range(TWO):
                mirror.wait_state(name, PartitionState.STOPPED, partition, timeout_s=20)
        source[1].start()
        source.wait_ready()


def overtake(mirror: FaultyMirror, topic: str) -> None:
    """Retention at the source deletes what was not mirrored yet, while no worker runs."""
    mirror.stop_workers()
    position = mirror.ends(topic)[0]
    fill(mirror.source, topic, 400)
    end = mirror.ends(topic, at_source=True)[0]
    assert end > position
    asked = TopicPartition(topic, 0, end)
    admin = AdminClient({"bootstrap.servers": mirror.source.bootstrap})
    admin.delete_records([asked])[asked].result(20)
    mirror.start_worker()
    error = mirror.wait_failed(topic, 0)
    assert f"wants offset {position}" in error, error
    assert f"starts at {end}: {end - position} offsets" in error, error
    assert mirror.ends(topic)[0] == position
    mirror.wait_state(topic, PartitionState.MIRRORING, 1)


def fill(cluster: LocalKafka, topic: str, records: int = 50) -> None:
    """Some records and some blanks in every partition."""
    load = Load(cluster, topic, random.Random(SEED))
    for partition in range(TWO):
        load.plain(records, partition=partition)
        load.transaction(3, commit=False, partition=partition)
    load.close()


def delete(cluster: LocalKafka, topic: str) -> None:
    """Delete a topic, and wait until it is gone."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.delete_topics([topic], operation_timeout=20)[topic].result(20)
    deadline = time.monotonic() + 20
    while topic in admin.list_topics(timeout=10).topics and time.monotonic() < deadline:
        time.sleep(0.1)
