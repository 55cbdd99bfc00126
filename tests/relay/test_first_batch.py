"""A broker that does not know the producer accepts any sequence: nothing may be under way behind what it refuses."""

from typing import Any

from twinlog.batch.scan import Blank, batches
from twinlog.batch.view import Batch
from twinlog.relay.progress import BlankStep, DataStep, Forward
from twinlog.relay.rewrite import rewrite

NOW, GUARD = 1_100_000, 500_000


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
