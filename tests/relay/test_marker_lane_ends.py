"""A marker lane that ends answers everyone, whatever ended it."""

import asyncio
import time
from typing import Any

import pytest

from twinlog.names import TopicPartition
from twinlog.relay.lease import Lease
from twinlog.relay.markers import MarkerJob, MarkerLane


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
