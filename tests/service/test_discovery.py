"""Finding new topics for several mirrors, of which one's source is down; the clusters are played."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from twinlog.admin.results import StartMirrorTopicsResult
from twinlog.config.mirror import MirrorConfig
from twinlog.control.image import Image
from twinlog.control.records import MirrorRecord
from twinlog.errors import Unreachable
from twinlog.service import discovery as module
from twinlog.service.discovery import Discovery
from twinlog.wire.cluster import TopicInfo
from twinlog.wire.metadata import NO_ID

CONFIGS = {"bootstrap.servers": "a:1", "mirror.topics.include": "t.*"}
FOUND = TopicInfo("t1", NO_ID, 0, internal=False, partitions={})


class _Bench:
    """A coordinator of two mirrors."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.started: list[str] = []
        self.requests: list[Any] = []
        self.starting = 0
        self.most_at_once = 0
        image = Image([MirrorRecord(name, CONFIGS, "S") for name in ("down", "up", "well")])
        shards: Any = SimpleNamespace(owned=range(50), leased=True)
        state: Any = SimpleNamespace(shards=50, cluster=None)
        sources: Any = self
        self.discovery = Discovery(state, image, shards, sources)

    async def get(self, mirror: MirrorRecord) -> Any:
        """As the sources do; one of them takes its time to find out that nobody is there."""
        self.asked.append(mirror.mirror)
        if mirror.mirror == "down":
            await asyncio.sleep(30)
            raise Unreachable("nobody there")
        return SimpleNamespace(cluster=None)

    async def read_topics(self, _cluster: Any, _names: Any) -> Any:
        """The source has a topic."""
        return {"t1": FOUND}, {}

    async def start_topics(self, _cluster: Any, _log: Any, request: Any, **_: Any) -> Any:
        """The change of the state alone is made by one at a time (`admin.state`)."""
        self.starting += 1
        self.most_at_once = max(self.most_at_once, self.starting)
        await asyncio.sleep(0.02)
        self.starting -= 1
        self.started.append(request.mirror)
        self.requests.append(request)
        return StartMirrorTopicsResult(request.mirror, started=("t1",))


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> _Bench:
    """Discovery that looks often."""
    bench = _Bench()
    monkeypatch.setattr(module, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(module, "read_topics", bench.read_topics)
    monkeypatch.setattr(module, "start_topics", bench.start_topics)
    return bench


async def test_a_source_that_is_down_holds_up_only_its_own_mirror(bench: _Bench) -> None:
    """Nor is it asked again while it is being asked; and two that start topics do not wait for each other."""
    running = asyncio.create_task(bench.discovery.run())
    await asyncio.sleep(0.3)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert sorted(bench.started) == ["up", "well"]
    assert bench.most_at_once == 2
    assert sorted(bench.asked) == ["down", "up", "well"]
    assert all(task.done() for task in bench.discovery._refreshing.values())


async def test_a_look_that_finds_nothing_is_written_down_once(bench: _Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a start of nothing; where the record says so already, nothing is started."""

    async def nothing(_cluster: Any, _names: Any) -> Any:
        return {}, {}

    monkeypatch.setattr(module, "read_topics", nothing)
    image = bench.discovery._image
    looked = replace(image.mirrors["up"], looked_include=("t.*",), looked_exclude=("__.*",))
    image.apply(looked)
    for name in ("up", "well"):
        mirror = image.mirrors[name]
        config = MirrorConfig.from_properties(mirror.configs, "test")
        assert await bench.discovery._refresh(mirror, config) == ""
    assert bench.started == ["well"]
    assert bench.requests[0].discovered == frozenset()
