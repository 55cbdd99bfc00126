"""By its beat a successor tells how old a renewal is."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from twinlog.control.records import Change, WorkerRecord
from twinlog.errors import UnknownOutcome
from twinlog.relay.lease import Lease
from twinlog.service import keeper as module
from twinlog.service.keeper import Keeper
from twinlog.state.writer import Committed


class _LostAnswer:
    """Commits everything, and loses the first answer."""

    def __init__(self) -> None:
        self.commits: list[list[Change]] = []

    async def commit(self, changes: Sequence[Change]) -> Committed:
        self.commits.append(list(changes))
        if len(self.commits) == 1:
            raise UnknownOutcome("no answer")
        return Committed(0.0)

    async def reestablish(self, *, timeout_s: float) -> None:
        del timeout_s


@pytest.mark.timeout(10)
async def test_renewal_after_a_lost_answer_is_a_new_beat(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease counts from the later attempt: with the beat of the first, which was seen long ago, it looks over."""
    monkeypatch.setattr(module, "BACKOFF_S", 0.05)
    writer: Any = _LostAnswer()
    running = asyncio.create_task(Keeper(writer, Lease(lambda: 0.0), worker="w1", figures=lambda: ()).run())
    await asyncio.sleep(0.3)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    first, second = ([c for c in commit if isinstance(c, WorkerRecord)] for commit in writer.commits[:2])
    assert first[0].beat_ms < second[0].beat_ms
