"""What `relay.rewrite` plans for data and blanks."""

from dataclasses import replace
from typing import Any

from twinlog.batch.records import decode
from twinlog.batch.scan import Blank, batches
from twinlog.batch.view import Batch
from twinlog.relay.progress import BlankStep, DataStep, Forward, Plan
from twinlog.relay.rewrite import rewrite

NOW, GUARD = 1_100_000, 500_000


def _items(*raws: bytes) -> tuple[Batch, ...]:
    return tuple(batch for batch in batches(memoryview(b"".join(raws))) if isinstance(batch, Batch))


def test_consecutive_batches_are_one_step_with_running_sequences(made: Any) -> None:
    """Producer id, epoch and sequence spell the position."""
    plan = rewrite(made.progress(), Forward(_items(made.data(100), made.data(103, 2)), 105), now_ms=NOW, guard_ms=GUARD)
    (step,) = plan.steps
    assert isinstance(step, DataStep)
    headers = [Batch(memoryview(send.batch.header + bytes(send.batch.body))) for send in step.sends]
    assert [(b.producer_id, b.producer_epoch, b.base_sequence, b.base_offset) for b in headers] == [
        (7, 2, 40, 0),
        (7, 2, 43, 0),
    ]
    assert [send.batch.first for send in step.sends] == [100, 103]
    assert all(batch.crc_ok() for batch in headers)
    assert (plan.after.position, plan.after.sequence) == (105, 45)


def test_small_batches_go_out_as_one_but_never_over_a_blank(made: Any) -> None:
    """Sequence and position move by all of its records; the source's epoch is the last one's."""
    items = (*_items(made.data(100), made.data(103)), Blank(106, 106), *_items(made.data(107), made.data(110, 2)))
    joining = rewrite(made.progress(), Forward(items, 112, 9), now_ms=NOW, guard_ms=GUARD, join_bytes=10_000)
    apart = rewrite(made.progress(), Forward(items, 112, 9), now_ms=NOW, guard_ms=GUARD)
    sends = [[(send.batch.first, send.batch.count) for send in step.sends] for step in data_steps(joining)]
    assert sends == [[(100, 6)], [(107, 5)]]
    assert [len(step.sends) for step in data_steps(apart)] == [2, 2]
    assert (joining.after.position, joining.after.sequence) == (apart.after.position, apart.after.sequence) == (112, 5)
    assert joining.after.source_epoch == 9
    (send,) = data_steps(joining)[1].sends
    batch = Batch(memoryview(send.batch.header + bytes(send.batch.body)))
    assert batch.crc_ok()
    assert [record[1:] for record in decode(batch)] == [
        record[1:] for item in items[3:] if isinstance(item, Batch) for record in decode(item)
    ]


def data_steps(plan: Plan) -> list[DataStep]:
    """Those of a plan that write data."""
    return [step for step in plan.steps if isinstance(step, DataStep)]


def test_blank_between_data_takes_the_next_epoch(made: Any) -> None:
    """Data, blank, data: three steps, three epochs, the sequence starting over behind the blank."""
    first, last = _items(made.data(100), made.data(105))
    plan = rewrite(
        made.progress(first_marker=False), Forward((first, Blank(103, 104), last), 108), now_ms=NOW, guard_ms=GUARD
    )
    _, blank, data = plan.steps
    assert blank == BlankStep(103, 2, 7, 3, probe=False, timestamp_ms=1_000_000)
    assert isinstance(data, DataStep)
    batch = Batch(memoryview(data.sends[0].batch.header + bytes(data.sends[0].batch.body)))
    assert (batch.producer_epoch, batch.base_sequence) == (4, 0)
    assert plan.after.position == 108


def test_first_blank_of_an_owner_is_probed(made: Any) -> None:
    """The log end is read directly before and after a new owner's first marker."""
    plan = rewrite(made.progress(), Forward((Blank(100, 100),), 101), now_ms=NOW, guard_ms=GUARD)
    (step,) = plan.steps
    assert isinstance(step, BlankStep)
    assert step.probe


def test_batch_behind_a_fresh_one_may_be_pipelined(made: Any) -> None:
    """The broker knows the producer, so a resend or reordering is refused by it."""
    plan = rewrite(made.progress(), Forward(_items(made.data(100), made.data(103)), 106), now_ms=NOW, guard_ms=GUARD)
    (step,) = plan.steps
    assert isinstance(step, DataStep)
    assert [send.barrier for send in step.sends] == [False, False]


def test_batch_behind_an_old_one_waits_for_it(made: Any) -> None:
    """Old timestamps switch the broker's guard off: one request in flight."""
    old = made.data(100, timestamp=1)
    plan = rewrite(made.progress(), Forward(_items(old, made.data(103)), 106), now_ms=NOW, guard_ms=GUARD)
    (step,) = plan.steps
    assert isinstance(step, DataStep)
    assert [send.barrier for send in step.sends] == [False, True]


def test_first_batch_of_a_producer_goes_alone(made: Any) -> None:
    """Before its first batch the broker knows nothing of a producer."""
    progress = made.progress(last_timestamp_ms=None)
    plan = rewrite(progress, Forward(_items(made.data(100), made.data(103)), 106), now_ms=NOW, guard_ms=GUARD)
    (step,) = plan.steps
    assert isinstance(step, DataStep)
    assert [send.barrier for send in step.sends] == [True, True]


def test_unknown_guard_means_no_pipelining(made: Any) -> None:
    """With a guard of 0 nothing but a batch of this very moment or the future counts as fresh."""
    plan = rewrite(made.progress(), Forward(_items(made.data(100), made.data(103)), 106), now_ms=NOW, guard_ms=0)
    (step,) = plan.steps
    assert isinstance(step, DataStep)
    assert [send.barrier for send in step.sends] == [True, True]


def _barriers(made: Any, progress: Any, *times: int) -> list[bool]:
    raw = b"".join(made.data(100 + 3 * n, timestamp=time) for n, time in enumerate(times))
    items = tuple(batch for batch in batches(memoryview(raw)) if isinstance(batch, Batch))
    plan = rewrite(progress, Forward(items, 100 + 3 * len(items)), now_ms=NOW, guard_ms=GUARD)
    (step,) = plan.steps
    assert isinstance(step, DataStep)
    return [send.barrier for send in step.sends]


def test_batch_behind_the_producers_first_waits_for_it(made: Any) -> None:
    """The first is refused (too large, not enough replicas): the second would be appended in its place."""
    assert _barriers(made, made.progress(last_timestamp_ms=None), NOW, NOW, NOW) == [True, True, False]


def test_batch_behind_a_fresh_one_behind_an_old_one_waits_too(made: Any) -> None:
    """The broker may have forgotten the producer by the old one; only an appended fresh one makes it known again."""
    assert _barriers(made, made.progress(), NOW, 1_000, NOW, NOW)[2:] == [True, True]


def test_epochs_stay_an_int16_whatever_one_fetch_brings(made: Any) -> None:
    """One batch with a hole behind each record, as compaction leaves it, needs more epochs than one producer has."""
    items: list[Any] = []
    (data,) = (batch for batch in batches(memoryview(made.data(0, 1))))
    for n in range(40_000):
        items += (data, Blank(2 * n + 1, 2 * n + 1))
    progress = made.progress(0, first_marker=False).with_spare(8)
    plan = rewrite(progress, Forward(tuple(items), 80_000), now_ms=NOW, guard_ms=GUARD)
    assert max(step.epoch for step in plan.steps if isinstance(step, BlankStep)) < 2**15 - 1


def test_leader_epoch_is_that_of_what_was_read_last_whatever_it_was(made: Any) -> None:
    """A marker behind a change of leader has a newer epoch than the data before it.

    With the older one the next fetch would look as if the source had been truncated.
    """
    (data,) = _items(made.data(100))
    plan = rewrite(made.progress(), Forward((data, Blank(103, 103)), 104, 9), now_ms=NOW, guard_ms=GUARD)
    assert plan.after.source_epoch == 9
    unknown = rewrite(made.progress(), Forward((data, Blank(103, 103)), 104), now_ms=NOW, guard_ms=GUARD)
    assert unknown.after.source_epoch == -1


def test_second_batch_of_a_producer_waits_also_where_it_begins_a_plan(made: Any) -> None:
    """The plan with the first one may still be under way: refused, it would leave its place to what comes behind."""
    first = rewrite(
        made.progress(last_timestamp_ms=None, before_timestamp_ms=None), _forward(made, 100), now_ms=NOW, guard_ms=GUARD
    )
    assert _barriers(made, replace(first.after, position=100), NOW, NOW) == [True, False]


def test_fresh_batch_behind_an_old_one_makes_the_next_plan_wait_too(made: Any) -> None:
    """What the broker knows of the producer does not depend on how batches were planned."""
    assert _barriers(made, made.progress(before_timestamp_ms=1_000), NOW, NOW) == [True, False]


def _forward(made: Any, first: int) -> Forward:
    return Forward(_items(made.data(first, timestamp=NOW)), first + 3)
