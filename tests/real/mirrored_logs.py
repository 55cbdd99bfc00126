"""Looks at the logs of both sides below what a consumer shows: batches, blanks, answers to questions about times."""

import random
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from tests.real.mirroring import Mirror

from twinlog.batch.scan import batches
from twinlog.batch.view import Batch
from twinlog.names import TopicPartition as Tp
from twinlog.testing.data import Made
from twinlog.testing.kafka import LocalKafka
from twinlog.testing.reader import SeenRecord, seen
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops import LogChunk, read_log

READ_BYTES = 16 << 20
WAIT_S = 20.0


@dataclass(frozen=True, slots=True)
class Stored:
    """A data batch as its log holds it."""

    first: int
    last: int
    codec: int
    body: bytes


def stored(mirror: Mirror, topic: str, partition: int = 0, *, at_source: bool) -> list[Stored]:
    """What a log has in batches that are neither markers nor empty, aborted ones among them."""
    return [
        Stored(batch.base_offset, batch.last_offset, batch.codec, bytes(batch.body))
        for batch in all_batches(mirror, topic, partition, at_source=at_source)
        if not batch.control and batch.count
    ]


def compressed(batches: Sequence[Stored]) -> list[Stored]:
    """Those that nobody may have joined on the way."""
    return [batch for batch in batches if batch.codec]


def all_batches(mirror: Mirror, topic: str, partition: int = 0, *, at_source: bool) -> list[Batch]:
    """Every batch of a log, read below the surface."""
    cluster = mirror.clusters[0 if at_source else 1]
    where = Tp(topic, partition)
    found: list[Batch] = []
    position = -1
    while True:
        chunk = mirror.run(_read(cluster, where, position))
        position = chunk.log_start_offset if position < 0 else position
        read = [one for one in batches(chunk.records, where) if isinstance(one, Batch) and one.last_offset >= position]
        if not read:
            return found
        found += read
        position = read[-1].next_offset


def visible(kafka: LocalKafka, topic: str, partition: int = 0) -> dict[int, SeenRecord]:
    """All records that a read_committed consumer of one partition gets, by offset."""
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": topic, "enable.partition.eof": True}
    consumer = Consumer({**settings, "auto.offset.reset": "error"})
    first = consumer.get_watermark_offsets(TopicPartition(topic, partition), WAIT_S)[0]
    consumer.assign([TopicPartition(topic, partition, first)])
    records: dict[int, SeenRecord] = {}
    try:
        while True:
            message = consumer.poll(WAIT_S)
            assert message is not None
            if message.error():
                assert message.error().code() == KafkaError._PARTITION_EOF
                return records
            records[message.offset()] = seen(message)
    finally:
        consumer.close()


async def _read(cluster: Cluster, where: Tp, position: int) -> LogChunk:
    if position < 0:
        first = await read_log(cluster, where, 0, max_bytes=1, read_committed=False)
        position = max(first.log_start_offset, 0)
    return await read_log(cluster, where, position, max_bytes=READ_BYTES, read_committed=False)


def offsets_for_times(kafka: LocalKafka, topic: str, partition: int, times_ms: list[int]) -> list[int]:
    """What a consumer is told when it asks for the first offset at or after each of the times."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": topic})
    try:
        answers = [
            consumer.offsets_for_times([TopicPartition(topic, partition, time_ms)], timeout=WAIT_S)[0]
            for time_ms in times_ms
        ]
    finally:
        consumer.close()
    assert not any(answer.error for answer in answers)
    return [answer.offset for answer in answers]


def write(
    kafka: LocalKafka, topic: str | list[str], records: Sequence[Made], *, partition: int = 0, **settings: object
) -> None:
    """Produce records as they are, in few batches, to one topic or each of several."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 5, **settings})
    for name in [topic] if isinstance(topic, str) else topic:
        put(producer, name, records, partition=partition)


def put(producer: Producer, topic: str, records: Sequence[Made], *, partition: int = 0) -> None:
    """Hand records to a producer and wait until the log holds them."""
    for made in records:
        while True:
            try:
                producer.produce(
                    topic, made.value, made.key, partition, timestamp=made.timestamp_ms, headers=list(made.headers)
                )
            except BufferError:
                producer.poll(0.1)
            else:
                break
    assert producer.flush(WAIT_S) == 0


def write_transaction(
    kafka: LocalKafka, topic: str, records: Sequence[Made], *, codec: str = "none", commit: bool = True
) -> None:
    """Produce records in one transaction of a new producer."""
    producer = transactional(kafka, **{"compression.type": codec})
    producer.begin_transaction()
    put(producer, topic, records)
    (producer.commit_transaction if commit else producer.abort_transaction)(WAIT_S)


def transactional(kafka: LocalKafka, **settings: object) -> Producer:
    """A new transactional producer."""
    own = {"bootstrap.servers": kafka.bootstrap, "linger.ms": 1, "transactional.id": f"test-{uuid.uuid4().hex}"}
    producer = Producer({**own, **settings})
    producer.init_transactions(WAIT_S)
    return producer


def numbered(count: int, *, value_bytes: int = 100, seed: int = 1, timestamp_ms: int = 0) -> list[Made]:
    """Records with numbered keys and random values."""
    rng = random.Random(seed)
    return [Made(b"%d" % number, rng.randbytes(value_bytes), [], timestamp_ms) for number in range(count)]


def alter(kafka: LocalKafka, topic: str, configs: Mapping[str, str]) -> None:
    """Set configs of a topic."""
    set_to = AlterConfigOpType.SET
    entries = [ConfigEntry(name, value, incremental_operation=set_to) for name, value in configs.items()]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(WAIT_S)


def delete_records(kafka: LocalKafka, topic: str, before: Mapping[int, int]) -> None:
    """Delete each partition's records below an offset."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    asked = [TopicPartition(topic, partition, offset) for partition, offset in before.items()]
    for future in admin.delete_records(asked).values():
        future.result(WAIT_S)


def config_of(kafka: LocalKafka, topic: str) -> dict[str, str | None]:
    """All configs of a topic."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    entries = admin.describe_configs([resource])[resource].result(WAIT_S)
    return {name: entry.value for name, entry in entries.items()}
