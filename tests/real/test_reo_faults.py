"""Copies that are killed, brokers that restart under them, and destinations that refuse for a while."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)
from tests.real.reo_copies import Scene, both, kill_again_and_again, wait_for_error

from twinlog.testing.kafka import LocalKafka

KILLS = 3
ANYBODY = "User:ANONYMOUS"


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[LocalKafka, LocalKafka]]:
    """Two clusters of the module's own, whose brokers may be restarted; the destination has an authorizer."""
    config = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    source, destination = LocalKafka(), LocalKafka(config=config)
    try:
        both(source.start, destination.start)
        yield source, destination
    finally:
        both(source.stop, destination.stop)


@pytest.fixture
def scene(pair: tuple[LocalKafka, LocalKafka], topic: str, tmp_path: Path) -> Iterator[Scene]:
    """A topic of the test's own on both sides."""
    with Scene(*pair, topic, tmp_path) as found:
        yield found


def set_config(kafka: LocalKafka, topic: str, name: str, value: str) -> None:
    """Set one config of a topic."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(20)


def only_read(kafka: LocalKafka, topic: str) -> None:
    """Leave everybody the right to read a topic, and no other; with the first rule, nobody has more by default."""
    allow, literal = AclPermissionType.ALLOW, ResourcePatternType.LITERAL
    acls = [
        AclBinding(ResourceType.TOPIC, topic, literal, ANYBODY, "*", operation, allow)
        for operation in (AclOperation.READ, AclOperation.DESCRIBE)
    ]
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for future in admin.create_acls(acls).values():
        future.result(20)


def all_rights(kafka: LocalKafka, topic: str) -> None:
    """Take the rules away again."""
    found = AclBindingFilter(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_acls([found])[found].result(20)


@pytest.mark.parametrize("way", ["proxy", pytest.param("direct", marks=pytest.mark.soak)])
def test_kills_and_a_broker_of_each_side_restarted_cost_no_record(way: str, scene: Scene) -> None:
    """A few kills at random moments, then both brokers restarted, while records flow: each arrives once, in order."""
    chance = random.Random(1)
    flow = scene.flow()
    flow.write(50)
    copies = scene.begin_way(way)
    with flow:
        assert kill_again_and_again(copies, chance, times=KILLS, longest_s=1.5) >= KILLS - 1
        both(lambda: scene.source.restart(1), lambda: scene.destination.restart(1))
    assert scene.assert_each_once(flow) > 0
    assert [copy.alive for copy in copies] == [True] * len(copies)


def test_a_missing_right_is_waited_for(scene: Scene) -> None:
    """The status names it; all arrives once it is granted."""
    twin = f"{scene.topic}-twin"
    flow = scene.flow()
    flow.write(50)
    copy = scene.begin()
    assert scene.counter.read(200) == 200, copy.text()
    only_read(scene.destination, twin)
    flow.write(50)
    stopped = wait_for_error(copy, twin, "TOPIC_AUTHORIZATION_FAILED", "Grant", "WRITE", "source offset 50")
    assert all(f"{scene.topic}-{partition}:" in told for partition, told in stopped.items())
    all_rights(scene.destination, twin)
    assert scene.assert_each_once(flow) == 400
    assert copy.errors() == {}


@pytest.mark.soak
def test_a_record_that_no_setting_lets_in_stops_its_partition_alone(scene: Scene) -> None:
    """Again after a restart; topic, partition, offset and size are told, and the other partitions go on."""
    twin = f"{scene.topic}-twin"
    set_config(scene.destination, twin, "max.message.bytes", "3000")
    flow = scene.flow()
    flow.write(20)
    producer = Producer({"bootstrap.servers": scene.source.bootstrap})
    producer.produce(scene.topic, value=bytes(9_000), partition=2)
    assert producer.flush(20) == 0
    copy = scene.begin()
    for _ in range(2):
        stopped = wait_for_error(copy, f"{scene.topic}-2", "source offset 20", twin, "bytes", "max.message.bytes")
        assert list(stopped) == [2]
        copy.end()
        copy.start()
    flow.write(20)
    scene.counter.read(4 * 40 - 20)
    assert [len(scene.counter.seen[number]) for number in range(4)] == [40, 40, 20, 40], copy.text()
    assert copy.errors().keys() == {2}
