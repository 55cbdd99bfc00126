"""One connection to a source for all who want it, and one failure."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from twinlog.control.records import MirrorRecord
from twinlog.errors import AuthenticationFailed, Unreachable
from twinlog.service import sources as module
from twinlog.service.sources import Sources
from twinlog.wire.retry import Backoff

MIRROR = MirrorRecord("m", {"bootstrap.servers": "a:1"}, "S")
MOVED = MirrorRecord("m", {"bootstrap.servers": "b:1"}, "S")


class _Source:
    """What a connection leads to."""

    def __init__(self, mirror: MirrorRecord) -> None:
        self.mirror = mirror
        self.closed = False

    async def close(self) -> None:
        self.closed = True


class _Playing(Sources):
    """Connects as the test says."""

    def __init__(self) -> None:
        unused: Any = None
        super().__init__(unused)
        self.attempts: list[MirrorRecord] = []
        self.outcome: Callable[[MirrorRecord], Any] = _Source
        self.takes_s = 0.02

    async def _connect(self, mirror: MirrorRecord) -> Any:
        self.attempts.append(mirror)
        await asyncio.sleep(self.takes_s)
        return self.outcome(mirror)


def _down(_mirror: MirrorRecord) -> Any:
    raise Unreachable("nobody there")


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> _Playing:
    """Sources whose waits are short."""
    monkeypatch.setattr(module, "BACKOFF", Backoff(0.1, 0.1))
    return _Playing()


async def test_many_who_ask_at_once_share_one_connection(sources: _Playing) -> None:
    """And whoever asks later gets it, too."""
    found = await asyncio.gather(*(sources.get(MIRROR) for _ in range(100)))
    assert len(set(map(id, [*found, await sources.get(MIRROR)]))) == 1
    assert len(sources.attempts) == 1


async def test_many_who_ask_at_once_share_one_failure(sources: _Playing) -> None:
    """A source that is down does not let a hundred partitions wait one after the other."""
    sources.outcome = _down
    loop = asyncio.get_running_loop()
    began = loop.time()
    results = await asyncio.gather(*(sources.get(MIRROR) for _ in range(100)), return_exceptions=True)
    assert all(isinstance(result, Unreachable) for result in results)
    assert loop.time() - began < 1
    assert len(sources.attempts) == 1


async def test_the_next_attempt_waits_and_is_shared(sources: _Playing) -> None:
    """A source that refuses at once is not asked again by each partition in turn."""
    sources.outcome = _down
    with pytest.raises(Unreachable):
        await sources.get(MIRROR)
    sources.outcome = _Source
    loop = asyncio.get_running_loop()
    began = loop.time()
    await asyncio.gather(*(sources.get(MIRROR) for _ in range(100)))
    assert loop.time() - began >= 0.05
    assert len(sources.attempts) == 2


async def test_other_addresses_are_tried_at_once(sources: _Playing) -> None:
    """The backoff is of the addresses that failed; the former connection is closed at the end."""
    former: Any = await sources.get(MIRROR)
    loop = asyncio.get_running_loop()
    began = loop.time()
    latter: Any = await sources.get(MOVED)
    assert (former.mirror, latter.mirror) == (MIRROR, MOVED)
    assert loop.time() - began < 1.0
    assert not former.closed
    await sources.close()
    assert former.closed
    assert latter.closed


async def test_one_who_gives_up_waiting_does_not_end_it_for_the_others(sources: _Playing) -> None:
    """A partition that is told to stop while the source is being connected."""
    sources.takes_s = 0.5
    impatient = asyncio.create_task(sources.get(MIRROR))
    patient = asyncio.create_task(sources.get(MIRROR))
    await asyncio.sleep(0.005)
    impatient.cancel()
    assert await patient is await sources.get(MIRROR)
    assert len(sources.attempts) == 1


async def test_closing_ends_what_is_under_way(sources: _Playing) -> None:
    """A worker does not wait at its end for a source that is down."""
    sources.takes_s = 60.0
    waiting = asyncio.create_task(sources.get(MIRROR))
    await asyncio.sleep(0.005)
    await asyncio.wait_for(sources.close(), 1)
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_trouble_is_told_until_there_is_a_connection(sources: _Playing) -> None:
    """The reason of the last failure is kept while the next attempt waits; nobody has asked: no trouble."""

    def wrong_password(_mirror: MirrorRecord) -> Any:
        raise AuthenticationFailed("the source refused the credentials")

    assert sources.trouble("m") == ""
    sources.outcome = wrong_password
    first = asyncio.create_task(sources.get(MIRROR))
    await asyncio.sleep(0)
    assert sources.trouble("m") == "mirror m: no connection to its source yet"
    await asyncio.gather(first, return_exceptions=True)
    assert sources.trouble("m") == "the source refused the credentials"
    assert sources.connected == {}
    sources.outcome = _Source
    again = asyncio.create_task(sources.get(MIRROR))
    await asyncio.sleep(0)
    assert sources.trouble("m") == "the source refused the credentials"
    found: Any = await again
    assert sources.trouble("m") == ""
    assert sources.connected == {"m": found}
