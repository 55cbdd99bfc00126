"""What an inbox does with what was fetched."""

import asyncio
from typing import Any

import pytest

from twinlog.batch.records import Record, encode
from twinlog.batch.scan import Aborted
from twinlog.relay.budget import Budget
from twinlog.relay.inbox import BATCH_EXTRA_BYTES, Inbox, tail_of
from twinlog.relay.pieces import PIECE_BYTES
from twinlog.relay.progress import Chunk, FetchRefused, Nudge


def _large(first: int) -> bytes:
    """One record in a batch of which four make a piece."""
    return bytes(encode([Record(first, 1_000_000, b"k", bytes(PIECE_BYTES // 4), ())], codec=0).raw)


def _inbox(made: Any, position: int = 100) -> tuple[Inbox, Budget]:
    budget = Budget(1_000_000)
    return Inbox(made.where, position, budget=budget), budget


def test_tail_is_behind_the_last_whole_batch(made: Any) -> None:
    """A batch cut off at the end does not count."""
    whole = made.data(100) + made.data(103, 2)
    assert tail_of(memoryview(whole)) == (105, -1, len(whole), 2)
    assert tail_of(memoryview(whole + made.data(105)[:-1])) == (105, -1, len(whole), 2)
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


async def test_two_large_chunks_are_room_enough(made: Any) -> None:
    """A third fetch waits until the pump has taken the first."""
    inbox, _ = _inbox(made)
    inbox.put(made.chunk(100, _large(100)))
    assert inbox.has_room
    inbox.put(made.chunk(101, _large(101)))
    assert not inbox.has_room
    await inbox.get()
    assert inbox.has_room


async def test_small_chunks_are_joined(made: Any) -> None:
    """What trickles in while the pump is busy is taken in one piece, and takes no room from what comes next."""
    inbox, budget = _inbox(made)
    inbox.put(made.chunk(100, made.data(100), log_start_offset=1))
    for first in range(103, 130, 3):
        inbox.put(made.chunk(first, made.data(first), log_start_offset=2, high_watermark=first + 3, last_epoch=first))
        assert inbox.has_room
    held = budget.used_bytes
    fetched = await inbox.get()
    assert isinstance(fetched, Chunk)
    assert bytes(fetched.records) == b"".join(made.data(first) for first in range(100, 130, 3))
    assert (fetched.position, fetched.log_start_offset, fetched.last_epoch) == (100, 1, 127)
    assert fetched.conclusive is False
    assert held == len(fetched.records) + 10 * BATCH_EXTRA_BYTES
    assert inbox.waiting is None


async def test_a_cut_batch_is_left_out_of_what_is_joined(made: Any) -> None:
    """What follows is fetched from behind the last whole batch, so the cut one comes again."""
    inbox, _ = _inbox(made)
    inbox.put(made.chunk(100, made.data(100) + made.data(103)[:-5]))
    inbox.put(made.chunk(103, made.data(103)))
    fetched = await inbox.get()
    assert isinstance(fetched, Chunk)
    assert bytes(fetched.records) == made.data(100) + made.data(103)


@pytest.mark.parametrize("which", [0, 1])
async def test_chunks_with_aborted_transactions_stay_apart(made: Any, which: int) -> None:
    """Which of two lists of aborted transactions an entry is from would matter."""
    inbox, _ = _inbox(made)
    aborted: list[tuple[Aborted, ...]] = [(), ()]
    aborted[which] = (Aborted(9, 100),)
    inbox.put(made.chunk(100, made.data(100), aborted=aborted[0]))
    inbox.put(made.chunk(103, made.data(103), aborted=aborted[1]))
    first, second = await inbox.get(), await inbox.get()
    assert isinstance(first, Chunk)
    assert isinstance(second, Chunk)
    assert (first.aborted, second.aborted) == tuple(aborted)


async def test_chunks_that_cannot_be_joined_are_bounded(made: Any) -> None:
    """However small they are, three wait at most."""
    inbox, _ = _inbox(made)
    for first in (100, 103, 106):
        assert inbox.has_room
        inbox.put(made.chunk(first, made.data(first), aborted=(Aborted(9, first),)))
    assert not inbox.has_room


async def test_a_large_chunk_is_not_copied_to_join_it(made: Any) -> None:
    """Joining copies, so it is for what is small."""
    inbox, _ = _inbox(made)
    inbox.put(made.chunk(100, made.data(100)))
    inbox.put(made.chunk(103, _large(103)))
    first = await inbox.get()
    assert isinstance(first, Chunk)
    assert bytes(first.records) == made.data(100)


async def test_bytes_are_held_until_the_next_is_asked_for(made: Any) -> None:
    """The budget counts what is being appended too, and what we keep for each batch."""
    inbox, budget = _inbox(made)
    chunk = made.chunk(100, made.data(100))
    inbox.put(chunk)
    await inbox.get()
    assert budget.used_bytes == len(chunk.records) + BATCH_EXTRA_BYTES
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


async def test_a_fetch_in_pieces_counts_once_and_takes_up_no_more(made: Any) -> None:
    """Two fetches wait, in however many pieces; their bytes are freed piece by piece."""
    budget = Budget(10_000_000)
    inbox = Inbox(made.where, 100, budget=budget)
    for first in (100, 110):
        assert inbox.has_room
        inbox.put(made.chunk(first, *(_large(first + at) for at in range(10))))
    assert not inbox.has_room
    cost = 20 * (len(_large(100)) + BATCH_EXTRA_BYTES)
    assert budget.used_bytes == cost
    taken = [await inbox.get() for _ in range(3)]
    assert [chunk.position for chunk in taken if isinstance(chunk, Chunk)] == [100, 104, 108]
    assert inbox.has_room
    assert budget.used_bytes == pytest.approx(cost * 12 / 20, abs=2)
    for _ in range(3):
        await inbox.get()
    inbox.nudge(Nudge())
    await inbox.get()
    assert budget.used_bytes == 0
