"""A diverged tail as a file: the batches as the log held them, each with a checksum, on disk before a delete.

MAGIC, then frames: length and CRC32C of the payload (big-endian), payload
first payload   JSON: what was saved, and of which partitions which offsets
others          partition, kind, and a batch as its broker stored it
last payload    END and the number of batches: a file without it is not complete
"""

import json
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import BinaryIO, Protocol
from uuid import UUID

from crc32c import crc32c

from twinlog.admin.divergence import READ_BYTES, Tail
from twinlog.batch.records import decode
from twinlog.batch.scan import Data, batches
from twinlog.batch.section import Record
from twinlog.batch.view import Batch, OldBatch
from twinlog.control.records import topic_id_text
from twinlog.errors import BadInput, RetryLater
from twinlog.names import TopicPartition
from twinlog.relay.tailcheck import scan_of
from twinlog.wire.cluster import Cluster
from twinlog.wire.codes import check
from twinlog.wire.ops import LATEST, LogChunk, list_offsets, read_log

MAGIC = b"TWINLOG-SALVAGE-1\n"
END = b"END"
FRAME, ENTRY = struct.Struct(">II"), struct.Struct(">iB")
MOST_FRAME_BYTES = 1 << 30
MOST_NAMES = 10_000
MOST_NAME = 200
"""Of a topic's name in a file's, which may have 255 characters; the id tells the topic."""


class _Sink(Protocol):
    """What a file of a tail is written to."""

    def write(self, content: bytes, /) -> int: ...


class Kind(IntEnum):
    """What became of a batch's records: only those that are COMMITTED were seen by a read_committed consumer."""

    COMMITTED = 0
    ABORTED = 1
    MARKER = 2
    UNDECIDED = 3


@dataclass(frozen=True, slots=True)
class Salvaged:
    """What a file says of itself: where it comes from, and the offsets (the second one excluded) of each partition."""

    topic: str
    topic_id: str
    cluster_id: str
    ranges: dict[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Saved:
    """A record of a file, and where it stood."""

    partition: int
    kind: Kind
    record: Record


async def save(cluster: Cluster, topic: str, topic_id: UUID, tails: Sequence[Tail], folder: Path) -> Path:
    """Write the tails of a topic to a new file in `folder`, which is on disk when this returns; returns its path.

    Raises RetryLater where the log cannot be read, BadInput where the file cannot be written.
    """
    unfinished = folder / f".{_stem(topic, topic_id)}-{os.getpid()}.part"
    try:
        with unfinished.open("wb") as file:
            await _write(cluster, topic, topic_id, tails, file)
            file.flush()
            os.fsync(file.fileno())
        return _named(unfinished, folder, _stem(topic, topic_id))
    except OSError as problem:
        raise BadInput(f"The tail of topic '{topic}' could not be saved in {folder}: {problem}") from problem
    finally:
        unfinished.unlink(missing_ok=True)


async def save_once(cluster: Cluster, topic: str, topic_id: UUID, tails: Sequence[Tail], folder: Path) -> Path:
    """As `save`, under the topic's own name; what is on disk has been compared with the log when this returns.

    A file of that name is taken for saved already, if it holds just this. Raises BadInput where it does not.
    """
    path = path_of(topic, topic_id, folder)
    if not path.exists():
        path = await save(cluster, topic, topic_id, tails, folder)
    try:
        with path.open("rb") as file:
            await _write(cluster, topic, topic_id, tails, _Comparing(file))
            same = not file.read(1)
        _sync(folder)  # whoever wrote it may have been ended before that
    except _Differs:
        same = False
    except OSError as problem:
        raise BadInput(f"{path} cannot be read: {problem}") from problem
    if not same:
        raise BadInput(
            f"{path} holds something else than the tail of topic '{topic}' as it is now. Move that file away, make "
            f"sure that nobody writes to the topic any more, and run the command again."
        )
    return path


def path_of(topic: str, topic_id: UUID, folder: Path) -> Path:
    """The file that `save_once` writes."""
    return folder / f"{_stem(topic, topic_id)}.tail"


def _stem(topic: str, topic_id: UUID) -> str:
    return f"{topic[:MOST_NAME]}-{topic_id_text(topic_id)}"


class _Differs(Exception):  # tells, and is no error
    """What is on disk is not what would be written."""


class _Comparing:
    """Takes what would be written, and compares it with a file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, content: bytes) -> int:
        """Raise _Differs where the file holds anything else here."""
        if self._file.read(len(content)) != content:
            raise _Differs
        return len(content)


async def save_from(cluster: Cluster, topic: str, firsts: dict[int, int], folder: Path) -> Path:
    """As `save`, of partitions from an offset on up to their present ends. Raises BadInput where there is nothing."""
    info = (await cluster.topics([topic])).get(topic)
    if info is None or info.error or not firsts.keys() <= info.partitions.keys():
        raise BadInput(f"Topic '{topic}' does not exist on the {cluster}, or lacks one of the partitions {[*firsts]}.")
    places = {TopicPartition(topic, partition): first for partition, first in firsts.items()}
    ends = await list_offsets(cluster, dict.fromkeys(places, LATEST))
    for where, first in places.items():
        check(ends[where].error, f"The end of {where} cannot be told on the {cluster}")
        if first >= ends[where].offset:
            raise BadInput(f"{where} ends at offset {ends[where].offset}: there is nothing to save from {first} on.")
    tails = [Tail(where, first, ends[where].offset) for where, first in sorted(places.items())]
    return await save(cluster, topic, info.id, tails, folder)


def _named(unfinished: Path, folder: Path, stem: str) -> Path:
    """Give the finished file a name that no file has yet."""
    for number in range(MOST_NAMES):
        path = folder / (f"{stem}.tail" if number == 0 else f"{stem}-{number}.tail")
        try:
            os.link(unfinished, path)
        except FileExistsError:
            continue
        _sync(folder)
        return path
    raise BadInput(f"{folder} holds {MOST_NAMES} files named {stem}-N.tail already: move them away first.")


def _sync(folder: Path) -> None:
    """A name is on disk only with its folder."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


async def _write(cluster: Cluster, topic: str, topic_id: UUID, tails: Sequence[Tail], file: "_Sink") -> None:
    """Write the whole file; the same log gives the same bytes."""
    file.write(MAGIC)
    ranges = {tail.where.partition: [tail.first, tail.end] for tail in tails}
    head = {"topic": topic, "topicId": topic_id_text(topic_id), "clusterId": cluster.cluster_id}
    _put(file, json.dumps({**head, "ranges": ranges}).encode())
    count = 0
    for tail in tails:
        count += await _copy(cluster, tail, file)
    _put(file, END + str(count).encode())


async def _copy(cluster: Cluster, tail: Tail, file: "_Sink") -> int:
    """Write one partition's batches; returns how many."""
    count, position, decided = 0, tail.first, True
    while position < tail.end:
        chunk = await read_log(cluster, tail.where, position, max_bytes=READ_BYTES, read_committed=decided)
        check(chunk.error, f"{tail.where} could not be read at offset {position} on the {cluster}")
        if decided and position >= chunk.last_stable_offset:
            decided = False
            continue
        found, reached = _kinds(tail, chunk, position, decided=decided)
        if reached <= position:
            raise RetryLater(f"{tail.where}: nothing came from the {cluster} at offset {position} below {tail.end}")
        for kind, batch in found:
            _put(file, ENTRY.pack(tail.where.partition, kind) + bytes(batch.raw))
        count, position = count + len(found), reached
    return count


def _kinds(
    tail: Tail, chunk: LogChunk, position: int, *, decided: bool
) -> tuple[list[tuple[Kind, Batch | OldBatch]], int]:
    """The batches from `position` on, and how far they reach."""
    read = [batch for batch in batches(chunk.records, tail.where) if batch.next_offset > position]
    if not decided:
        kept = [batch for batch in read if batch.base_offset < tail.end]
        reached = kept[-1].next_offset if kept else tail.end
        return [(Kind.MARKER if _control(batch) else Kind.UNDECIDED, batch) for batch in kept], reached
    scan = scan_of(tail.where, chunk, position, tail.end)
    seen = {item.batch.base_offset for item in scan.items if isinstance(item, Data)}
    kept = [batch for batch in read if batch.base_offset < scan.next_offset]
    return [(_decided(batch, seen), batch) for batch in kept], scan.next_offset


def _control(batch: Batch | OldBatch) -> bool:
    return isinstance(batch, Batch) and batch.control


def _decided(batch: Batch | OldBatch, seen: set[int]) -> Kind:
    if _control(batch):
        return Kind.MARKER
    return Kind.COMMITTED if batch.base_offset in seen else Kind.ABORTED


def _put(file: "_Sink", payload: bytes) -> None:
    file.write(FRAME.pack(len(payload), crc32c(payload)))
    file.write(payload)


def describe(path: Path) -> Salvaged:
    """What a file holds, by its first lines; `records` proves that it is complete. Raises BadInput."""
    with _opened(path) as file:
        return _head(path, file)


def records(path: Path) -> Iterator[Saved]:
    """Yield the records of a file, partition by partition in offset order.

    Raises BadInput for a file that is no such file, is damaged, or ends too early; read it through once before any of
    its records is used.
    """
    with _opened(path) as file:
        head = _head(path, file)
        count = 0
        while not (payload := _frame(path, file)).startswith(END):
            count += 1
            partition, kind = ENTRY.unpack_from(payload)
            first, end = head.ranges[partition]
            for batch in batches(memoryview(payload)[ENTRY.size :], TopicPartition(head.topic, partition)):
                found = [] if kind == Kind.MARKER else decode(batch)
                yield from (Saved(partition, Kind(kind), one) for one in found if first <= one.offset < end)
        if payload != END + str(count).encode():
            raise BadInput(f"{path} holds {count} batches, and its end speaks of {payload[len(END) :].decode()}.")


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as problem:
        raise BadInput(f"{path} cannot be read: {problem}") from problem


def _head(path: Path, file: BinaryIO) -> Salvaged:
    if file.read(len(MAGIC)) != MAGIC:
        raise BadInput(f"{path} is no file of a saved tail.")
    told = json.loads(_frame(path, file))
    ranges = {int(partition): (first, end) for partition, (first, end) in told["ranges"].items()}
    return Salvaged(told["topic"], told["topicId"], told["clusterId"], ranges)


def _frame(path: Path, file: BinaryIO) -> bytes:
    at = file.tell()
    head = file.read(FRAME.size)
    length, checksum = FRAME.unpack(head) if len(head) == FRAME.size else (MOST_FRAME_BYTES, 0)
    payload = file.read(length) if length < MOST_FRAME_BYTES else b""
    if len(payload) != length or crc32c(payload) != checksum:
        raise BadInput(f"{path} is damaged or not complete: what begins at byte {at} does not agree with its checksum.")
    return payload
