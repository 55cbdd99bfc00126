"""Waiting until the followed image holds what was committed before."""

import asyncio
import gc
from types import SimpleNamespace
from typing import Any

import pytest

from twinlog.control.image import Image
from twinlog.errors import RetryLater, TwinlogError
from twinlog.service import catchup
from twinlog.service.catchup import CatchUp
from twinlog.wire import codes
from twinlog.wire.ops import ListedOffset


class World:
    """A state topic of two shards whose ends the test sets; each look is counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ends = {0: 10, 1: 20}
        self.error = 0
        self.looks = 0
        self.image = Image()
        state: Any = SimpleNamespace(cluster=None, shards=2)
        self.catch_up = CatchUp(state, self.image)
        monkeypatch.setattr(catchup, "list_offsets", self._list)

    async def _list(self, _cluster: Any, asked: dict[Any, int], **_: Any) -> dict[Any, ListedOffset]:
        self.looks += 1
        await asyncio.sleep(0.01)
        return {where: ListedOffset(self.ends[where.partition], error=self.error) for where in asked}


async def test_it_waits_for_what_was_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not before the last shard has been followed to where it ended."""
    world = World(monkeypatch)
    world.image.positions |= {0: 10, 1: 19}
    waiting = asyncio.create_task(world.catch_up())
    await asyncio.sleep(0.1)
    assert not waiting.done()
    world.image.positions[1] = 20
    await asyncio.wait_for(waiting, 5)


async def test_many_at_once_share_a_look_that_began_after_each_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first has one of its own; all who come while it is under way share the second."""
    world = World(monkeypatch)
    world.image.positions |= {0: 10, 1: 20}
    first = asyncio.create_task(world.catch_up())
    await asyncio.sleep(0.005)
    await asyncio.gather(first, *(world.catch_up() for _ in range(100)))
    assert world.looks == 2


async def test_an_end_that_is_not_told_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard without a leader answers -1, which is not below anything that was followed."""
    world = World(monkeypatch)
    world.ends, world.error = {0: -1, 1: -1}, codes.LEADER_NOT_AVAILABLE
    with pytest.raises(TwinlogError, match="__mirror_state-"):
        await world.catch_up()


async def test_the_wait_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state that is not followed any more must not hold a partition up for good."""
    monkeypatch.setattr(catchup, "WITHIN_S", 0.1)
    world = World(monkeypatch)
    with pytest.raises(RetryLater, match="could not be followed"):
        await world.catch_up()


async def test_who_gives_up_waiting_leaves_no_error_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The look that nobody waits for any more fails in silence."""
    monkeypatch.setattr(catchup, "WITHIN_S", 0.05)
    world, told = World(monkeypatch), list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(world.catch_up(), 0.03)
    await asyncio.sleep(0.2)
    assert world.looks == 1
    gc.collect()
    assert told == []
