"""Reads one side of one partition, a fetch ahead of the comparison, and keeps what the other side has not reached."""

import asyncio
from collections import deque
from typing import Final

from twinlog.batch.scan import Data, Scan
from twinlog.batch.view import Batch
from twinlog.errors import CorruptBatch, PartitionFailed, RetryLater
from twinlog.names import TopicPartition
from twinlog.relay.tailcheck import scan_of
from twinlog.wire import codes
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops import read_log
from twinlog.wire.retry import Attempts

MOST_FETCH_BYTES: Final = 8 << 20
"""Enough to keep a broker busy while the last one is compared; three of them a side are held at a time."""

FIRST_FETCH_BYTES: Final = 1 << 20
LEAST_FETCH_BYTES: Final = 256 << 10
BATCHES_AIMED_AT: Final = 8192
"""Views of tiny batches take more memory than their bytes, so a fetch is to bring no more batches than this."""


class Reader:
    """What a read_committed reader of one side finds from `position` to `end`, the second one excluded.

    `reached` is how far `advance` has come; what lies below it is handed out by `take`. Close it at the end.
    """

    def __init__(
        self, cluster: Cluster, where: TopicPartition, span: range, *, timeout_s: float, ahead: bool = True
    ) -> None:
        self.reached = span.start
        self._end = span.stop
        self._cluster = cluster
        self._where = where
        self._timeout_s = timeout_s
        self._ahead = ahead
        self._held: deque[Data] = deque()
        self._fetch_bytes = FIRST_FETCH_BYTES
        self._next: asyncio.Task[Scan | None] | None = None

    def __repr__(self) -> str:
        return f"<Reader of {self._where} on the {self._cluster}, at {self.reached} of {self._end}>"

    async def advance(self) -> bool:
        """Read on, past `reached`; False when the log no longer holds what comes next (retention, or a cut end).

        Raises PartitionFailed (a corrupt batch), AuthorizationFailed and the like; RetryLater when nothing came within
        the time allowed.
        """
        self._next = self._next or asyncio.create_task(self._fetch(self.reached))
        scan = await self._next
        self._next = None
        if scan is None:
            return False
        self._held.extend(item for item in scan.items if isinstance(item, Data))
        self.reached = scan.next_offset
        if self._ahead and self.reached < self._end:
            self._next = asyncio.create_task(self._fetch(self.reached))
        return True

    def take(self, last: int) -> list[Data]:
        """Return what begins up to `last`, this offset included; what reaches beyond it is kept for the next call."""
        held, taken = self._held, []
        while held and held[0].batch.last_offset <= last:
            taken.append(held.popleft())
        # The base offset of an old wrapper is not known without decoding.
        if held and (held[0].batch.base_offset <= last or not isinstance(held[0].batch, Batch)):
            taken.append(held[0])
        return taken

    def cut_at(self, most_bytes: int, last: int) -> int:
        """Return an offset up to `last` such that at most so many bytes (at least one batch) are held until there."""
        size = 0
        for item in self._held:
            size += item.batch.size
            if size >= most_bytes:
                return min(last, item.batch.last_offset)
        return last

    async def close(self) -> None:
        """End the fetch under way."""
        if self._next is not None:
            self._next.cancel()
            await asyncio.gather(self._next, return_exceptions=True)

    async def _fetch(self, position: int) -> Scan | None:
        attempts = Attempts(self._timeout_s)
        while True:
            chunk = await read_log(
                self._cluster,
                self._where,
                position,
                max_bytes=self._fetch_bytes,
                read_committed=True,
                timeout_s=self._timeout_s,
            )
            if chunk.error == codes.OFFSET_OUT_OF_RANGE:
                return None
            codes.check(chunk.error, f"{self._where} could not be read at offset {position} on the {self._cluster}")
            try:
                scan = scan_of(self._where, chunk, position, self._end)
            except CorruptBatch as corrupt:
                raise unreadable(self._where, self._cluster, corrupt) from corrupt
            if scan.next_offset > position:
                self._size_next(scan)
                return scan
            # A leader just elected may not know yet how far its log is stable.
            if not await attempts.again():
                raise RetryLater(
                    f"{self._where}: nothing came from the {self._cluster} at offset {position} within "
                    f"{self._timeout_s:g} s, though its log had ended at {self._end}. Run the comparison again."
                )

    def _size_next(self, scan: Scan) -> None:
        mean = scan.bytes // max(1, len(scan.items))
        self._fetch_bytes = max(LEAST_FETCH_BYTES, min(MOST_FETCH_BYTES, BATCHES_AIMED_AT * mean))


def unreadable(where: TopicPartition, cluster: Cluster, corrupt: CorruptBatch) -> PartitionFailed:
    """Return the error that tells on which side a batch is corrupt."""
    return PartitionFailed(
        f"{where} holds a corrupt batch at offset {corrupt.offset} on the {cluster}: {corrupt.reason}. "
        f"Repair or delete that batch, then compare again."
    )
