"""A batch as it goes out: another header, the same records, read back by an independent client."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from twinlog.batch import layout
from twinlog.batch.edit import Outgoing, next_sequence, stamped
from twinlog.batch.view import Batch

Raw = Callable[..., bytes]

RECORDS = st.lists(
    st.tuples(st.integers(0, 2**41), st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=20)),
    min_size=1,
    max_size=8,
)
STAMP: dict[str, Any] = {"producer_id": 77, "epoch": 3, "sequence": 12}


def independently_built(records: list[tuple[int, bytes | None, bytes | None]], codec: int = 0) -> bytes:
    """A transactional batch of another producer, by kafka-python."""
    builder = DefaultRecordBatchBuilder(2, codec, True, 5, 1, 8, 1 << 20)
    for at, (time, key, value) in enumerate(records):
        builder.append(at, time, key, value, [("header", b"x")])
    return bytes(builder.build())


def at_source(raw: bytes, base: int, leader_epoch: int = 4) -> bytes:
    """The batch as a broker has it in its log: with offset and leader epoch, which no checksum covers."""
    return base.to_bytes(8, "big") + raw[8:12] + leader_epoch.to_bytes(4, "big") + raw[16:]


def decoded(raw: bytes) -> tuple[DefaultRecordBatch, list[tuple[Any, ...]]]:
    """The batch and its records, by kafka-python."""
    batch = DefaultRecordBatch(raw)
    assert batch.validate_crc()
    return batch, [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]


def joined(out: Outgoing) -> bytes:
    """The bytes as they go over the wire."""
    assert len(out.header) == layout.HEADER_SIZE
    assert out.size == len(out.header) + len(out.body)
    return out.header + bytes(out.body)


@given(records=RECORDS, base=st.integers(0, 2**62), codec=st.sampled_from([0, 1]))
def test_the_records_are_the_same_and_the_producer_is_ours(
    records: list[tuple[int, bytes | None, bytes | None]], base: int, codec: int
) -> None:
    """kafka-python finds our stamp, a right checksum, and each record as it was."""
    raw = independently_built(records, codec)
    out = stamped(Batch(memoryview(at_source(raw, base))), **STAMP)
    theirs, found = decoded(joined(out))
    assert found == decoded(raw)[1]
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (77, 3, 12)
    assert (theirs.base_offset, theirs.leader_epoch, theirs.magic) == (0, -1, 2)
    assert not theirs.is_transactional
    assert theirs.compression_type == raw[22] & 7
    assert (out.first, out.count, out.last) == (base, len(records), base + len(records) - 1)
    assert out.max_timestamp == theirs.max_timestamp == max(time for time, _, _ in records)


@given(
    attributes=st.sampled_from([c | t | h for c in range(5) for t in (0, 0x10) for h in (0, 0x40)]),
    base=st.integers(0, 2**62),
    count=st.integers(1, 2**31 - 1),
    times=st.tuples(st.integers(-1, 2**62), st.integers(-1, 2**62)),
    stamp=st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1)),
    body=st.binary(max_size=50),
)
def test_a_stamp_is_what_a_dumb_twin_builds_from_scratch(
    raw_batch: Raw,
    attributes: int,
    base: int,
    count: int,
    times: tuple[int, int],
    stamp: tuple[int, int, int],
    body: bytes,
) -> None:
    """Byte for byte it is the batch that a builder makes with the wanted fields."""
    kept = {"count": count, "base_time": times[0], "max_time": times[1], "body": body}
    source = raw_batch(base, attributes=attributes, leader_epoch=7, producer=1, epoch=2, sequence=3, **kept)
    wanted = raw_batch(
        0,
        attributes=attributes & 7,
        leader_epoch=-1,
        producer=stamp[0],
        epoch=stamp[1],
        sequence=stamp[2],
        **kept,
    )
    out = stamped(Batch(memoryview(source)), producer_id=stamp[0], epoch=stamp[1], sequence=stamp[2])
    assert joined(out) == wanted


def test_times_stay_the_same_when_the_cleaner_has_set_a_delete_horizon() -> None:
    """Time deltas are relative to the horizon that stands in the base timestamp; only the bit goes."""
    horizon, times = 1_700_086_400_000, [1_700_000_000_000, 1_700_000_000_500]
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    builder.append(0, horizon, b"dropped", None, [])  # the first record's time becomes the base timestamp
    for at, time in enumerate(times):
        builder.append(1 + at, time, b"k%d" % at, None, [])
    raw = builder.build()
    horizon_bit = raw[22] | layout.DELETE_HORIZON_BIT
    source = Batch(memoryview(bytes(raw[:22]) + bytes([horizon_bit]) + bytes(raw[23:])))
    assert source.delete_horizon
    out = stamped(source, **STAMP)
    theirs, found = decoded(joined(out))
    assert [time for _, time, *_ in found] == [horizon, *times]
    assert theirs.first_timestamp == horizon
    assert not theirs.attributes & layout.DELETE_HORIZON_BIT


def test_the_body_is_a_view_of_the_fetched_buffer(raw_batch: Raw) -> None:
    """A batch goes through without a copy of its records."""
    buffer = memoryview(raw_batch(3, body=b"abc"))
    assert stamped(Batch(buffer), **STAMP).body.obj is buffer.obj


@pytest.mark.parametrize(
    "fields",
    [
        {"attributes": 0x20},
        {"attributes": 0x30},
        {"attributes": 0x08},
        {"count": 1, "span": 2},
        {"count": 0, "span": 1},
    ],
)
def test_what_has_to_be_rewritten_is_not_stamped(raw_batch: Raw, fields: dict[str, int]) -> None:
    """A marker, a batch stamped by its broker, and one with holes are refused: a broker would refuse them too."""
    with pytest.raises(ValueError, match="has to be rewritten, not stamped"):
        stamped(Batch(memoryview(raw_batch(3, **fields))), **STAMP)


@pytest.mark.parametrize(
    ("sequence", "count", "following"),
    [
        (0, 1, 1),
        (5, 10, 15),
        (2**31 - 2, 1, 2**31 - 1),
        (2**31 - 1, 1, 0),
        (2**31 - 3, 5, 2),
        (2**31 - 1, 2**31 - 1, 2**31 - 2),
    ],
)
def test_a_sequence_goes_round_at_the_largest(sequence: int, count: int, following: int) -> None:
    """Behind 2**31 - 1 comes 0, as in Kafka's incrementSequence."""
    assert next_sequence(sequence, count) == following


@given(sequence=st.integers(0, 2**31 - 1), count=st.integers(1, 2**31 - 1))
def test_a_sequence_is_what_kafkas_arithmetic_gives(sequence: int, count: int) -> None:
    """Compared with the branch that Kafka takes."""
    largest = 2**31 - 1
    wanted = count - (largest - sequence) - 1 if sequence > largest - count else sequence + count
    assert next_sequence(sequence, count) == wanted
