"""What a window counts as confirmed, and when it lets something be sent."""

import asyncio
from typing import Any

import pytest

from twinlog.names import TopicPartition
from twinlog.relay.window import HOLD_AFTER_S, Window
from twinlog.wire.metadata import Leader

WHERE = TopicPartition("orders", 3)


class Clock:
    """A clock that stands until it is told."""

    now = 100.0

    def __call__(self) -> float:
        """The time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """A standing clock."""
    return Clock()


@pytest.fixture
def window(clock: Clock) -> Window:
    """A window of 100 bytes, confirmed to offset 10."""
    return Window(WHERE, Leader(1, 5), 10, limit_bytes=100, clock=clock)


def test_confirmed_follows_the_high_watermark_by_whole_batches(window: Window) -> None:
    """A mark in the middle of a batch confirms only what is before that batch."""
    window.sent(20, 40)
    window.sent(30, 40)
    window.passed(25, by_mark=True)
    assert (window.confirmed, window.unconfirmed_bytes, window.empty) == (20, 40, False)
    window.passed(1000, by_mark=True)
    assert (window.confirmed, window.unconfirmed_bytes, window.empty) == (30, 0, True)


def test_a_mark_that_goes_back_takes_nothing_back(window: Window) -> None:
    """A new leader may not yet know how far the high watermark had been."""
    window.sent(20, 40)
    window.passed(20, by_mark=True)
    window.passed(10, by_mark=True)
    assert window.confirmed == 20


def test_no_room_beyond_the_limit_until_something_is_confirmed(window: Window) -> None:
    """Never more unconfirmed than the bound."""
    window.sent(20, 60)
    assert not window.room_for(41)
    assert window.urgent
    assert window.room_for(40)
    window.passed(20, by_mark=True)
    assert window.room_for(100)
    assert not window.urgent


def test_one_batch_larger_than_the_limit_goes_alone(window: Window) -> None:
    """Else it could never be sent."""
    assert window.room_for(5_000)
    window.sent(20, 5_000)
    assert not window.room_for(1)


def test_nothing_is_sent_while_the_mark_stands_still(window: Window, clock: Clock) -> None:
    """What is confirmed last must be fresh when more is sent, and nobody knows for how long it stands."""
    window.sent(20, 10)
    clock.now += HOLD_AFTER_S + 0.1
    assert not window.room_for(10)
    window.passed(20, by_mark=True)
    assert window.room_for(10)


def test_the_time_counts_from_when_something_is_unconfirmed(window: Window, clock: Clock) -> None:
    """A partition that was idle for long starts anew."""
    clock.now += 1_000
    window.sent(20, 10)
    assert window.room_for(10)


def test_change_is_told_once_something_moved(window: Window) -> None:
    """Whoever waits for room looks again then, and only then."""
    told: list[int] = []
    window.on_change = lambda: told.append(window.confirmed)
    window.sent(20, 10)
    window.passed(15, by_mark=True)
    assert told == []
    window.passed(20, by_mark=True)
    assert told == [20]


def test_who_told_last_is_remembered(window: Window) -> None:
    """Behind a look at the mark the true log end is looked at, too, before a marker; behind an answer it is not."""
    window.sent(20, 10)
    window.passed(20, by_mark=True)
    assert window.by_mark
    window.sent(30, 10)
    window.passed(30, by_mark=False)
    assert not window.by_mark


def test_markers_move_what_is_confirmed(window: Window) -> None:
    """They are written to all in-sync replicas."""
    window.sent(20, 10)
    window.passed(20, by_mark=True)
    window.rests_at(25)
    assert (window.confirmed, window.by_mark) == (25, False)


async def test_drained_waits_for_all_that_was_sent(window: Window) -> None:
    """And says at once that nothing is left where nothing is."""
    assert await window.drained(0.01)
    window.sent(20, 10)
    window.sent(30, 10)
    waiting = asyncio.create_task(window.drained(5))
    await asyncio.sleep(0)
    assert window.urgent
    window.passed(20, by_mark=True)
    await asyncio.sleep(0)
    assert not waiting.done()
    window.passed(30, by_mark=True)
    assert await waiting
    assert not window.urgent


async def test_drained_is_bounded(window: Window) -> None:
    """A high watermark that does not come is not waited for without end."""
    window.sent(20, 10)
    assert not await window.drained(0.01)
    assert not window.urgent


async def test_a_lost_leader_ends_every_wait(window: Window) -> None:
    """Whoever waits hears that it is not confirmed, and nothing may be sent any more; it is said once."""
    told: list[str] = []
    window.on_lost = told.append
    window.sent(20, 10)
    waiting = asyncio.create_task(window.drained(5))
    await asyncio.sleep(0)
    window.lose("broker 1 leads no more")
    window.lose("again")
    assert not await waiting
    assert not window.room_for(1)
    assert told == ["broker 1 leads no more"]
    assert window.confirmed == 10


def test_whoever_needs_the_mark_says_so(window: Window) -> None:
    """The first unconfirmed batch, and a batch without room, wake the one who asks for it."""
    needs: list[Any] = []
    window.on_need = lambda: needs.append(None)
    window.sent(20, 60)
    window.sent(30, 30)
    assert len(needs) == 1
    window.room_for(20)
    assert len(needs) == 2
