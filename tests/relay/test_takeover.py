"""When the destination's log end is believed."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from twinlog.batch import layout
from twinlog.batch.records import Record, encode
from twinlog.batch.view import Batch
from twinlog.errors import PartitionFailed, RetryLater, SourceBehind
from twinlog.names import TopicPartition
from twinlog.relay import takeover
from twinlog.relay.progress import Progress
from twinlog.relay.settle import SETTLE_S, TRUE_END, settled_end
from twinlog.relay.tailcheck import Compacted, Sides
from twinlog.relay.takeover import Known
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops import ActiveProducer, Producer

WHERE = TopicPartition("orders", 3)


class _Log:
    """A log whose true end and high watermark are functions of the time; a look takes `look_s`."""

    def __init__(
        self, end: Callable[[float], int], *, mark: Callable[[float], int] | None = None, look_s: float = 0.0
    ) -> None:
        self.now = 0.0
        self._end, self._mark, self._look_s = end, mark or end, look_s

    async def offset(self, _where: TopicPartition, question: Any) -> int:
        """The true end or the high watermark, as of now."""
        self.now += self._look_s / 2
        return self._end(self.now) if question == TRUE_END else self._mark(self.now)


@pytest.fixture(autouse=True)
def _time_is_the_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits pass at once, and the clock of the log under test goes on by them."""

    async def sleep(seconds: float) -> None:
        _current[0].now += seconds

    monkeypatch.setattr(takeover.asyncio, "sleep", sleep)


_current: list[Any] = []


def _log(*arguments: Any, **options: Any) -> Any:
    log = _Log(*arguments, **options)
    _current[:] = [log]
    return log


async def test_quiet_log_is_believed_after_the_settle_time() -> None:
    """Not earlier: a request under way may still arrive."""
    log = _log(lambda _: 10)
    assert await settled_end(log, WHERE, lambda: log.now) == 10
    assert log.now >= SETTLE_S


async def test_late_append_begins_the_wait_anew() -> None:
    """What arrives after a second moves the end, and two more seconds are waited for."""
    log = _log(lambda now: 10 if now < 1.0 else 11)
    assert await settled_end(log, WHERE, lambda: log.now) == 11
    assert log.now > 0.9 + SETTLE_S


async def test_high_watermark_behind_the_end_is_not_at_rest() -> None:
    """What the replicas do not have yet may still be lost."""
    log = _log(lambda _: 10, mark=lambda now: 9 if now < 4.0 else 10)
    assert await settled_end(log, WHERE, lambda: log.now) == 10
    assert log.now > 3.9 + SETTLE_S


async def test_slow_answers_do_not_count() -> None:
    """A broker that answers late may hold back other things, too; the wait is bounded all the same."""
    log = _log(lambda _: 10, look_s=1.5)
    with pytest.raises(RetryLater):
        await settled_end(log, WHERE, lambda: log.now)


async def test_log_that_grows_beyond_the_source_has_a_foreign_writer() -> None:
    """It never comes to rest, and nobody of ours can have written that."""
    log = _log(lambda now: 100 + int(now * 10))
    source: Any = _Log(lambda _: 100)
    with pytest.raises(PartitionFailed, match="goes on growing"):
        await takeover._settle(Sides(source, log), WHERE, lambda: log.now)


async def test_log_that_grows_within_the_source_is_waited_for_again() -> None:
    """Another owner may still be at it, which has to give way first."""
    log = _log(lambda now: 100 + int(now * 10))
    source: Any = _Log(lambda _: 100_000)
    with pytest.raises(RetryLater):
        await takeover._settle(Sides(source, log), WHERE, lambda: log.now)


def _resumed(monkeypatch: pytest.MonkeyPatch, *producers: ActiveProducer, end_then: int | None = None) -> Any:
    async def describe(*_: Any) -> tuple[ActiveProducer, ...]:
        return producers

    monkeypatch.setattr(takeover, "describe_producers", describe)

    async def resume(known: Known, last: Any = None, *, end: int, filler: Producer | None = None) -> Progress:
        lookups: Any = SimpleNamespace(
            cluster=None, offset=_Log(lambda _: end if end_then is None else end_then).offset
        )
        return await takeover._resume(lookups, WHERE, known, last, end=end, filler=filler)

    return resume


def _foreign_batch() -> Any:
    return encode([Record(9, 1_000, b"k", b"v", ())], codec=0)


@pytest.mark.parametrize(("last", "end"), [(None, 0), (_foreign_batch(), 10)])
async def test_every_owner_begins_a_log_alike(monkeypatch: pytest.MonkeyPatch, last: Any, end: int) -> None:
    """A frozen owner's first batch that arrives late must be recognised as the one that its successor sends.

    The epochs of markers that may be under way are skipped all the same.
    """
    resume = _resumed(monkeypatch)
    for stored in (0, 2, 9):
        progress = await resume(Known(7, producer_epoch=stored), last, end=end)
        assert (progress.producer_id, progress.epoch, progress.sequence) == (7, 0, 0)
        assert progress.spent_epoch > stored


def test_a_batch_that_a_cleaner_has_thinned_counts_by_its_span() -> None:
    """Its sequences are those that it was written with, as the broker remembers them."""
    run = [Record(1 + at, 1_000, b"k", b"v", ()) for at in range(200)]
    header = list(encode(run, codec=0).header)
    header[9:] = [7, 3, 1, 5]  # producer, epoch, first sequence, and how many records are left
    last = Batch(memoryview(layout.HEADER.pack(*header)))
    progress = takeover._behind_data(WHERE, 201, last, Known(7, producer_epoch=3))
    assert (progress.producer_id, progress.epoch, progress.sequence) == (7, 3, 201)


async def test_emptied_log_goes_on_as_the_leader_remembers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention took the last batch, not what came next."""
    remembered = ActiveProducer(7, 4, 99, 1_000, -1, -1)
    progress = await _resumed(monkeypatch, remembered)(Known(7, producer_epoch=4), end=50)
    assert (progress.epoch, progress.sequence) == (4, 100)
    assert progress.spent_epoch > 4


async def test_emptied_log_that_ended_with_blanks_goes_on_behind_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A marker leaves its epoch, and no sequence."""
    remembered = ActiveProducer(7, 5, -1, 1_000, 0, -1)
    progress = await _resumed(monkeypatch, remembered)(Known(7, producer_epoch=4), end=50)
    assert (progress.epoch, progress.sequence) == (6, 0)


async def test_emptied_log_that_nobody_remembers_goes_on_above_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """The producer was forgotten by its age."""
    progress = await _resumed(monkeypatch)(Known(7, producer_epoch=4), end=50)
    assert (progress.epoch, progress.sequence) == (5, 0)


async def test_end_that_moves_while_producers_are_looked_up_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A late batch between the two answers gives a wrong sequence for a right end."""
    remembered = ActiveProducer(7, 4, 99, 1_000, -1, -1)
    with pytest.raises(RetryLater, match="grown beyond 50"):
        await _resumed(monkeypatch, remembered, end_then=51)(Known(7, producer_epoch=4), end=50)


async def test_interrupted_long_run_is_left_above_its_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind it only blanks can be under way, and theirs are below."""
    progress = await _resumed(monkeypatch)(
        Known(7, producer_epoch=4, long_runs=True), _foreign_batch(), end=50, filler=Producer(8, 0)
    )
    assert (progress.epoch, progress.sequence) == (5, 0)
    assert progress.spent_epoch > 5


def test_what_retention_took_is_left_out_only_when_an_operator_says_so() -> None:
    """Else the reason names what is wanted, where the source starts, and how many are lost."""
    bounds = takeover.Bounds(source_start=50, source_end=90, start=0, end=10)
    with pytest.raises(PartitionFailed, match="wants offset 10, the source now starts at 50: 40 offsets"):
        takeover._refuse_wrong(WHERE, Known(7, checked_offset=10), bounds)
    takeover._refuse_wrong(WHERE, Known(7, checked_offset=10, skip_lost=True), bounds)
    with pytest.raises(PartitionFailed, match="2 offsets are lost"):
        takeover._refuse_wrong(WHERE, Known(7, checked_offset=12, skip_lost=True), bounds)


async def test_the_first_offset_that_was_decided_stays() -> None:
    """Whatever was chosen since, and also where the source's broker has forgotten what it had deleted."""
    bounds = takeover.Bounds(source_start=0, source_end=90, start=0, end=10)
    decided = await takeover._with_chosen(cast("Cluster", None), WHERE, Known(7, first_offset=50), bounds, 20)
    assert decided.first == 50
    further = replace(bounds, source_start=60)
    assert (
        await takeover._with_chosen(cast("Cluster", None), WHERE, Known(7, first_offset=50), further, -1)
    ).first == 60


async def test_source_that_ends_before_the_decided_first_offset_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has lost what it had: nothing is filled up to an offset that it will give to something else."""

    async def bounds_of(*_: Any) -> takeover.Bounds:
        return takeover.Bounds(source_start=0, source_end=40, start=0, end=10)

    monkeypatch.setattr(takeover, "bounds_of", bounds_of)
    log = _log(lambda _: 10)
    log.cluster = None
    known = Known(7, producer_epoch=0, first_offset=50)
    with pytest.raises(SourceBehind) as raised:
        await takeover.take_over(
            Sides(log, log), WHERE, known, fill_id="fill", compacted=False, settle=False, clock=lambda: log.now
        )
    assert raised.value.end == 50


@pytest.mark.parametrize(
    ("known", "compacted", "shared", "expected"),
    [
        (Known(7, producer_epoch=0), True, 50, [(10, 90, Compacted(frozenset({7})))]),
        (Known(-1), False, 50, [(10, 90, None)]),
        (Known(-1), True, 50, [(10, 50, Compacted(None)), (50, 90, None)]),
        (Known(-1), True, 95, [(10, 90, Compacted(None))]),
        (Known(-1), True, -1, [(10, 10, Compacted(None)), (10, 90, None)]),
    ],
)
async def test_what_nobody_recorded_to_be_shared_is_compared_strictly(
    monkeypatch: pytest.MonkeyPatch, known: Known, *, compacted: bool, shared: int, expected: list[Any]
) -> None:
    """A record that only the destination has is the mirror's own, or a shared one that the source has compacted."""
    asked: list[Any] = []

    async def check_tail(_sides: Any, _where: Any, first: int, end: int, *, compacted: Any = None, **_: Any) -> int:
        asked.append((first, end, compacted))
        return end

    monkeypatch.setattr(takeover, "check_tail", check_tail)
    sides: Any = None
    epoch = await takeover._checked(sides, WHERE, known, (10, 90), compacted=compacted, shared_until=shared)
    assert (asked, epoch) == (expected, 90)


@pytest.mark.parametrize("compacted", [False, True])
async def test_the_comparison_is_told_what_the_mirror_wrote_itself(
    monkeypatch: pytest.MonkeyPatch, *, compacted: bool
) -> None:
    """Else it could not say which side was changed."""
    told: list[Any] = []

    async def check_tail(*_: Any, own: frozenset[int], **__: Any) -> int:
        told.append(own)
        return -1

    monkeypatch.setattr(takeover, "check_tail", check_tail)
    sides: Any = None
    known = Known(7, spare_producer_id=8)
    await takeover._checked(sides, WHERE, known, (10, 90), compacted=compacted, shared_until=-1)
    assert told == [frozenset({7, 8})]
