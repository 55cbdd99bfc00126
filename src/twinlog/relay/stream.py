"""What an owner's streaming of one partition is bound to."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from twinlog.names import TopicPartition
from twinlog.relay.bucket import BURST_S
from twinlog.relay.counts import Counts
from twinlog.relay.lanes import DataLine
from twinlog.relay.lease import Lease
from twinlog.relay.progress import Progress, Send
from twinlog.relay.window import Window
from twinlog.wire.metadata import Leader


class Route(NamedTuple):
    """How one stream's writes reach its leader: its line into data lane `data`, and marker lane `markers`."""

    node: int
    line: DataLine
    data: int
    markers: int


class Throttle(Protocol):
    """A rate that some partitions' data is held to."""

    def rate(self, where: TopicPartition) -> int | None:
        """The rate that covers a partition just now, in bytes a second; None for none."""

    async def passed(self, where: TopicPartition, size: int, stopping: asyncio.Event) -> None:
        """Return once so many bytes may be sent; at once where `stopping` is set."""


class Gate(NamedTuple):
    """What a stream's data waits at before it is sent."""

    throttle: Throttle
    where: TopicPartition
    stopping: asyncio.Event

    def parts(self, sends: tuple[Send, ...]) -> tuple[tuple[Send, ...], ...]:
        """What may be sent at once: batch by batch where a rate is to be kept."""
        return (sends,) if self.throttle.rate(self.where) is None else tuple((send,) for send in sends)

    def joins(self, most_bytes: int) -> int:
        """Up to which size batches may be joined: a large one would be a long turn for all who wait for theirs."""
        rate = self.throttle.rate(self.where)
        return most_bytes if rate is None else min(most_bytes, int(rate * BURST_S))

    async def passed(self, sends: tuple[Send, ...]) -> None:
        """Return once they may be sent."""
        await self.throttle.passed(self.where, sum(send.batch.size for send in sends), self.stopping)


@dataclass(frozen=True, slots=True)
class Stream:
    """The leader that was found at takeover, the lease, and what the destination topic is like.

    `before_long_run` records in the state that the partition's own transactional id may have something open;
    `took_spare` that another producer id may stand at the log's end from now on.
    """

    where: TopicPartition
    leader: Leader
    lease: Lease
    fill_id: str
    compacted: bool
    max_batch_bytes: int
    before_long_run: Callable[[int], Awaitable[None]]
    took_spare: Callable[[Progress], Awaitable[None]]
    route: Route
    counts: Counts = field(default_factory=Counts)
    gate: Gate | None = None

    @property
    def window(self) -> Window | None:
        """What is sent with `acks=1` and not confirmed yet.

        None where the partition has one replica, and an acknowledgement says all there is to say.
        """
        return self.route.line.window
