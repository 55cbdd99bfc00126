"""Transactions of every kind: what a read_committed reader of the source sees is what readers of the twin see."""

import random
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from tests.real.mirrored_logs import delete_records, numbered, put, transactional, write, write_transaction
from tests.real.mirroring import Mirror

from twinlog.control.lifecycle import PartitionState
from twinlog.testing.checker import assert_identical, compare
from twinlog.testing.data import Made
from twinlog.testing.kafka import LocalKafka
from twinlog.testing.load import Load
from twinlog.testing.reader import Bounds, TopicReader

WAIT_S = 20.0
ONE = [Made(b"key", b"value", [])]


@pytest.fixture(scope="module")
def mirror(source: LocalKafka, destination: LocalKafka) -> Iterator[Mirror]:
    """One mirror and its worker for all tests of this file."""
    with Mirror(source, destination) as mirror:
        yield mirror


def mirrored(mirror: Mirror, topic: str, *, timeout_s: float = 40.0) -> int:
    """Start the topic, wait until it is level, compare, and return how many records there are."""
    mirror.start(topic)
    mirror.wait_level(topic, timeout_s=timeout_s)
    return assert_identical(mirror.source, mirror.destination, topic).source_records


def bounds(kafka: LocalKafka, topic: str) -> dict[int, Bounds]:
    """Each partition's bounds, as a consumer is told them."""
    reader = TopicReader(kafka, topic)
    try:
        return reader.bounds()
    finally:
        reader.close()


def end_by(producer: Producer, *, commit: bool) -> None:
    """Commit or abort."""
    (producer.commit_transaction if commit else producer.abort_transaction)(WAIT_S)


def test_committed_aborted_empty_and_single_record_transactions(mirror: Mirror, topic: str) -> None:
    """Each kind before the mirror starts and while it runs, in three partitions at once."""
    mirror.create(topic, partitions=3)
    load = Load(mirror.source, topic, random.Random(1))
    for _ in range(2):
        for records in (0, 1, 30):
            load.transaction(records)
            load.transaction(records, commit=False)
        load.plain(5)
        load.transactions(20)
        load.markers_only()
        mirror.start(topic)
    load.close()
    assert mirrored(mirror, topic) == load.acknowledged


def test_where_nothing_was_aborted_readers_of_either_isolation_agree(mirror: Mirror, topic: str) -> None:
    """Committed transactions only: a read_uncommitted reader, too, finds the same on both sides."""
    mirror.create(topic)
    load = Load(mirror.source, topic, random.Random(2))
    for _ in range(5):
        load.transaction(20)
        load.plain(3)
    load.close()
    assert mirrored(mirror, topic) == load.acknowledged
    assert compare(mirror.source, mirror.destination, topic, isolation="read_uncommitted").identical


def test_five_producers_interleave_many_transactions_in_one_partition(mirror: Mirror, topic: str) -> None:
    """One producer commits and aborts in turn, 3 records each, while four others do the same beside it."""
    mirror.create(topic)
    mirror.start(topic)
    threads = [threading.Thread(target=_take_turns, args=(mirror.source, topic, seed)) for seed in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert mirrored(mirror, topic) == 5 * 50 * 3


def _take_turns(kafka: LocalKafka, topic: str, seed: int) -> None:
    """100 transactions, every other one aborted, each in two batches."""
    producer = transactional(kafka)
    records = numbered(3, seed=seed)
    for number in range(100):
        producer.begin_transaction()
        put(producer, topic, records[:2])
        put(producer, topic, records[2:])
        end_by(producer, commit=number % 2 == 0)


@pytest.mark.parametrize(
    "each", [300, pytest.param(2500, marks=[pytest.mark.soak, pytest.mark.timeout(400)])], ids=["few", "ten-thousand"]
)
def test_consecutive_aborted_transactions_are_passed(mirror: Mirror, topic: str, each: int) -> None:
    """Nothing but aborted transactions of four producers, then one ordinary record, which arrives at its offset."""
    mirror.create(topic)
    threads = [threading.Thread(target=_abort_often, args=(mirror.source, topic, each)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    write(mirror.source, topic, ONE)
    assert mirrored(mirror, topic) == 1
    assert bounds(mirror.destination, topic) == {0: Bounds(0, 8 * each + 1, 8 * each + 1)}


def _abort_often(kafka: LocalKafka, topic: str, count: int) -> None:
    producer = transactional(kafka, **{"linger.ms": 0})
    for _ in range(count):
        producer.begin_transaction()
        put(producer, topic, ONE)
        producer.abort_transaction(WAIT_S)


@pytest.mark.parametrize("codec", [pytest.param("none", marks=pytest.mark.soak), "zstd"])
def test_half_a_million_aborted_records(mirror: Mirror, topic: str, codec: str) -> None:
    """One aborted transaction far larger than any fetch, between ordinary records; blanks come in long runs."""
    mirror.create(topic)
    write(mirror.source, topic, numbered(10))
    producer = transactional(mirror.source, **{"compression.type": codec, "linger.ms": 50, "batch.size": 900_000})
    producer.begin_transaction()
    put(producer, topic, [Made(b"k", b"v", [])] * 500_000)
    end_by(producer, commit=False)
    write(mirror.source, topic, numbered(10, seed=2))
    assert mirrored(mirror, topic) == 20
    assert bounds(mirror.destination, topic)[0].end == 500_021
    mirror.adopt_anew(topic)
    mirror.wait_level(topic)


def test_a_long_run_of_blanks_at_the_end_of_the_log(mirror: Mirror, topic: str) -> None:
    """20,000 aborted records with nothing behind them, and then more of both kinds."""
    mirror.create(topic)
    mirror.start(topic)
    for seed in range(2):
        write_transaction(mirror.source, topic, numbered(20_000, value_bytes=1), commit=False, codec="zstd")
        mirror.wait_level(topic)
        write(mirror.source, topic, numbered(10, seed=seed))
    assert mirrored(mirror, topic) == 20


def test_an_open_transaction_holds_back_only_its_own_partition(mirror: Mirror, topic: str) -> None:
    """What is undecided, and what is behind it, is not copied and said to wait; once decided, all of it comes."""
    mirror.create(topic, partitions=2)
    mirror.start(topic)
    load = Load(mirror.source, topic, random.Random(3))
    load.plain(10, partition=0)
    with load.open_transaction() as transaction:
        transaction.send([load.make.record() for _ in range(5)], partition=0)
        load.plain(20, partition=0)
        load.plain(30, partition=1)
        mirror.wait_level(topic, until_stable=True)
        assert mirror.ends(topic) == {0: 10, 1: 30}
        figure = mirror.wait_figure(topic, lambda figure: figure.waiting_for_transaction)
        assert (figure.source_high_watermark, figure.source_stable_offset, figure.destination_end) == (35, 10, 10)
        other = mirror.wait_figure(topic, lambda figure: figure.destination_end == 30, 1)
        assert not other.waiting_for_transaction
        assert_identical(mirror.source, mirror.destination, topic, until_stable=True)
        transaction.commit()
    load.close()
    assert mirrored(mirror, topic) == load.acknowledged == 65
    figure = mirror.wait_figure(topic, lambda figure: figure.destination_end == 36)
    assert not figure.waiting_for_transaction


@pytest.mark.parametrize("commit", [True, False], ids=["committed", "aborted"])
def test_a_marker_at_the_end_leaves_no_lag(mirror: Mirror, topic: str, commit: bool) -> None:  # noqa: FBT001  # parametrized
    """The last offset of the log is a marker: it is copied, too, and the published figures show a lag of 0."""
    mirror.create(topic)
    mirror.start(topic)
    write_transaction(mirror.source, topic, numbered(3), commit=commit)
    mirror.wait_level(topic)
    figure = mirror.wait_figure(topic, lambda figure: figure.destination_end == 4)
    assert figure.destination_end == figure.source_stable_offset == 4
    assert not figure.waiting_for_transaction
    assert mirrored(mirror, topic) == (3 if commit else 0)


def test_a_log_that_holds_nothing_but_a_marker(mirror: Mirror, topic: str) -> None:
    """The aborted record in front of its marker is deleted; with the marker deleted, too, the log is empty at 2."""
    mirror.create(topic, partitions=2)
    for partition in range(2):
        producer = transactional(mirror.source)
        producer.begin_transaction()
        put(producer, topic, ONE, partition=partition)
        end_by(producer, commit=False)
    delete_records(mirror.source, topic, {0: 1, 1: 2})
    assert mirrored(mirror, topic) == 0
    assert bounds(mirror.destination, topic) == {0: Bounds(1, 2, 2), 1: Bounds(2, 2, 2)}
    for partition in range(2):
        write(mirror.source, topic, ONE, partition=partition)
    assert mirrored(mirror, topic) == 2
    assert set(mirror.states(topic).values()) == {PartitionState.MIRRORING}
