"""When the destination's log end is believed."""

from collections.abc import Callable
from typing import Any

import pytest

from twinlog.errors import PartitionFailed, RetryLater
from twinlog.names import TopicPartition
from twinlog.relay import takeover
from twinlog.relay.tailcheck import Sides
from twinlog.relay.takeover import SETTLE_S, TRUE_END, settled_end

WHERE = TopicPartition("orders", 3)


class _Log:
    """A log whose true end and high watermark are functions of the time; a look takes `look_s`."""

    def __init__(
        self, end: Callable[[float], int], *, mark: Callable[[float], int] | None = None, look_s: float = 0.0
    ) -> None:
        self.now = 0.0
        self._end, self._mark, self._look_s = end, mark or end, look_s

    async def offset(self, _where: TopicPartition, question: Any) -> int:
        """The true end or the high watermark, as of now."""
        self.now += self._look_s / 2
        return self._end(self.now) if question == TRUE_END else self._mark(self.now)


@pytest.fixture(autouse=True)
def _time_is_the_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits pass at once, and the clock of the log under test goes on by them."""

    async def sleep(seconds: float) -> None:
        _current[0].now += seconds

    monkeypatch.setattr(takeover.asyncio, "sleep", sleep)


_current: list[Any] = []


def _log(*arguments: Any, **options: Any) -> Any:
    log = _Log(*arguments, **options)
    _current[:] = [log]
    return log


async def test_quiet_log_is_believed_after_the_settle_time() -> None:
    """Not earlier: a request under way may still arrive."""
    log = _log(lambda _: 10)
    assert await settled_end(log, WHERE, lambda: log.now) == 10
    assert log.now >= SETTLE_S


async def test_late_append_begins_the_wait_anew() -> None:
    """What arrives after a second moves the end, and two more seconds are waited for."""
    log = _log(lambda now: 10 if now < 1.0 else 11)
    assert await settled_end(log, WHERE, lambda: log.now) == 11
    assert log.now > 0.9 + SETTLE_S


async def test_high_watermark_behind_the_end_is_not_at_rest() -> None:
    """What the replicas do not have yet may still be lost."""
    log = _log(lambda _: 10, mark=lambda now: 9 if now < 4.0 else 10)
    assert await settled_end(log, WHERE, lambda: log.now) == 10
    assert log.now > 3.9 + SETTLE_S


async def test_slow_answers_do_not_count() -> None:
    """A broker that answers late may hold back other things, too; the wait is bounded all the same."""
    log = _log(lambda _: 10, look_s=1.5)
    with pytest.raises(RetryLater):
        await settled_end(log, WHERE, lambda: log.now)


async def test_log_that_grows_beyond_the_source_has_a_foreign_writer() -> None:
    """It never comes to rest, and nobody of ours can have written that."""
    log = _log(lambda now: 100 + int(now * 10))
    source: Any = _Log(lambda _: 100)
    with pytest.raises(PartitionFailed, match="goes on growing"):
        await takeover._settle(Sides(source, log), WHERE, lambda: log.now)


async def test_log_that_grows_within_the_source_is_waited_for_again() -> None:
    """Another owner may still be at it, which has to give way first."""
    log = _log(lambda now: 100 + int(now * 10))
    source: Any = _Log(lambda _: 100_000)
    with pytest.raises(RetryLater):
        await takeover._settle(Sides(source, log), WHERE, lambda: log.now)
