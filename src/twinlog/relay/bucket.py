"""A rate in bytes a second, kept by counting; pure."""

from typing import Final

# So much may be used up at once behind a pause, in seconds of the rate: far below what a mean over 10 s shows.
BURST_S: Final = 0.25


class Bucket:
    """Tells how long to wait; what is taken may exceed what is there, and is then paid off by waiting longer.

    So a batch larger than a second's worth goes through, too. `now` is in monotonic seconds.
    """

    def __init__(self) -> None:
        self._left = 0.0
        self._at = float("-inf")

    def __repr__(self) -> str:
        return f"Bucket({self._left:.0f} bytes left)"

    def wait_s(self, now: float, rate: int) -> float:
        """How long until something may be taken; 0.0 for now."""
        burst = rate * BURST_S
        gained = burst if self._at == float("-inf") else (now - self._at) * rate
        self._left, self._at = min(burst, self._left + max(0.0, gained)), now
        # Less than a byte is none: a wait for it would be below what a clock tells apart.
        return 0.0 if self._left > -1.0 else -self._left / rate

    def take(self, size: int) -> None:
        """Count `size` bytes as sent."""
        self._left -= size
