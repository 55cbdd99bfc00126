"""Waiting that is called off: what was asked for is cancelled, and its own result or error comes through."""

import asyncio

import pytest

from twinlog.relay.decide import Stopped
from twinlog.relay.waiting import unless


async def _forty_two() -> int:
    return 42


async def test_result_comes_through_while_nobody_asks_to_stop() -> None:
    """The work's own result."""
    assert await unless(asyncio.Event(), _forty_two()) == 42


async def test_error_comes_through() -> None:
    """The work's own error."""

    async def fails() -> None:
        raise KeyError("own")

    with pytest.raises(KeyError):
        await unless(asyncio.Event(), fails())


@pytest.mark.timeout(5)
async def test_work_is_cancelled_when_asked_to_stop() -> None:
    """Stopped is raised, and nothing of the work is left running."""
    asked, ended = asyncio.Event(), asyncio.Event()

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    asyncio.get_running_loop().call_later(0.05, asked.set)
    with pytest.raises(Stopped):
        await unless(asked, forever())
    assert ended.is_set()


@pytest.mark.timeout(5)
async def test_work_that_survives_one_cancellation_is_cancelled_again() -> None:
    """As a task may under Python 3.11."""
    asked, cancellations = asyncio.Event(), 0

    async def stubborn() -> None:
        nonlocal cancellations
        while cancellations < 2:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancellations += 1

    asyncio.get_running_loop().call_later(0.05, asked.set)
    with pytest.raises(Stopped):
        await unless(asked, stubborn())
    assert cancellations == 2
