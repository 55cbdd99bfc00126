"""What an owner's streaming of one partition is bound to."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

from twinlog.names import TopicPartition
from twinlog.relay.lanes import DataLine
from twinlog.relay.lease import Lease
from twinlog.relay.progress import Progress
from twinlog.relay.window import Window
from twinlog.wire.metadata import Leader


class Route(NamedTuple):
    """How one stream's writes reach its leader: its line into data lane `data`, and marker lane `markers`."""

    node: int
    line: DataLine
    data: int
    markers: int


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
    max_message_bytes: int
    before_long_run: Callable[[int], Awaitable[None]]
    took_spare: Callable[[Progress], Awaitable[None]]
    route: Route

    @property
    def window(self) -> Window | None:
        """What is sent with `acks=1` and not confirmed yet.

        None where the partition has one replica, and an acknowledgement says all there is to say.
        """
        return self.route.line.window
