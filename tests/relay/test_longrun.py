"""What a long run of blanks does when its worker is frozen, or the destination has no leader for a while."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from twinlog.errors import RetryLater
from twinlog.names import TopicPartition
from twinlog.relay import longrun, lookups
from twinlog.relay.lanes import DataLine
from twinlog.relay.lease import Lease
from twinlog.relay.longrun import LONG_RUN, LongRun
from twinlog.relay.lookups import Lookups
from twinlog.relay.progress import Accepted, BlankStep, Displaced
from twinlog.relay.settle import settled_end
from twinlog.relay.stream import Route, Stream
from twinlog.wire.metadata import Leader
from twinlog.wire.ops import Producer
from twinlog.wire.ops_log import ListedOffset

WHERE = TopicPartition("orders", 3)


def _run(before_long_run: Any, now: list[float]) -> LongRun:
    lease = Lease(lambda: now[0], 3.0)
    lease.renewed(0.0)
    stream = Stream(
        WHERE,
        Leader(1, 1),
        lease,
        "fill",
        False,
        1 << 20,
        before_long_run,
        before_long_run,
        Route(1, DataLine(WHERE, lease), 0, 0),
    )
    asked: Any = SimpleNamespace(cluster=None)
    markers: Any = None
    return LongRun(asked, stream, BlankStep(100, LONG_RUN, 7, 3, probe=False), write_markers=markers)


async def test_worker_frozen_before_its_transaction_leaves_nothing_that_aborts_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once the lease is gone no partition is added to a transaction: its abort would be a marker in another's log."""
    added: list[Any] = []

    async def granted(*_: Any, **__: Any) -> Producer:
        return Producer(9, 1)

    async def add(*arguments: Any, **_: Any) -> None:
        added.append(arguments)

    monkeypatch.setattr(longrun, "init_producer_id", granted)
    monkeypatch.setattr(longrun, "add_partitions", add)
    now = [0.0]

    async def frozen(_epoch: int) -> None:
        now[0] = 30.0

    answer = await _run(frozen, now).write()
    assert not isinstance(answer, Accepted | Displaced)
    assert not added


@pytest.mark.timeout(10)
async def test_log_end_that_nobody_tells_is_no_log_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the partition has no leader its end is unknown, not -1: nothing may be judged by it."""

    async def leaderless(*_: Any, **__: Any) -> dict[TopicPartition, ListedOffset]:
        return {WHERE: ListedOffset(-1, error=5)}

    monkeypatch.setattr(lookups, "list_offsets", leaderless)
    cluster: Any = None
    with pytest.raises(RetryLater):
        await settled_end(Lookups(cluster), WHERE, time.monotonic, still_s=0.5, within_s=3.0)
