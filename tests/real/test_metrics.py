"""What a worker process tells of itself over HTTP and in its log, against what was done to both clusters."""

import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.real.commanding import produce
from tests.real.mirroring import Mirror, Worker

from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import MirrorRecord, Tombstone, TopicRecord
from twinlog.service.metric_table import TABLE
from twinlog.testing.kafka import LocalKafka
from twinlog.testing.ports import free_port
from twinlog.testing.watchdog import Watchdog

pytestmark = pytest.mark.timed

# All that may be wrong shows within this.
SHOWN_WITHIN_S = 30.0
PARTITIONS, RECORDS, IN_TRANSACTION = 2, 500, 10
STUCK_TOPIC = "stuck"

# The command itself, but that nothing comes of appends to one topic: a broker that never answers, a mistake of ours.
STUCK = """
import asyncio, sys
from twinlog.cli.twinlog import main
from twinlog.relay.destination import Destination

steps = Destination._steps

async def never(self, stream, plan):
    if stream.where.topic == "stuck":
        await asyncio.sleep(3600)
    return await steps(self, stream, plan)

Destination._steps = never
sys.exit(main(sys.argv[1:]))
"""


class HttpWorker(Worker):
    """The worker as its command starts it, with an HTTP port of its own and its log in JSON."""

    _numbers = itertools.count(1)

    def __init__(self, bootstrap: str) -> None:
        self.log_path = Path(tempfile.gettempdir()) / f"twinlog-http-{os.getpid()}-{next(self._numbers)}.log"
        Watchdog.shared().watch(self.log_path)
        words = ["--bootstrap-server", bootstrap, "--http", "127.0.0.1:0", "--log-format", "json"]
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", STUCK, "worker", *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        Watchdog.shared().watch(self.pid)
        self.wait_running()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", self.log_text())
        assert found is not None, self.log_text()
        self.port = int(found[1])

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of an answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()

    def value(self, name: str, **labels: str) -> float:
        """One sample's value; -2 where it is not there."""
        wanted = {f'{label}="{value}"' for label, value in labels.items()}
        for line in self.get("/metrics")[1].splitlines():
            head, _, value = line.rpartition(" ")
            if re.match(rf"{name}($|{{)", head) and all(one in head for one in wanted):
                return float(value)
        return -2.0


@pytest.fixture(scope="module")
def mirror() -> Iterator[Mirror]:
    """A mirror that the worker of this file serves, between brokers of its own: some are frozen for long."""
    with LocalKafka() as source, LocalKafka() as destination, Mirror(source, destination, workers=0) as mirror:
        mirror.workers.append(HttpWorker(destination.bootstrap))
        # It takes its time to be named, and meanwhile other tests run.
        mirror.create(STUCK_TOPIC)
        mirror.start(STUCK_TOPIC)
        mirror.wait_state(STUCK_TOPIC, PartitionState.MIRRORING)
        produce(source, STUCK_TOPIC, RECORDS)
        yield mirror


@pytest.fixture
def worker(mirror: Mirror) -> HttpWorker:
    """The worker of this file."""
    worker = mirror.workers[0]
    assert isinstance(worker, HttpWorker)
    return worker


def ready(mirror: Mirror, worker: HttpWorker, status: int, reason: str) -> float:
    """Wait until `/readyz` answers so; returns after how many seconds it did."""
    began = time.monotonic()

    def answers() -> bool:
        code, text = worker.get("/readyz")
        return code == status and reason in text

    mirror.wait_for(answers, lambda: str(worker.get("/readyz")), SHOWN_WITHIN_S)
    return time.monotonic() - began


def test_counts_are_what_was_produced(mirror: Mirror, worker: HttpWorker, topic: str) -> None:
    """Records, batches, blanks and lag are the truth, and every name is in the table and the other way round."""
    mirror.create(topic, partitions=PARTITIONS)
    mirror.start(topic)
    for partition in range(PARTITIONS):
        produce(mirror.source, topic, RECORDS, partition)
    producer = Producer({"bootstrap.servers": mirror.source.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    for _ in range(IN_TRANSACTION):
        producer.produce(topic, value=b"v", partition=1)
    producer.commit_transaction(30)
    mirror.wait_level(topic)
    time.sleep(1.5)
    labels = {"mirror": mirror.name, "topic": topic}
    copied = [worker.value("twinlog_copied_records_total", partition=str(p), **labels) for p in range(PARTITIONS)]
    assert copied == [RECORDS, RECORDS + IN_TRANSACTION]
    assert [worker.value("twinlog_blanks_total", partition=str(p), **labels) for p in range(PARTITIONS)] == [0, 1]
    for lag in ("records", "bytes", "milliseconds"):
        assert worker.value(f"twinlog_lag_{lag}", partition="1", **labels) == 0, lag
    assert worker.value("twinlog_mirror_topics", mirror=mirror.name) == 2
    assert worker.value("twinlog_partitions", state="MIRRORING") == PARTITIONS + 1
    told = set(re.findall(r"^(twinlog_\w+?)(?:\{| )", worker.get("/metrics")[1], re.MULTILINE))
    assert {name for name in told if not name.endswith("_created")} == {metric.name for metric in TABLE}
    assert worker.get("/healthz") == (200, "ok\n")
    assert worker.get("/readyz") == (200, "ready\n")


def test_source_that_is_not_there_is_named(mirror: Mirror, worker: HttpWorker, topic: str) -> None:
    """A wrong address is told with the address."""
    mirror.create(topic)
    nowhere = f"127.0.0.1:{free_port()}"
    info = mirror.run(mirror.clusters[1].topics([topic]))[topic]
    name = f"{mirror.name}-nowhere"
    topic_record = TopicRecord(name, topic, DesiredState.MIRRORING, info.id, info.id, 1)
    mirror.put(MirrorRecord(name, {"bootstrap.servers": nowhere}, ""), topic_record)
    try:
        assert ready(mirror, worker, 503, nowhere) < SHOWN_WITHIN_S
    finally:
        mirror.put(Tombstone(topic_record.key), Tombstone(("partition", name, topic, 0)), Tombstone(("mirror", name)))
    assert ready(mirror, worker, 200, "ready") < SHOWN_WITHIN_S


def test_partition_that_stands_still_is_named(mirror: Mirror, worker: HttpWorker) -> None:
    """An append that never comes to anything: the log names the partition, the metric counts the seconds."""
    named = f"{STUCK_TOPIC}-0 of mirror {mirror.name}: stands still at offset 0 for 2"
    mirror.wait_for(lambda: named in worker.log_text(), lambda: "nothing stands still", SHOWN_WITHIN_S)
    assert worker.value("twinlog_still_seconds", topic=STUCK_TOPIC) >= 19
    assert worker.value("twinlog_lag_milliseconds", topic=STUCK_TOPIC) >= 19_000
    assert worker.value("twinlog_lag_records", topic=STUCK_TOPIC) == RECORDS
    line = next(line for line in worker.log_text().splitlines() if named in line)
    assert int(line.split("stands still at offset 0 for ")[1].split()[0]) < SHOWN_WITHIN_S


def test_frozen_destination_is_named(mirror: Mirror, worker: HttpWorker) -> None:
    """Without its answers no lease is held; the worker lives on, and is ready again by itself."""
    mirror.destination.nodes[0].pause()
    try:
        assert ready(mirror, worker, 503, "the lease is not held") < SHOWN_WITHIN_S
        assert worker.get("/healthz") == (200, "ok\n")
    finally:
        mirror.destination.nodes[0].resume()
    assert ready(mirror, worker, 200, "ready") < SHOWN_WITHIN_S


def test_frozen_source_is_named(mirror: Mirror, worker: HttpWorker) -> None:
    """Not ready within the bound, and ready again once the source answers."""
    mirror.source.nodes[0].pause()
    try:
        reason = f"mirror {mirror.name}: its source has said nothing for"
        assert ready(mirror, worker, 503, reason) < SHOWN_WITHIN_S
    finally:
        mirror.source.nodes[0].resume()
    assert ready(mirror, worker, 200, "ready") < SHOWN_WITHIN_S


def test_log_is_json_line_by_line(mirror: Mirror, worker: HttpWorker) -> None:
    """Every line is one object with the fields that a collector of logs expects."""
    events = [json.loads(line) for line in worker.log_text().splitlines()]
    assert all({"time", "level", "logger", "message"} <= event.keys() for event in events)
    assert any(event.get("mirror") == mirror.name and event.get("partition") == 0 for event in events)
