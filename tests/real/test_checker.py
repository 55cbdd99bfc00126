"""The checker finds every kind of difference between real topics, and none where there is none."""

import time
from collections.abc import Sequence

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from twinlog.testing.checker import Anomaly, Report, assert_identical, compare, wait_until_level
from twinlog.testing.data import EVERYTHING_ALLOWED, HeaderList, Made, create_topic
from twinlog.testing.errors import BenchFailed
from twinlog.testing.kafka import LocalKafka
from twinlog.testing.reader import TopicReader

WAIT_S = 20.0
A, B, C, D = (Made(b"key", value, [("h", b"1")], 1_700_000_000_000) for value in (b"a", b"b", b"c", b"d"))


def put(producer: Producer, topic: str, records: Sequence[Made], partition: int = 0) -> None:
    """Write records as they are."""
    for made in records:
        headers = list(made.headers)
        producer.produce(topic, made.value, made.key, partition, timestamp=made.timestamp_ms, headers=headers)
    assert producer.flush(WAIT_S) == 0


def write(kafka: LocalKafka, topic: str, *records: Made, partition: int = 0) -> None:
    """Write records with an ordinary producer."""
    put(Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 0}), topic, records, partition)


def transact(kafka: LocalKafka, topic: str, *records: Made, commit: bool) -> None:
    """Write records in a transaction of their own; its marker takes one more offset."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": f"{topic}-{time.monotonic_ns()}"})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    put(producer, topic, records)
    if commit:
        producer.commit_transaction(WAIT_S)
    else:
        producer.abort_transaction(WAIT_S)
    reader = TopicReader(kafka, topic)
    reader.settled_bounds()  # the marker comes a little after the answer; what follows must not overtake it
    reader.close()


@pytest.fixture
def both(source: LocalKafka, destination: LocalKafka, topic: str) -> tuple[LocalKafka, LocalKafka]:
    """Both clusters, each with the topic, empty."""
    create_topic(source, topic)
    create_topic(destination, topic)
    return source, destination


def places(report: Report) -> list[tuple[Anomaly, int | None, int | None]]:
    """What was found, and where."""
    return [(e.anomaly, e.source_offset, e.destination_offset) for e in report.examples]


def test_the_same_records_are_identical(both: tuple[LocalKafka, LocalKafka], topic: str) -> None:
    """Equal logs, empty partitions too, are identical, and the report says how much was compared."""
    assert assert_identical(*both, topic).source_records == 0
    for kafka in both:
        write(kafka, topic, A, B, C)
    report = assert_identical(*both, topic)
    assert (report.source_records, report.destination_records) == (3, 3)
    assert str(report).endswith("identical")


def test_the_end_behind_markers_is_reached(both: tuple[LocalKafka, LocalKafka], topic: str) -> None:
    """Logs that end with commit and abort markers are read to their ends without waiting for a time limit."""
    for kafka in both:
        transact(kafka, topic, A, B, commit=True)
        transact(kafka, topic, C, commit=False)
    began = time.monotonic()
    assert assert_identical(*both, topic).source_records == 2
    assert time.monotonic() - began < 20


def test_blanks_may_differ_in_kind(both: tuple[LocalKafka, LocalKafka], topic: str) -> None:
    """An aborted record and a marker are both nothing to a read_committed reader; read_uncommitted sees the one."""
    source, destination = both
    transact(source, topic, A, commit=False)
    transact(destination, topic, B, commit=False)
    assert compare(*both, topic).identical
    found = compare(*both, topic, isolation="read_uncommitted")
    assert places(found) == [(Anomaly.CHANGED, 0, 0)]
    assert "value b'a' became b'b'" in str(found)


def test_a_record_that_is_a_blank_at_the_destination_is_lost(both: tuple[LocalKafka, LocalKafka], topic: str) -> None:
    """Where the source has records and the destination nothing visible, they are LOST."""
    source, destination = both
    write(source, topic, A, B, C, D)
    write(destination, topic, A)
    transact(destination, topic, B, commit=False)
    write(destination, topic, D)
    with pytest.raises(AssertionError, match="LOST 2") as raised:
        assert_identical(*both, topic)
    assert "value=b'b'" in str(raised.value)
    assert places(compare(*both, topic)) == [(Anomaly.LOST, 1, None), (Anomaly.LOST, 2, None)]


def test_a_record_that_is_a_blank_at_the_source_is_extra(both: tuple[LocalKafka, LocalKafka], topic: str) -> None:
    """Where the destination shows what the source has aborted, it is EXTRA."""
    source, destination = both
    transact(source, topic, A, commit=False)
    transact(destination, topic, A, commit=True)
    assert places(compare(*both, topic)) == [(Anomaly.EXTRA, None, 0)]


def changed(
    key: bytes | None = b"key",
    value: bytes | None = b"",
    headers: HeaderList | None = None,
    timestamp_ms: int = 1_700_000_000_000,
) -> Made:
    """A record that differs from the default one in what is given."""
    return Made(key, value, headers or [], timestamp_ms)


@pytest.mark.parametrize(
    ("here", "there", "field"),
    [
        (changed(), changed(value=None), "value b'' became None"),
        (changed(key=b""), changed(key=None), "key b'' became None"),
        (changed(), changed(key=b"yek"), "key b'key' became b'yek'"),
        (changed(), changed(timestamp_ms=1), "timestamp_ms 1700000000000 became 1"),
        (changed(), changed(timestamp_ms=-1), "timestamp_ms 1700000000000 became -1"),
        (changed(headers=[("h", None)]), changed(headers=[("h", b"")]), "headers (('h', None),) became (('h', b''),)"),
        (changed(headers=[("h", b"1")]), changed(), "headers (('h', b'1'),) became ()"),
        (
            changed(headers=[("h", b"1"), ("h", b"2")]),
            changed(headers=[("h", b"2"), ("h", b"1")]),
            "headers (('h', b'1'), ('h', b'2')) became (('h', b'2'), ('h', b'1'))",
        ),
    ],
)
def test_a_changed_field_is_named(
    both: tuple[LocalKafka, LocalKafka], topic: str, here: Made, there: Made, field: str
) -> None:
    """A record that differs in one field only is CHANGED, and the report names the field."""
    write(both[0], topic, A, here)
    write(both[1], topic, A, there)
    found = compare(*both, topic)
    assert places(found) == [(Anomaly.CHANGED, 1, 1)]
    assert found.examples[0].detail == field


def test_a_surplus_marker_shifts_what_follows(both: tuple[LocalKafka, LocalKafka], topic: str) -> None:
    """Records behind an offset too many are SHIFTED, and the logs' ends differ."""
    source, destination = both
    write(source, topic, A, B)
    write(destination, topic, A)
    transact(destination, topic, C, commit=False)
    write(destination, topic, B)
    assert places(compare(*both, topic)) == [(Anomaly.END, 2, 4), (Anomaly.SHIFTED, 1, 3)]


def test_another_log_start_is_found(both: tuple[LocalKafka, LocalKafka], topic: str) -> None:
    """A log that starts later is found, also where it holds the same visible records."""
    for kafka in both:
        transact(kafka, topic, A, commit=False)
        write(kafka, topic, B)
    admin = AdminClient({"bootstrap.servers": both[0].bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, 2)]).values():
        future.result(WAIT_S)
    assert places(compare(*both, topic)) == [(Anomaly.START, 2, 0)]


def test_another_end_without_a_visible_record_is_found(both: tuple[LocalKafka, LocalKafka], topic: str) -> None:
    """A surplus marker at the very end is seen by the end offset alone."""
    for kafka in both:
        write(kafka, topic, A)
    transact(both[1], topic, B, commit=False)
    assert places(compare(*both, topic)) == [(Anomaly.END, 1, 3)]


def test_a_missing_partition_is_found(source: LocalKafka, destination: LocalKafka, topic: str) -> None:
    """A partition that only the source has is named, and its records are LOST."""
    create_topic(source, topic, partitions=2)
    create_topic(destination, topic)
    write(source, topic, A, partition=1)
    expected = [(Anomaly.START, 0, None), (Anomaly.END, 1, None), (Anomaly.LOST, 0, None)]
    assert places(compare(source, destination, topic)) == expected


def test_an_open_transaction_is_not_missing_until_it_is_decided(
    both: tuple[LocalKafka, LocalKafka], topic: str
) -> None:
    """With `until_stable` the source ends where its open transaction begins."""
    source, destination = both
    for kafka in both:
        write(kafka, topic, A)
    producer = Producer({"bootstrap.servers": source.bootstrap, "transactional.id": topic})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    put(producer, topic, [B])
    assert places(compare(*both, topic)) == [(Anomaly.END, 2, 1)]
    assert compare(*both, topic, until_stable=True).identical
    wait_until_level(source, destination, topic, until_stable=True, timeout_s=WAIT_S)
    producer.abort_transaction(WAIT_S)


def test_the_timestamp_type_counts_unless_told_otherwise(
    source: LocalKafka, destination: LocalKafka, topic: str
) -> None:
    """A broker's stamp and the same time stamped by a client differ in type only."""
    create_topic(source, topic, config={**EVERYTHING_ALLOWED, "message.timestamp.type": "LogAppendTime"})
    create_topic(destination, topic)
    stamps: list[int] = []
    producer = Producer({"bootstrap.servers": source.bootstrap})
    producer.produce(topic, b"a", b"key", 0, on_delivery=lambda _error, message: stamps.append(message.timestamp()[1]))
    assert producer.flush(WAIT_S) == 0
    write(destination, topic, Made(b"key", b"a", [], stamps[0]))
    found = compare(source, destination, topic)
    assert places(found) == [(Anomaly.CHANGED, 0, 0)]
    assert found.examples[0].detail == "timestamp_type 2 became 1"
    assert compare(source, destination, topic, timestamp_types=False).identical


def test_a_topic_that_is_not_there_cannot_be_compared(source: LocalKafka, destination: LocalKafka, topic: str) -> None:
    """No answer is no judgement: a missing topic raises instead of being empty."""
    create_topic(source, topic)
    with pytest.raises(BenchFailed, match=topic):
        compare(source, destination, topic, timeout_s=2)


def test_waiting_for_a_destination_that_stays_behind_ends(both: tuple[LocalKafka, LocalKafka], topic: str) -> None:
    """The wait says which partition is behind, and where both ends are."""
    write(both[0], topic, A, B)
    with pytest.raises(BenchFailed, match=r"\{0: \(2, 0\)\}"):
        wait_until_level(*both, topic, timeout_s=1)
    write(both[1], topic, A, B)
    wait_until_level(*both, topic, timeout_s=1)
