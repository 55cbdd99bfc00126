"""Records of every shape arrive as they are: codecs, nulls, headers, timestamps."""

import random
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME
from tests.real.mirrored_logs import alter, compressed, numbered, offsets_for_times, stored, write, write_transaction
from tests.real.mirroring import Mirror

from twinlog.testing.checker import assert_identical
from twinlog.testing.data import EVERYTHING_ALLOWED, Made
from twinlog.testing.kafka import LocalKafka
from twinlog.testing.load import CODECS, Load
from twinlog.testing.reader import TopicReader

MONTH_MS = 30 * 86_400_000
BROKER_CODECS = ("uncompressed", *CODECS[1:])


@pytest.fixture(scope="module")
def mirror(source: LocalKafka, destination: LocalKafka) -> Iterator[Mirror]:
    """One mirror and its worker for all tests of this file."""
    with Mirror(source, destination) as mirror:
        yield mirror


def mirrored(mirror: Mirror, topic: str, *, timestamp_types: bool = True) -> int:
    """Start the topic, wait until it is level, compare, and return how many records there are."""
    mirror.start(topic)
    mirror.wait_level(topic)
    report = assert_identical(mirror.source, mirror.destination, topic, timestamp_types=timestamp_types)
    return report.source_records


def test_everything_at_once_in_three_partitions(mirror: Mirror, topic: str) -> None:
    """All kinds of data in one topic, some of it written before the mirror begins and some while it runs."""
    mirror.create(topic, partitions=3)
    load = Load(mirror.source, topic, random.Random(1))
    load.everything()
    mirror.start(topic)
    load.everything()
    load.close()
    assert mirrored(mirror, topic) == load.acknowledged
    mirror.adopt_anew(topic)
    assert mirrored(mirror, topic) == load.acknowledged


def test_compressed_batches_of_every_producer_keep_their_bytes(mirror: Mirror, topic: str) -> None:
    """Plain, idempotent and transactional producers of each codec: compressed batches are the same bytes."""
    mirror.create(topic)
    load = Load(mirror.source, topic, random.Random(2))
    for codec in CODECS:
        load.plain(50, codec=codec)
        load.idempotent(50, codec=codec)
        write_transaction(mirror.source, topic, numbered(50), codec=codec)
    load.close()
    assert mirrored(mirror, topic) == 750
    assert load.acknowledged == 500
    batches = compressed(stored(mirror, topic, at_source=True))
    assert compressed(stored(mirror, topic, at_source=False)) == batches
    assert len({batch.codec for batch in batches}) == len(CODECS) - 1


def test_batches_that_the_source_broker_compressed_keep_their_bytes(mirror: Mirror, topic: str) -> None:
    """The source's compression.type crossed with the producers' codecs: nothing is compressed again on the way."""
    topics = {kept: f"{topic}-{kept}" for kept in BROKER_CODECS}
    for kept, name in topics.items():
        mirror.create(name, config=EVERYTHING_ALLOWED | {"compression.type": kept})
        mirror.start(name)
    for codec in CODECS:
        write(mirror.source, list(topics.values()), numbered(50), **{"compression.type": codec})
    for name in topics.values():
        assert mirrored(mirror, name) == 50 * len(CODECS)
        batches = stored(mirror, name, at_source=True)
        assert compressed(stored(mirror, name, at_source=False)) == compressed(batches)
        assert len({batch.codec for batch in batches}) == 1


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_null_and_empty_are_told_apart(mirror: Mirror, topic: str, policy: str) -> None:
    """Null and empty keys and values in every combination, and tombstones, on deleted and on compacted topics."""
    mirror.create(topic, config=EVERYTHING_ALLOWED | {"cleanup.policy": policy})
    load = Load(mirror.source, topic, random.Random(3))
    load.edges()
    load.close()
    assert mirrored(mirror, topic) == load.acknowledged


def test_headers_keep_order_repetition_and_bytes(mirror: Mirror, topic: str) -> None:
    """No header, one, fifty; repeated and empty names, null and empty values, values that are no UTF-8."""
    kinds: list[tuple[str, bytes | None]] = [
        ("", b"no name"),
        ("repeated", b"1"),
        ("repeated", b"2"),
        ("repeated", None),
        ("empty", b""),
        ("bytes", b"\xff\xfe\x00\x80"),
        ("naïve → 名", "größe".encode()),
    ]
    fifty = [("h", b"%d" % number) for number in range(50)]
    mirror.create(topic)
    made = [[], *([kind] for kind in kinds), kinds, kinds[::-1], fifty, fifty[::-1]]
    write(mirror.source, topic, [Made(b"key", b"value", headers) for headers in made])
    assert mirrored(mirror, topic) == len(made)


def test_timestamps_and_the_answers_to_questions_about_them(mirror: Mirror, topic: str) -> None:
    """No time, 0, far past and future, out of order in a batch: kept, and each search by time finds the same offset."""
    mirror.create(topic)
    load = Load(mirror.source, topic, random.Random(4))
    load.timestamps(300)
    load.close()
    assert mirrored(mirror, topic) == load.acknowledged
    rng = random.Random(5)
    now_ms = int(time.time() * 1000)
    times = [0, 1, now_ms, *(rng.randrange(2 * now_ms) for _ in range(100))]
    assert offsets_for_times(mirror.destination, topic, 0, times) == offsets_for_times(mirror.source, topic, 0, times)


def test_data_older_than_what_the_destination_remembers_of_producers(mirror: Mirror, topic: str) -> None:
    """A month of old data in many batches, and new data behind it."""
    mirror.create(topic)
    old_ms = int(time.time() * 1000) - MONTH_MS
    write(mirror.source, topic, numbered(3000, timestamp_ms=old_ms), **{"batch.num.messages": 50})
    write(mirror.source, topic, numbered(1000, seed=2), **{"batch.num.messages": 50})
    assert mirrored(mirror, topic) == 4000


@pytest.mark.parametrize("codec", CODECS)
def test_records_stamped_by_the_source_broker_keep_that_stamp(mirror: Mirror, topic: str, codec: str) -> None:
    """A LogAppendTime topic: the destination's records carry the broker's time as their own, and searches agree."""
    mirror.create(topic, config=EVERYTHING_ALLOWED | {"message.timestamp.type": "LogAppendTime"})
    long_ago = int(time.time() * 1000) - MONTH_MS
    write(mirror.source, topic, numbered(200, timestamp_ms=long_ago), **{"compression.type": codec})
    time.sleep(0.02)  # the next batches have another stamp
    load = Load(mirror.source, topic, random.Random(6))
    load.transaction(20)
    load.transaction(5, commit=False)
    load.edges()
    load.close()
    mirrored(mirror, topic, timestamp_types=False)
    mirror.adopt_anew(topic)
    assert mirrored(mirror, topic, timestamp_types=False) == 200 + load.acknowledged
    reader = TopicReader(mirror.destination, topic)
    record = reader.record(0, 199)
    reader.close()
    assert record is not None
    assert record.timestamp_type == TIMESTAMP_CREATE_TIME
    assert record.timestamp_ms > long_ago + MONTH_MS - 1
    times = [record.timestamp_ms + ahead for ahead in (-1, 0, 1, 30)]
    assert offsets_for_times(mirror.destination, topic, 0, times) == offsets_for_times(mirror.source, topic, 0, times)


def test_a_topic_changes_its_kind_of_timestamps_while_it_is_mirrored(mirror: Mirror, topic: str) -> None:
    """CreateTime records, then LogAppendTime ones behind them in the same log: each keeps the time that it shows."""
    mirror.create(topic)
    mirror.start(topic)
    write(mirror.source, topic, numbered(100, timestamp_ms=1))
    mirror.wait_level(topic)
    alter(mirror.source, topic, {"message.timestamp.type": "LogAppendTime"})
    write(mirror.source, topic, numbered(100, timestamp_ms=1))
    assert mirrored(mirror, topic, timestamp_types=False) == 200


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_a_mirror_of_a_thousand_partitions(mirror: Mirror, topic: str) -> None:
    """A thousand partitions under one worker: all are level, and equal."""
    mirror.create(topic, partitions=1000)
    load = Load(mirror.source, topic, random.Random(7))
    load.bulk(50_000)
    load.transactions(200)
    mirror.start(topic)
    mirror.wait_level(topic, timeout_s=100)
    load.bulk(50_000)
    load.close()
    assert mirrored(mirror, topic) == load.acknowledged
