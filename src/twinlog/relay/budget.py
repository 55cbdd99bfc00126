"""How much of what was fetched a worker may hold, and how that is shared between its fetchers."""

import asyncio
from typing import Final, Protocol

# One response, of the whole: while it is under way, others are being appended and another one waits.
WINDOW_PART: Final = 8
# It is not worth a request to fill a crack.
LEAST_PART: Final = 8
# However many fetchers there are, each may hold so much.
LEAST_SHARE_BYTES: Final = 262_144


class Account(Protocol):
    """Where an inbox counts what it holds."""

    def take(self, size: int) -> None:
        """Count `size` bytes as held."""

    def give_back(self, size: int) -> None:
        """Count `size` bytes as free again."""


class Budget:
    """How many fetched bytes a worker may hold over all of its partitions."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._shares: set[Share] = set()

    def __repr__(self) -> str:
        return f"Budget({self.used_bytes} of {self.limit_bytes} bytes)"

    @property
    def share_bytes(self) -> int:
        """What each fetcher at work may hold.

        The same for all, and nobody takes another's: partitions whose destination does not move must not use up
        what the others need.
        """
        at_work = sum(share.at_work for share in self._shares)
        return max(self.limit_bytes // max(1, at_work), LEAST_SHARE_BYTES)

    def share(self) -> "Share":
        """Open an account for one fetcher."""
        share = Share(self)
        self._shares.add(share)
        return share

    def close(self, share: "Share") -> None:
        """Forget a share; what is still given back to it counts no more than to the whole."""
        self._shares.discard(share)
        self.shares_changed()

    def shares_changed(self) -> None:
        """Wake those who wait for room: there may be more of it now."""
        for share in self._shares:
            share.wake()

    def take(self, size: int) -> None:
        """Count `size` bytes as held."""
        self.used_bytes += size

    def give_back(self, size: int) -> None:
        """Count `size` bytes as free again."""
        self.used_bytes -= size


class Share:
    """What one fetcher's partitions hold, and how large a response it may ask for."""

    def __init__(self, budget: Budget) -> None:
        self.used_bytes = 0
        self._budget = budget
        self._freed = asyncio.Event()
        self._at_work = False
        self._window_bytes = 0
        self._oversize_bytes = 0
        self._extra = 1.0

    def __repr__(self) -> str:
        return f"Share({self.used_bytes} of {self._budget.share_bytes} bytes)"

    @property
    def at_work(self) -> bool:
        """Whether the fetcher has partitions; the budget is divided among those that have."""
        return self._at_work

    @at_work.setter
    def at_work(self, at_work: bool) -> None:
        if at_work != self._at_work:
            self._at_work = at_work
            self._budget.shares_changed()

    def take(self, size: int) -> None:
        """Count `size` bytes as held."""
        self.used_bytes += size
        self._budget.take(size)

    def give_back(self, size: int) -> None:
        """Count `size` bytes as free again."""
        self.used_bytes -= size
        self._budget.give_back(size)
        self._freed.set()

    def wake(self) -> None:
        """Let whoever waits for room look again."""
        self._freed.set()

    async def room(self, most_bytes: int) -> int:
        """Wait until something more may be fetched; returns how many bytes to ask for, at most `most_bytes`."""
        while True:
            self._window_bytes = self._window(most_bytes)
            if self._window_bytes > 0:
                return self._window_bytes
            self._freed.clear()
            await self._freed.wait()

    def came(self, size: int, cost: int) -> None:
        """Learn from a response of `size` bytes of records that will take up `cost` bytes.

        A broker returns at least one batch, however much larger than what was asked for it is; and where batches are
        tiny, what we keep for each is more than the batch.
        """
        if size > 0:
            self._oversize_bytes = max(size - self._window_bytes, self._oversize_bytes // 2)
            self._extra = max(cost / size, self._extra / 2, 1.0)

    def _window(self, most_bytes: int) -> int:
        share = self._budget.share_bytes
        most = min(most_bytes, share, max(self._budget.limit_bytes // WINDOW_PART, LEAST_SHARE_BYTES))
        left = int((share - self.used_bytes) / self._extra) - self._oversize_bytes
        if self.used_bytes <= 0:
            return max(1, min(most, int(share / self._extra)))  # of whatever comes there is at least one batch
        return min(most, left) if left >= most // LEAST_PART else 0
