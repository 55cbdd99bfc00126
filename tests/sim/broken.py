"""Rules of the append protocol, each broken on purpose by the one function or constant that keeps it."""

from collections.abc import Callable
from typing import Any

import pytest

from twinlog.relay import destination, lanes, lease, progress, rewrite, settle, takeover

Break = Callable[[pytest.MonkeyPatch], None]


def no_lease_check(patch: pytest.MonkeyPatch) -> None:
    """R7: an owner sends without looking whether it still is one."""
    patch.setattr(lease.Lease, "valid", lambda self: not self.is_fenced)


def markers_resent_blindly(patch: pytest.MonkeyPatch) -> None:
    """R2, R6: markers whose answer was lost are sent again from memory."""
    write = destination.Destination.markers

    async def twice(self: Any, stream: Any, step: Any, coordinator_epoch: int = 0) -> Any:
        answer = await write(self, stream, step, coordinator_epoch)
        if isinstance(answer, progress.Unknown):
            return await write(self, stream, step, coordinator_epoch)
        return answer

    patch.setattr(destination.Destination, "markers", twice)


def no_tail_check(patch: pytest.MonkeyPatch) -> None:
    """R4: what stands at the log's end is trusted."""

    async def unchecked(*_args: Any, **_options: Any) -> int:
        return -1

    patch.setattr(takeover, "check_tail", unchecked)


def no_barrier(patch: pytest.MonkeyPatch) -> None:
    """R8: batches follow each other although the broker may have forgotten their producer."""
    patch.setattr(rewrite, "_fresh", lambda _timestamp_ms, _fresh_from_ms: True)


def no_settle_wait(patch: pytest.MonkeyPatch) -> None:
    """R3: the log end is believed at once."""
    patch.setattr(settle, "SETTLE_S", 0.0)


def confirmed_by_acknowledgement(patch: pytest.MonkeyPatch) -> None:
    """What only the leader has is taken for what the log has for good."""
    judge = lanes.DataLine.judge

    def judged(self: Any, send: Any, produced: Any) -> None:
        judge(self, send, produced)
        if self.failure is None and self.window is not None:
            self.window.passed(send.batch.last + 1, by_mark=False)

    patch.setattr(lanes.DataLine, "judge", judged)


def markers_before_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """Markers follow data that another leader may lack, and nobody looks where the log ends."""
    write = rewrite._data

    async def at_once(self: Any, stream: Any, _window: Any, step: Any) -> Any:
        return await self._blanks(stream, step)

    def unconfirmed(*given: Any, before_blanks: bool) -> Any:
        del before_blanks
        return write(*given, before_blanks=False)

    patch.setattr(destination.Destination, "_blanks_behind", at_once)
    patch.setattr(rewrite, "_data", unconfirmed)
