"""The look at groups when topics are stopped; both clusters are played."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from twinlog.config.mirror import MirrorConfig
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import Change, MirrorRecord, PartitionRecord, SkippedRecord, TopicRecord
from twinlog.errors import Unreachable
from twinlog.service import last_offsets as module
from twinlog.service.acls import Acls
from twinlog.service.last_offsets import LastOffsets
from twinlog.sync.group_rules import GroupsDone
from twinlog.wire.cluster import TopicInfo

MIRRORING, PAUSED, STOPPED = DesiredState.MIRRORING, DesiredState.PAUSED, DesiredState.STOPPED
THERE, HERE, OTHER = UUID(int=1), UUID(int=2), UUID(int=3)


class _Bench:
    """A mirror of topics `a` and `b`, of one partition each; `looks`: topics, and whether they may set offsets back."""

    def __init__(self) -> None:
        self.image = Image([MirrorRecord("m", {"bootstrap.servers": "a:1"}, "S")])
        self.looks: list[tuple[tuple[str, ...], bool]] = []
        self.meanwhile: Callable[[], object] = lambda: None
        self.still: list[str] = []
        self.owned = True
        self.answers = True
        self.source_ids = {"a": THERE, "b": THERE}
        self.apply(*(self.topic(name, MIRRORING) for name in "ab"))
        self.apply(*(PartitionRecord("m", name, 0, PartitionState.MIRRORING) for name in "ab"))
        cluster: Any = "destination"
        keeper: Any = self
        self.sources: Any = SimpleNamespace(
            connected={"m": SimpleNamespace(cluster="source")}, trouble=lambda _mirror: "the source is away"
        )
        self.last = LastOffsets(cluster, self.image, Acls(cluster, self.image, keeper), self.sources)

    def topic(self, name: str, desired: DesiredState) -> TopicRecord:
        """A topic's record."""
        return TopicRecord("m", name, desired, THERE, HERE, 1)

    def apply(self, *changes: Change) -> None:
        """As replayed from the state."""
        for change in changes:
            self.image.apply(change)

    def heard(self, *changes: Change) -> None:
        """As followed."""
        self.apply(*changes)
        self.last.changed(changes)

    async def put(self, *changes: Change) -> None:
        """As the keeper."""
        self.apply(*changes)

    async def read_topics(self, side: str, names: Collection[str]) -> Any:
        """Both sides have all topics, unless the source is away."""
        if side == "source" and not self.answers:
            await asyncio.Event().wait()
        ids = self.source_ids if side == "source" else dict.fromkeys(names, HERE)
        return {name: TopicInfo(name, ids[name], 0, internal=False, partitions={}) for name in names}, {}

    async def sync(self, _source: Any, _here: Any, config: MirrorConfig, topics: Any, still: Any) -> GroupsDone:
        """Remember the look, and which topics may be committed for by then."""
        self.looks.append((tuple(sorted(topics)), config.groups_sync_backwards))
        self.meanwhile()
        self.still = [topic for topic in sorted(topics) if still(topic)]
        return GroupsDone(("g",))

    async def shares(self, *_: Any) -> GroupsDone:
        """There are none."""
        return GroupsDone()

    @property
    def told(self) -> tuple[str, ...]:
        """What is stored of it."""
        record = self.image.skipped.get("m")
        return () if record is None else record.last_synced

    async def until_told(self, *topics: str) -> None:
        """Wait until it is stored that these were looked at."""
        async with asyncio.timeout(5.0):
            while self.told != topics:  # noqa: ASYNC110  # the state tells nobody here
                await asyncio.sleep(0.01)


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[_Bench]:
    """A worker that owns mirror `m`."""
    bench = _Bench()
    monkeypatch.setattr(module, "read_topics", bench.read_topics)
    monkeypatch.setattr(module.groups, "sync", bench.sync)
    monkeypatch.setattr(module.share_groups, "sync", bench.shares)
    monkeypatch.setattr(module, "WITHIN_S", 1.0)
    monkeypatch.setattr(module, "ANSWERS_WITHIN_S", 0.2)
    running = asyncio.create_task(bench.last.run(lambda mirror: bench.owned and mirror == "m"))
    yield bench
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_stop_brings_offsets_over_once_the_logs_have_their_ends(bench: _Bench) -> None:
    """Only forward, since applications may be at work by then, and not for ever."""
    bench.heard(bench.topic("a", STOPPED), bench.topic("b", STOPPED))
    await asyncio.sleep(0.2)
    assert (bench.looks, bench.told) == ([], ())
    bench.apply(*(PartitionRecord("m", name, 0, PartitionState.STOPPED) for name in "ab"))
    await bench.until_told("a", "b")
    assert bench.looks == [(("a", "b"), False)]
    assert bench.image.skipped["m"].last_synced_ms > 0


async def test_partitions_that_are_not_stopped_in_time_are_not_waited_for(
    bench: _Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their logs as they are bound the offsets; and what else is stored of the mirror stays."""
    monkeypatch.setattr(module, "REST_WITHIN_S", 0.1)
    bench.apply(SkippedRecord("m", 1, beyond=3))
    bench.heard(bench.topic("a", STOPPED))
    await bench.until_told("a")
    assert bench.looks == [(("a",), False)]
    assert bench.image.skipped["m"].beyond == 3


@pytest.mark.parametrize("what", ["nothing", "replaced", "started", "started elsewhere"])
async def test_nothing_is_committed_for_what_is_no_longer_ours_to_touch(bench: _Bench, what: str) -> None:
    """The topic was started again, here or in another mirror, or the worker has another one in its place."""

    def meanwhile() -> None:
        if what == "replaced":
            bench.owned = False
        elif what == "started":
            bench.apply(bench.topic("a", MIRRORING))
        elif what == "started elsewhere":
            bench.apply(TopicRecord("n", "a", MIRRORING, THERE, HERE, 1))

    bench.meanwhile = meanwhile
    bench.heard(bench.topic("a", STOPPED))
    bench.apply(PartitionRecord("m", "a", 0, PartitionState.STOPPED))
    await bench.until_told("a")
    assert bench.still == (["a"] if what == "nothing" else [])


@pytest.mark.parametrize("trouble", ["silent", "not connected"])
async def test_a_source_that_is_away_is_given_up_soon(
    bench: _Bench, caplog: pytest.LogCaptureFixture, trouble: str
) -> None:
    """It is said, and stored all the same, so that no command waits for it."""
    bench.answers = trouble != "silent"
    if trouble != "silent":
        bench.sources.connected.clear()
    with caplog.at_level(logging.WARNING):
        bench.heard(bench.topic("a", STOPPED))
        await bench.until_told("a")
    assert bench.looks == []
    assert "mirror m: a stopped; the group offsets there may be as of the last refresh" in caplog.text


async def test_a_topic_that_was_made_anew_is_not_looked_at(bench: _Bench) -> None:
    """Its offsets mean something else."""
    bench.source_ids["b"] = OTHER
    bench.apply(*(PartitionRecord("m", name, 0, PartitionState.STOPPED) for name in "ab"))
    bench.heard(bench.topic("a", STOPPED), bench.topic("b", STOPPED))
    await bench.until_told("a", "b")
    assert bench.looks == [(("a",), False)]


async def test_what_was_not_mirrored_is_left_alone(bench: _Bench) -> None:
    """A paused topic's groups are not synced either; nor those of a mirror that syncs none, or is another's."""
    bench.heard(bench.topic("a", PAUSED))
    bench.heard(bench.topic("a", STOPPED))
    bench.heard(TopicRecord("other", "c", MIRRORING, THERE, HERE, 1))
    bench.heard(TopicRecord("other", "c", STOPPED, THERE, HERE, 1))
    bench.apply(MirrorRecord("m", {"bootstrap.servers": "a:1", "mirror.groups.sync.enabled": "false"}, "S"))
    bench.heard(bench.topic("b", STOPPED))
    await asyncio.sleep(0.2)
    assert (bench.looks, bench.told) == ([], ())


async def test_a_mistake_in_one_look_ends_no_other(bench: _Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does an error of a cluster, and two stops of a mirror come one after another."""
    failures: list[Exception] = [RuntimeError("a mistake"), Unreachable("nobody there")]

    async def fails(*args: Any) -> GroupsDone:
        if failures:
            raise failures.pop(0)
        return await bench.sync(*args)

    monkeypatch.setattr(module.groups, "sync", fails)
    for name in "ab":
        bench.apply(PartitionRecord("m", name, 0, PartitionState.STOPPED))
    bench.heard(bench.topic("a", STOPPED))
    await asyncio.sleep(0.1)
    bench.heard(bench.topic("b", STOPPED))
    await bench.until_told("b")
    bench.heard(bench.topic("a", MIRRORING))
    bench.heard(bench.topic("a", STOPPED))
    await bench.until_told("a")
    assert bench.looks == [(("a",), False)]
