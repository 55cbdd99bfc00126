"""Batches built by hand, field by field, as the tests of this folder need them; nothing of ours takes part."""

import zlib
from collections.abc import Callable
from typing import Any

import pytest
from kafka.record.util import calc_crc32c

RawBatch = Callable[..., bytes]


def _int(value: int, size: int) -> bytes:
    return value.to_bytes(size, "big", signed=True)


def build(base: int = 0, **fields: Any) -> bytes:
    """One batch of magic 2; `span` offsets (as many as `count` when not given), all fields by name."""
    count = fields.get("count", 1)
    summed = (
        _int(fields.get("attributes", 0), 2)
        + _int(fields.get("span", count) - 1, 4)
        + _int(fields.get("base_time", 1000), 8)
        + _int(fields.get("max_time", 2000), 8)
        + _int(fields.get("producer", -1), 8)
        + _int(fields.get("epoch", -1), 2)
        + _int(fields.get("sequence", -1), 4)
        + _int(count, 4)
        + fields.get("body", b"records")
    )
    head = _int(fields.get("leader_epoch", 5), 4) + b"\x02" + calc_crc32c(summed).to_bytes(4, "big")
    return _int(base, 8) + _int(len(head) + len(summed), 4) + head + summed


def build_marker(base: int, kind: int, **fields: Any) -> bytes:
    """A control batch with one marker of type `kind` (0 abort, 1 commit), of coordinator epoch 9."""
    record = bytes.fromhex("000000 08") + _int(0, 2) + _int(kind, 2) + b"\x0c" + _int(0, 2) + _int(9, 4) + b"\x00"
    body = bytes([2 * len(record)]) + record
    return build(base, **{"attributes": 0x30, "producer": 1, "epoch": 0, "body": body} | fields)


def build_old(offset: int, *, magic: int = 1, attributes: int = 0, value: bytes = b"value") -> bytes:
    """One message of magic 0 or 1 with a null key."""
    time = _int(1000, 8) if magic == 1 else b""
    summed = bytes([magic, attributes]) + time + _int(-1, 4) + _int(len(value), 4) + value
    return _int(offset, 8) + _int(4 + len(summed), 4) + zlib.crc32(summed).to_bytes(4, "big") + summed


@pytest.fixture(scope="session")
def raw_batch() -> RawBatch:
    """The builder of batches."""
    return build


@pytest.fixture(scope="session")
def raw_marker() -> RawBatch:
    """The builder of control batches."""
    return build_marker


@pytest.fixture(scope="session")
def old_message() -> RawBatch:
    """The builder of old messages."""
    return build_old
