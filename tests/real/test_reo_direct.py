"""Copying exactly once on real brokers, counted by an independent read_committed reader."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from twinlog.testing.kafka import LocalKafka
from twinlog.testing.watchdog import Watchdog

PARTITIONS = 3
KILLS = 10
WITHIN_S = 40.0


class Copy:
    """A copy as a process of its own; its output goes to a file."""

    def __init__(self, source: LocalKafka, destination: LocalKafka, topic: str, log: Path, **settings: str) -> None:
        told = {
            "APPLICATION_NAME": f"{topic}-copy",
            "KAFKA_CLUSTERS_SOURCE_BOOTSTRAP_SERVERS": source.bootstrap,
            "KAFKA_CLUSTERS_SOURCE_TOPIC": topic,
            "KAFKA_CLUSTERS_DESTINATION_BOOTSTRAP_SERVERS": destination.bootstrap,
            "KAFKA_CLUSTERS_DESTINATION_TOPIC": f"{topic}-twin",
            **settings,
        }
        self.environment = os.environ | told
        self.log = log
        self.process = self._started()

    def _started(self) -> "subprocess.Popen[bytes]":
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "twinlog", "reo"], env=self.environment, stdout=log, stderr=log
            )
        Watchdog.shared().watch(process.pid)
        return process

    def again(self) -> None:
        """Begin anew after an end."""
        self.process = self._started()

    def end(self, number: int = signal.SIGKILL, timeout_s: float = 15.0) -> int:
        """Send a signal and return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(timeout_s)
        Watchdog.shared().forget(self.process.pid)
        return code

    def status(self) -> list[dict[str, object]]:
        """What `--status --json` says."""
        words = [sys.executable, "-m", "twinlog", "reo", "--status", "--json"]
        told = subprocess.run(words, env=self.environment, capture_output=True, check=True, timeout=30)
        rows: list[dict[str, object]] = json.loads(told.stdout)["partitions"]
        return rows


@pytest.fixture
def begin(source: LocalKafka, destination: LocalKafka, topic: str, tmp_path: Path) -> Iterator[Callable[..., Copy]]:
    """Begins copies of `topic`, whose both sides are made here; ends them."""
    begun: list[Copy] = []
    source.create_topic(topic, partitions=PARTITIONS)
    destination.create_topic(f"{topic}-twin", partitions=PARTITIONS)

    def one(**settings: str) -> Copy:
        begun.append(Copy(source, destination, topic, tmp_path / f"copy-{len(begun)}.log", **settings))
        return begun[-1]

    yield one
    for copy in begun:
        copy.end()


Seen = dict[int, list[tuple[bytes | None, bytes | None, object, tuple[int, int]]]]


def read(kafka: LocalKafka, topic: str, *, count: int, within_s: float = WITHIN_S) -> Seen:
    """All committed records by partition, until `count` were seen and nothing more comes."""
    settings: Mapping[str, str | bool] = {
        "bootstrap.servers": kafka.bootstrap,
        "group.id": f"{topic}-reader",
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(dict(settings))
    seen: Seen = defaultdict(list)
    total, quiet, deadline = 0, 0, time.monotonic() + within_s
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        while time.monotonic() < deadline and (total < count or quiet < 3):
            message = consumer.poll(0.3)
            if message is None or message.error():
                quiet += 1
                continue
            quiet = 0
            total += 1
            seen[message.partition()].append((message.key(), message.value(), message.headers(), message.timestamp()))
    finally:
        consumer.close()
    return seen


def write(kafka: LocalKafka, topic: str, *, first: int, count: int, codec: str = "none") -> None:
    """Records that carry partition and number in their value; keys, headers and times of all kinds."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "compression.type": codec, "linger.ms": 5})
    for number in range(first, first + count):
        for partition in range(PARTITIONS):
            key = None if number % 3 == 0 else f"k{number}".encode()
            headers = [("h", b"1"), ("h", None), ("", b"")] if number % 4 == 0 else None
            producer.produce(
                topic,
                value=f"{partition}:{number}".encode(),
                key=key,
                partition=partition,
                headers=headers,
                timestamp=1_700_000_000_000 + number,
            )
        producer.poll(0)
    assert producer.flush(30) == 0


def test_every_kind_of_record_arrives_as_it_was_also_the_first(
    source: LocalKafka, destination: LocalKafka, topic: str, begin: Callable[..., Copy]
) -> None:
    """Keys, values, nulls, headers, times, all codecs and both outcomes of a transaction: as at the source."""
    for at, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        write(source, topic, first=at * 20, count=20, codec=codec)
    producer = Producer({"bootstrap.servers": source.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for committed in (False, True, False, True):
        producer.begin_transaction()
        producer.produce(topic, value=None, key=b"null" if committed else b"never", partition=0)
        producer.flush(10)
        _ = producer.commit_transaction(10) if committed else producer.abort_transaction(10)
    expected = read(source, topic, count=302)
    assert sum(map(len, expected.values())) == 302

    copy = begin()
    assert read(destination, f"{topic}-twin", count=302) == expected
    assert [row["lag"] for row in copy.status()] == [0, 0, 0]
    assert copy.end(signal.SIGTERM) == 0, copy.log.read_text()


def test_a_copy_that_is_killed_again_and_again_copies_each_record_once(
    source: LocalKafka, destination: LocalKafka, topic: str, begin: Callable[..., Copy]
) -> None:
    """SIGKILL at random moments while records come: nothing is lost or doubled, and the order is kept."""
    chance = random.Random(6)
    copy = begin()
    for round_ in range(KILLS):
        write(source, topic, first=round_ * 200, count=200)
        time.sleep(chance.uniform(0.3, 1.6))
        copy.end()
        copy.again()
    seen = read(destination, f"{topic}-twin", count=KILLS * 200 * PARTITIONS)
    for partition in range(PARTITIONS):
        values = [value for _, value, _, _ in seen[partition]]
        assert values == [f"{partition}:{number}".encode() for number in range(KILLS * 200)], copy.log.read_text()[
            -3000:
        ]


def test_the_second_copy_takes_over_and_the_first_says_so_and_ends(
    source: LocalKafka, destination: LocalKafka, topic: str, begin: Callable[..., Copy]
) -> None:
    """Also one that was frozen meanwhile: it ends with a sentence, and nothing is doubled."""
    first = begin()
    write(source, topic, first=0, count=100)
    read(destination, f"{topic}-twin", count=300)
    first.process.send_signal(signal.SIGSTOP)
    begin()
    write(source, topic, first=100, count=100)
    read(destination, f"{topic}-twin", count=600)
    first.process.send_signal(signal.SIGCONT)
    assert first.process.wait(30) == 1
    assert "Another copy has begun to write" in first.log.read_text()
    seen = read(destination, f"{topic}-twin", count=600)
    for partition in range(PARTITIONS):
        values = [value for _, value, _, _ in seen[partition]]
        assert values == [f"{partition}:{number}".encode() for number in range(200)]
