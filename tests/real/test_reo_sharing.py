"""Instances of one copy that divide its shares through a consumer group: who dies is replaced, nothing is doubled."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from tests.real.faults import until
from tests.real.reo_copies import PARTITIONS, Scene, shares

from twinlog.testing.kafka import LocalKafka

SHARES = 4


@pytest.fixture
def scene(source: LocalKafka, destination: LocalKafka, topic: str, tmp_path: Path) -> Iterator[Scene]:
    """A topic of the test's own on both sides."""
    with Scene(source, destination, topic, tmp_path) as found:
        yield found


def test_of_two_instances_the_living_takes_over_and_a_new_one_gets_its_part(scene: Scene) -> None:
    """Direct mode: one of two is killed, and a third one begins, while records come; each arrives once, in order."""
    flags = f"--shares {SHARES} --http 127.0.0.1:0"
    with scene.flow(per_second=400) as flow:
        copies = [scene.begin(flags) for _ in range(2)]
        until(lambda: [shares(copy) for copy in copies] == [2, 2], timeout_s=30, what="both have their part")
        copies[0].end()
        until(lambda: shares(copies[1]) == SHARES, timeout_s=30, what="the other one has all")
        copies.append(scene.begin(flags))
        until(lambda: [shares(copy) for copy in copies[1:]] == [2, 2], timeout_s=30, what="the new one has its part")
        scene.counter.read(scene.counter.count + 100, quiet_s=0)
    scene.assert_each_once(flow)
    assert {row["lag"] for row in copies[1].status()} == {0}
    assert [copy.end(signal.SIGTERM) for copy in copies[1:]] == [0, 0], copies[1].text()


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["direct", "proxy"])
def test_of_three_instances_the_living_take_over_from_the_dead_and_the_frozen(mode: str, scene: Scene) -> None:
    """One is killed, one is frozen and comes back, one is added."""
    flags = f"--mode {mode} --shares {SHARES} --http 127.0.0.1:0"
    with scene.flow(per_second=400) as flow:
        copies = [scene.begin(flags) for _ in range(3)]
        scene.counter.read(200, quiet_s=0)
        until(lambda: all(shares(copy) > 0 for copy in copies), timeout_s=30, what="all have shares")
        copies[0].end()
        copies[1].send(signal.SIGSTOP)
        until(lambda: shares(copies[2]) == SHARES, timeout_s=30, what="the third has all shares")
        copies[1].send(signal.SIGCONT)
        until(lambda: shares(copies[1]) > 0, timeout_s=30, what="who was frozen has a part again")
        copies.append(scene.begin(flags))
        until(lambda: shares(copies[3]) > 0, timeout_s=30, what="the new one has its part")
        time.sleep(2)
    scene.assert_each_once(flow)
    assert copies[1].alive, copies[1].text()
    assert {row["lag"] for row in copies[1].status()} == {0}


@pytest.mark.parametrize("mode", ["direct", pytest.param("proxy", marks=pytest.mark.soak)])
def test_partitions_that_are_added_while_no_instance_runs_are_copied_from_their_beginning(
    mode: str, scene: Scene
) -> None:
    """Also those of shares that had none until then, and although the first start was told to begin at the end."""
    added = range(PARTITIONS, 2 * PARTITIONS)
    copy = scene.begin(f"--mode {mode} --shares {2 * PARTITIONS} --set kafka.config.consumer.auto-reset=latest")
    told = [f"partitions of the {side}" for side in (["source"] if mode == "direct" else ["source", "destination"])]
    until(
        lambda: all(copy.text(100_000).count(line) >= added.stop for line in told),
        timeout_s=40,
        what="all shares have begun",
    )
    assert copy.end(signal.SIGTERM) == 0, copy.text()
    for kafka, topic in ((scene.source, scene.topic), (scene.destination, f"{scene.topic}-twin")):
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_partitions([NewPartitions(topic, added.stop)])[topic].result(20)
    producer = Producer({"bootstrap.servers": scene.source.bootstrap})
    for number in added:
        producer.produce(scene.topic, value=b"%d" % number, partition=number)
    assert producer.flush(20) == 0
    assert [row["begins"] for row in copy.status()[PARTITIONS:]] == [0] * len(added)
    copy.start()
    assert sorted(read_of(scene, added)) == [(number, b"%d" % number) for number in added], copy.text()


def read_of(scene: Scene, numbers: range) -> list[tuple[int, bytes]]:
    """A record of each partition of the destination topic, as far as they come within half a minute."""
    configs = {"bootstrap.servers": scene.destination.bootstrap, "group.id": "added", "enable.auto.commit": False}
    consumer = Consumer(configs | {"isolation.level": "read_committed"})
    consumer.assign([TopicPartition(f"{scene.topic}-twin", number, 0) for number in numbers])
    found: list[tuple[int, bytes]] = []
    deadline = time.monotonic() + 30
    while len(found) < len(numbers) and time.monotonic() < deadline:
        messages = consumer.consume(100, 0.5)
        found += [(message.partition(), message.value()) for message in messages if not message.error()]
    consumer.close()
    return found
