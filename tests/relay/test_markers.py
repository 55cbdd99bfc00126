"""How the marker lane writes runs of blanks; the broker is a log that the test can disturb."""

import asyncio
import time
from typing import Any

import pytest

from twinlog.errors import ConnectionLost
from twinlog.names import TopicPartition
from twinlog.relay.lease import Lease
from twinlog.relay.markers import RUN_PER_REQUEST, MarkerJob, MarkerLane
from twinlog.relay.progress import Accepted, Displaced, LeaseLost, Refused, Unknown

ORDERS = TopicPartition("orders", 0)
BILLS = TopicPartition("bills", 1)


class FakeLeader:
    """Appends markers to counted logs and answers ListOffsets with their true ends."""

    def __init__(self) -> None:
        self.closed = False
        self.ends = {("orders", 0): 100, ("bills", 1): 100}
        self.code = 0
        self.lose_answers = False
        self.short_by = 0
        self.requests: list[str] = []

    def version_of(self, _request: Any, _newest: int) -> int:
        """A modern broker."""
        return 1

    def submit_frame(self, _key: int, _version: int, chunks: list[bytes], _decode: Any) -> asyncio.Future[Any]:
        """Append what the frame holds, unless told to refuse or to lose the answer."""
        if self.closed:
            raise ConnectionLost("closed")
        self.requests.append("markers")
        frame = b"".join(chunks)
        counts = {key: frame.count(key[0].encode()) for key in self.ends if key[0].encode() in frame}
        future = asyncio.get_running_loop().create_future()
        if not self.code:
            for key, count in counts.items():
                self.ends[key] += count - self.short_by
        if self.lose_answers:
            future.set_exception(ConnectionLost("reset"))
        else:
            future.set_result(dict.fromkeys(counts, self.code))
        return future

    async def request(self, message: Any, *, timeout_s: float, max_version: int) -> Any:
        """Answer ListOffsets."""
        del timeout_s, max_version
        self.requests.append("ends")
        assert message.replica_id == -2
        return _Listed(message, self.ends)

    def reset(self) -> None:
        """Close."""
        self.closed = True


class _Listed:
    """A ListOffsets response."""

    def __init__(self, message: Any, ends: dict[tuple[str, int], int]) -> None:
        self.topics = [
            _Fields(
                name=topic.name,
                partitions=[
                    _Fields(
                        partition_index=p.partition_index,
                        error_code=0,
                        offset=ends[topic.name, p.partition_index],
                        timestamp=-1,
                        leader_epoch=1,
                    )
                    for p in topic.partitions
                ],
            )
            for topic in message.topics
        ]


class _Fields:
    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


@pytest.fixture
def lease() -> Lease:
    """A lease that is good for long."""
    lease = Lease(lambda: 0.0, 1e9)
    lease.renewed(0.0)
    return lease


@pytest.fixture
async def lane() -> Any:
    """A lane over a fake leader; closed at the end."""
    leader = FakeLeader()
    lane = MarkerLane(leader, timeout_s=5.0)  # type: ignore[arg-type]
    yield lane, leader
    await lane.close()


def _job(where: TopicPartition, count: int, lease: Lease, *, probe: bool = False) -> MarkerJob:
    job = MarkerJob(where, 100, count, producer=(7, 3), lease=lease)
    job.probe = probe
    return job


async def test_one_marker_is_one_request(lane: Any, lease: Lease) -> None:
    """A blank beside transactions costs one round trip."""
    markers, leader = lane
    assert await markers.append(_job(ORDERS, 1, lease)) == Accepted()
    assert leader.requests == ["markers"]
    assert leader.ends["orders", 0] == 101


async def test_long_run_goes_in_bounded_requests_each_checked(lane: Any, lease: Lease) -> None:
    """The answers of a run are merged by the broker, so the log end is read behind each request."""
    markers, leader = lane
    count = 2 * RUN_PER_REQUEST + 1
    assert await markers.append(_job(ORDERS, count, lease)) == Accepted()
    assert leader.requests == ["markers", "ends"] * 3
    assert leader.ends["orders", 0] == 100 + count


async def test_partitions_share_a_request(lane: Any, lease: Lease) -> None:
    """A broker handles one request a connection at a time, so those that wait are merged."""
    markers, leader = lane
    jobs = [asyncio.create_task(markers.append(_job(tp, 1, lease))) for tp in (ORDERS, BILLS)]
    assert await asyncio.gather(*jobs) == [Accepted(), Accepted()]
    assert leader.requests == ["markers"]


async def test_probe_reads_the_end_before_and_after(lane: Any, lease: Lease) -> None:
    """A new owner's first marker is bracketed."""
    markers, leader = lane
    assert await markers.append(_job(ORDERS, 1, lease, probe=True)) == Accepted()
    assert leader.requests == ["ends", "markers", "ends"]


async def test_probe_finds_a_surplus_record_before_anything_is_written(lane: Any, lease: Lease) -> None:
    """Where the log has moved, no marker is written."""
    markers, leader = lane
    leader.ends["orders", 0] = 101
    assert await markers.append(_job(ORDERS, 1, lease, probe=True)) == Displaced(expected=100, found=101)
    assert leader.requests == ["ends"]


async def test_missing_marker_of_a_run_is_noticed(lane: Any, lease: Lease) -> None:
    """A refusal hidden by a later success shows in the log end; the takeover reads it."""
    markers, leader = lane
    leader.short_by = 1
    answer = await markers.append(_job(ORDERS, 5, lease))
    assert isinstance(answer, Unknown)


async def test_lost_answer_is_unknown_and_nothing_is_sent_again(lane: Any, lease: Lease) -> None:
    """A marker is never resent blindly."""
    markers, leader = lane
    leader.lose_answers = True
    answer = await markers.append(_job(ORDERS, 1, lease))
    assert isinstance(answer, Unknown)
    assert leader.requests == ["markers"]
    await asyncio.sleep(0)
    assert markers.closed


async def test_refusal_of_a_single_marker_is_told(lane: Any, lease: Lease) -> None:
    """A missing right is a refusal, not an unknown outcome."""
    markers, leader = lane
    leader.code = 31
    assert await markers.append(_job(ORDERS, 1, lease)) == Refused(31, 100)


async def test_a_missing_right_refuses_a_whole_run(lane: Any, lease: Lease) -> None:
    """It is checked before any marker is written, so nothing is unknown, however many there are."""
    markers, leader = lane
    leader.code = 31
    assert await markers.append(_job(ORDERS, 7, lease)) == Refused(31, 100)


async def test_other_errors_are_unknown(lane: Any, lease: Lease) -> None:
    """A leader that was deposed may have appended."""
    markers, leader = lane
    leader.code = 6
    assert isinstance(await markers.append(_job(ORDERS, 1, lease)), Unknown)


async def test_without_a_lease_nothing_is_sent(lane: Any) -> None:
    """The check comes directly before the request."""
    markers, leader = lane
    expired = Lease(lambda: 0.0)
    assert await markers.append(_job(ORDERS, 1, expired)) == LeaseLost(100)
    assert leader.requests == []


async def test_closing_answers_what_waits(lease: Lease) -> None:
    """Nobody is left waiting."""
    leader = FakeLeader()
    markers = MarkerLane(leader, timeout_s=5.0)  # type: ignore[arg-type]
    waiting = asyncio.create_task(markers.append(_job(ORDERS, 1, lease)))
    await markers.close()
    await asyncio.sleep(0)
    await asyncio.wait_for(waiting, 1)
    assert isinstance(waiting.result(), (Unknown, Accepted))


class _Broken:
    closed = False

    def version_of(self, *_: Any) -> int:
        return 1

    def submit_frame(self, *_: Any) -> Any:
        raise ValueError("a mistake of ours")

    def reset(self) -> None:
        self.closed = True


@pytest.mark.timeout(10)
async def test_mistake_of_ours_leaves_no_partition_waiting_for_ever() -> None:
    """All partitions of the round that failed are answered."""
    lease = Lease(time.monotonic, 60.0)
    lease.renewed(time.monotonic())
    connection: Any = _Broken()
    lane = MarkerLane(connection, timeout_s=1.0)
    jobs = [MarkerJob(TopicPartition(name, 0), 0, 1, producer=(1, 1), lease=lease) for name in ("a", "b")]
    _, waiting = await asyncio.wait([asyncio.create_task(lane.append(job)) for job in jobs], timeout=1.0)
    for task in waiting:
        task.cancel()
    assert not waiting
