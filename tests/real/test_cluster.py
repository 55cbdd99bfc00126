"""The cluster client against real brokers."""

import asyncio
import time
import uuid

import pytest
from kafka.protocol.metadata import MetadataRequest

from twinlog.config.client import ClientSettings
from twinlog.errors import ConnectionLost, RefreshLeader, TwinlogError, Unreachable, UnsupportedVersion
from twinlog.names import TopicPartition
from twinlog.testing.kafka import LocalKafka
from twinlog.testing.ports import free_port
from twinlog.wire import codes
from twinlog.wire.cluster import Cluster
from twinlog.wire.metadata import NO_ID


def settings(kafka: LocalKafka, *first: str, **changes: int) -> ClientSettings:
    """Settings for a running cluster; addresses in `first` come before its own."""
    props = {"bootstrap.servers": ",".join([*first, kafka.bootstrap])}
    props |= {name.replace("_", "."): str(value) for name, value in changes.items()}
    return ClientSettings.from_properties(props, origin="a test")


async def met(kafka: LocalKafka) -> Cluster:
    """A client that has met a cluster."""
    return await Cluster.connect(settings(kafka), client_id="test")


async def test_it_learns_the_cluster(destination3: LocalKafka) -> None:
    """After connecting, the id and all brokers are known."""
    cluster = await met(destination3)
    assert cluster.cluster_id == destination3.cluster_id
    assert set(cluster.brokers) == {1, 2, 3}
    assert destination3.cluster_id in repr(cluster)
    await cluster.close()


async def test_dead_addresses_are_passed_over(source: LocalKafka) -> None:
    """A closed port and a name that does not exist, before a good address, do not hinder."""
    own = settings(source, f"127.0.0.1:{free_port()}", "no-such-host.invalid:9092")
    cluster = await Cluster.connect(own, client_id="test", timeout_s=20)
    assert cluster.cluster_id == source.cluster_id
    await cluster.close()


async def test_localhost_is_tried_under_every_address(source: LocalKafka) -> None:
    """A name with several addresses (::1 and 127.0.0.1), of which one is served, works."""
    port = source.bootstrap.rpartition(":")[2]
    own = ClientSettings.from_properties({}, bootstrap=f"localhost:{port}")
    cluster = await Cluster.connect(own, client_id="test")
    assert cluster.cluster_id == source.cluster_id
    await cluster.close()


async def test_nobody_there_is_said_within_the_bound() -> None:
    """The error names address, time and reason, and comes in time."""
    port = free_port()
    own = ClientSettings.from_properties({}, bootstrap=f"127.0.0.1:{port}")
    began = time.monotonic()
    with pytest.raises(Unreachable, match=rf"127\.0\.0\.1:{port} answered in .* last reason: .+"):
        await Cluster.connect(own, client_id="test", timeout_s=1.0)
    assert time.monotonic() - began < 2.0


async def test_a_silent_address_is_given_up_within_the_bound() -> None:
    """A listener that accepts and says nothing costs no more than the bound."""
    server = await asyncio.start_server(lambda _reader, _writer: asyncio.sleep(30), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    own = ClientSettings.from_properties({}, bootstrap=f"127.0.0.1:{port}")
    began = time.monotonic()
    with pytest.raises(Unreachable, match="last reason"):
        await Cluster.connect(own, client_id="test", timeout_s=1.0)
    assert time.monotonic() - began < 2.5
    server.close()


async def test_two_callers_share_one_connection(source: LocalKafka) -> None:
    """Twenty callers that want the same lane at once get the same connection; other names get others."""
    cluster = await met(source)
    lanes = await asyncio.gather(*(cluster.lane(1, "data") for _ in range(20)))
    other = await cluster.lane(1, "other", client_id="another-name")
    assert len({id(lane) for lane in lanes}) == 1
    assert other is not lanes[0]
    await cluster.close()
    assert lanes[0].closed
    assert other.closed


async def test_a_closed_lane_is_replaced(source: LocalKafka) -> None:
    """A lane that was reset is a new connection at the next call."""
    cluster = await met(source)
    first = await cluster.lane(1, "data")
    first.reset()
    second = await cluster.lane(1, "data")
    assert second is not first
    assert not second.closed
    await cluster.close()


async def test_an_unknown_broker_is_unreachable(source: LocalKafka) -> None:
    """A node that the cluster does not name gets no endless wait."""
    cluster = await met(source)
    with pytest.raises(Unreachable, match="Broker 77"):
        await cluster.lane(77, "data")
    await cluster.close()


async def test_a_closed_client_answers_nothing(source: LocalKafka) -> None:
    """After close, every call fails instead of opening connections."""
    cluster = await met(source)
    await cluster.close()
    with pytest.raises(ConnectionLost, match="closed"):
        await cluster.lane(1, "data")
    with pytest.raises(ConnectionLost, match="closed"):
        await cluster.topics(["x"], timeout_s=1.0)


async def test_topics_and_leaders(destination3: LocalKafka, topic: str) -> None:
    """A topic's id, partitions and leaders are told; an unknown one carries its code; none is created by asking."""
    destination3.create_topic(topic, 3)
    missing = f"missing-{uuid.uuid4().hex}"
    cluster = await met(destination3)
    told = await cluster.topics([topic, missing])
    assert told[topic].id != NO_ID
    assert set(told[topic].partitions) == {0, 1, 2}
    assert set(told[topic].partitions[0].replicas) == {1, 2, 3}
    assert told[missing].error == codes.UNKNOWN_TOPIC_OR_PARTITION
    everything = await cluster.topics(None)
    assert topic in everything
    assert missing not in everything
    leader = await cluster.find_leader(TopicPartition(topic, 1))
    assert leader == cluster.leader(TopicPartition(topic, 1))
    assert leader.epoch >= 0
    await cluster.close()


async def test_a_partition_that_is_not_there_has_no_leader(source: LocalKafka, topic: str) -> None:
    """Unknown topics and partitions are RefreshLeader, with the name in the sentence."""
    source.create_topic(topic)
    cluster = await met(source)
    with pytest.raises(RefreshLeader, match=f"{topic}-9"):
        await cluster.find_leader(TopicPartition(topic, 9))
    with pytest.raises(RefreshLeader, match="nowhere-0"):
        await cluster.find_leader(TopicPartition("nowhere", 0))
    await cluster.close()


async def test_many_questions_for_leaders_make_few_requests(
    source: LocalKafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred callers that look for leaders at once are answered by one or two requests."""
    source.create_topic(topic, 100)
    cluster = await met(source)
    asked: list[object] = []
    topics = cluster.topics

    async def counted(names: set[str]) -> object:
        asked.append(names)
        return await topics(names)

    monkeypatch.setattr(cluster, "topics", counted)
    found = await asyncio.gather(*(cluster.find_leader(TopicPartition(topic, n), refresh=True) for n in range(100)))
    assert {leader.node for leader in found} == {1}
    assert len(asked) <= 2
    await cluster.close()


async def test_a_killed_broker_is_worked_around(destination3: LocalKafka, topic: str) -> None:
    """While one broker of three is dead, any question is answered and new leaders are found; then it is back."""
    destination3.create_topic(topic, 3)
    cluster = await met(destination3)
    partitions = [TopicPartition(topic, n) for n in range(3)]
    before = [await cluster.find_leader(tp) for tp in partitions]
    await cluster.lane(2, "control")
    destination3[2].kill()
    try:
        deadline = time.monotonic() + 40
        while time.monotonic() < deadline:
            told = await cluster.topics([topic], avoid_node=2)
            if all(p.leader in (1, 3) for p in told[topic].partitions.values()):
                break
            await asyncio.sleep(0.2)
        moved = [await cluster.find_leader(tp) for tp in partitions]
        assert {leader.node for leader in moved} <= {1, 3}
        assert all(new.epoch > old.epoch for new, old in zip(moved, before, strict=True) if old.node == 2)
        with pytest.raises(Unreachable):
            await cluster.lane(2, "data")
    finally:
        destination3[2].start()
        destination3.wait_ready()
    deadline = time.monotonic() + 20
    while 2 not in cluster.brokers and time.monotonic() < deadline:
        await cluster.topics([])
        await asyncio.sleep(0.2)
    assert not (await cluster.lane(2, "data")).closed
    await cluster.close()


async def test_another_cluster_under_the_same_address_is_refused(
    source: LocalKafka, destination: LocalKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the brokers are gone and bootstrap leads to another cluster, that is said, and nothing is asked of it."""
    cluster = await met(source)
    cluster._dialler.settings = settings(destination)
    lost = Unreachable("all brokers are gone")

    async def gone(*_args: object) -> None:
        raise lost

    monkeypatch.setattr(cluster._lanes, "get_fresh", gone)
    with pytest.raises(TwinlogError, match=f"belong to cluster {destination.cluster_id}, not to {source.cluster_id}"):
        await cluster.topics([])
    await cluster.close()


async def test_coordinators_are_found_and_remembered(destination3: LocalKafka) -> None:
    """A coordinator is one of the brokers, and the same at every call."""
    cluster = await met(destination3)
    first = await cluster.coordinator("some-group", "group")
    assert first in cluster.brokers
    assert await cluster.coordinator("some-group", "group", refresh=True) == first
    assert await cluster.coordinator("some-id", "transaction") in cluster.brokers
    await cluster.close()


async def test_a_version_that_is_too_low_is_refused(source: LocalKafka) -> None:
    """A caller's lowest version is checked before anything is sent."""
    cluster = await met(source)
    with pytest.raises(UnsupportedVersion, match="version 9000 is needed"):
        await cluster.call(MetadataRequest(topics=[]), node=Cluster.CONTROLLER, min_version=9000)
    await cluster.close()
