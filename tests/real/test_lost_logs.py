"""A log that is not what it was: wiped, restored from an old copy, truncated by an unclean election, or replaced.

Each is noticed, by a worker that runs as well as by one that starts, and FAILED with the reason; nothing more is
written there, and the other partitions go on.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from tests.real.faults import FaultyMirror, until, with_changed_disk, write_with_blanks

from twinlog.control.lifecycle import PartitionState
from twinlog.testing.data import EVERYTHING_ALLOWED
from twinlog.testing.kafka import LocalKafka

TWO = 2
FAILED_WITHIN_S = 60.0


@pytest.fixture(scope="module")
def own_source() -> Iterator[LocalKafka]:
    """A source whose disk may be changed."""
    with LocalKafka() as kafka:
        yield kafka


@pytest.fixture(scope="module")
def own_destination() -> Iterator[LocalKafka]:
    """A destination whose disk may be changed."""
    with LocalKafka() as kafka:
        yield kafka


@pytest.fixture
def mirror(own_source: LocalKafka, own_destination: LocalKafka, topic: str) -> Iterator[FaultyMirror]:
    """A running mirror of two partitions with some records in each."""
    with FaultyMirror(own_source, own_destination) as mirror:
        mirror.create(topic, partitions=TWO)
        write_with_blanks(mirror.source, topic, 200)
        mirror.start(topic)
        mirror.wait_mirroring(topic, TWO)
        mirror.assert_twins(topic)
        yield mirror


@pytest.mark.parametrize(
    "worker_runs",
    [
        pytest.param(True, id="while a worker runs"),
        pytest.param(False, id="while none runs", marks=pytest.mark.soak),
    ],
)
def test_a_partition_whose_disk_was_wiped(mirror: FaultyMirror, topic: str, *, worker_runs: bool) -> None:
    """The destination's log ends before what had been mirrored: FAILED with both offsets, and it stays empty."""
    wanted = mirror.ends(topic)[0]
    if not worker_runs:
        mirror.stop_workers()
    with_changed_disk(mirror.destination, lambda data: shutil.rmtree(data / f"{topic}-0"))
    if not worker_runs:
        mirror.start_worker()
    error = mirror.wait_failed(topic, 0, timeout_s=FAILED_WITHIN_S)
    assert f"ends at 0, but had been mirrored to {wanted}: {wanted} offsets are lost" in error, error
    write_with_blanks(mirror.source, topic, 50)
    mirror.wait_for(lambda: mirror.ends(topic)[1] == mirror.ends(topic, at_source=True)[1], lambda: "the other", 30)
    assert mirror.ends(topic)[0] == 0
    assert mirror.states(topic) == {0: PartitionState.FAILED, 1: PartitionState.MIRRORING}


@pytest.mark.parametrize(
    "grown",
    [
        pytest.param(False, id="shorter"),
        pytest.param(True, id="grown again while no worker runs", marks=pytest.mark.soak),
    ],
)
def test_a_source_restored_from_an_old_copy(mirror: FaultyMirror, topic: str, tmp_path: Path, *, grown: bool) -> None:
    """Same cluster, same topic id, leader epochs that begin lower: FAILED, and the two are never blended.

    What the restored source gets at offsets that were mirrored already is other data; where the log has grown beyond
    the mirror's end before anybody looks, only the comparison tells.
    """
    copy = tmp_path / "copy"
    with_changed_disk(mirror.source, lambda data: shutil.copytree(data, copy))
    write_with_blanks(mirror.source, topic, 100, seed=2)
    mirror.wait_level(topic, timeout_s=60)
    ends = mirror.ends(topic)
    if grown:
        mirror.stop_workers()
    else:
        # Each start raises the leader epochs by two, that of the restored copy, too: now that stays below.
        with_changed_disk(mirror.source, lambda _data: None)
        write_with_blanks(mirror.source, topic, 10, seed=5)
        mirror.wait_level(topic, timeout_s=60)
        ends = mirror.ends(topic)
    with_changed_disk(mirror.source, lambda data: (shutil.rmtree(data), shutil.copytree(copy, data)))
    if grown:
        write_with_blanks(mirror.source, topic, 300, seed=3)
        mirror.start_worker()
    for partition in range(TWO):
        error = mirror.wait_failed(topic, partition, timeout_s=FAILED_WITHIN_S)
        assert "the source was truncated" in error or "differs from the source" in error, error
    write_with_blanks(mirror.source, topic, 300, seed=4)
    assert mirror.ends(topic) == ends, "something was written behind what the source no longer has"


@pytest.mark.soak
@pytest.mark.timeout(180)
def test_an_unclean_election_at_the_source(destination3: LocalKafka, destination: LocalKafka, topic: str) -> None:
    """The log loses what was mirrored and regrows past it: FAILED, with the offset from which on the two diverge."""
    source = destination3
    with FaultyMirror(source, destination) as mirror:
        unclean = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        source.create_topic(topic, replication_factor=2, config={**EVERYTHING_ALLOWED, **unclean})
        mirror.create_at_destination(topic)
        mirror.watched.add(topic)
        write_to_leader(source, topic, 100, b"before")
        mirror.start(topic)
        mirror.assert_twins(topic)
        leader, follower = replicas_of(mirror, topic)
        source[follower].kill()
        write_to_leader(source, topic, 1000, b"lost")
        # Readers see them once the follower is given up.
        mirror.wait_for(lambda: mirror.ends(topic) == {0: 1100}, lambda: f"the end is {mirror.ends(topic)}", 40)
        source[leader].kill()
        source[follower].start()
        source.wait_ready(brokers=[follower])
        until(lambda: replicas_of(mirror, topic)[0] == follower, timeout_s=40, what="the follower leads")
        write_to_leader(source, topic, 2000, b"other")
        error = mirror.wait_failed(topic, timeout_s=FAILED_WITHIN_S)
        print(error)
        assert "the source was truncated" in error or "differs from the source" in error, error
        assert "100" in error, error
        assert mirror.ends(topic) == {0: 1100}, "something was written behind what the source no longer has"
        source[leader].start()
        source.wait_ready()


def replicas_of(mirror: FaultyMirror, topic: str) -> tuple[int, int]:
    """The leader of a source topic's only partition, -1 for none, and the other replica."""
    told = mirror.run(mirror.clusters[0].topics([topic]))[topic].partitions[0]
    return told.leader, next(number for number in told.replicas if number != told.leader)


def write_to_leader(cluster: LocalKafka, topic: str, records: int, value: bytes) -> None:
    """Records that only the leader has to take."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": 1})
    for number in range(records):
        producer.produce(topic, value, b"%d" % number, partition=0)
    assert producer.flush(30) == 0


@pytest.mark.soak
@pytest.mark.timeout(180)
def test_a_destination_cluster_that_was_replaced(topic: str, source: LocalKafka) -> None:
    """Behind the same address is now an empty cluster with another id: the worker ends, names both and writes nothing.

    What was mirrored is gone, and so is the state that could say FAILED.
    """
    with LocalKafka() as destination, FaultyMirror(source, destination) as mirror:
        mirror.create(topic, partitions=TWO)
        write_with_blanks(source, topic, 100)
        mirror.start(topic)
        mirror.assert_twins(topic)
        before = destination.cluster_id
        replace_cluster(destination)
        mirror._log = None  # nothing can be put away there at the end
        worker = mirror.workers[0]
        until(lambda: not worker.alive, timeout_s=60, what="the worker ends")
        assert f"belong to cluster {destination.cluster_id}, not to {before}" in worker.log_text()
        assert worker.stop() != 0
        topics = AdminClient({"bootstrap.servers": destination.bootstrap}).list_topics(timeout=20).topics
        assert not topics.keys() & {topic, "__mirror_state"}


def replace_cluster(cluster: LocalKafka) -> None:
    """Wipe a cluster of one broker, and let a new one come up at the same addresses."""
    node = cluster[1]
    node.kill()
    shutil.rmtree(node.log_dir)
    cluster.cluster_id = cluster.cluster_id[:-4] + "AAAA"
    node.write_config(cluster._config_of(node), cluster_id=cluster.cluster_id)
    node.start()
    cluster.wait_ready()
