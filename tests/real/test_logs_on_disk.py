"""Logs that were on a source broker's disk before: old formats, holes at the end, a high first offset, rotten bytes.

A broker is stopped in order, segment files are laid into its partitions' folders, and it is started again. It reads
them as its own; nobody could produce them today.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from zlib import crc32

import pytest
from kafka.record.legacy_records import LegacyRecordBatchBuilder
from tests.real.mirrored_logs import numbered, visible, write
from tests.real.mirroring import Mirror

from twinlog.batch.records import Record, encode
from twinlog.control.lifecycle import PartitionState
from twinlog.testing.checker import assert_identical
from twinlog.testing.data import EVERYTHING_ALLOWED
from twinlog.testing.kafka import LocalKafka
from twinlog.testing.reader import Bounds, TopicReader

GZIP, SNAPPY, LZ4 = 1, 2, 3
OLD_FORMATS = {0: (0, GZIP, SNAPPY), 1: (0, GZIP, SNAPPY, LZ4)}
"""The codecs of each magic."""
STAMPED, STAMP_MS = 0x08, 1_234_567_890_123
OLD_RECORDS: tuple[tuple[bytes | None, bytes | None], ...] = (
    (b"key", b"value"),
    (None, b"value"),
    (b"", b""),
    (b"key", None),
    (b"large", b"0123456789" * 5000),
)
TEN_MILLION = 10_000_000
WAIT_S = 20.0

Segments = Mapping[int, bytes]
"""A log: each segment's base offset, and its bytes."""


def old_log(magic: int, codec: int) -> Segments:
    """Fifteen records of an old format as a broker stored them, made by kafka-python: single, or in three wrappers.

    A wrapper's offset is that of its last record; the offsets inside are relative to its first since magic 1.
    """
    log = b""
    for first in (0, 5, 10):
        inside = 0 if magic and codec else first
        builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
        for at, (key, value) in enumerate(OLD_RECORDS):
            builder.append(inside + at, 1_000_000 + first + at if magic else None, key, value)
        made = bytes(builder.build())
        log += (first + 4).to_bytes(8, "big") + made[8:] if codec else made
    return {0: log}


def stamped_old_log() -> Segments:
    """One compressed entry of magic 1 that its broker had stamped."""
    raw = bytearray(old_log(1, GZIP)[0])
    raw = raw[: 12 + int.from_bytes(raw[8:12], "big")]
    raw[17] |= STAMPED
    raw[18:26] = STAMP_MS.to_bytes(8, "big")
    raw[12:16] = crc32(raw[16:]).to_bytes(4, "big")
    return {0: bytes(raw)}


def batch(first: int, count: int = 10) -> bytes:
    """A batch of magic 2."""
    records = [Record(first + at, 1_000_000 + at, b"%d" % at, b"value") for at in range(count)]
    return bytes(encode(records, codec=0).raw)


HOLES: Sequence[Segments] = (
    {0: batch(0), 200: b""},  # at the end
    {0: batch(0), 60_000: b""},  # at the end, a long one
    {0: batch(0) + batch(20) + batch(70_000) + batch(5_000_000)},
    {0: batch(3)},  # the log starts at 0, its first batch does not
    {1000: batch(1000), 2000: batch(2500)},
)


@contextmanager
def laid_in(kafka: LocalKafka, logs: Mapping[tuple[str, int], Segments]) -> Iterator[None]:
    """Replace partitions' logs while the broker is stopped; inside the block it is stopped still."""
    kafka[1].stop()
    for (topic, partition), segments in logs.items():
        folder = kafka.data_dir(1) / f"{topic}-{partition}"
        for file in folder.iterdir():
            if file.name != "partition.metadata":
                file.unlink()
        for base, data in segments.items():
            (folder / f"{base:020}.log").write_bytes(data)
    yield
    kafka[1].start()
    kafka.wait_ready()


@pytest.fixture(
    scope="module", params=["", pytest.param("3.9.1", marks=pytest.mark.soak)], ids=["newest", "kafka-3.9.1"]
)
def mirror(destination: LocalKafka, request: pytest.FixtureRequest) -> Iterator[Mirror]:
    """A mirror from a broker of this file's own, which has all the logs of this file's tests on its disk."""
    with LocalKafka(version=request.param) as kafka, Mirror(kafka, destination) as mirror:
        for magic, codecs in OLD_FORMATS.items():
            mirror.create(f"old-{magic}", partitions=len(codecs))
        mirror.create("old-stamped")
        mirror.create("holes", partitions=len(HOLES))
        mirror.create("high")
        mirror.create("rotten", partitions=3, config=EVERYTHING_ALLOWED | {"segment.bytes": str(1 << 20)})
        for partition in range(3):
            write(kafka, "rotten", numbered(3000, value_bytes=1000), partition=partition, **{"batch.num.messages": 50})
        logs: dict[tuple[str, int], Segments] = {("holes", p): segments for p, segments in enumerate(HOLES)}
        for magic, codecs in OLD_FORMATS.items():
            logs |= {(f"old-{magic}", p): old_log(magic, codec) for p, codec in enumerate(codecs)}
        logs |= {("old-stamped", 0): stamped_old_log(), ("high", 0): {TEN_MILLION: batch(TEN_MILLION)}}
        with laid_in(kafka, logs):
            flip(kafka, "rotten", 1, after=500_000)
            flip(kafka, "rotten", 2, after=0)
        yield mirror


def flip(kafka: LocalKafka, topic: str, partition: int, *, after: int) -> None:
    """Flip one bit of a record in the first batch of the first segment that begins behind byte `after`."""
    path = kafka.data_dir(1) / f"{topic}-{partition}" / f"{0:020}.log"
    with path.open("r+b") as log:
        at = 0
        while at < after:
            log.seek(at + 8)
            at += 12 + int.from_bytes(log.read(4), "big")
        log.seek(at + 100)
        byte = log.read(1)[0]
        log.seek(at + 100)
        log.write(bytes([byte ^ 1]))
        log.flush()
        os.fsync(log.fileno())


def bounds(kafka: LocalKafka, topic: str) -> dict[int, Bounds]:
    """Each partition's bounds, as a consumer is told them."""
    reader = TopicReader(kafka, topic)
    try:
        return reader.bounds()
    finally:
        reader.close()


def mirrored(mirror: Mirror, topic: str) -> int:
    """Start the topic, wait until it is level, compare, and return how many records there are."""
    mirror.start(topic)
    mirror.wait_level(topic)
    return assert_identical(mirror.source, mirror.destination, topic, timestamp_types=False).source_records


def test_batches_of_magic_1_are_the_same_in_a_newer_format(mirror: Mirror) -> None:
    """Single and in wrappers of each codec of their time, with new batches behind them; adopted anew, they agree."""
    count = len(OLD_FORMATS[1])
    assert mirrored(mirror, "old-1") == 15 * count
    for partition in range(count):
        records = visible(mirror.destination, "old-1", partition)
        assert [(r.key, r.value) for r in records.values()] == list(OLD_RECORDS) * 3
        assert [r.timestamp_ms for r in records.values()] == [1_000_000 + at for at in range(15)]
        write(mirror.source, "old-1", numbered(20), partition=partition)
    mirror.wait_level("old-1")
    mirror.adopt_anew("old-1")
    assert mirrored(mirror, "old-1") == 35 * count


def test_batches_of_magic_0_have_no_time(mirror: Mirror) -> None:
    """A time of -1, as a broker converts them, since the format has none; all else is the same."""
    mirror.start("old-0")
    for _ in range(2):
        mirror.wait_level("old-0")
        for partition in range(len(OLD_FORMATS[0])):
            there, here = (visible(kafka, "old-0", partition) for kafka in (mirror.source, mirror.destination))
            assert list(here) == list(there)
            assert [(r.key, r.value, r.headers) for r in here.values()] == [(*pair, ()) for pair in OLD_RECORDS * 3]
            assert {r.timestamp_ms for r in here.values()} == {-1}
        mirror.adopt_anew("old-0")


def test_a_wrapper_stamped_by_its_broker_keeps_that_stamp(mirror: Mirror) -> None:
    """Magic 1 with LogAppendTime: every record carries the wrapper's time."""
    assert mirrored(mirror, "old-stamped") == 5
    mirror.adopt_anew("old-stamped")
    mirror.wait_level("old-stamped")
    assert {r.timestamp_ms for r in visible(mirror.destination, "old-stamped").values()} == {STAMP_MS}


def test_holes_of_any_size_also_at_the_end(mirror: Mirror) -> None:
    """From three offsets to five millions, between batches, before the first and behind the last."""
    mirror.start("holes")
    mirror.wait_level("holes")
    ends = [200, 60_000, 5_000_010, 13, 2510]
    assert [at.end for at in bounds(mirror.destination, "holes").values()] == ends
    for partition in range(len(HOLES)):  # librdkafka finds no end behind a hole, so that only now all can be compared
        write(mirror.source, "holes", numbered(20), partition=partition)
    mirror.wait_level("holes")
    mirror.adopt_anew("holes")
    assert mirrored(mirror, "holes") == 90 + 20 * len(HOLES)
    assert [at.end for at in bounds(mirror.destination, "holes").values()] == [end + 20 for end in ends]


def test_a_log_whose_first_segment_begins_at_ten_million(mirror: Mirror) -> None:
    """What is on the disk begins there, and so does the twin."""
    assert mirrored(mirror, "high") == 10
    assert bounds(mirror.destination, "high") == {0: Bounds(TEN_MILLION, TEN_MILLION + 10, TEN_MILLION + 10)}


def test_a_rotten_batch_fails_its_partition_and_is_not_passed_on(mirror: Mirror) -> None:
    """FAILED with the offset of the batch, nothing of it is written, and the other partition is mirrored."""
    mirror.start("rotten")
    mirror.wait_state("rotten", PartitionState.MIRRORING, 0)
    mirror.wait_for(lambda: mirror.ends("rotten")[0] == 3000, lambda: "the sound partition", WAIT_S)
    for partition, end in ((1, "corrupt batch at offset"), (2, "corrupt batch at offset 0:")):
        error = mirror.wait_failed("rotten", partition)
        assert f"rotten-{partition}" in error
        assert end in error
    offset = int(mirror.wait_failed("rotten", 1).split("at offset ")[1].split(":")[0])
    assert 0 < offset < 1000
    ends = mirror.ends("rotten")
    assert 0 <= ends[1] <= offset
    assert ends[2] == 0
    assert list(visible(mirror.destination, "rotten", 1)) == list(range(ends[1]))
