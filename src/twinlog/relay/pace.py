"""How long a broker may wait before it answers a fetch, and how soon it is asked again; pure."""

from typing import Final

# While a partition is left out of a request because it has no room, the others must not hold the connection for long.
# Doubled as long as nothing comes, so that nobody is asked in a frenzy while a destination is away.
SHORT_WAIT_MS: Final = 5
LONGEST_SHORT_WAIT_MS: Final = 40
# A partition that joins has to wait for the request under way; they come in crowds, so for a while none waits long.
JOINING_S: Final = 1.0
JOINING_WAIT_MS: Final = 40


class Pace:
    """Chooses waits from what came of the last requests; a request that has nothing to tell is never hurried."""

    def __init__(self, wait_max_ms: int) -> None:
        self._wait_max_ms = wait_max_ms
        self._short_ms = SHORT_WAIT_MS
        self._joined_at = float("-inf")
        self._hasty = 0
        self.pause_s = 0.0

    def __repr__(self) -> str:
        return f"Pace({self._short_ms} ms, pause {self.pause_s:g} s)"

    def joined(self, now: float) -> None:
        """A partition is fetched for from now on (monotonic seconds)."""
        self._joined_at = now

    def wait_ms(self, now: float, *, everyone: bool) -> int:
        """How long the broker may wait for news; `everyone` where no partition is left out for want of room."""
        wait_ms = self._wait_max_ms
        if not everyone:
            wait_ms = min(wait_ms, self._short_ms)
        if now - self._joined_at < JOINING_S:
            wait_ms = min(wait_ms, JOINING_WAIT_MS)
        return wait_ms

    def answered(self, *, records: bool, told: bool, took_s: float, wait_ms: int) -> bool:
        """Learn from an answer; sets `pause_s`. True where it came so early that something must be left unsaid.

        `records` says whether any came, `told` whether any partition was named. A broker answers before the time is
        over only where it has something to tell, if only an error; where that goes on, it is asked more slowly.
        """
        self._short_ms = SHORT_WAIT_MS if records else min(self._short_ms * 2, LONGEST_SHORT_WAIT_MS)
        early = not records and took_s * 1000 < wait_ms / 2
        self._hasty = self._hasty + 1 if early else 0
        over = self._hasty - 1
        self.pause_s = min(SHORT_WAIT_MS * 2 ** min(over, 10), LONGEST_SHORT_WAIT_MS) / 1000 if over > 0 else 0.0
        return self._hasty == 1 and not told
