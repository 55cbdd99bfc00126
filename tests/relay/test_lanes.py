"""How the data lane sends, and what it makes of each answer; the broker is played by the test."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from twinlog.batch.edit import Outgoing
from twinlog.errors import ConnectionLost
from twinlog.names import TopicPartition
from twinlog.relay.lanes import MAX_IN_FLIGHT, REQUEST_BYTES, DataLane, DataLine, answered
from twinlog.relay.lease import Lease
from twinlog.relay.progress import Accepted, Answer, Displaced, LeaseLost, Refused, Send, Unknown
from twinlog.relay.window import Window
from twinlog.wire.metadata import Leader
from twinlog.wire.produce import ProduceAnswer, Produced

ORDERS = TopicPartition("orders", 0)
BILLS = TopicPartition("bills", 1)


class FakeConnection:
    """Takes frames and lets the test answer them one by one, in any order."""

    def __init__(self) -> None:
        self.closed = False
        self.peer = "destination broker b:1"
        self.sent: list[tuple[list[bytes], asyncio.Future[Any]]] = []

    def version_of(self, _request: Any, _newest: int) -> int:
        """A modern broker."""
        return 9

    def submit_frame(self, _key: int, _version: int, chunks: list[Any], _decode: Any) -> asyncio.Future[Any]:
        """Keep the frame; refuse where closed."""
        if self.closed:
            raise ConnectionLost("closed")
        future = asyncio.get_running_loop().create_future()
        self.sent.append(([bytes(chunk) for chunk in chunks], future))
        return future

    def reset(self) -> None:
        """Fail whatever is under way."""
        self.closed = True
        for _, future in self.sent:
            if not future.done():
                future.set_exception(ConnectionLost("reset"))

    def answer(self, number: int, *, throttle_ms: int = 0, **codes_or_offsets: Produced) -> None:
        """Answer request `number`; keys are topic names."""
        partitions = {"orders": 0, "bills": 1}
        told = {(t, partitions[t]): p for t, p in codes_or_offsets.items()}
        self.sent[number][1].set_result(ProduceAnswer(told, throttle_ms))


@pytest.fixture
def lease() -> Lease:
    """A lease that is good for long."""
    lease = Lease(lambda: 0.0, 1e9)
    lease.renewed(0.0)
    return lease


@pytest.fixture
async def lane() -> tuple[DataLane, FakeConnection]:
    """A lane over a fake connection."""
    connection = FakeConnection()
    return DataLane(connection, timeout_s=30.0), connection  # type: ignore[arg-type]


def _sends(first: int, batches: int, *, size: int = 10, barrier: bool = False) -> tuple[Send, ...]:
    body = memoryview(bytes(size))
    return tuple(Send(Outgoing(b"h" * 61, body, first + n, 1, 0), barrier) for n in range(batches))


async def _append(lane: DataLane, line: DataLine, sends: tuple[Send, ...]) -> Answer:
    """As the destination does: give the line its batches, and wait."""
    return await answered(line, lane.begin(line, sends))


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def _ok(offset: int) -> Produced:
    return Produced(0, offset, "")


async def test_accepted_when_every_batch_stands_at_its_offset(lane: Any, lease: Lease) -> None:
    """One request a batch, since a request may carry one batch a partition."""
    data, broker = lane
    job = asyncio.create_task(_append(data, DataLine(ORDERS, lease), _sends(10, 2)))
    await _turns()
    assert len(broker.sent) == 2
    broker.answer(0, orders=_ok(10))
    broker.answer(1, orders=_ok(11))
    assert await job == Accepted()


async def test_partitions_that_are_ready_together_share_a_request(lane: Any, lease: Lease) -> None:
    """Two partitions, one frame with both topics."""
    data, broker = lane
    jobs = [asyncio.create_task(_append(data, DataLine(tp, lease), _sends(10, 1))) for tp in (ORDERS, BILLS)]
    await _turns()
    assert len(broker.sent) == 1
    frame = b"".join(broker.sent[0][0])
    assert b"orders" in frame
    assert b"bills" in frame
    broker.answer(0, orders=_ok(10), bills=_ok(10))
    assert await asyncio.gather(*jobs) == [Accepted(), Accepted()]


async def test_never_more_than_five_under_way(lane: Any, lease: Lease) -> None:
    """A broker remembers a producer's last five batches; a sixth could not be judged."""
    data, broker = lane
    job = asyncio.create_task(_append(data, DataLine(ORDERS, lease), _sends(0, 20)))
    await _turns()
    assert len(broker.sent) == MAX_IN_FLIGHT
    for n in range(20):
        broker.answer(n, orders=_ok(n))
        await _turns()
        assert sum(not f.done() for _, f in broker.sent) <= MAX_IN_FLIGHT
    assert await job == Accepted()


async def test_barrier_waits_for_all_before_it(lane: Any, lease: Lease) -> None:
    """Old data goes one by one."""
    data, broker = lane
    job = asyncio.create_task(_append(data, DataLine(ORDERS, lease), _sends(0, 3, barrier=True)))
    for n in range(3):
        await _turns()
        assert len(broker.sent) == n + 1
        broker.answer(n, orders=_ok(n))
    assert await job == Accepted()


async def test_requests_are_bounded_in_bytes(lane: Any, lease: Lease) -> None:
    """Two large batches of two partitions do not share a request."""
    data, broker = lane
    jobs = [
        asyncio.create_task(_append(data, DataLine(tp, lease), _sends(0, 1, size=REQUEST_BYTES)))
        for tp in (ORDERS, BILLS)
    ]
    await _turns()
    assert len(broker.sent) == 1
    broker.answer(0, orders=_ok(0))
    await _turns()
    assert len(broker.sent) == 2
    broker.answer(1, bills=_ok(0))
    await asyncio.gather(*jobs)


async def test_displaced_ends_it_and_sends_nothing_more(lane: Any, lease: Lease) -> None:
    """An acknowledgement at another offset means a foreign writer."""
    data, broker = lane
    job = asyncio.create_task(_append(data, DataLine(ORDERS, lease), _sends(0, 20)))
    await _turns()
    broker.answer(0, orders=_ok(7))
    for n in range(1, MAX_IN_FLIGHT):
        broker.answer(n, orders=_ok(7 + n))
    assert await job == Displaced(expected=0, found=7)
    assert len(broker.sent) == MAX_IN_FLIGHT


async def test_displaced_behind_a_refused_request_is_seen(lane: Any, lease: Lease) -> None:
    """Every acknowledgement is compared, also behind a failed one."""
    data, broker = lane
    job = asyncio.create_task(_append(data, DataLine(ORDERS, lease), _sends(0, 2)))
    await _turns()
    broker.answer(0, orders=Produced(19, -1, ""))
    broker.answer(1, orders=_ok(0))
    assert await job == Displaced(expected=1, found=0)


async def test_first_refusal_is_the_one_told(lane: Any, lease: Lease) -> None:
    """What is refused behind it for its sequence is only the consequence."""
    data, broker = lane
    job = asyncio.create_task(_append(data, DataLine(ORDERS, lease), _sends(0, 2)))
    await _turns()
    broker.answer(0, orders=Produced(10, -1, "too large"))
    broker.answer(1, orders=Produced(45, -1, ""))
    assert await job == Refused(10, 0, 71, "too large")


@pytest.mark.parametrize("code", [6, 7, 20, 1, 56, 500])
async def test_codes_that_may_hide_an_append_are_unknown(lane: Any, lease: Lease, code: int) -> None:
    """A deposed leader, a timeout, too few replicas after the append, and whatever nobody knows."""
    data, broker = lane
    job = asyncio.create_task(_append(data, DataLine(ORDERS, lease), _sends(0, 1)))
    await _turns()
    broker.answer(0, orders=Produced(code, -1, ""))
    answer = await job
    assert isinstance(answer, Unknown)
    assert answer.first == 0


async def test_lost_connection_is_unknown_for_all_under_way(lane: Any, lease: Lease) -> None:
    """Nothing is sent again from here."""
    data, broker = lane
    job = asyncio.create_task(_append(data, DataLine(ORDERS, lease), _sends(0, 9)))
    await _turns()
    broker.reset()
    answer = await job
    assert isinstance(answer, Unknown)
    assert len(broker.sent) == MAX_IN_FLIGHT
    assert data.closed


async def test_lease_is_checked_before_each_request() -> None:
    """What was sent under the lease is answered; what remains stays here."""
    now = 0.0
    lease = Lease(lambda: now, 3.0)
    lease.renewed(0.0)
    broker = FakeConnection()
    data = DataLane(broker, timeout_s=30.0)  # type: ignore[arg-type]
    job = asyncio.create_task(_append(data, DataLine(ORDERS, lease), _sends(0, 9)))
    await _turns()
    now = 10.0
    for n in range(MAX_IN_FLIGHT):
        broker.answer(n, orders=_ok(n))
    assert await job == LeaseLost(MAX_IN_FLIGHT)
    assert len(broker.sent) == MAX_IN_FLIGHT


async def test_cancelled_job_sends_nothing_more(lane: Any, lease: Lease) -> None:
    """What is under way cannot be called back, but nothing follows it."""
    data, broker = lane
    job = asyncio.create_task(_append(data, DataLine(ORDERS, lease), _sends(0, 9)))
    await _turns()
    job.cancel()
    await asyncio.gather(job, return_exceptions=True)
    for n in range(MAX_IN_FLIGHT):
        broker.answer(n, orders=_ok(n))
    await _turns()
    assert len(broker.sent) == MAX_IN_FLIGHT


async def test_plans_follow_each_other_without_a_pause(lane: Any, lease: Lease) -> None:
    """Each is answered when its own batches are, and those of the second leave before the first is answered."""
    data, broker = lane
    line = DataLine(ORDERS, lease)
    first = asyncio.create_task(_append(data, line, _sends(0, 2)))
    second = asyncio.create_task(_append(data, line, _sends(2, 2)))
    await _turns()
    assert len(broker.sent) == 4
    broker.answer(0, orders=_ok(0))
    broker.answer(1, orders=_ok(1))
    assert await first == Accepted()
    assert not second.done()
    broker.answer(2, orders=_ok(2))
    broker.answer(3, orders=_ok(3))
    assert await second == Accepted()


async def test_failure_of_one_plan_is_that_of_all_behind_it(lane: Any, lease: Lease) -> None:
    """Told once everything is answered, the gravest first; and nothing is sent on that line any more."""
    data, broker = lane
    line = DataLine(ORDERS, lease)
    first = asyncio.create_task(_append(data, line, _sends(0, 1)))
    second = asyncio.create_task(_append(data, line, _sends(1, 9)))
    await _turns()
    broker.answer(0, orders=Produced(19, -1, ""))
    await _turns()
    assert not first.done()
    for n in range(1, MAX_IN_FLIGHT):
        broker.answer(n, orders=_ok(n + 6))
    assert await first == await second == Displaced(expected=1, found=7)
    assert await _append(data, line, _sends(10, 1)) == Displaced(expected=1, found=7)
    assert len(broker.sent) == MAX_IN_FLIGHT


async def test_line_with_something_under_way_goes_on_over_no_other_connection(lane: Any, lease: Lease) -> None:
    """Parallel connections would reorder a producer's batches."""
    data, broker = lane
    line = DataLine(ORDERS, lease)
    first = asyncio.create_task(_append(data, line, _sends(0, 1)))
    await _turns()
    other = FakeConnection()
    second = asyncio.create_task(_append(DataLane(other, timeout_s=30.0), line, _sends(1, 1)))  # type: ignore[arg-type]
    await _turns()
    assert other.sent == []
    broker.answer(0, orders=_ok(0))
    assert isinstance(await first, Unknown)
    assert isinstance(await second, Unknown)


async def test_line_at_rest_may_change_its_lane(lane: Any, lease: Lease) -> None:
    """A connection that was closed for idleness is replaced."""
    data, broker = lane
    line = DataLine(ORDERS, lease)
    first = asyncio.create_task(_append(data, line, _sends(0, 1)))
    await _turns()
    broker.answer(0, orders=_ok(0))
    assert await first == Accepted()
    other = FakeConnection()
    second = asyncio.create_task(_append(DataLane(other, timeout_s=30.0), line, _sends(1, 1)))  # type: ignore[arg-type]
    await _turns()
    other.answer(0, orders=_ok(1))
    assert await second == Accepted()


async def test_missing_partition_in_the_answer_is_unknown(lane: Any, lease: Lease) -> None:
    """A broker that leaves a partition out has said nothing about it."""
    data, broker = lane
    job = asyncio.create_task(_append(data, DataLine(ORDERS, lease), _sends(0, 1)))
    await _turns()
    broker.answer(0)
    assert isinstance(await job, Unknown)


async def test_random_schedules_keep_order_and_bounds(lane: Any, lease: Lease, make_random: Callable[[], Any]) -> None:
    """Whatever the order of answers of two partitions, each partition's batches leave in order, each once."""
    data, broker = lane
    chance = make_random()
    jobs = [asyncio.create_task(_append(data, DataLine(tp, lease), _sends(0, 40))) for tp in (ORDERS, BILLS)]
    answered = 0
    while not all(job.done() for job in jobs):
        await asyncio.sleep(0)
        for _ in range(chance.randint(0, 3)):
            if answered < len(broker.sent):
                frame = b"".join(broker.sent[answered][0])
                offsets = {t: _ok(broker_next(broker, t, answered)) for t in ("orders", "bills") if t.encode() in frame}
                broker.answer(answered, **offsets)
                answered += 1
    assert [job.result() for job in jobs] == [Accepted(), Accepted()]


def _window(limit_bytes: int = 10_000) -> Window:
    return Window(ORDERS, Leader(1, 5), 0, limit_bytes=limit_bytes)


def _acks(broker: FakeConnection) -> list[int]:
    """What each request asks for: behind the transactional id, which is null."""
    return [int.from_bytes(frame[0][1:3], "big", signed=True) for frame, _ in broker.sent]


async def test_one_replica_means_that_an_acknowledgement_says_all(lane: Any, lease: Lease) -> None:
    """Without a window everything goes with acks=all."""
    data, broker = lane
    job = asyncio.create_task(_append(data, DataLine(ORDERS, lease), _sends(0, 1)))
    await _turns()
    assert _acks(broker) == [-1]
    broker.answer(0, orders=_ok(0))
    assert await job == Accepted()


async def test_replicated_data_is_accepted_before_it_is_confirmed(lane: Any, lease: Lease) -> None:
    """It goes with acks=1; what is confirmed waits for the high watermark."""
    data, broker = lane
    window = _window()
    job = asyncio.create_task(_append(data, DataLine(ORDERS, lease, window), _sends(0, 2)))
    await _turns()
    assert _acks(broker) == [1, 1]
    broker.answer(0, orders=_ok(0))
    broker.answer(1, orders=_ok(1))
    assert await job == Accepted()
    assert (window.confirmed, window.empty) == (0, False)


async def test_batch_before_blanks_is_confirmed_by_its_own_answer(lane: Any, lease: Lease) -> None:
    """And with it all that went before."""
    data, broker = lane
    window = _window()
    first, last = _sends(0, 2)
    job = asyncio.create_task(_append(data, DataLine(ORDERS, lease, window), (first, last._replace(acks_all=True))))
    await _turns()
    assert _acks(broker) == [1, -1]
    broker.answer(0, orders=_ok(0))
    broker.answer(1, orders=_ok(1))
    assert await job == Accepted()
    assert (window.confirmed, window.empty, window.by_mark) == (2, True, False)


async def test_barrier_waits_for_confirmation_not_for_acknowledgement(lane: Any, lease: Lease) -> None:
    """What only one replica has may vanish, and the batch behind it would be appended in its place."""
    data, broker = lane
    window = _window()
    first, last = _sends(0, 2)
    job = asyncio.create_task(
        _append(data, DataLine(ORDERS, lease, window), (first, last._replace(barrier=True, acks_all=True)))
    )
    await _turns()
    broker.answer(0, orders=_ok(0))
    await _turns()
    assert len(broker.sent) == 1
    assert window.urgent
    window.passed(1, by_mark=True)
    await _turns()
    assert _acks(broker) == [1, -1]
    broker.answer(1, orders=_ok(1))
    assert await job == Accepted()


async def test_no_more_is_unconfirmed_than_the_window_holds(lane: Any, lease: Lease) -> None:
    """The rest leaves as the high watermark moves."""
    data, broker = lane
    window = _window(limit_bytes=3 * 71)
    job = asyncio.create_task(_append(data, DataLine(ORDERS, lease, window), _sends(0, 9)))
    for confirmed in range(9):
        await _turns()
        assert len(broker.sent) == min(9, confirmed + 3)
        broker.answer(confirmed, orders=_ok(confirmed))
        assert window.unconfirmed_bytes <= 3 * 71
        window.passed(confirmed + 1, by_mark=True)
    assert await job == Accepted()


async def test_a_lost_leader_ends_the_job_once_all_is_answered(lane: Any, lease: Lease) -> None:
    """Nothing more is sent; the log has to be read."""
    data, broker = lane
    window = _window(limit_bytes=2 * 71)
    job = asyncio.create_task(_append(data, DataLine(ORDERS, lease, window), _sends(0, 5)))
    await _turns()
    window.lose("broker 1 leads no more")
    await _turns()
    assert not job.done()
    broker.answer(0, orders=_ok(0))
    broker.answer(1, orders=_ok(1))
    assert await job == Unknown(2, "broker 1 leads no more")
    assert len(broker.sent) == 2


async def test_different_acks_share_no_request(lane: Any, lease: Lease) -> None:
    """One request has one `acks`, so a partition that needs all replicas does not slow the others' batches down."""
    data, broker = lane
    window = _window()
    jobs = [
        asyncio.create_task(_append(data, DataLine(ORDERS, lease, window), _sends(0, 1))),
        asyncio.create_task(_append(data, DataLine(BILLS, lease), _sends(0, 1))),
    ]
    await _turns()
    assert _acks(broker) == [1, -1]
    broker.answer(0, orders=_ok(0))
    broker.answer(1, bills=_ok(0))
    assert await asyncio.gather(*jobs) == [Accepted(), Accepted()]


async def test_nothing_goes_behind_a_request_that_waits_for_replicas(lane: Any, lease: Lease) -> None:
    """A broker would carry it out late, perhaps when this worker is long dead and another has taken over."""
    data, broker = lane
    sure = _sends(0, 1)[0]._replace(acks_all=True)
    waits = asyncio.create_task(_append(data, DataLine(ORDERS, lease, _window()), (sure,)))
    await _turns()
    other = asyncio.create_task(_append(data, DataLine(BILLS, lease), _sends(0, 3)))
    await _turns()
    assert _acks(broker) == [-1]
    broker.answer(0, orders=_ok(0))
    assert await waits == Accepted()
    await _turns()
    assert len(broker.sent) == 4
    for number in range(3):
        broker.answer(1 + number, bills=_ok(number))
    assert await other == Accepted()


def broker_next(broker: FakeConnection, topic: str, before: int) -> int:
    """How many batches of `topic` came in earlier requests."""
    return sum(topic.encode() in b"".join(frame) for frame, _ in broker.sent[:before])


@pytest.fixture
def make_random(request: pytest.FixtureRequest) -> Callable[[], Any]:
    """A random source whose seed is the test's name."""
    import random  # noqa: PLC0415

    return lambda: random.Random(request.node.name)
