"""Failover and failback with the commands and real clients: both ways, and refused where the old source has more."""

import re
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place
from tests.real.mirrored_logs import delete_records, transactional, visible, write, write_transaction
from tests.real.ways import LEVEL_S, RECORDS, Way, assert_verified, end, mixed

from twinlog.cli import twinlog
from twinlog.testing.data import Made
from twinlog.testing.kafka import LocalKafka


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_failover_failback_and_failover_again_end_identical(ways: tuple[Way, Way], topic: str, policy: str) -> None:
    """Transactional data goes over, is written on there, comes back plainly, and goes over once more."""
    there, back = ways
    topic = f"{policy}-{topic}"
    here, far = there.commands.source, there.commands.destination
    here.create_topic(topic, config={"cleanup.policy": policy, "retention.ms": "-1"})
    for way, written_at, other in ((there, here, far), (back, far, here), (there, here, far)):
        mixed(written_at, topic)
        way.start(topic)
        assert_verified(written_at, other, topic)
        mixed(written_at, topic)
        way.wait_level(topic)
        assert f"last mirrored offset {end(written_at, topic) - 1}, " in way.stop(topic)
        assert_verified(written_at, other, topic)


def test_a_consumer_goes_on_at_its_offset_after_failover(ways: tuple[Way, Way], topic: str) -> None:
    """A client that knows only its next offset reads on at the destination, and a producer writes on behind it."""
    there, _ = ways
    here, far = there.commands.source, there.commands.destination
    here.create_topic(topic, config={"retention.ms": "-1"})
    write(here, topic, RECORDS)
    there.start(topic)
    there.stop(topic)
    write(far, topic, RECORDS)
    consumer = Consumer({"bootstrap.servers": far.bootstrap, "group.id": topic, "auto.offset.reset": "error"})
    try:
        consumer.assign([Place(topic, 0, 40)])
        got = [message for message in consumer.consume(60, 20.0) if not message.error()]
    finally:
        consumer.close()
    assert [message.offset() for message in got] == list(range(40, 100))
    assert [message.value() for message in got] == [made.value for made in (*RECORDS[40:], *RECORDS)]


def test_a_tail_that_the_other_side_never_saw_is_refused_with_its_range(ways: tuple[Way, Way], topic: str) -> None:
    """Ten records written to the old source behind the failover, and more at the new one: both lengths are refused."""
    there, back = ways
    here, far = there.commands.source, there.commands.destination
    here.create_topic(topic, config={"retention.ms": "-1"})
    write(here, topic, RECORDS)
    there.start(topic)
    there.stop(topic)
    write(here, topic, RECORDS[:10])
    told = f"{topic}-0 offsets 50 to 59 (10 committed records)"
    assert told in back.refused(topic)
    write(far, topic, RECORDS[10:40])
    assert told in back.refused(topic)
    assert (end(here, topic), end(far, topic)) == (60, 80)


def test_a_transaction_left_open_at_the_old_source_is_refused(ways: tuple[Way, Way], topic: str) -> None:
    """It would be ended some time later, by a marker that the other side does not have."""
    there, back = ways
    here, far = there.commands.source, there.commands.destination
    here.create_topic(topic, config={"retention.ms": "-1"})
    write(here, topic, RECORDS)
    there.start(topic)
    there.stop(topic)
    producer = transactional(here)
    producer.begin_transaction()
    producer.produce(topic, b"undecided")
    producer.flush(LEVEL_S)
    write(far, topic, RECORDS)
    refused = back.refused(topic)
    producer.abort_transaction(LEVEL_S)
    assert f"{topic}-0 offsets 50 to 50 (0 committed records, 1 in undecided transactions)" in refused


def test_the_other_direction_is_a_loop_while_the_first_is_active(ways: tuple[Way, Way], topic: str) -> None:
    """Refused for this topic, while another one goes the other way at the same time."""
    there, back = ways
    here, far = there.commands.source, there.commands.destination
    here.create_topic(topic, config={"retention.ms": "-1"})
    far.create_topic(f"{topic}-other", config={"retention.ms": "-1"})
    write(far, f"{topic}-other", RECORDS)
    write(here, topic, RECORDS)
    delete_records(here, topic, {0: 10})
    there.start(topic)
    assert f"Detected mirror loop for mirror: {back.mirror}" in back.refused(topic)
    back.start(f"{topic}-other")
    assert_verified(here, far, topic)
    assert_verified(far, here, f"{topic}-other")
    second = there.commands.mirror()
    refused = there.commands.failure("--start", "--topics", topic, "--mirror", second)
    assert re.search(rf"active in mirror '{there.mirror}'", refused)


def test_a_saved_tail_is_read_back_into_a_topic(
    source: LocalKafka, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Committed records come back with key, value, headers and time, aborted ones on demand; damage is refused."""
    for name in (topic, f"{topic}-back"):
        source.create_topic(name, config={"retention.ms": "-1", "max.message.bytes": "4000000"})
    made = [
        Made(b"key", b"value", [("a", b"1"), ("a", None)], 1_700_000_000_000),
        Made(None, b"", [], 1_600_000_000_000),
        Made(None, bytes(2_000_000), []),
    ]
    write(source, topic, RECORDS)
    write(source, topic, made, **{"message.max.bytes": 4_000_000})
    write_transaction(source, topic, RECORDS[:3], commit=False)
    given = ["--bootstrap-server", source.bootstrap, "--topic", topic, "--from", "0:50"]
    for _ in range(2):
        assert twinlog.main(["salvage", "--save", str(tmp_path), *given]) == 0
    paths = sorted(tmp_path.glob("*.tail"))
    assert len(paths) == 2
    assert "offsets 50 to 56: 3 committed, 3 aborted, 0 undecided records" in capsys.readouterr().out
    to = ["--bootstrap-server", source.bootstrap, "--topic", f"{topic}-back"]
    assert twinlog.main(["salvage", "--list", str(paths[0])]) == 0
    assert twinlog.main(["salvage", "--produce", str(paths[0]), *to]) == 0
    found, meant = visible(source, f"{topic}-back"), visible(source, topic)
    assert [found[at] for at in range(3)] == [meant[at] for at in (50, 51, 52)]
    assert len(found) == 3
    assert twinlog.main(["salvage", "--produce", str(paths[0]), "--aborted", *to]) == 0
    assert len(visible(source, f"{topic}-back")) == 9
    content = bytearray(paths[1].read_bytes())
    for damaged in (content[:-1], content[:200] + bytes([content[200] ^ 1]) + content[201:]):
        paths[1].write_bytes(damaged)
        assert twinlog.main(["salvage", "--produce", str(paths[1]), *to]) == 1
    assert len(visible(source, f"{topic}-back")) == 9
