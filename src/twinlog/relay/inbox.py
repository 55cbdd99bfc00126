"""What was fetched for one partition and not yet taken by its pump, bounded in bytes."""

import asyncio
import time
from collections import deque
from dataclasses import dataclass, replace
from itertools import count
from struct import unpack_from
from typing import Any, Final, NamedTuple
from uuid import UUID

from twinlog.names import TopicPartition
from twinlog.relay.budget import Account
from twinlog.relay.fetch_session import Ask
from twinlog.relay.pieces import PIECE_BATCHES, PIECE_BYTES, pieces
from twinlog.relay.progress import Chunk, Fetched, FetchRefused, Nudge

# Two fetches a partition: one being appended, one behind it, so that neither side waits for the other.
CHUNKS_AHEAD: Final = 2
# What trickles in is joined up to this size: a pump takes all that has come while it was busy in one round, and a
# partition is not left out of the next request for the sake of a record or two.
JOINED_BYTES: Final = 65_536
# What the parts of one batch on its way (its view, its new header) occupy beside the batch itself.
BATCH_EXTRA_BYTES: Final = 700
NO_ID: Final = UUID(int=0)

_serials = count()


@dataclass(slots=True)
class SourceFigures:
    """What the source last said of a partition, and when (monotonic seconds); -1 until it has said anything."""

    log_start_offset: int = -1
    high_watermark: int = -1
    last_stable_offset: int = -1
    told_at: float = -1.0


class Tail(NamedTuple):
    """Where fetched records end: the offset behind the last whole batch, and that batch's leader epoch.

    `size` are the bytes of the whole batches, `batches` how many they are.
    """

    next_offset: int
    epoch: int
    size: int
    batches: int


def tail_of(records: memoryview) -> Tail | None:
    """The tail of what was fetched, or None where no whole batch is there.

    Hops from header to header without looking inside; what is malformed is left for `decide` to name.
    """
    end, at, last, batches = len(records), 0, -1, 0
    while end - at >= 17:
        size = unpack_from(">i", records, at + 8)[0]
        if size < 5 or at + 12 + size > end:
            break
        last, at = at, at + 12 + size
        batches += 1
    if last < 0:
        return None
    base, _size, epoch, magic = unpack_from(">qiib", records, last)
    if magic < 2:
        return Tail(base + 1, -1, at, batches)
    if end - last < 27:
        return None
    return Tail(base + unpack_from(">i", records, last + 23)[0] + 1, epoch, at, batches)


def cost_of(records: memoryview, tail: Tail | None) -> int:
    """How many bytes of memory fetched records will have taken once they are on their way."""
    return len(records) + (BATCH_EXTRA_BYTES * tail.batches if tail is not None else 0)


class _Waiting(NamedTuple):
    """A value and the bytes that it takes up; `ends` where no other piece of the same fetch follows it."""

    value: Fetched
    cost: int
    ends: bool


_NOTHING: Final = _Waiting(Nudge(), 0, ends=True)


class Inbox:
    """Between the fetcher of a source broker and the pump of one partition."""

    def __init__(
        self,
        where: TopicPartition,
        position: int,
        *,
        budget: Account,
        topic_id: UUID | None = None,
        leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
    ) -> None:
        self.where = where
        self.topic_id = topic_id
        self.position = position
        self.leader_epoch = leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.figures = SourceFigures()
        self.starved = False
        self._serial = next(_serials)
        self._ask: Ask | None = None
        self._budget = budget
        self._queue: deque[_Waiting] = deque()
        self._held: deque[int] = deque()
        self._fetches = self._last_cost = 0
        self._arrived = asyncio.Event()
        self._closed = False
        self.on_room: asyncio.Event | None = None

    def __repr__(self) -> str:
        return f"Inbox({self.where} at {self.position}, {len(self._queue)} waiting)"

    @property
    def has_room(self) -> bool:
        """Whether one more fetch may be asked for."""
        waiting = self._fetches
        small = waiting == CHUNKS_AHEAD and self._last_cost < JOINED_BYTES // 2
        return not self._closed and (waiting < CHUNKS_AHEAD or small)

    @property
    def ask(self) -> Ask:
        """What to ask the source for next."""
        if self._ask is None:
            topic_id = self.topic_id or NO_ID
            self._ask = Ask(self.position, self.leader_epoch, self.last_fetched_epoch, topic_id, self._serial)
        return self._ask

    @property
    def nudged(self) -> bool:
        """Whether somebody asks the pump to end its round."""
        return bool(self._queue) and isinstance(self._queue[0].value, Nudge)

    @property
    def waiting(self) -> Fetched | None:
        """What `get` would return at once, left where it is."""
        return self._queue[0].value if self._queue else None

    def put(self, chunk: Chunk, tail: Tail | None = None) -> int:
        """Take what the source returned; moves the position behind its last whole batch.

        `tail` is that of the records where it is known already. Returns the bytes that this will take up.
        """
        self._note(chunk)
        tail = tail or tail_of(chunk.records)
        behind = chunk.last_stable_offset > chunk.position
        if tail is None and not behind and chunk.log_start_offset <= chunk.position:
            self.starved = False
            return 0
        if tail is None and not chunk.conclusive and behind:
            # The broker's size limit was used up by others before it came to us, or left room for a part of a batch
            # only: next time we ask first.
            self.starved = True
            return 0
        self.starved = False
        self._ask = None
        if tail is not None:
            self.position, self.last_fetched_epoch = tail.next_offset, tail.epoch
        elif chunk.conclusive and behind:
            self.position, self.last_fetched_epoch = chunk.last_stable_offset, -1
        else:
            self._closed = True
        cost = cost_of(chunk.records, tail)
        if not self._joins(chunk, cost):
            self._enqueue_chunk(chunk, cost, tail)
        return cost

    def refuse(self, refused: FetchRefused) -> None:
        """The source answered with an error: nothing more is fetched until the pump has subscribed anew."""
        self._closed = True
        self._enqueue(_Waiting(refused, 0, ends=True))

    def nudge(self, nudge: Nudge) -> None:
        """Ask the pump to end its round; goes before whatever was fetched."""
        self._closed = True
        self._queue.appendleft(_Waiting(nudge, 0, ends=False))
        self._arrived.set()

    def expect(self, position: int) -> None:
        """Say where the pump stands now: what was fetched but not sent on has to be read again.

        Where something waits, its own position tells; where nothing does, nothing may come for long.
        """
        if not self._queue and not self._closed and self.position != position:
            self.nudge(Nudge(f"{self.where}: not all that was fetched could be sent on; reading on at {position}"))

    async def arrival_or(self, other: "asyncio.Future[Any]") -> None:
        """Return once something waits here or `other` is done."""
        if self._queue or other.done():
            return
        self._arrived.clear()
        arriving = asyncio.ensure_future(self._arrived.wait())
        await asyncio.wait({arriving, other}, return_when=asyncio.FIRST_COMPLETED)
        arriving.cancel()

    async def get(self, *, in_use: int = 0) -> Fetched:
        """The next value, in order; frees the bytes of all before it but the last `in_use`."""
        while len(self._held) > in_use:
            self._budget.give_back(self._held.popleft())
        while not self._queue:
            self._arrived.clear()
            await self._arrived.wait()
        fetched, cost, ends = self._queue.popleft()
        self._held.append(cost)
        self._fetches -= ends
        if self.on_room is not None:
            self.on_room.set()
        return fetched

    def close(self) -> None:
        """Drop what is left and free its bytes."""
        self._closed = True
        self._budget.give_back(sum(self._held) + sum(waiting.cost for waiting in self._queue))
        self._held.clear()
        self._queue.clear()
        self._fetches = 0

    def _note(self, chunk: Chunk) -> None:
        figures = self.figures
        figures.told_at = time.monotonic()
        figures.log_start_offset = chunk.log_start_offset
        figures.high_watermark = chunk.high_watermark
        figures.last_stable_offset = chunk.last_stable_offset

    def _joins(self, chunk: Chunk, cost: int) -> bool:
        """Join `chunk` to the small one that waits as the last, where there is one.

        Only without aborted transactions: which of two lists an entry came from would matter.
        """
        before, held, _ = self._queue[-1] if self._queue else _NOTHING
        if not isinstance(before, Chunk) or held + cost > JOINED_BYTES or before.aborted or chunk.aborted:
            return False
        tail = tail_of(before.records)
        if tail is None or tail.next_offset != chunk.position or not len(chunk.records):
            return False
        records = memoryview(b"".join((before.records[: tail.size], chunk.records)))
        # The log start stays the earlier one: what was fetched below the present one is as good as it was.
        start = before.log_start_offset
        both = replace(chunk, position=before.position, records=records, log_start_offset=start, conclusive=False)
        self._budget.take(cost)
        self._queue[-1] = _Waiting(both, held + cost, ends=True)
        self._last_cost = held + cost
        self._arrived.set()
        return True

    def _enqueue_chunk(self, chunk: Chunk, cost: int, tail: Tail | None) -> None:
        """In pieces; each takes up its part of what the whole does."""
        left = self._last_cost = cost
        # Its headers were gone through already; once more only where that is worth it.
        large = tail is not None and (tail.size > PIECE_BYTES or tail.batches > PIECE_BATCHES)
        *first, last = pieces(chunk, tail.size) if tail is not None and large else (chunk,)
        for piece in first:
            part = cost * len(piece.records) // len(chunk.records)
            left -= part
            self._enqueue(_Waiting(piece, part, ends=False))
        self._enqueue(_Waiting(last, left, ends=True))

    def _enqueue(self, waiting: _Waiting) -> None:
        self._budget.take(waiting.cost)
        self._fetches += waiting.ends
        self._queue.append(waiting)
        self._arrived.set()
