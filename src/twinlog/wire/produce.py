"""Produce and WriteTxnMarkers as frames made by hand, since they carry the raw data path.

The batches' bodies are passed on as the views they came in; nothing is joined or copied before the socket. Field order
as in Kafka's `ProduceRequest.json` (versions 3 to 11) and `WriteTxnMarkersRequest.json` (versions 0 and 1).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from kafka.protocol.producer.produce import ProduceResponse
from kafka.protocol.producer.transaction import WriteTxnMarkersResponse

PRODUCE, WRITE_TXN_MARKERS = 0, 27
# 12 and up speak the transaction protocol of KIP-890, in which a produce may open a transaction by itself.
NEWEST_PRODUCE = 11
FIRST_FLEXIBLE_PRODUCE, FIRST_FLEXIBLE_MARKERS = 9, 1
# From this version on a broker throttles behind its answer, not before it.
FIRST_THROTTLED_BEHIND = 6
NEWEST_MARKERS = 1

Buffer = bytes | memoryview
_I16, _I32 = Struct(">h"), Struct(">i")
_ACKS_TIMEOUT = Struct(">hi")
_MARKER = Struct(">qhb")


class PartitionBatch(NamedTuple):
    """One batch for one partition: a Produce request may carry one a partition (a broker's rule since version 3)."""

    partition: int
    header: bytes
    body: memoryview

    @property
    def size(self) -> int:
        """Bytes of header and body."""
        return len(self.header) + len(self.body)


@dataclass(frozen=True, slots=True)
class MarkerRun:
    """`count` equal control records for one partition, all under one producer id and epoch."""

    topic: str
    partition: int
    producer_id: int
    epoch: int
    count: int
    coordinator_epoch: int = 0


@lru_cache(maxsize=4096)
def uvarint(value: int) -> bytes:
    """An unsigned varint, as flexible versions use for lengths (KIP-482)."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_produce(
    version: int,
    topics: Sequence[tuple[str, Sequence[PartitionBatch]]],
    *,
    acks: int,
    timeout_ms: int,
    transactional_id: str | None = None,
) -> list[Buffer]:
    """The body of a Produce request behind its header, as a list of buffers in order."""
    if version >= FIRST_FLEXIBLE_PRODUCE:
        return _flexible_produce(topics, _ACKS_TIMEOUT.pack(acks, timeout_ms), transactional_id)
    return _plain_produce(topics, _ACKS_TIMEOUT.pack(acks, timeout_ms), transactional_id)


def _flexible_produce(
    topics: Sequence[tuple[str, Sequence[PartitionBatch]]], settings: bytes, transactional_id: str | None
) -> list[Buffer]:
    out: list[Buffer] = []
    # What stands between two bodies is one buffer: the fewer there are, the less a write costs.
    before = _compact(transactional_id) + settings + uvarint(len(topics) + 1)
    for name, batches in topics:
        before += _compact(name) + uvarint(len(batches) + 1)
        for partition, header, body in batches:
            size = uvarint(len(header) + len(body) + 1)
            out += (before + _I32.pack(partition) + size + header, body)
            before = b"\x00"
        before += b"\x00"
    out.append(before + b"\x00")
    return out


def _plain_produce(
    topics: Sequence[tuple[str, Sequence[PartitionBatch]]], settings: bytes, transactional_id: str | None
) -> list[Buffer]:
    out: list[Buffer] = [_string(transactional_id) + settings + _I32.pack(len(topics))]
    for name, batches in topics:
        out.append(_string(name) + _I32.pack(len(batches)))
        for batch in batches:
            out.append(_I32.pack(batch.partition) + _I32.pack(batch.size) + batch.header)
            out.append(batch.body)
    return out


def encode_markers(version: int, runs: Iterable[MarkerRun]) -> list[Buffer]:
    """The body of a WriteTxnMarkers request: each run's abort markers one after another, in the order given."""
    runs = list(runs)
    total = sum(run.count for run in runs)
    if version >= FIRST_FLEXIBLE_MARKERS:
        return [uvarint(total + 1), *(_flexible_marker(run) * run.count for run in runs), b"\x00"]
    return [_I32.pack(total), *(_plain_marker(run) * run.count for run in runs)]


def _flexible_marker(run: MarkerRun) -> bytes:
    return (
        _MARKER.pack(run.producer_id, run.epoch, 0)
        + b"\x02"
        + _compact(run.topic)
        + b"\x02"
        + _I32.pack(run.partition)
        + b"\x00"
        + _I32.pack(run.coordinator_epoch)
        + b"\x00"
    )


def _plain_marker(run: MarkerRun) -> bytes:
    return (
        _MARKER.pack(run.producer_id, run.epoch, 0)
        + _I32.pack(1)
        + _string(run.topic)
        + _I32.pack(1)
        + _I32.pack(run.partition)
        + _I32.pack(run.coordinator_epoch)
    )


@lru_cache(maxsize=4096)
def _compact(text: str | None) -> bytes:
    if text is None:
        return b"\x00"
    raw = text.encode()
    return uvarint(len(raw) + 1) + raw


def _string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    raw = text.encode()
    return _I16.pack(len(raw)) + raw


class Produced(NamedTuple):
    """A broker's answer for one partition of a Produce request."""

    code: int
    base_offset: int
    message: str


class ProduceAnswer(NamedTuple):
    """A broker's answer to one Produce request, by (topic, partition), and for how long it throttles from now on."""

    partitions: dict[tuple[str, int], Produced]
    throttle_ms: int = 0


def decode_produced(version: int, view: memoryview) -> dict[tuple[str, int], Produced]:
    """The answers of a Produce response, by (topic, partition)."""
    return decode_produce_answer(version, view).partitions


def decode_produce_answer(version: int, view: memoryview) -> ProduceAnswer:
    """A Produce response; its throttle time counts only where the broker has not waited itself (KIP-219)."""
    if version >= FIRST_FLEXIBLE_PRODUCE:
        accepted = _decode_accepted(view)
        if accepted is not None:
            return ProduceAnswer(accepted, *_I32.unpack_from(view, len(view) - _RESPONSE_END))
    answer = ProduceResponse.decode(view, version=version)
    found: dict[tuple[str, int], Produced] = {}
    for topic in answer.responses:
        for part in topic.partition_responses:
            message = getattr(part, "error_message", None) or ""
            found[topic.name, part.index] = Produced(part.error_code, part.base_offset, message)
    return ProduceAnswer(found, answer.throttle_time_ms if version >= FIRST_THROTTLED_BEHIND else 0)


# One partition of a response, versions 9 to 11: index, error code, base offset, append time, log start; then a byte
# each for the record errors, the message and the tagged fields.
_ANSWER = Struct(">ihqqqBBB")
# An array or string of one byte is empty (1) or null (0); of 128 items on, its length takes more than one byte.
_EMPTY, _ONE_BYTE = 1, 0x7F
# Behind the last topic: the throttle time and the tagged fields.
_RESPONSE_END = 5


def _decode_accepted(view: memoryview) -> dict[tuple[str, int], Produced] | None:
    """The answers where all was accepted, as nearly every response says; None for any other response.

    Ten times as fast as the library's decoder, which would be a tenth of all that a batch costs.
    """
    found: dict[tuple[str, int], Produced] = {}
    at = 1
    if view[0] > _ONE_BYTE:
        return None
    for _ in range(view[0] - 1):
        name_end = at + view[at]
        if view[at] > _ONE_BYTE or not _EMPTY < view[name_end] <= _ONE_BYTE:
            return None
        parts_end = name_end + 1 + (view[name_end] - 1) * _ANSWER.size
        name = str(view[at + 1 : name_end], "utf-8")
        parts = view[name_end + 1 : parts_end]
        for index, code, base_offset, _, _, errors, message, tags in _ANSWER.iter_unpack(parts):
            if code or errors > _EMPTY or message or tags:
                return None
            found[name, index] = Produced(0, base_offset, "")
        if view[parts_end]:
            return None
        at = parts_end + 1
    return found if len(view) - at == _RESPONSE_END and not view[-1] else None


def decode_markers(version: int, view: memoryview) -> dict[tuple[str, int], int]:
    """The error codes of a WriteTxnMarkers response, by (topic, partition); 0 where no entry has an error."""
    answer = WriteTxnMarkersResponse.decode(view, version=version)
    found: dict[tuple[str, int], int] = {}
    for marker in answer.markers:
        for topic in marker.topics:
            for part in topic.partitions:
                key = (topic.name, part.partition_index)
                found[key] = found.get(key, 0) or part.error_code
    return found
