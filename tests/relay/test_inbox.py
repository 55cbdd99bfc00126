"""What an inbox does with what was fetched."""

import asyncio
from typing import Any

from twinlog.relay.inbox import Budget, Inbox, tail_of
from twinlog.relay.progress import Chunk, FetchRefused, Nudge


def _inbox(made: Any, position: int = 100) -> tuple[Inbox, Budget]:
    budget = Budget(1_000_000)
    return Inbox(made.where, position, budget=budget), budget


def test_tail_is_behind_the_last_whole_batch(made: Any) -> None:
    """A batch cut off at the end does not count."""
    whole = made.data(100) + made.data(103, 2)
    assert tail_of(memoryview(whole)) == (105, -1)
    assert tail_of(memoryview(whole + made.data(105)[:-1])) == (105, -1)
    assert tail_of(memoryview(made.data(100)[:-1])) is None
    assert tail_of(memoryview(b"")) is None


async def test_position_moves_with_what_was_put(made: Any) -> None:
    """The next fetch begins behind the last whole batch, before the pump has taken anything."""
    inbox, _ = _inbox(made)
    inbox.put(made.chunk(100, made.data(100)))
    assert inbox.position == 103
    fetched = await inbox.get()
    assert isinstance(fetched, Chunk)
    assert fetched.position == 100


async def test_two_chunks_are_room_enough(made: Any) -> None:
    """A third fetch waits until the pump has taken the first."""
    inbox, _ = _inbox(made)
    inbox.put(made.chunk(100, made.data(100)))
    assert inbox.has_room
    inbox.put(made.chunk(103, made.data(103)))
    assert not inbox.has_room
    await inbox.get()
    assert inbox.has_room


async def test_bytes_are_held_until_the_next_is_asked_for(made: Any) -> None:
    """The budget counts what is being appended too."""
    inbox, budget = _inbox(made)
    chunk = made.chunk(100, made.data(100))
    inbox.put(chunk)
    await inbox.get()
    assert budget.used_bytes == len(chunk.records)
    inbox.nudge(Nudge())
    await inbox.get()
    assert budget.used_bytes == 0


def test_close_frees_everything(made: Any) -> None:
    """What is dropped is not counted any more."""
    inbox, budget = _inbox(made)
    inbox.put(made.chunk(100, made.data(100)))
    inbox.put(made.chunk(103, made.data(103)))
    inbox.close()
    assert budget.used_bytes == 0
    assert not inbox.has_room


def test_empty_answer_is_not_queued(made: Any) -> None:
    """A poll that ran out wakes nobody, but its figures are kept."""
    inbox, _ = _inbox(made)
    inbox.put(made.chunk(100, last_stable_offset=100, high_watermark=120))
    assert inbox.position == 100
    assert inbox.has_room
    assert inbox.figures.high_watermark == 120


def test_starved_partition_asks_first_next_time(made: Any) -> None:
    """Data is there, but others used the response up: neither a hole nor the end."""
    inbox, _ = _inbox(made)
    inbox.put(made.chunk(100, conclusive=False))
    assert inbox.starved
    assert inbox.position == 100
    assert inbox.has_room


def test_conclusive_hole_moves_to_the_stable_offset(made: Any) -> None:
    """Offsets that no batch has are passed."""
    inbox, _ = _inbox(made)
    inbox.put(made.chunk(100, last_stable_offset=150))
    assert inbox.position == 150


async def test_refusal_ends_fetching_after_what_came_before(made: Any) -> None:
    """In order: first what was fetched, then the error; nothing more is asked for."""
    inbox, _ = _inbox(made)
    inbox.put(made.chunk(100, made.data(100)))
    inbox.refuse(FetchRefused(6))
    assert not inbox.has_room
    assert isinstance(await inbox.get(), Chunk)
    assert await inbox.get() == FetchRefused(6)


async def test_nudge_goes_first_and_wakes(made: Any) -> None:
    """A stop is not kept waiting by what was fetched."""
    inbox, _ = _inbox(made)
    inbox.put(made.chunk(100, made.data(100)))
    waiting = asyncio.create_task(inbox.get())
    await waiting
    asleep = asyncio.create_task(inbox.get())
    await asyncio.sleep(0)
    inbox.nudge(Nudge())
    assert await asleep == Nudge()


async def test_budget_holds_and_releases() -> None:
    """At the limit nothing is fetched until something is given back."""
    budget = Budget(10)
    budget.take(10)
    waiting = asyncio.create_task(budget.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    budget.give_back(1)
    await waiting
