"""Waits for a broker's answer for as long as one may take, which is longer while the broker throttles."""

import asyncio
from collections.abc import Callable

from twinlog.relay.quota import Quota


class Watch:
    """Ends a connection whose broker owes an answer for too long; the time for which it throttles does not count."""

    def __init__(self, within_s: float, quota: Quota, overdue: Callable[[], None]) -> None:
        self._quota = quota
        self._overdue = overdue
        self._throttled_s = quota.throttled_s
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(within_s, self._look)

    def _look(self) -> None:
        more_s = self._quota.throttled_s - self._throttled_s
        self._throttled_s = self._quota.throttled_s
        if more_s > 0:
            self._timer = self._loop.call_later(more_s, self._look)
        else:
            self._overdue()

    def end(self) -> None:
        """The answer is there."""
        self._timer.cancel()
