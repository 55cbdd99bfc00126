"""`verify` against real brokers: topics of every kind of data, and what differs between two of them."""

import random
from collections.abc import Mapping

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from twinlog.config.client import ClientSettings
from twinlog.errors import UnknownTopicOrPartition, Unreachable
from twinlog.testing.kafka import LocalKafka
from twinlog.testing.load import Load
from twinlog.verify import run
from twinlog.verify.report import Outcome, Report
from twinlog.verify.run import Question, verify

Values = Mapping[int, bytes]


@pytest.fixture(autouse=True)
def one_cluster_may_be_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no difference is wanted, a topic is compared with itself, which a user is kept from."""
    monkeypatch.setattr(run, "_refuse_same", lambda _source, _destination: None)


async def compared(source: LocalKafka, destination: LocalKafka, topic: str, **more: object) -> Report:
    """Compare a topic of two clusters."""
    ours, theirs = (ClientSettings.from_properties({}, bootstrap=side.bootstrap) for side in (source, destination))
    return await verify(Question(ours, theirs, topic, **more))  # type: ignore[arg-type] # passed on


def write(kafka: LocalKafka, topic: str, values: Values, *, batch: int = 100, headers: bytes | None = b"h") -> None:
    """Write values, by their place in the log, as one producer would at the same times."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "batch.num.messages": batch, "linger.ms": 50})
    for number, value in values.items():
        producer.produce(topic, value, b"%d" % (number % 10), 0, timestamp=1000 + number, headers=[("h", headers)])
    producer.flush()


def aborted(kafka: LocalKafka, topic: str, records: int) -> None:
    """Write a transaction and abort it: so many blanks, and one more for its marker."""
    settings = {"bootstrap.servers": kafka.bootstrap, "transactional.id": f"{topic}-{kafka.cluster_id}"}
    producer = Producer(settings)
    producer.init_transactions()
    producer.begin_transaction()
    for _ in range(records):
        producer.produce(topic, b"undone", b"k", 0)
    producer.flush()
    producer.abort_transaction()
    Producer(settings).init_transactions()  # waits until the marker is written


def both(source: LocalKafka, destination: LocalKafka, topic: str, **more: object) -> None:
    """Create a topic on both sides."""
    for side in (source, destination):
        side.create_topic(topic, partitions=1, **more)  # type: ignore[arg-type] # passed on


NUMBERED = {number: b"value %d" % number for number in range(500)}


async def test_every_kind_of_data_is_read(source: LocalKafka, topic: str) -> None:
    """A topic of all codecs, transactions, headers and edges is its own twin, and all its records are seen."""
    source.create_topic(topic, partitions=3)
    load = Load(source, topic, random.Random(11))
    load.everything(100)
    report = await compared(source, source, topic)
    assert report.outcome is Outcome.IDENTICAL
    assert report.records == load.acknowledged
    sample = await compared(source, source, topic, sample=3)
    assert sample.outcome is Outcome.IDENTICAL


async def test_an_open_transaction_is_left_out(source: LocalKafka, topic: str) -> None:
    """Up to the last stable offset both are compared; what is undecided is told."""
    source.create_topic(topic, partitions=1)
    load = Load(source, topic, random.Random(12))
    load.plain(10, partition=0)
    with load.open_transaction() as transaction:
        transaction.send([load.make.record() for _ in range(5)], partition=0)
        report = await compared(source, source, topic)
    assert report.outcome is Outcome.IDENTICAL
    assert (report.records, report.partitions[0].undecided) == (10, 5)


async def test_blanks_and_batches_of_any_make_are_the_same(
    source: LocalKafka, destination: LocalKafka, topic: str
) -> None:
    """Two transactions aborted here, one there, between records in batches of other sizes."""
    both(source, destination, topic)
    for side, batch, blanks in ((source, 16, (1, 1)), (destination, 7, (3,))):
        write(side, topic, NUMBERED, batch=batch)
        for records in blanks:
            aborted(side, topic, records)
        write(side, topic, {1000: b"last"})
    report = await compared(source, destination, topic)
    assert report.outcome is Outcome.IDENTICAL, report
    assert (report.partitions[0].end, report.records) == (505, 501)


async def test_differences_are_named(source: LocalKafka, destination: LocalKafka, topic: str) -> None:
    """A changed value, a null header become empty, and a record too many."""
    both(source, destination, topic)
    write(source, topic, NUMBERED)
    theirs = NUMBERED | {77: b"other"}
    write(destination, topic, {at: value for at, value in theirs.items() if at < 300})
    aborted(destination, topic, 1)
    write(destination, topic, {at: value for at, value in theirs.items() if at >= 300})
    part = (await compared(source, destination, topic)).partitions[0]
    assert part.outcome is Outcome.DIFFERENT
    # The two offsets of the aborted transaction: its place, and as many records pushed beyond the source's end.
    assert (part.changed, part.shifted, part.lost, part.extra) == (1, 198, 2, 0)
    assert {"end", "changed", "shifted"} == {finding.kind for finding in part.differences}


async def test_null_and_empty_headers_differ(source: LocalKafka, destination: LocalKafka, topic: str) -> None:
    """As a consumer sees them."""
    both(source, destination, topic)
    write(source, topic, {1: b"v"}, headers=None)
    write(destination, topic, {1: b"v"}, headers=b"")
    part = (await compared(source, destination, topic)).partitions[0]
    assert part.changed == 1
    assert "headers" in part.differences[0].text


async def test_a_lag_is_named(source: LocalKafka, destination: LocalKafka, topic: str) -> None:
    """And nothing is called lost."""
    both(source, destination, topic)
    write(source, topic, NUMBERED)
    write(destination, topic, {at: value for at, value in NUMBERED.items() if at < 400})
    part = (await compared(source, destination, topic)).partitions[0]
    assert (part.outcome, part.lag, part.lost, part.records) == (Outcome.DIFFERENT, 100, 0, 400)


async def test_a_compacted_topic(source: LocalKafka, destination: LocalKafka, topic: str) -> None:
    """Records that a later one of their key replaces may be missing; here aborted ones stand in for the holes."""
    both(source, destination, topic, config={"cleanup.policy": "compact"})
    write(source, topic, NUMBERED)
    aborted(destination, topic, 1)
    write(destination, topic, {at: value for at, value in NUMBERED.items() if at >= 2})
    part = (await compared(source, destination, topic)).partitions[0]
    assert (part.outcome, part.compacted) == (Outcome.IDENTICAL, 2)


async def test_another_number_of_partitions(source: LocalKafka, destination: LocalKafka, topic: str) -> None:
    """It is a difference, and the common partitions are compared."""
    both(source, destination, topic)
    admin = AdminClient({"bootstrap.servers": source.bootstrap})
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(10)
    report = await compared(source, destination, topic)
    assert (report.outcome, len(report.partitions)) == (Outcome.DIFFERENT, 1)


async def test_what_cannot_be_compared(source: LocalKafka, destination: LocalKafka, topic: str) -> None:
    """A topic on one side only, and a cluster that is not there."""
    source.create_topic(topic)
    with pytest.raises(UnknownTopicOrPartition, match=f"destination cluster .* has no topic '{topic}'"):
        await compared(source, destination, topic)
    nobody = ClientSettings.from_properties({}, bootstrap="127.0.0.1:1")
    ours = ClientSettings.from_properties({}, bootstrap=source.bootstrap)
    with pytest.raises(Unreachable):
        await verify(Question(ours, nobody, topic, timeout_s=1.0))
