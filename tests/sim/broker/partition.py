"""One partition as one broker sees it: as its leader, as a follower, or as neither."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.sim.broker.log import PartitionLog
from tests.sim.broker.refusals import Refused
from tests.sim.broker.rules import TopicRules

from twinlog.batch.view import Batch
from twinlog.names import TopicPartition
from twinlog.wire import codes

NO_LEADER = -1


class Assignment(NamedTuple):
    """What the controller has decided of a partition; `version` counts its decisions.

    `elr` are replicas that may lead though they are not in sync: they left while too few were left for the high
    watermark to go on, so they have all below it (KIP-966).
    """

    leader: int
    epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    version: int
    elr: tuple[int, ...] = ()


@dataclass(slots=True)
class Follower:
    """What a leader knows of a follower; `end` is -1 until it has fetched."""

    end: int = -1
    caught_up_s: float = 0.0
    last_fetch_s: float = 0.0
    leader_end_then: int = 0
    parked: Callable[[], None] | None = None


@dataclass(slots=True)
class Replica:
    """A broker's copy of a partition, and the part that it believes to play."""

    where: TopicPartition
    node: int
    assigned: Assignment
    rules: TopicRules
    log: PartitionLog = field(default_factory=PartitionLog)
    followers: dict[int, Follower] = field(default_factory=dict)
    epoch_start: int = 0
    fetching: int = 0  # counts the rounds begun, so that an older one ends

    @property
    def leads(self) -> bool:
        """Whether this broker believes that it leads."""
        return self.assigned.leader == self.node

    def check(self, epoch: int = -1, *, leader_only: bool = True) -> None:
        """Refuse what is meant for another leader or epoch (`Partition.localLogWithEpochOrThrow`)."""
        if epoch >= 0 and epoch < self.assigned.epoch:
            raise Refused(codes.FENCED_LEADER_EPOCH, f"the epoch here is {self.assigned.epoch}")
        if epoch >= 0 and epoch > self.assigned.epoch:
            raise Refused(codes.UNKNOWN_LEADER_EPOCH, f"the epoch here is {self.assigned.epoch}")
        if leader_only and not self.leads:
            raise Refused(codes.NOT_LEADER_OR_FOLLOWER, f"broker {self.node} does not lead {self.where}")

    def lead(self, now_s: float) -> None:
        """Begin to lead in the epoch that was assigned."""
        self.epoch_start = self.log.end
        self.log.epochs.assign(self.assigned.epoch, self.log.end)
        self.followers = {
            node: Follower(caught_up_s=now_s, last_fetch_s=now_s)
            for node in self.assigned.replicas
            if node != self.node
        }

    def replicated_to(self, *, hold: bool) -> int:
        """Up to where every replica in sync has the log, or the high watermark while too few are in sync."""
        if hold and len(self.assigned.isr) < min(self.rules.min_isr, len(self.assigned.replicas)):
            return self.log.high_watermark
        ends = [f.end for node, f in self.followers.items() if node in self.assigned.isr]
        return min([self.log.end, *ends])

    def stable_for(self, *, read_committed: bool) -> int:
        """Up to where a client may read."""
        return self.log.last_stable_offset if read_committed else self.log.high_watermark

    def next_batches(self, offset: int) -> list[Batch]:
        """What a follower that has all below `offset` is given."""
        return self.log.from_offset(offset, self.log.end, 1 << 20)
