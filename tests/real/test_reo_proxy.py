"""Copying by way of a proxy topic, in two stages: what arrives, what is refused, what a restart costs, what is told."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.real.faults import until
from tests.real.reo_copies import PARTITIONS, Copy, Scene, ask, wait_for_error

from twinlog.testing.kafka import LocalKafka

STARTS_WITHIN_S = 10.0


@pytest.fixture
def scene(source: LocalKafka, destination: LocalKafka, topic: str, tmp_path: Path) -> Iterator[Scene]:
    """A topic of the test's own on both sides."""
    with Scene(source, destination, topic, tmp_path) as found:
        yield found


def told(kafka: LocalKafka, topic: str, count: int, *, partitions: int = PARTITIONS) -> dict[int, list[Message]]:
    """The committed records of a topic by partition: `count` of them, and what comes within a second after."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": f"{topic}-told",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    found: dict[int, list[Message]] = {number: [] for number in range(partitions)}
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        deadline, last = time.monotonic() + 40, time.monotonic()
        while time.monotonic() < deadline and (sum(map(len, found.values())) < count or time.monotonic() - last < 1.0):
            message = consumer.poll(0.2)
            if message is not None and not message.error():
                last = time.monotonic()
                found[message.partition()].append(message)
    finally:
        consumer.close()
    return found


def content(found: dict[int, list[Message]]) -> dict[int, list[object]]:
    """All of each record but its offset."""
    return {
        number: [(one.key(), one.value(), one.headers(), one.timestamp()) for one in messages]
        for number, messages in found.items()
    }


def all_kinds(kafka: LocalKafka, topic: str) -> int:
    """Null and empty keys and values, headers of all kinds, all codecs, both outcomes of a transaction."""
    written = 0
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "compression.type": codec, "linger.ms": 5})
        for number in range(24):
            producer.produce(
                topic,
                value=(None, b"", b"v%d" % number)[number % 3],
                key=(None, b"", b"k%d" % number, b"k")[number % 4],
                headers=[("h", b"1"), ("h", None), ("", b""), ("a", b"2")] if number % 5 == 0 else None,
                partition=number % PARTITIONS,
                timestamp=1_700_000_000_000 + number,
            )
            written += 1
        assert producer.flush(30) == 0
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for committed in (False, True, False, True, False):
        producer.begin_transaction()
        producer.produce(topic, value=b"yes" if committed else b"never", partition=0)
        producer.flush(10)
        _ = producer.commit_transaction(10) if committed else producer.abort_transaction(10)
        written += committed
    return written


def test_every_kind_of_record_arrives_as_it_was_by_two_stages_in_two_places(scene: Scene) -> None:
    """Key, value, nulls, headers, times, partition and order; the second stage knows nothing of the source."""
    count = all_kinds(scene.source, scene.topic)
    first = scene.begin("--mode proxy --stage 1")
    second = scene.begin("--mode proxy --stage 2", KAFKA_CLUSTERS_SOURCE_BOOTSTRAP_SERVERS="")
    expected = content(told(scene.source, scene.topic, count))
    assert content(told(scene.destination, f"{scene.topic}-twin", count)) == expected, second.text()
    until(lambda: [row["lag"] for row in first.status()] == [0] * PARTITIONS, timeout_s=10, what="no lag")
    rows = first.status()
    assert all(row["proxied"] == row["position"] == row["end"] and not row["error"] for row in rows), rows
    assert (first.end(15), second.end(15)) == (0, 0), first.text() + second.text()


def test_stages_that_run_twice_by_mistake_double_nothing(scene: Scene) -> None:
    """A second first stage writes the same again, which is dropped; a second second stage takes over."""
    with scene.flow(per_second=400) as flow:
        scene.begin("--mode proxy --stage 1")
        scene.begin("--mode proxy --stage 1")
        former = scene.begin("--mode proxy --stage 2")
        scene.counter.read(200, quiet_s=0)
        scene.begin("--mode proxy --stage 2")
        assert former.process is not None
        assert former.process.wait(30) == 1
        assert "Another copy has begun to write" in former.text()
        time.sleep(1)
    scene.assert_each_once(flow)


def test_modes_may_change_and_a_restart_takes_less_than_ten_seconds(scene: Scene) -> None:
    """Each goes on where the one before has ended, since the positions mean the same."""
    flow = scene.flow()
    for flags in ("", "--mode proxy", ""):
        flow.write(50)
        copy = scene.begin(flags)
        began, before = time.monotonic(), scene.counter.count
        scene.counter.read(before + 1, within_s=STARTS_WITHIN_S, quiet_s=0)
        assert scene.counter.count > before, copy.text()
        assert time.monotonic() - began < STARTS_WITHIN_S
        scene.counter.read(flow.written * PARTITIONS, quiet_s=0)
        copy.end()
    scene.assert_each_once(flow)


def test_what_somebody_deletes_from_the_proxy_topic_is_missed_and_not_skipped(scene: Scene) -> None:
    """The second stage names the offsets; without the proxy topic the first one copies them again."""
    proxy, admin = f"{scene.topic}-proxy", AdminClient({"bootstrap.servers": scene.destination.bootstrap})
    flow = scene.flow()
    flow.write(20)
    stages = [scene.begin(f"--mode proxy --stage {number}") for number in (1, 2)]
    scene.counter.read(flow.written * PARTITIONS, quiet_s=0)
    stages[1].end(15)
    for _ in range(2):
        flow.write(20)
        until(lambda: all(row["proxied"] == flow.written for row in stages[0].status()), timeout_s=20, what="proxied")
    end = told(scene.destination, proxy, 1)[0][-1].offset()
    where = TopicPartition(proxy, 0, end)
    admin.delete_records([where])[where].result(20)
    stages[1].start()
    wait_for_error(stages[1], f"{proxy}-0 lacks offsets 20 to", f"delete {proxy}")
    for stage in stages:
        stage.end(15)
    admin.delete_topics([proxy])[proxy].result(20)
    until(lambda: proxy not in admin.list_topics(timeout=10).topics, timeout_s=20, what="the proxy topic is gone")
    for stage in stages:
        stage.start()
    scene.assert_each_once(flow)


def test_records_of_somebody_else_in_the_proxy_topic_stop_it(scene: Scene) -> None:
    """As where kafka-reo's own proxy topic has that name."""
    proxy = f"{scene.topic}-proxy"
    scene.destination.create_topic(proxy, partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": scene.destination.bootstrap})
    producer.produce(proxy, value=b"wrapped by others", partition=0)
    assert producer.flush(10) == 0
    copy = scene.begin("--mode proxy --stage 2")
    until(lambda: "not of this program" in copy.text(), timeout_s=20, what="it says whose topic it is")
    assert f"{proxy}-0 holds at offset 0" in copy.text()


def test_loops_between_two_clusters_are_cut_by_provenance(scene: Scene, tmp_path: Path) -> None:
    """One topic in both clusters, copied both ways: each record comes once, and says where it is from."""
    name = f"{scene.topic}-both"
    ways = []
    for at, (here, there) in enumerate(((scene.source, scene.destination), (scene.destination, scene.source))):
        here.create_topic(name, partitions=PARTITIONS)
        ways.append((here, there, Copy(here, there, name, tmp_path / f"loop-{at}.log")))
    for here, _, copy in ways:
        copy.flags = f"--mode proxy --destination-topic {name} --set provenance=true --application-name {name}-copy"
        scene.copies.append(copy.start(START_FROM="earliest"))
        producer = Producer({"bootstrap.servers": here.bootstrap})
        for number in range(20):
            producer.produce(name, value=b"%d" % number, partition=number % PARTITIONS)
        assert producer.flush(10) == 0
    for _, there, _ in ways:
        found = [one for messages in told(there, name, 40).values() for one in messages]
        assert len(found) == 40
        origins = [dict(one.headers())["twinlog.provenance"].decode() for one in found if one.headers()]
        assert len(set(origins)) == 20
        assert all(re.fullmatch(rf"[\w-]+/{name}/\d+/\d+", origin) for origin in origins)


def test_topics_of_an_expression_get_their_names_by_a_rule(scene: Scene) -> None:
    """Proxy topics too; what was created later is copied from its beginning, whatever was said for the rest."""
    stem = scene.topic.rsplit("-", 1)[1]
    names = [f"{stem}.orders", f"{stem}.bills", f"{stem}.later"]
    flags = (
        f"--mode proxy --source-topic {stem}\\.(orders|bills|later) --destination-topic copy-of-{{topic}} "
        f"--proxy-topic through.{{topic}}.x"
    )
    for name in names:
        scene.destination.create_topic(f"copy-of-{name}", partitions=1)
    for name in names[:2]:
        scene.source.create_topic(name, partitions=1)
    copy = scene.begin(flags, KAFKA_CONFIG_CONSUMER_AUTO_RESET="latest")
    until(lambda: "stage 1 of share 0 copies 2 partitions" in copy.text(), timeout_s=20, what="both have begun")
    producer = Producer({"bootstrap.servers": scene.source.bootstrap})
    for at, name in enumerate(names):
        if at == 2:
            scene.source.create_topic(name, partitions=1)
        producer.produce(name, value=name.encode())
        assert producer.flush(10) == 0
        found = told(scene.destination, f"copy-of-{name}", 1, partitions=1)
        assert [one.value() for one in found[0]] == [name.encode()], copy.text()


def test_keys_are_spread_as_javas_producer_spreads_them(scene: Scene) -> None:
    """Into fewer partitions than the source has; librdkafka's murmur2 partitioner is the judge."""
    narrow, judge = f"{scene.topic}-narrow", f"{scene.topic}-judge"
    for name in (narrow, judge):
        scene.destination.create_topic(name, partitions=3)
    keys = [f"key-{number}".encode() for number in range(60)] + [b"", b"\xff\xfe", "ключ".encode()]
    judging = Producer({"bootstrap.servers": scene.destination.bootstrap, "partitioner": "murmur2"})
    writing = Producer({"bootstrap.servers": scene.source.bootstrap})
    for at, key in enumerate(keys):
        judging.produce(judge, key=key, value=b"v")
        writing.produce(scene.topic, key=key, value=b"v", partition=at % PARTITIONS)
    assert (judging.flush(10), writing.flush(10)) == (0, 0)
    copy = scene.begin(f"--mode proxy --destination-topic {narrow} --set partitioning=key")
    found, expected = (told(scene.destination, name, len(keys), partitions=3) for name in (narrow, judge))
    for number in range(3):
        keys_here = [{one.key() for one in side[number]} for side in (found, expected)]
        assert keys_here[0] == keys_here[1], copy.text()


def test_metrics_and_health_are_told_over_http(scene: Scene) -> None:
    """As of the worker; a stage that cannot begin is not ready, and says why."""
    flow = scene.flow()
    flow.write(25)
    copy = scene.begin("--mode proxy --http 127.0.0.1:0 --set commit-interval-ms=20")
    scene.counter.read(25 * PARTITIONS)
    until(lambda: ask(copy, "/readyz") == (200, "ready\n"), timeout_s=20, what="it is ready")
    assert ask(copy, "/healthz") == (200, "ok\n")
    time.sleep(1.1)
    text = ask(copy, "/metrics")[1]
    for line in (
        rf'twinlog_reo_position{{partition="0",stage="stage 1",topic="{scene.topic}"}} 25.0',
        rf'twinlog_reo_lag_records{{partition="3",stage="stage 1",topic="{scene.topic}"}} 0.0',
        rf'twinlog_reo_stopped{{partition="1",stage="stage 2",topic="{scene.topic}-proxy"}} 0.0',
    ):
        labels = re.escape(line)
        assert line in text or _anyhow(line, text), (labels, text)
    waiting = scene.begin(f"--mode proxy --stage 2 --http 127.0.0.1:0 --proxy-topic {scene.topic}-none")
    until(lambda: ask(waiting, "/readyz")[0] == 503, timeout_s=20, what="it is not ready")
    until(lambda: "no proxy topic" in ask(waiting, "/readyz")[1], timeout_s=20, what="it says why")
    assert ask(waiting, "/healthz") == (200, "ok\n")


def _anyhow(line: str, text: str) -> bool:
    """Whether a sample is in the text with its labels in another order."""
    name, rest = line.split("{", 1)
    labels, value = rest.rsplit("} ", 1)
    wanted = set(labels.split(","))
    samples = re.findall(rf"^{name}\{{(.*)\}} (\S+)$", text, re.MULTILINE)
    return any(set(found.split(",")) == wanted and got == value for found, got in samples)
