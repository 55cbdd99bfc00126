"""The bench's own brokers do what a test expects of them: serve, die, freeze, come back, and leave nothing."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from twinlog.testing.errors import BenchFailed
from twinlog.testing.kafka import PROXIED, Listener, LocalKafka
from twinlog.testing.watchdog import Watchdog

WORKS_S = 30.0
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p" user_u="p";'


@pytest.fixture(scope="module")
def own() -> Iterator[LocalKafka]:
    """A broker that tests may kill, with a proxy and a second listener that asks for a password."""
    config = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secret.plain.sasl.jaas.config": JAAS,
        "message.max.bytes": "2000000",
    }
    listeners = [Listener("SECRET", "SASL_PLAINTEXT")]
    with LocalKafka(config=config, listeners=listeners, proxied=True) as kafka:
        yield kafka


def _produce(bootstrap: str, topic: str, value: bytes = b"x", **config: str) -> int:
    """Write one record and return its offset."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", **config})
    offsets: list[int | None] = []
    producer.produce(topic, value, partition=0, on_delivery=lambda _, message: offsets.append(message.offset()))
    assert producer.flush(WORKS_S) == 0
    assert offsets[0] is not None
    return offsets[0]


def _answers(bootstrap: str) -> bool:
    try:
        AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=1.0)
    except KafkaException:
        return False
    return True


def test_records_are_accepted(source: LocalKafka, destination: LocalKafka, topic: str) -> None:
    """The two shared clusters are separate, and each takes records."""
    source.create_topic(topic)
    destination.create_topic(topic)
    assert _produce(source.bootstrap, topic) == 0
    assert _produce(destination.bootstrap, topic) == 0
    assert source.cluster_id != destination.cluster_id


def test_a_topic_is_created_as_asked(source: LocalKafka, topic: str) -> None:
    """Partitions and configs arrive; topics are not created by mere use."""
    source.create_topic(topic, 3, config={"cleanup.policy": "compact"})
    client = AdminClient({"bootstrap.servers": source.bootstrap})
    known = client.list_topics(timeout=WORKS_S).topics
    assert len(known[topic].partitions) == 3
    assert f"{topic}-other" not in known


def test_restart_keeps_data_and_address(own: LocalKafka, topic: str) -> None:
    """After an orderly restart the log goes on at the same address."""
    own.create_topic(topic)
    assert _produce(own.bootstrap, topic) == 0
    before = own.bootstrap
    own.restart(1)
    assert own.bootstrap == before
    assert _produce(own.bootstrap, topic) == 1


def test_a_killed_broker_comes_back(own: LocalKafka, topic: str) -> None:
    """SIGKILL ends it at once; a start recovers its data."""
    own.create_topic(topic)
    _produce(own.bootstrap, topic)
    own[1].kill()
    assert not own[1].alive
    own[1].start()
    own.wait_ready()
    assert _produce(own.bootstrap, topic) == 1


def test_a_paused_broker_is_silent_until_resumed(own: LocalKafka) -> None:
    """SIGSTOP leaves the process alive and mute."""
    own[1].pause()
    assert own[1].alive
    assert not _answers(own.bootstrap)
    own[1].resume()
    own.wait_ready()


def test_clients_of_the_proxied_listener_pass_the_proxy(own: LocalKafka, topic: str) -> None:
    """The advertised address is the proxy's, so a client never gets past it."""
    own.create_topic(topic)
    passed = own.proxy[1].accepted_connections
    _produce(own.bootstrap_of(PROXIED), topic)
    assert own.proxy[1].accepted_connections > passed
    own.proxy[1].refuse()
    assert not _answers(own.bootstrap_of(PROXIED))
    assert _answers(own.bootstrap)
    own.proxy.resume()
    assert _answers(own.bootstrap_of(PROXIED))


def test_config_overrides_and_listeners_arrive(own: LocalKafka, topic: str) -> None:
    """A listener with SASL lets the right password in, and a larger record is taken."""
    own.create_topic(topic, config={"max.message.bytes": "2000000"})
    config = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "u"}
    address = own.bootstrap_of("SECRET")
    right = {"sasl.password": "p", "message.max.bytes": "2000000"}
    assert _produce(address, topic, os.urandom(1_500_000), **config, **right) == 0


def test_kafkas_tools_run(own: LocalKafka, topic: str) -> None:
    """Kafka's own log dump reads the broker's files; a tool that fails is BenchFailed."""
    own.create_topic(topic)
    _produce(own.bootstrap, topic, b"seen by the dump")
    log = own.data_dir(1) / f"{topic}-0" / "00000000000000000000.log"
    dump = own.java_tool("kafka.tools.DumpLogSegments", "--print-data-log", "--files", str(log))
    assert "seen by the dump" in dump
    with pytest.raises(BenchFailed, match="DumpLogSegments"):
        own.java_tool("kafka.tools.DumpLogSegments", "--no-such-option")


def test_a_second_start_is_refused(own: LocalKafka) -> None:
    """One process a node."""
    with pytest.raises(BenchFailed, match="running already"):
        own[1].start()


def test_three_brokers_outlive_any_one(destination3: LocalKafka, topic: str) -> None:
    """With one broker of three dead, writes with acks=all go on; it comes back into the ISR."""
    destination3.create_topic(topic)
    partition = AdminClient({"bootstrap.servers": destination3.bootstrap})
    leader = partition.list_topics(topic, timeout=WORKS_S).topics[topic].partitions[0].leader
    assert _produce(destination3.bootstrap, topic) == 0
    destination3[leader].kill()
    assert _produce(destination3.bootstrap, topic) == 1
    destination3[leader].start()
    destination3.wait_ready()
    deadline = time.monotonic() + WORKS_S
    while len(partition.list_topics(topic, timeout=WORKS_S).topics[topic].partitions[0].isrs) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_broker_that_cannot_start_tells_why() -> None:
    """The end of the broker's log is in the error, and nothing is left behind."""
    kafka = LocalKafka(config={"log.segment.bytes": "nonsense"})
    with pytest.raises(BenchFailed, match="nonsense"):
        kafka.start()
    assert not kafka[1].alive
    assert not kafka.folder.exists()


ORPHAN = """
import sys, threading
from twinlog.testing.kafka import LocalKafka
from twinlog.testing.watchdog import Watchdog
kafka = LocalKafka()
starter = threading.Thread(target=kafka.start)  # a broker outlives the thread that started it
starter.start()
starter.join()
kafka[1].pause()
print(kafka[1].pid, Watchdog.shared().pid, kafka.folder, flush=True)
sys.stdin.read()
"""


def test_nothing_outlives_a_killed_user() -> None:
    """When the process that uses the bench is killed, brokers (even paused), data and watchdog vanish."""
    with subprocess.Popen([sys.executable, "-c", ORPHAN], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as user:
        assert user.stdout is not None
        broker, watchdog, folder = user.stdout.readline().decode().split()
        assert psutil.pid_exists(int(broker))
        user.send_signal(signal.SIGKILL)
        user.wait(WORKS_S)
    deadline = time.monotonic() + WORKS_S
    while _is_running(int(broker)) or _is_running(int(watchdog)) or Path(folder).exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_stop_leaves_nothing() -> None:
    """A stopped cluster has no process and no folder, also with a paused broker; stopping again does nothing."""
    kafka = LocalKafka()
    kafka.start()
    pid = kafka[1].pid
    assert pid is not None
    kafka[1].pause()
    kafka.stop()
    kafka.stop()
    assert not _is_running(pid)
    assert not kafka.folder.exists()
    assert _is_running(Watchdog.shared().pid)


@pytest.fixture(scope="module")
def in_zookeeper() -> Iterator[LocalKafka]:
    """A broker of a release before KRaft, with its ZooKeeper."""
    with LocalKafka(version="2.8.2") as kafka:
        yield kafka


def test_an_old_release_runs_beside_its_zookeeper(in_zookeeper: LocalKafka, topic: str) -> None:
    """Two processes in one folder; the cluster has made up its id; configs that came later are left out."""
    assert [node.alive for node in in_zookeeper.nodes] == [True, True]
    assert {node.folder.parent for node in in_zookeeper.nodes} == {in_zookeeper.folder}
    known = AdminClient({"bootstrap.servers": in_zookeeper.bootstrap}).list_topics(timeout=WORKS_S)
    assert known.cluster_id == in_zookeeper.cluster_id
    in_zookeeper.create_topic(topic, 2, config={"message.timestamp.after.max.ms": "1", "retention.ms": "-1"})
    assert _produce(in_zookeeper.bootstrap, topic) == 0


@pytest.mark.soak
def test_an_old_broker_restarts_and_comes_back_when_killed(in_zookeeper: LocalKafka, topic: str) -> None:
    """Also while ZooKeeper still holds the place of the one that was killed."""
    in_zookeeper.create_topic(topic)
    assert _produce(in_zookeeper.bootstrap, topic) == 0
    in_zookeeper.restart(1)
    assert _produce(in_zookeeper.bootstrap, topic) == 1
    in_zookeeper[1].kill()
    in_zookeeper[1].start()
    in_zookeeper.wait_ready()
    assert _produce(in_zookeeper.bootstrap, topic) == 2


def test_stop_ends_zookeeper_too() -> None:
    """Neither process is left, nor their folder."""
    kafka = LocalKafka(version="2.8.2")
    kafka.start()
    pids = [node.pid for node in kafka.nodes]
    kafka.stop()
    assert not any(_is_running(pid) for pid in pids if pid is not None)
    assert len(set(pids)) == 2
    assert not kafka.folder.exists()


def _is_running(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
