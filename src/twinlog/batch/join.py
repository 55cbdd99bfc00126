"""Joins neighbouring small batches into larger ones that hold the same records at the same offsets.

A broker's work, and each of its followers', is by the batch more than by the byte, and a partition has five batches
under way at most; so small batches cost throughput, the more so with several replicas. Joining costs some time for each
record, since its deltas are written anew; keys, values and headers are carried as bytes. So it is done where batches
hold few records each and are not compressed, as producers without `linger.ms` make them.

Rule: `org.apache.kafka.common.record.DefaultRecord` (KIP-98): a record's time and offset are written as deltas.
"""

from collections.abc import Sequence
from typing import Final

from twinlog.batch import layout
from twinlog.batch.view import Batch, varint, zigzag

MOST_RECORDS: Final = 40
"""Of a batch that is worth joining: so many take as long as a batch by itself (docs/internals.md has the figures)."""

MOST_BYTES: Final = 65_536
"""Of such a batch: larger ones cost brokers little as they are."""

MOST_GROWTH: Final = 5
"""Bytes by which a record's length and two deltas grow together, unless its time is far from the first batch's."""

_WRITTEN: Final = tuple(zigzag(number) for number in range(8_192))
"""Numbers as records spell them; most deltas and lengths are among these."""

_APART: Final = layout.CODEC_MASK | layout.LOG_APPEND_TIME_BIT | layout.CONTROL_BIT | layout.DELETE_HORIZON_BIT
"""Attribute bits with which a batch cannot be joined."""


def joined(run: Sequence[Batch], most_bytes: int) -> Sequence[Batch]:
    """Return the same records in order, small neighbours joined into batches of at most `most_bytes` bytes (0: none).

    What has to stay a batch of its own does: large, compressed, or of many records. A batch that was made here has no
    checksum: it is to be stamped (`edit.stamped`).
    """
    if most_bytes <= 0 or len(run) < 2:
        return run
    out: list[Batch] = []
    group: list[Batch] = []
    size = 0
    for batch in run:
        small = batch.count <= MOST_RECORDS and batch.size <= MOST_BYTES and not batch.attributes & _APART
        grown = batch.size + MOST_GROWTH * batch.count
        if group and not (small and size + grown <= most_bytes and batch.base_offset == group[-1].next_offset):
            out += _together(group, most_bytes)
            group, size = [], 0
        if small:
            group.append(batch)
            size += grown
        else:
            out.append(batch)
    return out + _together(group, most_bytes)


def _together(group: list[Batch], most_bytes: int) -> list[Batch]:
    """The group as one batch; as it is where times so far apart made that larger than `most_bytes`."""
    whole = as_one(group) if len(group) > 1 else None
    return group if whole is None or whole.size > most_bytes else [whole]


def as_one(run: Sequence[Batch]) -> Batch | None:
    """One batch with the records of all in `run`, without a checksum; None where they cannot be one.

    They can where each begins at the offset behind the one before, none has a hole, a codec or times of its broker, and
    their records can be read. Times are the records' own: deltas are relative to the first batch's base timestamp now.
    """
    first = run[0]
    parts = [b""]
    count, base_time, max_time = 0, first.base_timestamp, layout.NO_TIMESTAMP
    for batch in run:
        if batch.base_offset != first.base_offset + count or not batch.whole or batch.attributes & _APART:
            return None
        try:
            _carry_over(parts, batch, batch.base_timestamp - base_time, count)
        except (IndexError, ValueError):
            return None
        count += batch.count
        max_time = max(max_time, batch.max_timestamp)
    parts[0] = layout.HEADER.pack(
        first.base_offset,
        layout.HEADER_SIZE - layout.LOG_OVERHEAD + sum(map(len, parts)),
        run[-1].leader_epoch,
        layout.MAGIC_2,
        0,
        0,
        count - 1,
        base_time,
        max_time,
        layout.NO_PRODUCER,
        layout.NO_EPOCH,
        layout.NO_SEQUENCE,
        count,
    )
    return Batch(memoryview(b"".join(parts)))


def _carry_over(parts: list[bytes], batch: Batch, later_ms: int, behind: int) -> None:
    """Add a batch's records to `parts`, times `later_ms` later and offsets `behind` more than their deltas say.

    Raises IndexError or ValueError where they are not as a broker lets them be: one an offset, and nothing else.
    """
    section = bytes(batch.body)
    written, most, at = _WRITTEN, len(_WRITTEN), 0
    for delta in range(batch.count):
        size = section[at]
        if size < 0x80:
            size, at = size >> 1 ^ -(size & 1), at + 1
        elif section[at + 1] < 0x80:  # most records: a call for each would take a third of the time
            size = size & 0x7F | section[at + 1] << 7
            size, at = size >> 1 ^ -(size & 1), at + 2
        else:
            size, at = varint(section, at)
        attributes, end = section[at : at + 1], at + size
        time, at = section[at + 1], at + 2
        if time < 0x80:
            time = time >> 1 ^ -(time & 1)
        else:
            time, at = varint(section, at - 1, longest=10)
        spelt = written[delta] if delta < most else zigzag(delta)
        if not section.startswith(spelt, at):
            raise ValueError("an offset is out of order")
        at += len(spelt)
        if at > end:
            raise ValueError("a record is too short")
        time += later_ms
        time_delta = written[time] if 0 <= time < most else zigzag(time)
        offset_delta = written[delta + behind] if delta + behind < most else zigzag(delta + behind)
        size = 1 + len(time_delta) + len(offset_delta) + end - at
        parts.append((written[size] if size < most else zigzag(size)) + attributes + time_delta + offset_delta)
        parts.append(section[at:end])
        at = end
    if at != len(section):
        raise ValueError("bytes remain behind the last record")
