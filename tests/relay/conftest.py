"""Batches with records that can be decoded, and chunks of them, as the tests of this folder need them."""

from typing import Any, NamedTuple

import pytest

from twinlog.batch.records import Record, encode
from twinlog.names import TopicPartition
from twinlog.relay.progress import Chunk, Progress

WHERE = TopicPartition("orders", 3)


class Made(NamedTuple):
    """Builders, so that a test says only what matters to it."""

    where: TopicPartition
    progress: Any
    data: Any
    chunk: Any


def _progress(position: int = 100, **fields: Any) -> Progress:
    """Where a partition stands: producer 7 in epoch 2, the next sequence 40, its last batch of now."""
    known = {"producer_id": 7, "epoch": 2, "sequence": 40, "spent_epoch": 2}
    known |= {"last_timestamp_ms": 1_000_000, "before_timestamp_ms": 1_000_000}
    return Progress(WHERE, position, **(known | fields))


def _data(first: int, count: int = 3, *, timestamp: int = 1_000_000) -> bytes:
    """A plain batch of `count` records from offset `first` on."""
    records = [Record(first + n, timestamp, b"k%d" % n, b"v", ()) for n in range(count)]
    return bytes(encode(records, codec=0).raw)


def _chunk(position: int, *batches: bytes, **fields: Any) -> Chunk:
    """A fetched chunk; stable and high watermark far ahead."""
    known: dict[str, Any] = {
        "aborted": (),
        "high_watermark": 10_000,
        "last_stable_offset": 10_000,
        "log_start_offset": 0,
        "conclusive": True,
    }
    return Chunk(position, memoryview(b"".join(batches)), **(known | fields))


@pytest.fixture(scope="session")
def made() -> Made:
    """The builders."""
    return Made(WHERE, _progress, _data, _chunk)
