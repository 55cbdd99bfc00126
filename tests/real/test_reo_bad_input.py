"""What a copy refuses, waits for, and says."""

import importlib.util
import re
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions

from twinlog.testing.kafka import LocalKafka


def _direct() -> ModuleType:
    path = Path(__file__).with_name("test_reo_direct.py")
    spec = importlib.util.spec_from_file_location("reo_direct", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


direct = _direct()
begin = direct.begin
PARTITIONS = direct.PARTITIONS


def set_config(kafka: LocalKafka, topic: str, name: str, value: str) -> None:
    """Set one config of a topic."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(20)


def recreate(kafka: LocalKafka, topic: str) -> None:
    """Delete a topic and create it again."""
    delete(kafka, topic)
    kafka.create_topic(topic, partitions=PARTITIONS)


def delete(kafka: LocalKafka, topic: str) -> None:
    """Delete a topic and wait until it is gone."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_topics([topic])[topic].result(20)
    deadline = time.monotonic() + 20
    while topic in admin.list_topics(timeout=10).topics:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def begins_first(copy: object) -> None:
    """Wait until it says that it copies: what is written then is later than the latest."""
    deadline = time.monotonic() + 30
    while not re.search(r"(direct|stage 1) of share 0 copies", copy.log.read_text()):  # type: ignore[attr-defined]
        assert time.monotonic() < deadline
        time.sleep(0.1)


def ends_with(copy: object, *words: str) -> None:
    """It ends by itself with 1, and says `words`."""
    assert copy.process.wait(30) == 1, copy.log.read_text()  # type: ignore[attr-defined]
    said = copy.log.read_text()  # type: ignore[attr-defined]
    assert all(word in said for word in words), said


def test_a_record_that_is_too_large_stops_its_partition_and_goes_on_once_it_may(
    source: LocalKafka, destination: LocalKafka, topic: str, begin: Callable[..., direct.Copy]
) -> None:
    """The others go on; a batch that only together is too large is parted."""
    set_config(destination, f"{topic}-twin", "max.message.bytes", "2000")
    producer = Producer({"bootstrap.servers": source.bootstrap, "linger.ms": 50})
    for number in range(8):
        producer.produce(topic, value=b"%d" % number + bytes(900), partition=0)
    producer.flush(10)
    producer.produce(topic, value=bytes(5_000), partition=0)
    producer.produce(topic, value=b"behind", partition=0)
    producer.produce(topic, value=b"other", partition=1)
    producer.flush(10)
    copy = begin()
    seen = direct.read(destination, f"{topic}-twin", count=9)
    assert [len(seen[number]) for number in range(3)] == [8, 1, 0], copy.log.read_text()
    row = copy.status()[0]
    assert (row["position"], row["lag"]) == (8, 2)
    assert all(word in str(row["error"]) for word in (f"{topic}-0", "source offset 8", "MESSAGE_TOO_LARGE", "bytes"))
    set_config(destination, f"{topic}-twin", "max.message.bytes", "1048588")
    seen = direct.read(destination, f"{topic}-twin", count=11)
    assert [value[:6] for _, value, _, _ in seen[0]][8:] == [bytes(6), b"behind"]
    assert copy.status()[0]["error"] == ""


def test_topics_that_were_created_again_and_lost_positions_are_refused(
    source: LocalKafka, destination: LocalKafka, topic: str, begin: Callable[..., direct.Copy]
) -> None:
    """Each with its reason; told where to start, it goes on."""
    direct.write(source, topic, first=0, count=10)
    copy = begin()
    direct.read(destination, f"{topic}-twin", count=30)
    recreate(source, topic)
    ends_with(copy, "created again", "start-from")
    direct.write(source, topic, first=10, count=10)
    copy.end()
    copy = begin(START_FROM="earliest")
    direct.read(destination, f"{topic}-twin", count=60)
    copy.end()

    delete(destination, f"{topic}-copy-positions")
    ends_with(begin(), "holds records already", "start-from")
    copy = begin(START_FROM="latest")
    begins_first(copy)
    direct.write(source, topic, first=20, count=10)
    seen = direct.read(destination, f"{topic}-twin", count=90)
    expected = [b"0:%d" % number for number in range(30)]
    assert [value for _, value, _, _ in seen[0]] == expected, copy.log.read_text()

    recreate(destination, f"{topic}-twin")
    ends_with(copy, "created again", "start-from")


def test_offsets_that_retention_took_are_named_and_not_skipped(
    source: LocalKafka, destination: LocalKafka, topic: str, begin: Callable[..., direct.Copy]
) -> None:
    """The partition stands still until told to go on."""
    direct.write(source, topic, first=0, count=10)
    copy = begin()
    direct.read(destination, f"{topic}-twin", count=30)
    copy.end()
    direct.write(source, topic, first=10, count=20)
    where = direct.TopicPartition(topic, 0, 20)
    admin = AdminClient({"bootstrap.servers": source.bootstrap})
    admin.delete_records([where])[where].result(20)
    copy = begin()
    seen = direct.read(destination, f"{topic}-twin", count=70)
    assert [len(seen[number]) for number in range(3)] == [10, 30, 30]
    assert "offsets 10 to 19 (retention)" in copy.log.read_text()
    copy.end()
    begin(START_FROM="earliest")
    seen = direct.read(destination, f"{topic}-twin", count=80)
    assert [value for _, value, _, _ in seen[0]][10:] == [b"0:%d" % number for number in range(20, 30)]


def test_partitions_that_are_added_are_copied_from_their_begin_and_fewer_are_refused(
    source: LocalKafka, destination: LocalKafka, topic: str, begin: Callable[..., direct.Copy]
) -> None:
    """Without a restart; where the destination has fewer, the start says so, and spreading by key is accepted."""
    narrow = f"{topic}-narrow"
    destination.create_topic(narrow, partitions=1)
    ends_with(begin(KAFKA_CLUSTERS_DESTINATION_TOPIC=narrow), "has 1 partitions", "partitioning")
    direct.write(source, topic, first=0, count=10)
    spread = {"PARTITIONING": "key", "KAFKA_CLUSTERS_DESTINATION_TOPIC_PROXY": f"{topic}-keys-proxy"}
    begin(KAFKA_CLUSTERS_DESTINATION_TOPIC=narrow, APPLICATION_NAME=f"{topic}-keys", **spread)
    copy = begin()
    direct.read(destination, f"{topic}-twin", count=30)
    for kafka, name in ((destination, f"{topic}-twin"), (source, topic)):
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_partitions([NewPartitions(name, PARTITIONS + 1)])[name].result(20)
    producer = Producer({"bootstrap.servers": source.bootstrap})
    producer.produce(topic, value=b"new", partition=PARTITIONS)
    producer.flush(10)
    deadline = time.monotonic() + 20
    while [row["position"] for row in copy.status()] != [10, 10, 10, 1]:
        assert time.monotonic() < deadline, copy.log.read_text()
        time.sleep(0.3)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"KAFKA_CLUSTERS_SOURCE_TOPIC": "no-such-topic"}, ("no topic no-such-topic",)),
        ({"KAFKA_CLUSTERS_DESTINATION_TOPIC": "no-such-topic"}, ("no topic no-such-topic", "at least 3 partitions")),
    ],
)
def test_topics_that_are_missing_are_named(
    settings: dict[str, str], words: tuple[str, ...], begin: Callable[..., direct.Copy]
) -> None:
    """And what to do about it."""
    copy = begin(**settings)
    ends_with(copy, *words)
    assert "Traceback" not in copy.log.read_text()
