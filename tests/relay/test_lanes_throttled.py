"""What the data lane does while its broker throttles; the broker is played by the test."""

import asyncio
from collections.abc import Callable

import pytest
from tests.relay.test_lanes import ORDERS, FakeConnection, _append, _ok, _sends, _turns

from twinlog.relay import lanes
from twinlog.relay.lanes import REQUEST_BYTES, DataLane, DataLine, lane_quota
from twinlog.relay.lease import Lease
from twinlog.relay.progress import Accepted, Unknown


@pytest.fixture
def lease() -> Lease:
    """A lease that is good for long."""
    lease = Lease(lambda: 0.0, 1e9)
    lease.renewed(0.0)
    return lease


async def _until(what: Callable[[], bool]) -> None:
    for _ in range(250):
        await asyncio.sleep(0.0 if what() else 0.02)
    assert what()


async def test_throttled_lane_sends_nothing_until_the_time_is_over(lease: Lease) -> None:
    """The broker reads nothing of the connection meanwhile; the batch behind it goes out right after."""
    broker = FakeConnection()
    data = DataLane(broker, timeout_s=30.0)  # type: ignore[arg-type]  # as much of a connection as it uses
    job = asyncio.create_task(_append(data, DataLine(ORDERS, lease), _sends(0, 2, size=REQUEST_BYTES)))
    await _turns()
    broker.answer(0, throttle_ms=1_000, orders=_ok(0))
    await asyncio.sleep(0.2)
    assert len(broker.sent) == 1
    await _until(lambda: len(broker.sent) == 2)
    broker.answer(1, orders=_ok(1))
    assert await job == Accepted()


async def test_a_long_pause_is_told_once(lease: Lease, caplog: pytest.LogCaptureFixture) -> None:
    """With the broker's name, and not for each answer."""
    broker = FakeConnection()
    data = DataLane(broker, timeout_s=30.0)  # type: ignore[arg-type]  # as much of a connection as it uses
    job = asyncio.create_task(_append(data, DataLine(ORDERS, lease), _sends(0, 2)))
    await _turns()
    for number in range(2):
        broker.answer(number, throttle_ms=2_000, orders=_ok(number))
    assert await job == Accepted()
    assert [record.message for record in caplog.records] == [f"{broker.peer} throttles the writing of data for 2.0 s"]


async def test_answer_that_a_throttle_puts_off_is_waited_for(lease: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was under way when the broker throttled is answered that much later; only then the time runs out."""
    monkeypatch.setattr(lanes, "ANSWER_SLACK_S", 0.0)
    broker = FakeConnection()
    data = DataLane(broker, timeout_s=0.2)  # type: ignore[arg-type]  # as much of a connection as it uses
    job = asyncio.create_task(_append(data, DataLine(ORDERS, lease), _sends(0, 2)))
    await _turns()
    broker.answer(0, throttle_ms=1_500, orders=_ok(0))
    await asyncio.sleep(0.5)
    assert not broker.closed
    await _until(lambda: broker.closed)
    assert isinstance(await job, Unknown)


async def test_lane_under_a_quota_has_little_under_way(lease: Lease) -> None:
    """Small requests, and not several large ones at once, so that a pause stays short."""
    broker, quota = FakeConnection(), lane_quota()
    data = DataLane(broker, timeout_s=30.0, quota=quota)  # type: ignore[arg-type]  # as above
    quota.answered(10_000, asyncio.get_running_loop().time() - 60.0, size=0)
    job = asyncio.create_task(_append(data, DataLine(ORDERS, lease), _sends(0, 5, size=quota.most_bytes // 2)))
    for number, allowed in enumerate((2, 3, 4, 5, 5)):
        await _turns()
        assert len(broker.sent) == allowed
        broker.answer(number, throttle_ms=1, orders=_ok(number))
        await asyncio.sleep(0.005)
    assert await job == Accepted()
