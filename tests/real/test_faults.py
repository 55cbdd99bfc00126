"""Workers and brokers die, freeze and lose their connections while every kind of data flows: both sides stay identical.

The independent checker compares them at the end of each test. The long versions are in `tests/soak`.
"""

import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from tests.real.brokers import Losses, Unconfirmed
from tests.real.faults import Ends, FaultyMirror, Ticker, disturb, kill_workers, until, wait_progress
from tests.real.freezing import ONLY_MARKERS, freezer

from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.testing.data import EVERYTHING_ALLOWED
from twinlog.testing.kafka import PROXIED, LocalKafka
from twinlog.testing.load import Flow, Load

pytestmark = pytest.mark.timed

PARTITIONS = 4
SEED = 20


@pytest.mark.timeout(300)
def test_workers_killed_six_times_while_everything_flows(
    source: LocalKafka, destination: LocalKafka, topic: str
) -> None:
    """SIGKILL at random moments, some in the middle of a takeover, a fresh worker each time; two run at a time."""
    with FaultyMirror(source, destination, workers=2) as mirror:
        mirror.create(topic, partitions=PARTITIONS)
        mirror.start(topic)
        mirror.wait_mirroring(topic, PARTITIONS)
        with Flow(source, topic, seed=SEED, records_per_second=600) as flow:
            while_moving = kill_workers(mirror, topic, random.Random(SEED), times=6, longest_wait_s=2.0)
        assert while_moving > 3
        assert mirror.assert_twins(topic) == flow.acknowledged


@pytest.mark.timeout(180)
def test_a_worker_frozen_between_the_look_at_its_lease_and_its_send(
    source: LocalKafka, destination: LocalKafka, topic: str
) -> None:
    """Thawed right before its successor's first markers: identical, or FAILED; nothing differs in silence."""
    with FaultyMirror(source, destination, workers=0) as mirror, freezer() as freezing:
        for _ in range(2):
            mirror.start_worker(freezing.script)
        mirror.create(topic, partitions=2 * PARTITIONS)
        mirror.start(topic)
        mirror.wait_mirroring(topic, 2 * PARTITIONS)
        pids = mirror.pids()
        owners = [pids.get(owner) for owner in mirror.owners(topic, 2 * PARTITIONS).values()]
        victim = next(worker for worker in mirror.workers if worker.pid in owners)
        with Flow(source, topic, seed=SEED, records_per_second=300):
            assert freezing.freeze_until_succeeded(victim, random.Random(SEED), ONLY_MARKERS)
            until(lambda: "begins anew" in victim.log_text(), timeout_s=30, what="the thawed worker gives way")
        report = mirror.assert_twins_or_failed(topic)
        print(f"thawed by the successor: {freezing.thawed_by_successor}, FAILED: {mirror.failed(topic)}, {report}")
        assert freezing.thawed_by_successor == 1
        assert len(mirror.failed(topic)) < PARTITIONS


@pytest.mark.timeout(300)
def test_leaders_die_with_followers_behind_while_blanks_are_written(
    source: LocalKafka, destination3: LocalKafka, topic: str
) -> None:
    """Of three brokers (RF 3, min ISR 2) leaders are killed behind whom the followers are paused, and one is paused.

    What the next leader lacks, acknowledged or not, is sent again.
    """
    rng = random.Random(SEED)
    with FaultyMirror(source, destination3) as mirror:
        mirror.create(topic, partitions=PARTITIONS)
        mirror.start(topic)
        mirror.wait_mirroring(topic, PARTITIONS)
        losses = Losses()
        with Flow(source, topic, seed=SEED, records_per_second=300, aborted_run=12_000) as flow:
            wait_progress(mirror, topic)
            for _ in range(2):
                losses.lose_leader(mirror, topic, rng)
                wait_progress(mirror, topic)
            frozen = destination3[rng.choice(list(destination3.brokers))]
            frozen.pause()
            time.sleep(rng.uniform(2, 6))
            frozen.resume()
            wait_progress(mirror, topic)
        print(losses)
        assert mirror.assert_twins(topic) >= flow.acknowledged


# What may be in a leader's log and on no follower, for each partition.
UNCONFIRMED_BYTES = 8 * 1_048_576


def test_what_followers_lack_is_bounded(source: LocalKafka, destination3: LocalKafka, topic: str) -> None:
    """While followers stand still a leader is given no more than the bound, however much waits at the source."""
    with FaultyMirror(source, destination3) as mirror:
        mirror.create(topic)
        mirror.start(topic)
        mirror.wait_mirroring(topic, 1)
        leader = mirror.leaders(topic)[0]
        followers = [broker for number, broker in destination3.brokers.items() if number != leader]
        with Unconfirmed(mirror, topic) as unconfirmed:
            for broker in followers:
                broker.pause()
            load = Load(source, topic, random.Random(SEED))
            load.bulk(40_000, value_bytes=1_000)
            load.close()
            time.sleep(2.0)
            for broker in followers:
                broker.resume()
            mirror.assert_twins(topic)
        print(f"at most {unconfirmed.most} records of 1 KB were in the leader's log alone")
        assert 0 < unconfirmed.most <= UNCONFIRMED_BYTES // 1_000


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
                mirror.wait_for(lambda: not mirror.failed(topic), lambda: str(mirror.failed(topic)), 1)
                wait_progress(mirror, topic)
                print(f"everything moves again {time.monotonic() - back:.1f} s after the broker is back")
            assert sum(worker.alive for worker in mirror.workers) == 1
        assert mirror.assert_twins(topic) > 0


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
# Records come every 0.1 s, and the brokers share the machine.
UNDISTURBED_S = 2.0


@pytest.mark.timeout(180)
def test_topics_deleted_recreated_and_overtaken_are_failed_with_the_reason(
    source: LocalKafka, destination: LocalKafka, topic: str
) -> None:
    """Each kind of trouble fails its own topic only, says why, and stop works from there and with the source down."""
    kinds = ("fine", "dst-gone", "dst-new", "src-gone", "src-new", "src-short", "overtaken")
    names = {kind: f"{topic}-{kind}" for kind in kinds}
    with FaultyMirror(source, destination) as mirror:
        for name in names.values():
            mirror.create(name, partitions=TWO)
            fill(source, name)
            mirror.start(name)
        for name in names.values():
            mirror.wait_mirroring(name, TWO)
            mirror.assert_twins(name)
        before = mirror.ends(names["src-new"])
        with Ticker(source, names["fine"], TWO), Ends(mirror, names["fine"]) as ends:
            began = time.monotonic()
            errors = break_topics(mirror, names)
            longest = max(ends.longest_pause_s(p, since=began) for p in range(TWO))
            print(f"the topic that was left alone stood still for {longest:.1f} s at most")
            assert longest < UNDISTURBED_S
        assert "destination topic is deleted" in errors["dst-gone"]
        assert "source topic is deleted" in errors["src-gone"]
        assert "destination topic was deleted and created again" in errors["dst-new"]
        assert "source topic was deleted and created again" in errors["src-new"]
        assert "source topic was deleted and created again" in errors["src-short"]
        assert sum(mirror.ends(names["dst-new"]).values()) == 0, "the new topic was written to"
        assert mirror.ends(names["src-new"]) == mirror.ends(names["src-short"]) == before, "a twin was written to"

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


def break_topics(mirror: FaultyMirror, names: Mapping[str, str]) -> dict[str, str]:
    """Delete topics, create some of them again, at the source longer and shorter than they were; returns the errors."""
    delete(mirror.destination, names["dst-gone"])
    delete(mirror.source, names["src-gone"])
    for cluster, kind, records in (
        (mirror.destination, "dst-new", 0),
        (mirror.source, "src-new", 500),
        (mirror.source, "src-short", 5),
    ):
        delete(cluster, names[kind])
        cluster.create_topic(names[kind], TWO, config=EVERYTHING_ALLOWED)
        if records:
            fill(cluster, names[kind], records)
    return {kind: mirror.wait_failed(names[kind], timeout_s=30) for kind in names if kind[:3] in {"dst", "src"}}


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
