"""How long to wait before the next attempt: values computed from arguments, and one bounded series of attempts."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

# Above the time that a broker is told to take at most: within that it answers, later only a dead or frozen one would.
ANSWER_SLACK_S = 5.0

# Beyond this many failures the wait has long reached any sensible maximum; it keeps the power small.
_MOST_DOUBLINGS = 30


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits that double from `first_s` to `most_s` (seconds)."""

    first_s: float = 0.1
    most_s: float = 2.0

    def wait_s(self, failures: int, spread: float) -> float:
        """Seconds to wait after `failures` failures in a row.

        `spread` (0 to 1) takes away up to half of the wait, so that many clients do not come back together.
        """
        if failures <= 0:
            return 0.0
        full = min(self.most_s, self.first_s * 2.0 ** min(failures - 1, _MOST_DOUBLINGS))
        return full * (1.0 - spread / 2.0)


BACKOFF = Backoff()


class Attempts:
    """One series of attempts within `bound_s` seconds.

    After each failed attempt `await attempts.again()`; it waits and answers True, or answers False at once when no
    time would be left for another attempt.
    """

    def __init__(
        self,
        bound_s: float,
        *,
        backoff: Backoff = BACKOFF,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        spread: Callable[[], float] = random.random,
    ) -> None:
        self.bound_s = bound_s
        self.failures = 0
        self._backoff = backoff
        self._clock = clock
        self._sleep = sleep
        self._spread = spread
        self._began = clock()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the series began."""
        return self._clock() - self._began

    @property
    def left_s(self) -> float:
        """Seconds until the bound, never negative."""
        return max(0.0, self.bound_s - self.elapsed_s)

    def share_s(self, most_s: float, *, least_s: float = 0.5) -> float:
        """The time one attempt may take: `most_s`, cut to what is left, but never so short that it must fail."""
        return max(least_s, min(most_s, self.left_s))

    async def again(self) -> bool:
        """Wait before the next attempt; False when the bound leaves no time for one."""
        self.failures += 1
        wait_s = self._backoff.wait_s(self.failures, self._spread())
        if wait_s >= self.left_s:
            return False
        await self._sleep(wait_s)
        return True
