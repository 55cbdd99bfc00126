"""The typed operations against real brokers."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest
from confluent_kafka import Producer as Client
from kafka.record.default_records import DefaultRecordBatchBuilder

from twinlog.config.client import ClientSettings
from twinlog.errors import (
    AuthenticationFailed,
    AuthorizationFailed,
    GiveWay,
    InvalidConfig,
    InvalidReplicationFactor,
    InvalidRequest,
    RefreshLeader,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from twinlog.names import TopicPartition
from twinlog.testing.kafka import Listener, LocalKafka
from twinlog.wire import codes, ops, ops_admin
from twinlog.wire.cluster import Cluster, Leader
from twinlog.wire.produce import MarkerRun

PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
# Of today, so that no marker rolls a segment behind older records: a fetch ends with its segment.
NOW_MS = int(time.time() * 1000)


@pytest.fixture
async def cluster(destination: LocalKafka) -> AsyncIterator[Cluster]:
    """A client of the one-broker destination."""
    own = ClientSettings.from_properties({}, bootstrap=destination.bootstrap)
    client = await Cluster.connect(own, client_id="test-ops", label="destination")
    yield client
    await client.close()


@pytest.fixture
async def cluster3(destination3: LocalKafka) -> AsyncIterator[Cluster]:
    """A client of the three-broker destination."""
    own = ClientSettings.from_properties({}, bootstrap=destination3.bootstrap)
    client = await Cluster.connect(own, client_id="test-ops", label="destination")
    yield client
    await client.close()


def batch(count: int, producer: ops.Producer | None = None, sequence: int = 0, *, transactional: bool = False) -> bytes:
    """A batch of small records."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=transactional,
        producer_id=producer.id if producer else -1,
        producer_epoch=producer.epoch if producer else -1,
        base_sequence=sequence if producer else -1,
        batch_size=1 << 20,
    )
    for number in range(count):
        builder.append(number, NOW_MS + number, b"k", b"v%d" % number, [])
    return bytes(builder.build())


async def ends(cluster: Cluster, tp: TopicPartition) -> tuple[int, int, int]:
    """High watermark, last stable offset and true end."""
    return (
        await ops.one_offset(cluster, tp, ops.LATEST),
        await ops.one_offset(cluster, tp, ops.LATEST, read_committed=True),
        await ops.one_offset(cluster, tp, ops.LATEST, replica_id=ops.DEBUGGER),
    )


# Logs


async def test_offsets_of_many_partitions(destination3: LocalKafka, cluster3: Cluster, topic: str) -> None:
    """Offsets of partitions on three brokers come in one answer; one that is missing carries its code."""
    destination3.create_topic(topic, 6)
    for number in range(6):
        assert not (await ops.produce_batch(cluster3, TopicPartition(topic, number), batch(number + 1))).error
    asked = {TopicPartition(topic, n): ops.LATEST for n in range(6)}
    listed = await ops.list_offsets(cluster3, {**asked, TopicPartition("nowhere", 0): ops.LATEST})
    assert [listed[TopicPartition(topic, n)].offset for n in range(6)] == [1, 2, 3, 4, 5, 6]
    assert listed[TopicPartition("nowhere", 0)].error == codes.UNKNOWN_TOPIC_OR_PARTITION
    early = await ops.list_offsets(cluster3, dict.fromkeys(asked, ops.EARLIEST))
    assert {o.offset for o in early.values()} == {0}
    newest = await ops.list_offsets(cluster3, {TopicPartition(topic, 5): ops.MAX_TIMESTAMP})
    assert newest[TopicPartition(topic, 5)].timestamp == NOW_MS + 5
    later = await ops.list_offsets(cluster3, {TopicPartition(topic, 5): NOW_MS + 3})
    assert later[TopicPartition(topic, 5)].offset == 3


async def test_one_offset_raises_its_code(cluster: Cluster) -> None:
    """A single question about an unknown topic is an error with the topic's name."""
    with pytest.raises(RefreshLeader, match="nowhere-0"):
        await ops.one_offset(cluster, TopicPartition("nowhere", 0), ops.LATEST)


async def test_the_true_end_is_told_only_in_the_leaders_epoch(destination3: LocalKafka, topic: str) -> None:
    """With replica id -2 a follower that is asked in another epoch refuses, so no deposed leader tells its own end."""
    destination3.create_topic(topic)
    own = ClientSettings.from_properties({}, bootstrap=destination3.bootstrap)
    cluster = await Cluster.connect(own, client_id="test")
    tp = TopicPartition(topic, 0)
    leader = await cluster.find_leader(tp)
    wrong = Leader(leader.node, leader.epoch + 1)
    request = ops.list_offsets_request({tp: (wrong, ops.LATEST)}, replica_id=ops.DEBUGGER)
    listed = ops.listed_offsets(await cluster.call(request, node=leader.node))
    assert listed[tp].error == codes.UNKNOWN_LEADER_EPOCH
    await cluster.close()


async def test_a_stale_leader_is_found_anew(destination3: LocalKafka, cluster3: Cluster, topic: str) -> None:
    """A question that goes to a follower, because the cache is wrong, is asked again of the real leader."""
    destination3.create_topic(topic)
    tp = TopicPartition(topic, 0)
    await ops.produce_batch(cluster3, tp, batch(3))
    leader = await cluster3.find_leader(tp)
    told = cluster3.topic(topic)
    assert told is not None
    told.partitions[0] = replace(told.partitions[0], leader=1 + leader.node % 3, leader_epoch=leader.epoch - 1)
    assert await ops.one_offset(cluster3, tp, ops.LATEST) == 3
    assert cluster3.leader(tp) == leader


async def test_reading_a_log(cluster: Cluster, destination: LocalKafka, topic: str) -> None:
    """A chunk holds whole batches as they were written, and the four marks of the log."""
    destination.create_topic(topic)
    tp = TopicPartition(topic, 0)
    one, two = batch(5), batch(7)
    assert (await ops.produce_batch(cluster, tp, one)).base_offset == 0
    assert (await ops.produce_batch(cluster, tp, two, acks=1)).base_offset == 5
    chunk = await ops.read_log(cluster, tp, 0, max_bytes=1 << 20, read_committed=True)
    assert (chunk.error, chunk.high_watermark, chunk.last_stable_offset, chunk.log_start_offset) == (0, 12, 12, 0)
    assert len(chunk.records) == len(one) + len(two)
    assert bytes(chunk.records[61 : len(one)]) == one[61:]
    small = await ops.read_log(cluster, tp, 5, max_bytes=1, read_committed=False)
    assert len(small.records) == len(two)
    end = await ops.read_log(cluster, tp, 12, max_bytes=1000, read_committed=False)
    assert (end.error, len(end.records)) == (0, 0)


async def test_reading_gives_codes_as_values(cluster: Cluster, destination: LocalKafka, topic: str) -> None:
    """Out of range, unknown topics and wrong epochs are values, not exceptions."""
    destination.create_topic(topic)
    tp = TopicPartition(topic, 0)
    assert (await ops.read_log(cluster, tp, 99, max_bytes=10, read_committed=False)).error == codes.OFFSET_OUT_OF_RANGE
    nowhere = await ops.read_log(cluster, TopicPartition("nowhere", 0), 0, max_bytes=10, read_committed=False)
    assert nowhere.error == codes.UNKNOWN_TOPIC_OR_PARTITION
    leader = await cluster.find_leader(tp)
    wrong = Leader(leader.node, leader.epoch + 5)
    chunk = await ops.read_log(cluster, tp, 0, max_bytes=10, read_committed=False, leader=wrong)
    assert chunk.error == codes.UNKNOWN_LEADER_EPOCH
    gone = await ops.read_log(cluster, tp, 0, max_bytes=10, read_committed=False, leader=Leader(77, 0))
    assert gone.error == codes.NETWORK_EXCEPTION


async def test_a_topic_created_anew_is_read_under_its_new_id(cluster: Cluster, topic: str) -> None:
    """After a topic was deleted and created again, reading it finds the new one."""
    tp = TopicPartition(topic, 0)
    first = await ops.create_topic(cluster, topic, partitions=1)
    await ops.produce_batch(cluster, tp, batch(1))
    await ops.delete_topics(cluster, [topic])
    second = await ops.create_topic(cluster, topic, partitions=1)
    assert second.id != first.id
    chunk = await ops.read_log(cluster, tp, 0, max_bytes=1000, read_committed=False)
    assert (chunk.error, chunk.high_watermark) == (0, 0)
    told = cluster.topic(topic)
    assert told is not None
    assert told.id == second.id


async def test_records_are_deleted(cluster: Cluster, destination: LocalKafka, topic: str) -> None:
    """The log's start moves, and an offset above the high watermark is refused by its code."""
    destination.create_topic(topic, 2)
    tp, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    await ops.produce_batch(cluster, tp, batch(10))
    told = await ops.delete_records(cluster, {tp: 4, empty: 9})
    assert told[tp] == ops.LowWatermark(4, 0)
    assert told[empty].error == codes.OFFSET_OUT_OF_RANGE
    assert await ops.one_offset(cluster, tp, ops.EARLIEST) == 4


# Producers and transactions


async def test_a_refused_batch_is_a_value(cluster: Cluster, destination: LocalKafka, topic: str) -> None:
    """A sequence with a gap is refused with code 45 and no offset; a duplicate is told its first offset."""
    destination.create_topic(topic)
    tp = TopicPartition(topic, 0)
    producer = await ops.init_producer_id(cluster)
    first = batch(3, producer)
    assert await ops.produce_batch(cluster, tp, first) == ops.Appended(0, 0, "")
    assert (await ops.produce_batch(cluster, tp, first)).base_offset == 0
    refused = await ops.produce_batch(cluster, tp, batch(3, producer, sequence=9))
    assert (refused.error, refused.base_offset) == (codes.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    (known,) = await ops.describe_producers(cluster, tp)
    assert (known.producer_id, known.epoch, known.last_sequence) == (producer.id, 0, 2)


async def test_a_transaction_commits_and_aborts(cluster: Cluster, destination: LocalKafka, topic: str) -> None:
    """An open transaction holds the stable end back; each end writes one marker; the aborted one is listed."""
    destination.create_topic(topic)
    tp = TopicPartition(topic, 0)
    name = f"txn-{topic}"
    producer = await ops.init_producer_id(cluster, name)
    await ops.add_partitions(cluster, name, producer, [tp])
    appended = await ops.produce_batch(cluster, tp, batch(2, producer, transactional=True), transactional_id=name)
    assert appended.error == 0
    assert await ends(cluster, tp) == (2, 0, 2)
    assert (await ops.describe_producers(cluster, tp))[0].txn_start_offset == 0
    await ops.end_txn(cluster, name, producer, commit=True)
    await ops.add_partitions(cluster, name, producer, [tp])
    await ops.produce_batch(cluster, tp, batch(2, producer, 2, transactional=True), transactional_id=name)
    await ops.end_txn(cluster, name, producer, commit=False)
    for _ in range(100):
        if await ends(cluster, tp) == (6, 6, 6):
            break
        await asyncio.sleep(0.05)
    chunk = await ops.read_log(cluster, tp, 0, max_bytes=1 << 20, read_committed=True)
    assert [(a.producer_id, a.first_offset) for a in chunk.aborted] == [(producer.id, 3)]
    assert chunk.last_stable_offset == 6


async def test_the_owner_renews_and_the_fenced_gives_way(cluster: Cluster, topic: str) -> None:
    """With its own id and epoch the owner is let in at a higher epoch; one that was fenced gets GiveWay."""
    name = f"txn-{topic}"
    first = await ops.init_producer_id(cluster, name)
    again = await ops.init_producer_id(cluster, name, producer=first)
    assert (again.id, again.epoch > first.epoch) == (first.id, True)
    other = await ops.init_producer_id(cluster, name)
    assert other.epoch > again.epoch
    with pytest.raises(GiveWay, match=name):
        await ops.init_producer_id(cluster, name, producer=first)
    with pytest.raises(GiveWay, match=name):
        await ops.end_txn(cluster, name, again, commit=True)


async def test_a_partition_that_is_missing_is_named(cluster: Cluster, destination: LocalKafka, topic: str) -> None:
    """Of two partitions the code of the missing one is told, not "not attempted" of the other."""
    destination.create_topic(topic)
    name = f"txn-{topic}"
    producer = await ops.init_producer_id(cluster, name)
    with pytest.raises(RefreshLeader, match="UNKNOWN_TOPIC_OR_PARTITION"):
        await ops.add_partitions(
            cluster, name, producer, [TopicPartition(topic, 0), TopicPartition("nowhere", 0)], timeout_s=2
        )


async def test_markers_fill_offsets(cluster: Cluster, destination: LocalKafka, topic: str) -> None:
    """A run of markers takes one offset each, and a lower epoch is refused."""
    destination.create_topic(topic)
    tp = TopicPartition(topic, 0)
    producer = await ops.init_producer_id(cluster)
    await ops.produce_batch(cluster, tp, batch(1, producer))
    run = MarkerRun(topic, 0, producer.id, 1, 5)
    assert await ops.write_markers(cluster, 1, [run]) == {tp: 0}
    assert await ends(cluster, tp) == (6, 6, 6)
    late = MarkerRun(topic, 0, producer.id, 0, 1)
    assert await ops.write_markers(cluster, 1, [late]) == {tp: codes.INVALID_PRODUCER_EPOCH}


async def test_the_last_of_several_markers_speaks_for_all(
    cluster: Cluster, destination: LocalKafka, topic: str
) -> None:
    """Of two markers for one partition in one request the refusal of the first is not told: only the end shows it."""
    destination.create_topic(topic)
    tp = TopicPartition(topic, 0)
    producer = await ops.init_producer_id(cluster)
    assert await ops.write_markers(cluster, 1, [MarkerRun(topic, 0, producer.id, 5, 1)]) == {tp: 0}
    runs = [MarkerRun(topic, 0, producer.id, 4, 1), MarkerRun(topic, 0, producer.id, 6, 1)]
    assert await ops.write_markers(cluster, 1, runs) == {tp: 0}
    assert await ends(cluster, tp) == (2, 2, 2)


# Administration


async def test_a_topic_is_created_with_configs(cluster: Cluster, topic: str) -> None:
    """Partitions, the broker's own replication factor and configs arrive; overrides are told from defaults."""
    made = await ops.create_topic(cluster, topic, partitions=2, configs={"compression.type": "producer"})
    assert (made.partitions, made.replication_factor) == (2, 1)
    entries = (await ops.describe_configs(cluster, "topic", [topic]))[topic]
    assert entries["compression.type"].overridden
    assert not entries["flush.ms"].overridden
    assert entries["flush.ms"].is_default
    assert not entries["flush.ms"].sensitive
    few = (await ops.describe_configs(cluster, "topic", [topic], keys=["flush.ms"]))[topic]
    assert set(few) == {"flush.ms"}
    with pytest.raises(TopicAlreadyExists, match=topic):
        await ops.create_topic(cluster, topic, partitions=2)


async def test_a_new_topic_has_configs_on_every_broker(cluster3: Cluster, topic: str) -> None:
    """Right after a topic's creation a broker may not have heard of it; its configs are told all the same."""
    for number in range(20):
        made = f"{topic}-{number}"
        await ops.create_topic(cluster3, made, partitions=1, configs={"compression.type": "producer"})
        asked = [ops.describe_configs(cluster3, "topic", [made], node=node) for node in cluster3.brokers]
        for told in await asyncio.gather(*asked):
            assert told[made]["compression.type"].value == "producer"


async def test_an_unknown_topic_has_no_configs(cluster: Cluster, topic: str) -> None:
    """What stays unknown is told after a few seconds, by its name."""
    began = time.monotonic()
    with pytest.raises(UnknownTopicOrPartition, match=topic):
        await ops.describe_configs(cluster, "topic", [topic])
    assert time.monotonic() - began < 5.0


async def test_refused_topics_say_why(cluster: Cluster, topic: str) -> None:
    """Each mistake has its own class, with the broker's words; validating creates nothing."""
    with pytest.raises(InvalidReplicationFactor, match="INVALID_REPLICATION_FACTOR"):
        await ops.create_topic(cluster, topic, partitions=1, replication_factor=5)
    with pytest.raises(InvalidConfig, match=r"no\.such\.config"):
        await ops.create_topic(cluster, topic, partitions=1, configs={"no.such.config": "1"})
    with pytest.raises(InvalidRequest, match="INVALID_TOPIC_EXCEPTION"):
        await ops.create_topic(cluster, "not a name", partitions=1)
    await ops.create_topic(cluster, topic, partitions=1, validate_only=True)
    assert (await cluster.topics([topic]))[topic].error == codes.UNKNOWN_TOPIC_OR_PARTITION


async def test_configs_are_changed_one_by_one(cluster: Cluster, topic: str) -> None:
    """Setting one and deleting another leaves the rest; a bad value and an unknown topic are refused."""
    await ops.create_topic(cluster, topic, partitions=1, configs={"retention.ms": "5000", "segment.ms": "60000"})
    await ops.alter_configs(cluster, "topic", topic, set_to={"cleanup.policy": "compact"}, delete=["segment.ms"])
    entries = (await ops.describe_configs(cluster, "topic", [topic]))[topic]
    for _ in range(50):
        if entries["cleanup.policy"].overridden:
            break
        await asyncio.sleep(0.1)
        entries = (await ops.describe_configs(cluster, "topic", [topic]))[topic]
    assert entries["cleanup.policy"].value == "compact"
    assert entries["retention.ms"].value == "5000"
    assert not entries["segment.ms"].overridden
    with pytest.raises(InvalidConfig, match="sideways"):
        await ops.alter_configs(cluster, "topic", topic, set_to={"cleanup.policy": "sideways"})
    with pytest.raises(UnknownTopicOrPartition, match="nowhere"):
        await ops.alter_configs(cluster, "topic", "nowhere", set_to={"cleanup.policy": "compact"})
    with pytest.raises(UnknownTopicOrPartition, match="nowhere"):
        await ops.describe_configs(cluster, "topic", ["nowhere"])


async def test_brokers_tell_their_configs(cluster3: Cluster) -> None:
    """Each broker is asked in person."""
    found = await ops.describe_configs(cluster3, "broker", ["1", "3"], keys=["node.id"])
    assert {name: entries["node.id"].value for name, entries in found.items()} == {"1": "1", "3": "3"}


async def test_partitions_are_added(cluster: Cluster, topic: str) -> None:
    """The count rises; a lower one is refused."""
    await ops.create_topic(cluster, topic, partitions=1)
    await ops.create_partitions(cluster, topic, 4)
    for _ in range(50):
        if len((await cluster.topics([topic]))[topic].partitions) == 4:
            break
        await asyncio.sleep(0.1)
    assert len((await cluster.topics([topic]))[topic].partitions) == 4
    with pytest.raises(InvalidRequest, match="INVALID_PARTITIONS"):
        await ops.create_partitions(cluster, topic, 2)


async def test_deleting_what_is_not_there(cluster: Cluster) -> None:
    """An unknown topic is named."""
    with pytest.raises(UnknownTopicOrPartition, match="nowhere"):
        await ops.delete_topics(cluster, ["nowhere"])


async def test_without_an_authorizer_everything_is_allowed(cluster: Cluster) -> None:
    """A broker without an authorizer grants what markers need, also when asked in the older way."""
    rights = await ops.cluster_rights(cluster)
    assert rights is not None
    assert {"ALTER", "CLUSTER_ACTION"} <= rights
    assert await ops_admin._rights_by_metadata(cluster, 5.0) == rights


@pytest.fixture(scope="module")
def guarded() -> Iterator[LocalKafka]:
    """A broker with an authorizer and a SASL listener; user `poor` has no rights."""
    users = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_poor="poor-secret";'
    config = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": users,
    }
    with LocalKafka(config=config, listeners=[Listener("SASL", "SASL_PLAINTEXT")]) as kafka:
        yield kafka


async def test_with_an_authorizer_the_rights_differ(guarded: LocalKafka, topic: str) -> None:
    """A super user may do everything; one without DESCRIBE is told nothing, and refusals name the right."""
    mighty = await Cluster.connect(ClientSettings.from_properties({}, bootstrap=guarded.bootstrap), client_id="test")
    rights = await ops.cluster_rights(mighty)
    assert rights is not None
    assert "ALTER" in rights
    await ops.create_topic(mighty, topic, partitions=1)
    await mighty.close()
    props = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": PLAIN_LOGIN + ' required username="poor" password="poor-secret";',
    }
    own = ClientSettings.from_properties(props, bootstrap=guarded.bootstrap_of("SASL"))
    poor = await Cluster.connect(own, client_id="test")
    assert await ops.cluster_rights(poor) is None
    with pytest.raises(AuthorizationFailed, match="TOPIC_AUTHORIZATION_FAILED"):
        await ops.create_topic(poor, "mine", partitions=1)
    with pytest.raises(AuthorizationFailed, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        await ops.init_producer_id(poor, "mine")
    with pytest.raises(AuthorizationFailed, match="TOPIC_AUTHORIZATION_FAILED"):
        await poor.find_leader(TopicPartition(topic, 0))
    await poor.close()


async def test_wrong_credentials_are_refused_at_once(guarded: LocalKafka) -> None:
    """No round of retries: they are as wrong the next time."""
    props = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": PLAIN_LOGIN + ' required username="poor" password="wrong";',
    }
    own = ClientSettings.from_properties(props, bootstrap=guarded.bootstrap_of("SASL"))
    began = time.monotonic()
    with pytest.raises(AuthenticationFailed):
        await Cluster.connect(own, client_id="test")
    assert time.monotonic() - began < 5.0


async def test_preferred_leaders_need_no_election(cluster3: Cluster, destination3: LocalKafka, topic: str) -> None:
    """A partition led by its preferred replica says so."""
    destination3.create_topic(topic)
    tp = TopicPartition(topic, 0)
    told = await ops.elect_leaders(cluster3, [tp])
    assert told[tp] in (0, codes.ELECTION_NOT_NEEDED)


async def test_records_of_a_real_producer_are_read(cluster: Cluster, destination: LocalKafka, topic: str) -> None:
    """What librdkafka wrote is read back, by topic id and by name alike."""
    destination.create_topic(topic)
    client = Client({"bootstrap.servers": destination.bootstrap, "compression.type": "zstd"})
    for number in range(100):
        client.produce(topic, b"x" * 50, b"%d" % number)
    assert client.flush(20) == 0
    tp = TopicPartition(topic, 0)
    leader = await cluster.find_leader(tp)
    by_id = await ops.read_log(cluster, tp, 0, max_bytes=1 << 20, read_committed=True)
    cluster._metadata._topics.clear()
    by_name = await ops.read_log(cluster, tp, 0, max_bytes=1 << 20, read_committed=True, leader=leader)
    assert len(by_id.records) > 100
    assert bytes(by_id.records) == bytes(by_name.records)
    assert by_name.high_watermark == 100
