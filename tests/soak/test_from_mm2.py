"""From MirrorMaker 2 to a mirror: its copy, the converted settings, the printed commands, and an exact twin."""

import re
import shlex
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.real.commanding import on
from tests.real.hiring import HiredWorker
from tests.real.mirrored_logs import numbered, write, write_transaction

from bench import mm2
from twinlog.cli import kafka_mirrors, twinlog
from twinlog.testing.checker import assert_identical, compare, wait_until_level
from twinlog.testing.data import create_topic
from twinlog.testing.kafka import LocalKafka
from twinlog.testing.reader import QUIET
from twinlog.wire.ops import delete_topics

IDENTITY = {"replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"}
COPIED_S = 90.0


@pytest.mark.soak
@pytest.mark.timeout(240)
def test_a_copy_of_mirrormaker_2_becomes_a_twin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """MirrorMaker 2 renumbers behind an aborted transaction; the mirror of a fresh topic has the source's offsets."""
    with LocalKafka() as source, LocalKafka() as destination:
        create_topic(source, "orders")
        write(source, "orders", numbered(30))
        write_transaction(source, "orders", numbered(5), commit=False)
        write(source, "orders", numbered(30))
        settings = {**IDENTITY, "source.consumer.isolation.level": "read_committed"}
        with mm2.running(source, destination, "orders", settings):
            wait_copied(destination, "orders", 60)
        assert not compare(source, destination, "orders").identical
        file = tmp_path / "mm2.properties"
        file.write_text(mm2.properties(source, destination, "orders", settings))
        assert twinlog.main(["convert-mm2", str(file), "--out", str(tmp_path / "out")]) == 0
        create, start, worker = commands_of(capsys.readouterr().out)
        on(destination, lambda cluster: delete_topics(cluster, ["orders"]))
        assert kafka_mirrors.main(create) == 0
        assert kafka_mirrors.main(start) == 0
        with HiredWorker(destination.bootstrap, tmp_path / "log", *worker[3:]):
            wait_until_level(source, destination, "orders")
            assert assert_identical(source, destination, "orders").source_records == 60


def commands_of(printed: str) -> list[list[str]]:
    """The words behind the program's name of each command that was printed."""
    lines = [line for line in printed.splitlines() if re.match(r"(kafka-mirrors|twinlog) ", line)]
    create, start, worker = (shlex.split(line)[1:] for line in lines)
    return [create, start, worker]


def wait_copied(kafka: LocalKafka, topic: str, records: int) -> None:
    """Wait until a topic has come to be and holds so many records."""
    deadline = time.monotonic() + COPIED_S
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "look", **QUIET})
    end = 0
    while end < records:
        assert time.monotonic() < deadline, f"{end} of {records} records"
        time.sleep(1.0)
        if topic in consumer.list_topics(timeout=COPIED_S).topics:
            end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=COPIED_S)[1]
    consumer.close()
