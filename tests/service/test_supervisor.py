"""One partition under a worker: what it makes of figures, and whether its end is in order; the clusters are played."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import (
    NEVER_RETRY,
    Change,
    Figure,
    MirrorRecord,
    PartitionRecord,
    ProgressRecord,
    TopicRecord,
    topics_life,
)
from twinlog.errors import Unreachable
from twinlog.relay import takeover
from twinlog.service.supervisor import Supervisor

KEY = ("m", "t", 0)
OLD, NEW, SOURCE = UUID(int=1), UUID(int=2), UUID(int=3)


class _Destination:
    """Its log ends at `end`, and stands still."""

    def __init__(self) -> None:
        self.lookups = self
        self.end = 7
        self.questions = 0

    async def offset(self, _where: Any, _question: Any) -> int:
        self.questions += 1
        await asyncio.sleep(0)
        return self.end


class _Bench:
    """A supervisor of one partition, and what it wrote."""

    def __init__(self, *changes: Change) -> None:
        self.image = Image([MirrorRecord("m", {"mirror.failed.retry.max.attempts": "0"}, "S"), *changes])
        self.written: list[Change] = []
        self.destination = _Destination()
        self.connecting = asyncio.Event()
        self.around: Any = SimpleNamespace(
            image=self.image, keeper=self, lease=None, sources=self, destination=self.destination, facts=None
        )

    async def put(self, *changes: Change) -> None:
        """As the keeper does."""
        self.written += changes

    async def get(self, _mirror: Any) -> Any:
        """As the sources do, of which this one is down."""
        await self.connecting.wait()
        raise Unreachable("the source is down")

    def supervisor(self, *, settle: bool) -> Supervisor:
        """Begin."""
        return Supervisor(self.around, KEY, settle=settle)

    async def until(self, state: PartitionState) -> None:
        """Wait until this was written."""
        await _until(lambda: any(isinstance(r, PartitionRecord) and r.state is state for r in self.written))


async def _until(condition: Callable[[], bool]) -> None:
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to that within 5 s")


def _topic(desired: DesiredState) -> TopicRecord:
    return TopicRecord("m", "t", desired, SOURCE, NEW, 1)


def _stored(state: PartitionState, **more: Any) -> PartitionRecord:
    return PartitionRecord(*KEY, state, source_topic_id=SOURCE, destination_topic_id=NEW, **more)


def _progress(destination: UUID, end: int) -> ProgressRecord:
    life = topics_life(SOURCE, destination)
    return ProgressRecord(1, "w", 5, (Figure(*KEY, 0, end, end, 0, end, waiting_for_transaction=False, life=life),))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A settle wait that is over soon."""
    monkeypatch.setattr(takeover, "SETTLE_S", 0.05)
    monkeypatch.setattr(takeover, "POLL_S", 0.01)


@pytest.mark.parametrize(("about", "checked"), [(NEW, 90), (OLD, 40)])
async def test_figures_move_the_checked_offset_only_if_they_are_about_these_topics(about: UUID, checked: int) -> None:
    """Those of a topic that had the name before would let the tail check begin too late."""
    record = _stored(PartitionState.MIRRORING, producer_id=5, checked_offset=40)
    bench = _Bench(_topic(DesiredState.STOPPED), record, _progress(about, 90))
    supervisor = bench.supervisor(settle=False)
    assert supervisor._known(record).checked_offset == checked
    await supervisor.cut_off()


async def test_an_end_in_order_leaves_nothing_to_settle() -> None:
    """A partition that waits for its source, and was given up in order before."""
    bench = _Bench(_topic(DesiredState.MIRRORING))
    supervisor = bench.supervisor(settle=False)
    await bench.until(PartitionState.LOG_ALIGNMENT)
    assert await supervisor.release(1.0)
    assert bench.destination.questions == 0


async def test_what_a_crash_left_is_passed_on_until_it_is_settled() -> None:
    """Before its takeover, a partition whose former owner was fenced is not at rest."""
    bench = _Bench(_topic(DesiredState.MIRRORING))
    supervisor = bench.supervisor(settle=True)
    await bench.until(PartitionState.LOG_ALIGNMENT)
    assert not await supervisor.release(1.0)


async def test_what_does_not_end_in_time_is_cut_off_and_not_at_rest() -> None:
    """Whatever it waited for, nothing of it runs on."""
    bench = _Bench(_topic(DesiredState.STOPPED))
    never = asyncio.Event()

    async def put(*_changes: Change) -> None:
        await never.wait()

    bench.put = put  # type: ignore[method-assign]
    supervisor = bench.supervisor(settle=False)
    await asyncio.sleep(0.02)
    assert not await supervisor.release(0.05)
    assert supervisor._task.done()


@pytest.mark.parametrize("retry", [0, NEVER_RETRY])
async def test_a_partition_with_nothing_to_do_comes_to_rest(retry: int) -> None:
    """A failed one must not let each later owner of its shard settle, at each hand-over."""
    record = _stored(PartitionState.FAILED, retry_attempt=retry)
    bench = _Bench(_topic(DesiredState.MIRRORING), record)
    bench.connecting.set()
    supervisor = bench.supervisor(settle=True)
    await _until(lambda: not supervisor._settle)
    assert await supervisor.release(1.0)


async def test_stopped_is_written_once_the_log_stands_still() -> None:
    """What a dead owner had under way would else arrive behind the end that is told to the operator."""
    bench = _Bench(_topic(DesiredState.STOPPED), _stored(PartitionState.MIRRORING, last_mirrored_offset=5))
    supervisor = bench.supervisor(settle=True)
    await asyncio.sleep(0.02)
    bench.destination.end = 9
    await bench.until(PartitionState.STOPPED)
    last = bench.written[-1]
    assert isinstance(last, PartitionRecord)
    assert last.last_mirrored_offset == 9
    assert await supervisor.release(1.0)
