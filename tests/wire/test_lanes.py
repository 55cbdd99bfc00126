"""Lanes to brokers, with a dialler that opens nothing."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from twinlog.config.client import ClientSettings
from twinlog.errors import Unreachable
from twinlog.wire.dial import Dialler
from twinlog.wire.lanes import Lanes
from twinlog.wire.metadata import Broker


class FakeConnection:
    """As much of a connection as lanes look at."""

    def __init__(self) -> None:
        """Open."""
        self.closed = False
        self.in_flight = 0

    async def close(self) -> None:
        """Close."""
        self.closed = True


class FakeDialler:
    """Opens fake connections, or fails as often as it is told to."""

    def __init__(self) -> None:
        """Succeed always."""
        self.settings = ClientSettings(
            (("b", 1),), reconnect_backoff_ms=20, reconnect_backoff_max_ms=100, connections_max_idle_ms=1000
        )
        self.failures_left = 0
        self.opened: list[tuple[str, int]] = []

    async def first_useful(self, addresses: Sequence[tuple[str, int]], use: Any, **_more: object) -> Any:
        """Open, as the real one does."""
        await asyncio.sleep(0)
        self.opened += addresses
        if self.failures_left:
            self.failures_left -= 1
            raise Unreachable("refused")
        return await use(FakeConnection())


class Bench:
    """Lanes to two brokers, with a clock that is moved by hand."""

    def __init__(self) -> None:
        """Nothing is open."""
        self.now_s = 50.0
        self.dialler = FakeDialler()
        brokers = {1: Broker(1, "one", 9), 2: Broker(2, "two", 9)}
        self.lanes = Lanes(cast("Dialler", self.dialler), lambda: brokers, clock=lambda: self.now_s, spread=lambda: 0.5)


async def test_one_connection_for_each_name_and_broker() -> None:
    """The same name and broker give the same connection, also to callers at once; others give others."""
    bench = Bench()
    found = await asyncio.gather(*(bench.lanes.get(1, "a") for _ in range(9)))
    assert len(set(map(id, found))) == 1
    assert await bench.lanes.get(1, "b") is not found[0]
    assert await bench.lanes.get(2, "a") is not found[0]
    assert bench.dialler.opened == [("one", 9), ("one", 9), ("two", 9)]


async def test_failures_make_the_next_opening_wait() -> None:
    """After failures an opening waits for its backoff, and a success forgets them."""
    bench = Bench()
    bench.dialler.failures_left = 2
    loop = asyncio.get_running_loop()
    for _ in range(2):
        with pytest.raises(Unreachable, match="Broker 1: refused"):
            await bench.lanes.get(1, "a")
    began = loop.time()
    await bench.lanes.get(1, "a")
    assert loop.time() - began >= 0.03
    assert bench.lanes._penalty_s(1) == 0.0


async def test_promising_brokers_come_first() -> None:
    """One that failed comes last, one with an open connection first."""
    bench = Bench()
    await bench.lanes.get(2, "a")
    assert bench.lanes.by_promise([1, 2], "a") == [2, 1]
    bench.dialler.failures_left = 1
    with pytest.raises(Unreachable):
        await bench.lanes.get(2, "b")
    assert bench.lanes.by_promise([1, 2], "a") == [1, 2]


async def test_an_idle_connection_is_replaced_before_the_broker_closes_it() -> None:
    """Nearly at the idle limit a fresh one is opened, unless a request is under way."""
    bench = Bench()
    first = await bench.lanes.get_fresh(1, "a")
    bench.now_s += 0.5
    assert await bench.lanes.get_fresh(1, "a") is first
    bench.now_s += 0.95
    cast("FakeConnection", first).in_flight = 1
    assert await bench.lanes.get_fresh(1, "a") is first
    bench.now_s += 0.95
    cast("FakeConnection", first).in_flight = 0
    second = await bench.lanes.get_fresh(1, "a")
    assert second is not first
    assert first.closed
    await bench.lanes.close()
    assert second.closed


async def test_a_broker_that_nobody_named_is_unreachable() -> None:
    """There is no address to try."""
    with pytest.raises(Unreachable, match="Broker 9 is not among"):
        await Bench().lanes.get(9, "a")
