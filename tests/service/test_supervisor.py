"""One partition under a worker: what it makes of figures, and whether its end is in order; the clusters are played."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
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
from twinlog.relay import settle
from twinlog.relay.own_end import OwnEnd
from twinlog.service import supervisor as supervisor_module
from twinlog.service.supervisor import Supervisor

KEY = ("m", "t", 0)
ADDRESS = {"bootstrap.servers": "s:9092"}
OLD, NEW, SOURCE = UUID(int=1), UUID(int=2), UUID(int=3)


class _Destination:
    """Its log ends at `end`, and stands still unless it is `moving`."""

    def __init__(self) -> None:
        self.lookups = self
        self.cluster: Any = None
        self.end = 7
        self.moving = False
        self.questions = 0

    async def offset(self, _where: Any, _question: Any) -> int:
        self.questions += 1
        await asyncio.sleep(0)
        self.end += self.moving
        return self.end


class _Bench:
    """A supervisor of one partition, and what it wrote."""

    def __init__(self, *changes: Change) -> None:
        self.image = Image([MirrorRecord("m", {**ADDRESS, "mirror.failed.retry.max.attempts": "0"}, "S"), *changes])
        self.written: list[Change] = []
        self.forgotten: list[str] = []
        self.destination = _Destination()
        self.connecting = asyncio.Event()
        self.around: Any = SimpleNamespace(
            image=self.image, keeper=self, lease=None, sources=self, destination=self.destination, facts=self
        )

    async def put(self, *changes: Change) -> None:
        """As the keeper does."""
        self.written += changes

    async def get(self, _mirror: Any) -> Any:
        """As the sources do, of which this one is down."""
        await self.connecting.wait()
        raise Unreachable("the source is down")

    def forget(self, topic: str) -> None:
        """As the facts do."""
        self.forgotten.append(topic)

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
    monkeypatch.setattr(settle, "SETTLE_S", 0.05)
    monkeypatch.setattr(settle, "POLL_S", 0.01)

    async def all_ours(_cluster: Any, _where: Any, _first: int, end: int, _producers: Any) -> OwnEnd:
        return OwnEnd(end, told=True)

    monkeypatch.setattr(supervisor_module, "own_end", all_ours)


@pytest.mark.parametrize(("about", "checked"), [(NEW, 90), (OLD, 40)])
async def test_figures_move_the_checked_offset_only_if_they_are_about_these_topics(about: UUID, checked: int) -> None:
    """Those of a topic that had the name before would let the tail check begin too late."""
    record = _stored(PartitionState.MIRRORING, producer_id=5, checked_offset=40)
    bench = _Bench(_topic(DesiredState.STOPPED), record, _progress(about, 90))
    supervisor = bench.supervisor(settle=False)
    assert supervisor.ledger.known().checked_offset == checked
    await supervisor.cut_off()


@pytest.mark.parametrize(
    ("checked", "first", "skips"), [(40, 90, True), (90, 90, False), (40, -1, False), (-1, 90, False)]
)
async def test_a_recover_that_was_begun_goes_on_under_any_owner(checked: int, first: int, *, skips: bool) -> None:
    """Until both sides have agreed behind the filler; of a first copy nothing is lost."""
    record = _stored(PartitionState.MIRRORING, producer_id=5, checked_offset=checked, first_offset=first)
    supervisor = _Bench(_topic(DesiredState.STOPPED), record).supervisor(settle=False)
    known = supervisor.ledger.known()
    assert (known.skip_lost, known.first_offset) == (skips, first)
    await supervisor.cut_off()


@pytest.mark.parametrize("desired", [DesiredState.STOPPED, DesiredState.PAUSED])
async def test_filler_is_deleted_before_the_end_is_told(monkeypatch: pytest.MonkeyPatch, desired: DesiredState) -> None:
    """What a dead owner had open is aborted first, so that its markers do not come later; no source is needed."""
    done: list[str] = []

    async def ends(_cluster: Any, _where: Any, fill_id: str) -> None:
        done.append(fill_id)

    async def deletes(_cluster: Any, _where: Any, record: PartitionRecord, *, within_s: float) -> None:
        assert within_s > 0
        done.append(f"below {record.first_offset}, {record.state.name}")

    monkeypatch.setattr(supervisor_module, "end_open", ends)
    monkeypatch.setattr(supervisor_module, "delete_filler", deletes)
    bench = _Bench(_topic(desired), _stored(PartitionState.LOG_ALIGNMENT, first_offset=90, long_runs=True))
    passing, there = supervisor_module.RESTS[desired]
    supervisor = bench.supervisor(settle=True)
    await bench.until(there)
    assert done == ["twinlog-fill-m/t/0", f"below 90, {passing.name}"]
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
    bench = _Bench(
        _topic(DesiredState.STOPPED), _stored(PartitionState.MIRRORING, last_mirrored_offset=5, checked_offset=5)
    )
    supervisor = bench.supervisor(settle=True)
    await asyncio.sleep(0.02)
    bench.destination.end = 9
    await bench.until(PartitionState.STOPPED)
    last = bench.written[-1]
    assert isinstance(last, PartitionRecord)
    assert last.last_mirrored_offset == 9
    assert await supervisor.release(1.0)


@pytest.mark.parametrize(("known", "told"), [({}, -1), ({"checked_offset": 3}, 4), ({"checked_offset": 7}, 7)])
async def test_what_others_wrote_behind_a_dead_worker_was_not_mirrored(
    monkeypatch: pytest.MonkeyPatch, known: dict[str, int], told: int
) -> None:
    """Applications may write as soon as the stop is recorded; what was never compared is nobody's twin."""

    async def ours(_cluster: Any, _where: Any, first: int, end: int, producers: Any) -> OwnEnd:
        assert (end, producers) == (7, {11, 12})
        return OwnEnd(max(first, 4), told=True)

    monkeypatch.setattr(supervisor_module, "own_end", ours)
    stored = _stored(PartitionState.MIRRORING, producer_id=11, spare_producer_id=12, **known)
    bench = _Bench(_topic(DesiredState.STOPPED), stored)
    supervisor = bench.supervisor(settle=False)
    await bench.until(PartitionState.STOPPED)
    assert _last(bench).last_mirrored_offset == told
    assert await supervisor.release(1.0)


async def test_paused_is_written_only_once_nothing_can_be_appended(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long what a dead owner had under way keeps the log from standing still; a resume ends the wait."""
    monkeypatch.setattr(supervisor_module, "REST_WITHIN_S", 0.1)
    bench = _Bench(
        _topic(DesiredState.PAUSED), _stored(PartitionState.MIRRORING, last_mirrored_offset=5, checked_offset=5)
    )
    bench.connecting.set()
    bench.destination.moving = True
    supervisor = bench.supervisor(settle=True)
    await asyncio.sleep(0.5)
    assert [_last(bench).state] == [PartitionState.PAUSING]
    bench.destination.moving = False
    await bench.until(PartitionState.PAUSED)
    assert _last(bench).last_mirrored_offset == bench.destination.end > 7
    assert await supervisor.release(1.0)
    bench = _Bench(
        _topic(DesiredState.PAUSED), _stored(PartitionState.MIRRORING, last_mirrored_offset=5, checked_offset=5)
    )
    bench.connecting.set()
    bench.destination.moving = True
    supervisor = bench.supervisor(settle=True)
    await bench.until(PartitionState.PAUSING)
    bench.image.apply(_topic(DesiredState.MIRRORING))
    supervisor.poke()
    await bench.until(PartitionState.FAILED)  # since its source is down
    assert bench.destination.moving
    await supervisor.cut_off()


def _last(bench: _Bench) -> PartitionRecord:
    record = bench.written[-1]
    assert isinstance(record, PartitionRecord)
    return record


async def test_a_new_owner_goes_on_counting_where_the_former_was() -> None:
    """Two of three attempts were made elsewhere: one is left, then an operator is needed."""
    stored = _stored(PartitionState.FAILED, retry_attempt=2, previous_state=PartitionState.MIRRORING)
    limits = {"mirror.failed.retry.max.attempts": "3", "mirror.failed.retry.initial.backoff.ms": "1"}
    bench = _Bench(_topic(DesiredState.MIRRORING), stored, MirrorRecord("m", {**ADDRESS, **limits}, "S"))
    bench.connecting.set()
    supervisor = bench.supervisor(settle=False)
    await bench.until(PartitionState.FAILED)
    await asyncio.sleep(0.1)
    told = [(r.state, r.retry_attempt) for r in bench.written if isinstance(r, PartitionRecord)]
    assert told == [(PartitionState.MIRRORING, 3), (PartitionState.FAILED, 3)]
    assert await supervisor.release(1.0)


@pytest.mark.parametrize("attempt", [0, NEVER_RETRY])
async def test_a_recover_begins_anew_at_once_and_only_once(attempt: int) -> None:
    """It is answered in the state, so that neither a later failure nor a new owner takes it for a new one."""
    stored = _stored(PartitionState.FAILED, retry_attempt=attempt, previous_state=PartitionState.MIRRORING)
    bench = _Bench(_topic(DesiredState.MIRRORING), stored)
    bench.connecting.set()
    supervisor = bench.supervisor(settle=False)
    await asyncio.sleep(0.05)
    assert bench.written == []
    bench.image.apply(replace(_topic(DesiredState.MIRRORING), recoveries=1))
    supervisor.poke()
    await bench.until(PartitionState.FAILED)
    await asyncio.sleep(0.1)
    told = [(r.state, r.retry_attempt, r.recoveries) for r in bench.written if isinstance(r, PartitionRecord)]
    assert told == [(PartitionState.MIRRORING, 0, 1), (PartitionState.FAILED, 0, 1)]
    assert await supervisor.release(1.0)


@pytest.mark.parametrize("attempt", [0, 10, NEVER_RETRY])
async def test_a_failed_partition_is_stopped_as_any_other(attempt: int) -> None:
    """Whatever it failed by, and with the source down: its end is told."""
    bench = _Bench(
        _topic(DesiredState.MIRRORING), _stored(PartitionState.FAILED, retry_attempt=attempt, checked_offset=5)
    )
    supervisor = bench.supervisor(settle=False)
    await asyncio.sleep(0.02)
    bench.image.apply(_topic(DesiredState.STOPPED))
    supervisor.poke()
    await bench.until(PartitionState.STOPPED)
    assert (_last(bench).last_mirrored_offset, _last(bench).retry_attempt, _last(bench).error) == (7, 0, "")
    assert await supervisor.release(1.0)


async def test_other_topics_under_the_same_names_begin_anew() -> None:
    """Whatever the former ones had failed by is no matter of theirs."""
    bench = _Bench(_topic(DesiredState.MIRRORING), _stored(PartitionState.FAILED, retry_attempt=NEVER_RETRY))
    supervisor = bench.supervisor(settle=False)
    await asyncio.sleep(0.02)
    bench.image.apply(TopicRecord("m", "t", DesiredState.MIRRORING, SOURCE, UUID(int=9), 1))
    supervisor.poke()
    await bench.until(PartitionState.LOG_ALIGNMENT)
    assert _last(bench).destination_topic_id == UUID(int=9)
    assert await supervisor.release(1.0)
