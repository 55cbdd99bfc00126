"""What was fetched for one partition and not yet taken by its pump, bounded in bytes."""

import asyncio
import time
from collections import deque
from dataclasses import dataclass
from struct import unpack_from
from uuid import UUID

from twinlog.names import TopicPartition
from twinlog.relay.progress import Chunk, Fetched, FetchRefused, Nudge

# Two fetches a partition: one being appended, one behind it, so that neither side waits for the other.
CHUNKS_AHEAD = 2


class Budget:
    """How many fetched bytes a worker may hold over all of its partitions."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._room = asyncio.Event()
        self._room.set()

    def __repr__(self) -> str:
        return f"Budget({self.used_bytes} of {self.limit_bytes} bytes)"

    def take(self, size: int) -> None:
        """Count `size` bytes as held."""
        self.used_bytes += size
        if self.used_bytes >= self.limit_bytes:
            self._room.clear()

    def give_back(self, size: int) -> None:
        """Count `size` bytes as free again."""
        self.used_bytes -= size
        if self.used_bytes < self.limit_bytes:
            self._room.set()

    async def room(self) -> None:
        """Wait until something more may be fetched."""
        await self._room.wait()


@dataclass(slots=True)
class SourceFigures:
    """What the source last said of a partition, and when (monotonic seconds); -1 until it has said anything."""

    log_start_offset: int = -1
    high_watermark: int = -1
    last_stable_offset: int = -1
    told_at: float = -1.0


def tail_of(records: memoryview) -> tuple[int, int] | None:
    """(offset behind the last whole batch, its leader epoch), or None where no whole batch is there.

    Hops from header to header without looking inside; what is malformed is left for `decide` to name.
    """
    end, at, last = len(records), 0, -1
    while end - at >= 17:
        size = unpack_from(">i", records, at + 8)[0]
        if size < 5 or at + 12 + size > end:
            break
        last, at = at, at + 12 + size
    if last < 0:
        return None
    base, _size, epoch, magic = unpack_from(">qiib", records, last)
    if magic < 2:
        return base + 1, -1
    if end - last < 27:
        return None
    return base + unpack_from(">i", records, last + 23)[0] + 1, epoch


class Inbox:
    """Between the fetcher of a source broker and the pump of one partition."""

    def __init__(self, where: TopicPartition, position: int, *, budget: Budget, topic_id: UUID | None = None) -> None:
        self.where = where
        self.topic_id = topic_id
        self.position = position
        self.leader_epoch = -1
        self.last_fetched_epoch = -1
        self.figures = SourceFigures()
        self.starved = False
        self._budget = budget
        self._queue: deque[tuple[Fetched, int]] = deque()
        self._held_bytes = 0
        self._arrived = asyncio.Event()
        self._closed = False
        self.on_room: asyncio.Event | None = None

    def __repr__(self) -> str:
        return f"Inbox({self.where} at {self.position}, {len(self._queue)} waiting)"

    @property
    def has_room(self) -> bool:
        """Whether one more fetch may be asked for."""
        return not self._closed and len(self._queue) < CHUNKS_AHEAD

    @property
    def nudged(self) -> bool:
        """Whether somebody asks the pump to end its round."""
        return bool(self._queue) and isinstance(self._queue[0][0], Nudge)

    @property
    def waiting(self) -> Fetched | None:
        """What `get` would return at once, left where it is."""
        return self._queue[0][0] if self._queue else None

    def put(self, chunk: Chunk) -> None:
        """Take what the source returned; moves the position behind its last whole batch."""
        figures = self.figures
        figures.told_at = time.monotonic()
        figures.log_start_offset = chunk.log_start_offset
        figures.high_watermark = chunk.high_watermark
        figures.last_stable_offset = chunk.last_stable_offset
        tail = tail_of(chunk.records)
        behind = chunk.last_stable_offset > chunk.position
        if tail is None and not behind and chunk.log_start_offset <= chunk.position:
            self.starved = False
            return
        if tail is None and not chunk.conclusive and behind:
            # The broker's size limit was used up by others before it came to us, or left room for a part of a batch
            # only: next time we ask first.
            self.starved = True
            return
        self.starved = False
        if tail is not None:
            self.position, self.last_fetched_epoch = tail
        elif chunk.conclusive and behind:
            self.position, self.last_fetched_epoch = chunk.last_stable_offset, -1
        else:
            self._closed = True
        self._enqueue(chunk, len(chunk.records))

    def refuse(self, refused: FetchRefused) -> None:
        """The source answered with an error: nothing more is fetched until the pump has subscribed anew."""
        self._closed = True
        self._enqueue(refused, 0)

    def nudge(self, nudge: Nudge) -> None:
        """Ask the pump to end its round; goes before whatever was fetched."""
        self._closed = True
        self._queue.appendleft((nudge, 0))
        self._arrived.set()

    def expect(self, position: int) -> None:
        """Say where the pump stands now: what was fetched but not sent on has to be read again.

        Where something waits, its own position tells; where nothing does, nothing may come for long.
        """
        if not self._queue and not self._closed and self.position != position:
            self.nudge(Nudge(f"{self.where}: not all that was fetched could be sent on; reading on at {position}"))

    async def get(self) -> Fetched:
        """The next value, in order; frees the bytes of the one before it."""
        self._budget.give_back(self._held_bytes)
        self._held_bytes = 0
        while not self._queue:
            self._arrived.clear()
            await self._arrived.wait()
        fetched, size = self._queue.popleft()
        self._held_bytes = size
        if self.on_room is not None:
            self.on_room.set()
        return fetched

    def close(self) -> None:
        """Drop what is left and free its bytes."""
        self._closed = True
        self._budget.give_back(self._held_bytes + sum(size for _, size in self._queue))
        self._held_bytes = 0
        self._queue.clear()

    def _enqueue(self, fetched: Fetched, size: int) -> None:
        self._budget.take(size)
        self._queue.append((fetched, size))
        self._arrived.set()
