"""The first copy of a compacted topic: holes become filling records, pipelined like data, and not markers.

The destination's cleaner turns them into holes again (`firstcopy`). Since it leaves the active segment alone, three
things hold, and together they mean that each filling record is behind a roll before the copy is over:

1. Before the first one is written, the topic rolls a segment once what is appended is `roll_ms` younger than the first
   batch in it (segment.ms; `LogSegment.shouldRoll` compares timestamps).
2. One is written only while all that was appended so far, and its own batch, is older than that, with `MARGIN_MS` for
   clocks that disagree. So the first batch of its segment is.
3. Markers, which carry the broker's present time, are written for the blank at `until` at the latest; a first batch as
   old as in 2 makes their append roll the segment.

Pure: the time is told by `now_ms`.
"""

from collections.abc import Iterable
from dataclasses import replace

from twinlog.batch.fill import MAX_SPAN, Joined, filling_tail
from twinlog.batch.records import Frame, frames_from
from twinlog.batch.scan import Blank, Data
from twinlog.batch.view import Batch
from twinlog.names import TopicPartition
from twinlog.relay.decide import add_blank, sendable
from twinlog.relay.progress import Progress

# How far the worker's clock and the brokers' may be apart.
MARGIN_MS = 3_000
# Longer runs of blanks go fast as markers, and would bloat a batch.
MAX_HOLE = 2_000
# A batch is closed once it has grown to this, before compression.
BATCH_BYTES = 131_072
# What a header and a codec that does not compress may take.
SLACK_BYTES = 4_096


class Filling:
    """How the holes of one partition's first copy are written, as far as `until`, which is a blank at the source.

    `newest_ms` is the newest timestamp in the destination's log so far. With `behind_marker` the first blanks are
    markers in any case: after a takeover, markers of a former owner may still be under way to the place where we would
    fill, and only our own, at a higher epoch, fence them.
    """

    def __init__(
        self, until: int, *, roll_ms: int, newest_ms: int, max_batch_bytes: int, behind_marker: bool = False
    ) -> None:
        self.until = until
        self.now_ms = 0
        self.held: Blank | None = None
        self._roll_ms = roll_ms
        self._newest_ms = newest_ms
        self._waits = behind_marker
        self._last = -1
        self._room = max_batch_bytes - SLACK_BYTES
        self._out: list[Batch | Blank] = []
        self._joined: Joined | None = None

    def __repr__(self) -> str:
        return f"Filling(until {self.until}, last {self._last})"

    def over(self, position: int) -> bool:
        """Whether nothing is to be filled from `position` on."""
        return self.held is None and position >= self.until

    def ahead(self, progress: Progress) -> Progress:
        """Where the source is read on: behind the blanks that are held back for the next record."""
        return progress if self.held is None else replace(progress, position=self.held.last + 1)

    def begin_at(self, position: int) -> None:
        """Forget what is held back, and whatever of it all was not written: the source is read again from here."""
        self.held = None
        if self._last >= position:
            self._last = -1

    def last_below(self, position: int) -> int:
        """The last offset with a filling record in a log that ends at `position`; -1 where that is not known."""
        return self._last if self._last < position else -1

    def form(self, items: Iterable[Data | Blank], position: int, where: TopicPartition) -> tuple[Batch | Blank, ...]:
        """As `decide.sendable`, with holes filled; blanks at the end are kept in `held`, to be filled with the rest."""
        at = position if self.held is None else self.held.first
        self.held, self._out, self._joined = None, [], None
        end = position
        for item in items:
            if isinstance(item, Blank):
                end = item.last + 1
                continue
            end = item.batch.next_offset
            at = self._batch(item, at, where)
        self._flush()
        if at < end <= self.until and end - at <= MAX_HOLE and self._may_fill():
            self.held = Blank(at, end - 1)
        else:
            self._blank(at, end - 1)
        return tuple(self._out)

    def _may_fill(self) -> bool:
        return not self._waits and self._old(self._newest_ms)

    def _old(self, timestamp_ms: int) -> bool:
        return timestamp_ms <= self.now_ms - self._roll_ms - MARGIN_MS

    def _batch(self, item: Data, at: int, where: TopicPartition) -> int:
        batch = item.batch
        if not isinstance(batch, Batch) or batch.log_append_time:
            self._flush()
            for piece in sendable((item,), at, where):
                self._keep(piece)
            return max(at, batch.next_offset)
        if batch.whole and batch.base_offset == at:
            self._flush()
            self._keep(batch)
            return batch.next_offset
        self._note(batch.max_timestamp)
        for frame in frames_from(batch, from_offset=at, where=where):
            at = self._frame(frame, batch, at)
        return at

    def _frame(self, frame: Frame, batch: Batch, at: int) -> int:
        self._note(frame.timestamp)
        hole = frame.offset - at
        may_fill = hole and frame.offset < self.until and self._may_fill()
        tail = filling_tail(frame) if may_fill else None
        size = len(frame.tail) + 32
        if tail is not None:
            size += hole * (len(tail) + 16)
            if hole > MAX_HOLE or size > self._room:
                tail = None
        if hole and tail is None:
            self._blank(at, frame.offset - 1)
            at = frame.offset
        joined = self._joined_for(frame, batch.codec, at, size)
        joined.add(frame, tail)
        if tail is not None:
            self._last = frame.offset - 1
        return frame.offset + 1

    def _note(self, timestamp_ms: int) -> None:
        """Take notice of a time that is about to be in the log; filling records do not share a batch with a new one."""
        if not self._old(timestamp_ms):
            self._flush()
            self._newest_ms = max(self._newest_ms, timestamp_ms)

    def _joined_for(self, frame: Frame, codec: int, at: int, size: int) -> Joined:
        """The batch that takes what fills the offsets from `at` on, and `frame`."""
        joined = self._joined
        bound = min(BATCH_BYTES, self._room)
        if joined is not None and (
            joined.codec != codec or joined.bytes + size > bound or frame.offset - joined.first >= MAX_SPAN
        ):
            self._flush()
        if self._joined is None:
            self._joined = Joined(codec, at, frame.timestamp)
        return self._joined

    def _flush(self) -> None:
        joined, self._joined = self._joined, None
        if joined is not None:
            self._keep(joined.made())

    def _blank(self, first: int, last: int) -> None:
        self._flush()
        if first <= last:
            add_blank(self._out, first, last)
            self._waits = False
            self._newest_ms = max(self._newest_ms, self.now_ms)

    def _keep(self, item: Batch | Blank) -> None:
        if isinstance(item, Blank):
            self._blank(item.first, item.last)
        else:
            self._out.append(item)
            self._newest_ms = max(self._newest_ms, item.max_timestamp)
