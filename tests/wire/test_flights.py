"""Shared work."""

import asyncio

import pytest

from twinlog.errors import ConnectionLost
from twinlog.wire.flights import Flights


async def test_callers_share_one_piece_of_work() -> None:
    """Ten callers start it once and get the same; after it landed, the next caller starts it again."""
    flights = Flights("closed")
    starts: list[int] = []

    async def work() -> int:
        starts.append(1)
        await asyncio.sleep(0.01)
        return len(starts)

    assert await asyncio.gather(*(flights.join("k", work) for _ in range(10))) == [1] * 10
    assert await flights.join("k", work) == 2


async def test_a_failure_reaches_every_caller() -> None:
    """All who wait get the error, and the next caller a fresh try."""
    flights = Flights("closed")

    async def work() -> None:
        await asyncio.sleep(0)
        raise ValueError("no")

    results = await asyncio.gather(*(flights.join("k", work) for _ in range(3)), return_exceptions=True)
    assert [str(r) for r in results] == ["no"] * 3
    with pytest.raises(ValueError, match="no"):
        await flights.join("k", work)


async def test_a_cancelled_caller_does_not_end_the_work() -> None:
    """The other callers still get the result."""
    flights = Flights("closed")
    gate = asyncio.Event()

    async def work() -> str:
        await gate.wait()
        return "done"

    one = asyncio.create_task(flights.join("k", work))
    two = asyncio.create_task(flights.join("k", work))
    await asyncio.sleep(0)
    one.cancel()
    await asyncio.sleep(0)
    gate.set()
    assert await two == "done"
    assert one.cancelled()


async def test_landing_ends_the_work_with_an_error_of_ours() -> None:
    """Callers are not cancelled, they get ConnectionLost; so do later ones, and nothing is started."""
    flights = Flights("the client was closed")
    waiting = asyncio.create_task(flights.join("k", lambda: asyncio.sleep(60)))
    await asyncio.sleep(0)
    await flights.land()
    with pytest.raises(ConnectionLost, match="was closed"):
        await waiting
    with pytest.raises(ConnectionLost, match="was closed"):
        await flights.join("k", lambda: asyncio.sleep(60))
