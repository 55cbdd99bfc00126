"""What was sent to a replicated partition and may not be on its other replicas yet, bounded in bytes and in time.

Data goes with `acks=1`: its acknowledgement says that the leader has it, not that another leader would. So what is
*confirmed* follows the high watermark, never the acknowledgement. A leader that dies takes at most a window's bytes
with it; the takeover reads where the log really ends and they are sent again.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable

from twinlog.names import TopicPartition
from twinlog.wire.metadata import Leader

# What a leader's death may cost to send again. Some hundred milliseconds of one partition at full speed.
UNCONFIRMED_BYTES = 8 * 1_048_576
# A high watermark that stands still for so long holds the sending up, too: nothing may follow data whose age nobody
# bounds, since the broker forgets a producer by the age of what is confirmed.
HOLD_AFTER_S = 5.0


class Window:
    """One stream's unconfirmed data. `lost` says why nothing more may be sent under this leader."""

    __slots__ = (
        "_clock",
        "_limit_bytes",
        "_sent",
        "_waiters",
        "blocked",
        "by_mark",
        "confirmed",
        "doubted_at",
        "leader",
        "lost",
        "moved_at",
        "on_change",
        "on_lost",
        "on_need",
        "unconfirmed_bytes",
        "where",
    )

    def __init__(
        self,
        where: TopicPartition,
        leader: Leader,
        confirmed: int,
        *,
        limit_bytes: int = UNCONFIRMED_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.where = where
        self.leader = leader
        self.confirmed = confirmed
        self.unconfirmed_bytes = 0
        self.lost: str | None = None
        self.blocked = False
        # Whether the last word on what is confirmed came from a look at the high watermark.
        self.by_mark = False
        self.moved_at = self.doubted_at = clock()
        # Called when something may be sent again, or never more; when somebody waits; and once the leader is lost.
        self.on_change: Callable[[], None] | None = None
        self.on_need: Callable[[], None] | None = None
        self.on_lost: Callable[[str], None] | None = None
        self._limit_bytes = limit_bytes
        self._clock = clock
        self._sent: deque[tuple[int, int]] = deque()
        self._waiters: list[asyncio.Future[None]] = []

    def __repr__(self) -> str:
        return f"Window({self.where} confirmed to {self.confirmed}, {self.unconfirmed_bytes} bytes are not)"

    @property
    def empty(self) -> bool:
        """Whether all that was sent is confirmed."""
        return not self._sent

    @property
    def urgent(self) -> bool:
        """Whether somebody waits for the high watermark."""
        return self.blocked or bool(self._waiters)

    def room_for(self, size: int) -> bool:
        """Whether a batch of `size` bytes may be sent now; one alone may always, however large."""
        if self.lost is not None:
            return False
        if not self._sent:
            return True
        if self.unconfirmed_bytes + size <= self._limit_bytes and self._clock() - self.moved_at <= HOLD_AFTER_S:
            return True
        self.block()
        return False

    def block(self) -> None:
        """Note that somebody wants to send and may not until more is confirmed."""
        self.blocked = True
        self._need()

    def sent(self, behind: int, size: int) -> None:
        """Count a batch of `size` bytes that ends before offset `behind`."""
        if not self._sent:
            self.moved_at = self.doubted_at = self._clock()
            self._need()
        self._sent.append((behind, size))
        self.unconfirmed_bytes += size

    def passed(self, offset: int, *, by_mark: bool) -> None:
        """Take everything below `offset` for confirmed: the high watermark, or an answer to `acks=all`, says so."""
        sent, moved = self._sent, False
        while sent and sent[0][0] <= offset:
            self.confirmed, size = sent.popleft()
            self.unconfirmed_bytes -= size
            moved = True
        if not moved:
            return
        self.moved_at = self.doubted_at = self._clock()
        self.by_mark = by_mark
        self.blocked = False
        if not sent:
            self._release()
        if self.on_change is not None:
            self.on_change()

    def rests_at(self, offset: int) -> None:
        """Everything below `offset` is confirmed by something else than data of this window, as by markers."""
        self.confirmed = max(self.confirmed, offset)
        self.by_mark = False

    def lose(self, reason: str) -> None:
        """Nothing more may be sent under this leader; what was sent may be gone with it."""
        if self.lost is not None:
            return
        self.lost = reason
        self._release()
        if self.on_change is not None:
            self.on_change()
        if self.on_lost is not None:
            self.on_lost(reason)

    async def drained(self, timeout_s: float) -> bool:
        """Wait until all that was sent is confirmed; False where that does not come within `timeout_s`."""
        if self.empty or self.lost is not None:
            return self.empty
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._need()
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
        except TimeoutError:
            return False
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
        return self.empty

    def _need(self) -> None:
        if self.on_need is not None:
            self.on_need()

    def _release(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
