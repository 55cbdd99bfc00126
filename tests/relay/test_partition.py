"""How one partition's relay ends, and what it says of what may still be under way."""

import asyncio
import time
from typing import Any
from uuid import UUID

import pytest

from twinlog.errors import LogsDiffer, PartitionFailed, RetryLater, SourceBehind
from twinlog.names import TopicPartition
from twinlog.relay import partition as partition_module
from twinlog.relay.decide import TRUNCATED, Terms
from twinlog.relay.lanes import DataLine
from twinlog.relay.lease import Lease
from twinlog.relay.partition import Claim, PartitionRelay
from twinlog.relay.prefix import Filled
from twinlog.relay.progress import Progress
from twinlog.relay.stream import Route
from twinlog.relay.takeover import Known
from twinlog.relay.topic_ids import TopicIds
from twinlog.relay.window import Window
from twinlog.wire.metadata import Leader

WHERE = TopicPartition("orders", 3)


class _Side:
    cluster: Any = None
    lookups: Any = None


@pytest.mark.timeout(10)
async def test_stop_during_the_wait_after_trouble_ends_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop, pause, release and SIGTERM may come between two takeovers: that is no failure of the partition."""

    async def leaderless(*_: Any, **__: Any) -> Any:
        raise RetryLater("the destination has no leader now")

    monkeypatch.setattr(PartitionRelay, "_take_over", leaderless)
    lease = Lease(time.monotonic, 60.0)
    lease.renewed(time.monotonic())
    side: Any = _Side()
    claim = Claim(WHERE, UUID(int=1), UUID(int=2), "fill", Known(), True, False, 1 << 20, Terms(), 0)
    ledger: Any = None
    relay = PartitionRelay(claim, source=side, destination=side, lease=lease, ledger=ledger)
    running = asyncio.create_task(relay.run())
    await asyncio.sleep(0.05)
    relay.stop()
    await running
    assert running.exception() is None


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    ("source_end", "checked", "waited", "surely"),
    [(-1, -1, True, False), (100, 100, True, False), (95, 95, False, False), (95, 96, False, True)],
)
async def test_source_that_stays_behind_the_destination_fails(
    monkeypatch: pytest.MonkeyPatch, *, source_end: int, checked: int, waited: bool, surely: bool
) -> None:
    """A new leader may not show for a moment what it has; what lasts, or what it has not at all, is for good.

    It is the source that has lost something only where both sides were the same before.
    """
    now = 100.0

    async def ends(*_: Any) -> int:
        return source_end

    async def behind(*_: Any, **__: Any) -> Any:
        nonlocal now
        now += 8.0
        raise SourceBehind(WHERE, 90, 100)

    async def at_once(*_: Any) -> None:
        return None

    monkeypatch.setattr(PartitionRelay, "_take_over", behind)
    monkeypatch.setattr(PartitionRelay, "_back_off", at_once)
    monkeypatch.setattr(PartitionRelay, "_source_end", ends)
    lease = Lease(time.monotonic, 60.0)
    lease.renewed(time.monotonic())
    side: Any = _Side()
    known = Known(checked_offset=checked)
    claim = Claim(WHERE, UUID(int=1), UUID(int=2), "fill", known, True, False, 1 << 20, Terms(), 0)
    ledger: Any = None
    relay = PartitionRelay(claim, source=side, destination=side, lease=lease, ledger=ledger, clock=lambda: now)
    with pytest.raises(PartitionFailed, match="truncated") as raised:
        await relay.run()
    assert (now > 130) is waited
    assert (TRUNCATED in str(raised.value)) is surely


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    ("offset", "rewritten_at", "surely", "source"),
    [(90, 99, True, 1), (90, -1, False, 1), (90, 100, False, 1), (120, 120, False, 1), (90, 99, False, 0)],
)
async def test_a_difference_is_the_sources_only_below_what_was_equal_before(
    monkeypatch: pytest.MonkeyPatch, *, offset: int, rewritten_at: int, surely: bool, source: int
) -> None:
    """Above that anybody may have written, and what only one side lacks may be the cleaner's work.

    Nor is it told of a source without topic ids, whose topic may be another one by now.
    """

    async def nothing(*_: Any, **__: Any) -> Any:
        return None

    async def differ(*_: Any, **__: Any) -> Any:
        raise LogsDiffer("they differ", offset=offset, rewritten_at=rewritten_at)

    monkeypatch.setattr(TopicIds, "check", nothing)
    monkeypatch.setattr(partition_module, "take_over", differ)
    lease = Lease(time.monotonic, 60.0)
    lease.renewed(time.monotonic())
    side: Any = _Side()
    known = Known(checked_offset=100)
    claim = Claim(WHERE, UUID(int=source), UUID(int=2), "fill", known, True, False, 1 << 20, Terms(), 0)
    ledger: Any = None
    with pytest.raises(PartitionFailed) as raised:
        await PartitionRelay(claim, source=side, destination=side, lease=lease, ledger=ledger).run()
    assert (TRUNCATED in str(raised.value)) is surely
    assert not surely or f"at offset {rewritten_at}" in str(raised.value)


@pytest.mark.timeout(10)
async def test_lease_lost_at_a_takeover_leaves_what_was_confirmed_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a leader took with it was never confirmed; else the next takeover would miss it and fail for good."""

    async def nothing(*_: Any, **__: Any) -> Any:
        return None

    async def taken_over(*_: Any, **__: Any) -> Any:
        return Progress(WHERE, 100, 7, 0, 0, 0), None

    monkeypatch.setattr(TopicIds, "check", nothing)
    monkeypatch.setattr(partition_module, "take_over", taken_over)
    lease = Lease(time.monotonic, 60.0)
    side: Any = _Side()
    ledger: Any = None
    known = Known(producer_id=7, producer_epoch=0, checked_offset=90)
    claim = Claim(WHERE, UUID(int=1), UUID(int=2), "fill", known, True, False, 1 << 20, Terms(), 0)
    relay = PartitionRelay(claim, source=side, destination=side, lease=lease, ledger=ledger)
    window = Window(WHERE, Leader(1, 5), 100)
    window.sent(110, 1_000)
    relay._route = Route(1, DataLine(WHERE, lease, window), 0, 0)
    relay._progress = Progress(WHERE, 110, 7, 0, 0, 0)
    with pytest.raises(RetryLater, match="lease ran out"):
        await relay._take_over(settle=True)
    relay._remember()
    assert relay.confirmed == 100
    assert relay._known.checked_offset == 100


@pytest.mark.parametrize("closed_off", [True, False])
async def test_what_a_next_owner_has_to_know_of_filler_is_stored_before(
    monkeypatch: pytest.MonkeyPatch, *, closed_off: bool
) -> None:
    """Where it leads to; and behind it that nothing is open, where a transaction of ours has closed all that was."""
    told: list[Any] = []

    class Remembers:
        async def fills(self, first: int) -> None:
            told.append(("fills", first))

        async def closed_off(self, progress: Progress) -> None:
            told.append(("closed off", progress.position))

    async def filling(*_: Any, hidden: bool) -> Filled:
        told.append(("hidden", hidden))
        return Filled(Progress(WHERE, 50, 7, 0, 0, 0), closed_off)

    monkeypatch.setattr(partition_module, "fill_prefix", filling)
    lease = Lease(time.monotonic, 60.0)
    lease.renewed(time.monotonic())
    side: Any = _Side()
    ledger: Any = Remembers()
    known = Known(producer_id=7, long_runs=True)
    claim = Claim(WHERE, UUID(int=1), UUID(int=2), "fill", known, True, False, 1 << 20, Terms(may_blank=False), 0)
    relay = PartitionRelay(claim, source=side, destination=side, lease=lease, ledger=ledger)
    unused: Any = None
    progress = await relay._fill(unused, Progress(WHERE, 0, 7, 0, 0, 0), 50)
    assert progress.position == 50
    assert told == [("fills", 50), ("hidden", False), *([("closed off", 50)] if closed_off else [])]
    assert relay._known.first_offset == 50
    assert relay._known.long_runs is not closed_off
