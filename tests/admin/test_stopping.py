"""The wait of a stop: until every partition is STOPPED, no worker is left, or time is over."""

import asyncio
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from twinlog.admin import stopping
from twinlog.admin.results import StopMirrorTopicsResult
from twinlog.admin.stopping import StopManner, stop_topics
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import (
    NO_TOPIC_ID,
    Change,
    MirrorRecord,
    PartitionRecord,
    SkippedRecord,
    TopicRecord,
    WorkerRecord,
)
from twinlog.errors import BadInput, InvalidRequest, TakeOverAnew, UnknownClusterMirror
from twinlog.names import TopicPartition


def now_ms() -> int:
    """The wall clock."""
    return time.time_ns() // 1_000_000


def partition(number: int, state: PartitionState, end: int = -1) -> PartitionRecord:
    """A partition's stored state."""
    return PartitionRecord("m", "t", number, state, last_mirrored_offset=end)


class FakeLog:
    """A state that holds mirror m with topic t of two partitions, and then changes as told."""

    shards = 50

    def __init__(self, *more: Change, later: Sequence[Sequence[Change]] = (), error: Exception | None = None) -> None:
        topic = TopicRecord("m", "t", DesiredState.MIRRORING, NO_TOPIC_ID, NO_TOPIC_ID, 2)
        self.image = Image([MirrorRecord("m", {"bootstrap.servers": "a:1"}, "S"), topic, *more])
        self._later = list(later)
        self._error = error

    async def load(self) -> Image:
        """As `StateLog.load`."""
        return self.image

    async def follow(self, image: Image, on_change: Any) -> None:
        """Apply what comes later, step by step, from where the last one got to."""
        while self._later:
            await asyncio.sleep(0.05)
            changes = self._later.pop(0)
            for change in changes:
                image.apply(change)
            on_change(changes)
        if self._error is not None:
            raise self._error
        await asyncio.Event().wait()


class FakeCluster:
    """A destination with topics t and u."""

    async def topics(self, _names: None) -> dict[str, Any]:
        """As `Cluster.topics`."""
        return dict.fromkeys("tu", SimpleNamespace(id=NO_TOPIC_ID))


@pytest.fixture(autouse=True)
def _commits_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def change(_cluster: Any, log: FakeLog, handler: Any, *, dry_run: bool) -> Any:
        assert not dry_run
        handled = handler(log.image)
        for record in handled.records:
            log.image.apply(record)
        return handled.reply

    monkeypatch.setattr(stopping.state, "change", change)
    monkeypatch.setattr(stopping, "LOOK_EVERY_S", 0.05)
    monkeypatch.setattr(stopping, "GROUPS_WITHIN_S", 0.1)


async def stop(log: FakeLog, *patterns: str, wait_s: float = 5.0) -> StopMirrorTopicsResult:
    """Stop topics of mirror m."""
    cluster: Any = FakeCluster()
    state: Any = log
    return await stop_topics(cluster, state, "m", patterns, StopManner(wait_s=wait_s))


def worker(age_ms: int = 0) -> WorkerRecord:
    """A worker whose last sign of life is that old."""
    return WorkerRecord("w", "host", 1, 0, now_ms() - age_ms)


async def test_the_wait_ends_when_the_last_partition_is_stopped() -> None:
    """Ends are told as the workers stored them."""
    later = [
        [partition(0, PartitionState.STOPPING)],
        [partition(0, PartitionState.STOPPED, 7)],
        [partition(1, PartitionState.STOPPED, 0)],
    ]
    result = await stop(FakeLog(worker(), later=later), "t")
    assert (result.stopped, result.waiting_for, result.live_workers) == (("t",), (), 1)
    assert result.ends == {TopicPartition("t", 0): 7, TopicPartition("t", 1): 0}


async def test_without_a_live_worker_nothing_is_waited_for() -> None:
    """The result tells what is missing."""
    began = time.monotonic()
    result = await stop(FakeLog(worker(age_ms=60_000), partition(0, PartitionState.MIRRORING)), "t")
    assert time.monotonic() - began < 1
    assert result.waiting_for == (TopicPartition("t", 0), TopicPartition("t", 1))
    assert (result.live_workers, result.ends) == (0, {})


async def test_a_worker_that_dies_meanwhile_is_not_waited_for() -> None:
    """The wait ends once its last sign of life is too old."""
    began = time.monotonic()
    result = await stop(FakeLog(worker(age_ms=9_700)), ".*")
    assert time.monotonic() - began < 3
    assert (result.live_workers, len(result.waiting_for)) == (0, 2)


async def test_the_wait_is_bounded() -> None:
    """With a worker that lives and does nothing."""
    result = await stop(FakeLog(worker()), "t", wait_s=0.2)
    assert (result.live_workers, len(result.waiting_for)) == (1, 2)


def looked_at(*topics: str, at_ms: int = 5) -> SkippedRecord:
    """What a worker stores once it has looked at the groups of stopped topics."""
    return SkippedRecord("m", at_ms, last_synced=topics, last_synced_ms=at_ms)


async def test_the_groups_of_what_was_mirrored_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until a worker has looked at them after this stop; one after a former stop does not count."""
    monkeypatch.setattr(stopping, "GROUPS_WITHIN_S", 5.0)
    both = [partition(0, PartitionState.STOPPED, 7), partition(1, PartitionState.STOPPED, 7)]
    later = [both, [worker()], [looked_at("u")], [looked_at("t", at_ms=6)]]
    log = FakeLog(worker(), looked_at("t", at_ms=4), later=later)
    began = time.monotonic()
    result = await stop(log, "t")
    assert 0.2 <= time.monotonic() - began < 2
    assert (result.waiting_for, log.image.skipped["m"]) == ((), looked_at("t", at_ms=6))


async def test_the_groups_are_not_waited_for_long_and_not_where_none_are_synced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker that does not look at them holds up no stop; those of a paused topic are not looked at."""
    monkeypatch.setattr(stopping, "GROUPS_WITHIN_S", 0.5)
    both = [partition(0, PartitionState.STOPPED, 7), partition(1, PartitionState.STOPPED, 7)]
    paused = TopicRecord("m", "t", DesiredState.PAUSED, NO_TOPIC_ID, NO_TOPIC_ID, 2)
    none = MirrorRecord("m", {"bootstrap.servers": "a:1", "mirror.groups.sync.enabled": "false"}, "S")
    took: list[float] = []
    for more in ((), (paused,), (none,)):
        began = time.monotonic()
        assert (await stop(FakeLog(worker(), *both, *more), "t")).waiting_for == ()
        took.append(time.monotonic() - began)
    assert took[0] >= 0.5
    assert max(took[1:]) < 0.4


async def test_trouble_while_waiting_is_raised() -> None:
    """The stop stands, but what became of it cannot be told."""
    with pytest.raises(TakeOverAnew):
        await stop(FakeLog(worker(), error=TakeOverAnew("Load again.")), "t")


async def test_what_cannot_be_stopped_is_refused() -> None:
    """No topics, a broken pattern, no state at all."""
    with pytest.raises(InvalidRequest):
        await stop(FakeLog())
    with pytest.raises(BadInput, match="not valid"):
        await stop(FakeLog(), "a(")
    empty = FakeLog()
    empty.shards = 0
    with pytest.raises(UnknownClusterMirror, match="Mirror 'm' not found"):
        await stop(empty, "t")
