"""A worker whose principal lacks the right to write markers, on a destination with an authorizer."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from tests.real.commanding import Commands, on
from tests.real.mirrored_logs import numbered, write, write_transaction

from twinlog.cli import twinlog
from twinlog.names import TopicPartition
from twinlog.testing.checker import assert_identical
from twinlog.testing.data import create_topic
from twinlog.testing.kafka import Listener, LocalKafka
from twinlog.wire.ops import delete_records

LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
ALL, CREATE, DESCRIBE = AclOperation.ALL, AclOperation.CREATE, AclOperation.DESCRIBE
BY_NAME = {ResourceType.TOPIC: "*", ResourceType.GROUP: "*", ResourceType.TRANSACTIONAL_ID: "*"}
WORKS_S = 60.0


@pytest.fixture(scope="module")
def guarded() -> Iterator[LocalKafka]:
    """A destination where user `worker` may do everything to topics, but nothing that alters the cluster."""
    config = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f'{LOGIN} user_worker="secret" user_reader="secret";',
    }
    with LocalKafka(config=config, listeners=[Listener("SASL", "SASL_PLAINTEXT")]) as kafka:
        grants = [(kind, name, ALL) for kind, name in BY_NAME.items()]
        grants += [
            (ResourceType.BROKER, "kafka-cluster", op) for op in (CREATE, DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
        ]
        grant(kafka, *grants)
        yield kafka


def grant(kafka: LocalKafka, *grants: tuple[ResourceType, str, AclOperation], user: str = "worker") -> None:
    """Allow the worker's principal, or another, these operations."""
    allow, literal = AclPermissionType.ALLOW, ResourcePatternType.LITERAL
    acls = [AclBinding(kind, name, literal, f"User:{user}", "*", op, allow) for kind, name, op in grants]
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for future in admin.create_acls(acls).values():
        future.result(WORKS_S)


def login(folder: Path, user: str) -> str:
    """A file of client properties with which one logs in as that user."""
    config = folder / f"{user}.properties"
    jaas = f'sasl.jaas.config={LOGIN} username="{user}" password="secret";'
    config.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n{jaas}\n")
    return str(config)


@contextmanager
def worker(kafka: LocalKafka, folder: Path) -> Iterator[None]:
    """A worker that logs in as `worker`."""
    words = ["worker", "--bootstrap-server", kafka.bootstrap_of("SASL"), "--command-config", login(folder, "worker")]
    process = subprocess.Popen([sys.executable, "-m", "twinlog", *words], stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(15)


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait, within a bound."""
    deadline = time.monotonic() + WORKS_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.3)


def test_a_topic_that_needs_blanks_fails_before_its_first_one_and_names_the_right(
    guarded: LocalKafka, source: LocalKafka, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Plain topics go on; the other one fails at its first marker, and goes on by itself once the right is granted."""
    commands = Commands(guarded, source, tmp_path, capsys)
    plain, blanks = f"{topic}-plain", f"{topic}-blanks"
    create_topic(source, plain)
    create_topic(source, blanks)
    records = numbered(50)
    write(source, plain, records)
    write(source, blanks, records)
    write_transaction(source, blanks, records[:5], commit=False)
    mirror = commands.mirror()
    commands.done("--start", "--mirror", mirror, "--topics", f"{plain},{blanks}")
    with worker(guarded, tmp_path):
        until(lambda: blanks in commands.done("--describe", "--failed"), "the topic with blanks fails")
        said = commands("--describe", "--failed", "--json").out
        assert "Grant ALTER or CLUSTER_ACTION on CLUSTER" in said
        assert "offset 50" in said
        until(lambda: '"lag":0,"state":"MIRRORING"' in commands.done("--describe", "--json"), "the plain topic goes on")
        assert_identical(source, guarded, plain)
        grant(guarded, (ResourceType.BROKER, "kafka-cluster", AclOperation.CLUSTER_ACTION))
        until(lambda: "No failed" in commands.done("--describe", "--failed"), "it goes on by itself")
        until(lambda: commands.done("--describe", "--json").count('"lag":0') == 2, "both are level")
    assert assert_identical(source, guarded, blanks).source_records == 50


def test_verify_says_so_where_the_mirrors_state_may_not_be_read(
    guarded: LocalKafka, source: LocalKafka, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A log that begins later is then neither identical nor different; where nothing depends on it, nobody asks."""
    Commands(guarded, source, tmp_path, capsys).mirror()
    for kafka in (source, guarded):
        kafka.create_topic(topic)
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        for number in range(10):
            producer.produce(topic, b"%d" % number, partition=0, timestamp=1000)
        assert producer.flush(WORKS_S) == 0
    grant(guarded, (ResourceType.TOPIC, topic, AclOperation.READ), user="reader")
    words = ["verify", "--topic", topic, "--source", source.bootstrap, "--destination", guarded.bootstrap_of("SASL")]
    words += ["--destination-config", login(tmp_path, "reader")]

    def said(*more: str) -> tuple[int, str]:
        capsys.readouterr()
        return twinlog.main([*words, *more]), capsys.readouterr().out

    code, out = said()
    assert (code, "Warning" in out) == (0, False), out
    deleted = on(guarded, lambda cluster: delete_records(cluster, {TopicPartition(topic, 0): 4}))
    assert [one.error for one in deleted.values()] == [0]
    code, out = said()
    assert code == 2, out
    assert "Warning: whether the mirror was told to begin where the destination's logs do is not known" in out
    assert "READ on topic __mirror_state" in out
    assert "--from 0:4 if that was meant" in out
    assert said("--from", "0:4")[0] == 0
    assert said("--from", "0:3")[0] == 1
