"""Filler: exactly valid records, small, quickly made, and made once."""

from itertools import islice
from typing import Any

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.util import encode_varint

from twinlog.batch import layout
from twinlog.batch.blank import MAX_FILLER, filler, filler_batch
from twinlog.batch.edit import Outgoing
from twinlog.batch.view import Batch

STAMP: dict[str, Any] = {
    "producer_id": 77,
    "epoch": 3,
    "sequence": 12,
    "transactional": False,
    "timestamp_ms": 1_700_000_000_000,
}
EDGES = [1, 2, 63, 64, 65, 127, 128, 129, 8191, 8192, 8193, 8255, 16383, 16384, 16385, 20000]


def dumb(count: int, key: bytes | None) -> bytes:
    """The record section, one record after the other."""
    section = bytearray()
    for delta in range(count):
        record = bytearray(2)
        encode_varint(delta, record.append)
        encode_varint(-1 if key is None else len(key), record.append)
        record += key or b""
        encode_varint(-1, record.append)
        encode_varint(0, record.append)
        encode_varint(len(record), section.append)
        section += record
    return bytes(section)


def joined(out: Outgoing) -> bytes:
    """The bytes as they go over the wire."""
    return out.header + bytes(out.body)


@pytest.mark.parametrize("count", EDGES)
@pytest.mark.parametrize("key", [None, b"", b"k", b"k" * 70])
def test_the_records_are_those_of_a_dumb_twin(count: int, key: bytes | None) -> None:
    """At each count where a number gets another byte, the fast way gives the slow way's bytes."""
    assert filler(count, key=key, codec=layout.NO_CODEC) == dumb(count, key)


@given(count=st.integers(1, 3000), key=st.none() | st.binary(max_size=100))
def test_any_count_and_key(count: int, key: bytes | None) -> None:
    """As above, at random."""
    assert filler(count, key=key, codec=layout.NO_CODEC) == dumb(count, key)


def test_a_million_records_in_known_bytes() -> None:
    """The last of a million, and how small the whole becomes: below the 1 MB that a stock topic takes."""
    records = filler(MAX_FILLER, codec=layout.NO_CODEC)
    assert len(records) == 64 * 7 + (8192 - 64) * 8 + (MAX_FILLER - 8192) * 9
    assert records[:14].hex() == "0c0000000101000c000002010100"
    assert records[-9:].hex() == "100000fe887a010100"
    compressed = filler(MAX_FILLER)
    assert len(compressed) < 800_000
    assert bytes(cramjam.zstd.decompress(compressed)) == records


@pytest.mark.parametrize("codec", [layout.NO_CODEC, layout.GZIP, layout.SNAPPY, layout.LZ4, layout.ZSTD])
@pytest.mark.parametrize("key", [None, b"blank"])
def test_an_independent_client_reads_each_record(codec: int, key: bytes | None) -> None:
    """kafka-python finds consecutive offsets, one time, the key, null values, no headers."""
    out = filler_batch(9000, **STAMP, key=key, codec=codec)
    batch = DefaultRecordBatch(joined(out))
    assert batch.validate_crc()
    found = [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in batch]
    assert found == [(at, 1_700_000_000_000, key, None, []) for at in range(9000)]
    assert (batch.compression_type, batch.is_transactional) == (codec, False)


def test_the_header_is_ours() -> None:
    """What a broker looks at before it reads a record."""
    out = filler_batch(500, **STAMP | {"transactional": True}, first=4000)
    batch = Batch(memoryview(joined(out)))
    assert (batch.base_offset, batch.last_offset, batch.count, batch.leader_epoch) == (0, 499, 500, -1)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (77, 3, 12)
    assert (batch.base_timestamp, batch.max_timestamp) == (1_700_000_000_000, 1_700_000_000_000)
    assert (batch.transactional, batch.control, batch.log_append_time, batch.codec) == (True, False, False, 4)
    assert batch.whole
    assert batch.crc_ok()
    assert int.from_bytes(out.header[layout.LENGTH : layout.LEADER_EPOCH], "big") == out.size - layout.LOG_OVERHEAD
    assert (out.first, out.last, out.count, out.max_timestamp) == (4000, 4499, 500, 1_700_000_000_000)


def test_a_million_is_read_by_an_independent_client() -> None:
    """The first and the number of records of the largest batch."""
    batch = DefaultRecordBatch(joined(filler_batch(MAX_FILLER, **STAMP)))
    assert batch.validate_crc()
    assert batch.records_count == MAX_FILLER
    assert [r.offset for r in islice(batch, 3)] == [0, 1, 2]


def test_the_same_count_is_made_once() -> None:
    """Repeated batches share one record section, however the arguments are given."""
    first = filler_batch(12345, **STAMP)
    again = filler_batch(12345, **STAMP | {"sequence": 9}, first=12345)
    assert again.body.obj is first.body.obj is filler(12345, key=None)
    assert again.header != first.header


@pytest.mark.parametrize("count", [-1, 0, MAX_FILLER + 1])
def test_a_count_that_no_batch_holds_is_refused(count: int) -> None:
    """One to a million."""
    with pytest.raises(ValueError, match="holds 1 to 1000000 records"):
        filler(count)


def test_an_unknown_codec_is_refused() -> None:
    """There are codecs 0 to 4."""
    with pytest.raises(ValueError, match="codec 5"):
        filler(3, codec=5)
