"""What the slow paths write, taken by real brokers as it is; what real brokers compress, read by the slow paths."""

from collections.abc import AsyncIterator

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Consumer

from twinlog.batch import layout
from twinlog.batch.edit import stamped
from twinlog.batch.records import Record, decode, encode, rewritten
from twinlog.batch.scan import batches
from twinlog.batch.view import Batch
from twinlog.config.client import ClientSettings
from twinlog.names import TopicPartition
from twinlog.testing.kafka import LocalKafka
from twinlog.wire import ops
from twinlog.wire.cluster import Cluster

ANY_TIME = {"message.timestamp.before.max.ms": str(2**63 - 1), "message.timestamp.after.max.ms": str(2**63 - 1)}
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
RECORDS = [
    Record(0, 1000, b"key", b"value"),
    Record(1, -1, None, b""),
    Record(2, 0, b"", None, ((b"h", None), (b"h", b""), (b"", b"x"))),
    Record(3, 2**45, b"large", bytes(range(256)) * 700),
    Record(4, 5, b"last", b"\xff" * 70_000),
]


@pytest.fixture
async def cluster(destination: LocalKafka) -> AsyncIterator[Cluster]:
    """A client of the one-broker destination."""
    own = ClientSettings.from_properties({}, bootstrap=destination.bootstrap)
    client = await Cluster.connect(own, client_id="test-rewritten", label="destination")
    yield client
    await client.close()


async def append(cluster: Cluster, topic: str, batch: Batch) -> None:
    """Produce a batch as the relay does, without an idempotent producer."""
    outgoing = stamped(batch, producer_id=-1, epoch=-1, sequence=-1)
    found = await ops.produce_batch(cluster, TopicPartition(topic, 0), outgoing.header + bytes(outgoing.body), acks=-1)
    assert found.error == 0


async def stored(cluster: Cluster, topic: str) -> list[Batch]:
    """All batches of the log."""
    chunk = await ops.read_log(cluster, TopicPartition(topic, 0), 0, max_bytes=1 << 24, read_committed=False)
    found = list(batches(chunk.records))
    assert all(isinstance(one, Batch) for one in found)
    return [one for one in found if isinstance(one, Batch)]


def consumed(kafka: LocalKafka, topic: str, count: int) -> list[Record]:
    """What librdkafka reads."""
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    reader = Consumer(settings)
    reader.subscribe([topic])
    try:
        return [_record(reader) for _ in range(count)]
    finally:
        reader.close()


def _record(reader: Consumer) -> Record:
    message = reader.poll(20)
    assert message is not None
    assert message.error() is None
    kind, timestamp = message.timestamp()
    headers = tuple((name.encode(), value) for name, value in message.headers() or ())
    shown = timestamp if kind == TIMESTAMP_CREATE_TIME else -1
    return Record(message.offset(), shown, message.key(), message.value(), headers)


@pytest.mark.parametrize("codec", CODECS)
async def test_a_broker_takes_rewritten_batches_as_they_are(
    destination: LocalKafka, cluster: Cluster, topic: str, codec: str
) -> None:
    """The broker, which reads them to judge them, stores the same bytes; another client reads the same records."""
    destination.create_topic(topic, config=ANY_TIME)
    whole = encode(
        [Record(0, 7, None, b"cut off"), *(one._replace(offset=one.offset + 1) for one in RECORDS)], codec=CODECS[codec]
    )
    (made,) = rewritten(whole, from_offset=1)
    await append(cluster, topic, made)
    (found,) = await stored(cluster, topic)
    assert bytes(found.raw[layout.ATTRIBUTES : layout.PRODUCER_ID]) == bytes(
        made.raw[layout.ATTRIBUTES : layout.PRODUCER_ID]
    )
    assert bytes(found.body) == bytes(made.body)
    assert decode(found) == RECORDS
    assert consumed(destination, topic, len(RECORDS)) == RECORDS


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
async def test_what_a_broker_compresses_and_stamps_is_read(
    destination: LocalKafka, cluster: Cluster, topic: str, codec: str, kind: str
) -> None:
    """Java's own encoders, and the broker's stamp, which becomes the records' own time."""
    config = {"compression.type": "uncompressed" if codec == "none" else codec, "message.timestamp.type": kind}
    destination.create_topic(topic, config=ANY_TIME | config)
    await append(cluster, topic, encode(RECORDS, codec=layout.GZIP if codec == "none" else layout.NO_CODEC))
    (found,) = await stored(cluster, topic)
    assert found.codec == CODECS[codec]
    stamp = found.max_timestamp
    expected = RECORDS if kind == "CreateTime" else [one._replace(timestamp=stamp) for one in RECORDS]
    assert decode(found) == expected
    copy = f"{topic}-copy"
    destination.create_topic(copy, config=ANY_TIME)
    for one in rewritten(found, from_offset=0):
        await append(cluster, copy, one)
    assert consumed(destination, copy, len(RECORDS)) == expected
