"""How followers follow, and how the high watermark follows them.

A follower asks with its log's end, and by that tells it; so the high watermark comes to an offset only when each
follower in sync has asked once more after it got the data, and it comes to the followers one question later still.
Rules: `Partition`, `ReplicaFetcherThread` of Apache Kafka.
"""

from typing import TYPE_CHECKING

from tests.sim.broker.partition import NO_LEADER, Follower, Replica

from twinlog.batch.view import Batch
from twinlog.names import TopicPartition

if TYPE_CHECKING:
    from tests.sim.broker.node import SimBroker


class Replication:
    """One broker's part in replication, as a leader and as a follower."""

    def __init__(self, broker: "SimBroker") -> None:
        self._broker = broker
        self._cluster = broker.cluster
        self._watched: set[TopicPartition] = set()

    # As a follower

    def follow(self, replica: Replica) -> None:
        """Begin to fetch from the leader that was assigned."""
        if replica.assigned.leader != NO_LEADER and not replica.leads:
            self._soon(replica, replica.fetching)

    def _soon(self, replica: Replica, turn: int) -> None:
        self._broker.after(self._cluster.draw(self._cluster.settings.following), self._round, replica, turn)

    def _later(self, replica: Replica, turn: int) -> None:
        self._broker.after(self._cluster.settings.follower_retry_s, self._round, replica, turn)

    def _round(self, replica: Replica, turn: int) -> None:
        """One fetch: the question, its answer, and what follows from that."""
        if turn != replica.fetching or replica.leads or replica.assigned.leader == NO_LEADER:
            return
        leader = self._cluster.brokers[replica.assigned.leader]
        if not leader.up or self._cluster.stalled(replica.where, replica.node):
            self._later(replica, turn)
            return
        theirs = leader.replicas.get(replica.where)
        if theirs is None or not theirs.leads or theirs.assigned.epoch != replica.assigned.epoch:
            self._later(replica, turn)
            return
        if self._diverged(replica, theirs):
            self._soon(replica, turn)
            return
        leader.replication.note_fetch(theirs, replica)
        follower = theirs.followers[replica.node]
        if _has_news(theirs, replica):
            self._answer(leader, theirs, replica, turn)
        elif replica.node in theirs.assigned.isr:
            follower.parked = lambda: self._answer(leader, theirs, replica, turn)
        else:  # the leader may take it in at the next fetch
            self._later(replica, turn)

    def _answer(self, leader: "SimBroker", theirs: Replica, replica: Replica, turn: int) -> None:
        """The leader's answer goes on its way: it arrives even if the leader dies meanwhile, or the follower stops."""
        if not leader.alive or self._cluster.stalled(replica.where, replica.node):
            self._later(replica, turn)
            return
        if self._broker.asleep_s > self._cluster.settings.fetch_wait_s:  # it was answered with nothing, long ago
            self._soon(replica, turn)
            return
        batches = theirs.next_batches(replica.log.end)
        ends = (theirs.log.start, theirs.log.high_watermark)
        following, handling = self._cluster.settings.following, self._cluster.settings.handling

        def leave() -> None:
            if leader.alive and leader.life == life:
                self._broker.after(self._cluster.draw(following), self._take, replica, turn, batches, ends)
            else:
                self._later(replica, turn)

        life = leader.life
        self._cluster.after(self._cluster.draw(handling), leave)

    def _take(self, replica: Replica, turn: int, batches: list[Batch], ends: tuple[int, int]) -> None:
        """What the leader has sent, unless another one leads by now."""
        if turn != replica.fetching:
            return
        log = replica.log
        start, high_watermark = ends
        log.append_as_follower(batches)
        log.raise_high_watermark(high_watermark)
        if start > log.start:
            log.delete_before(min(start, log.high_watermark))
        self._round(replica, turn)

    def _diverged(self, replica: Replica, theirs: Replica) -> bool:
        """Take back what the leader does not have (KIP-101, and KIP-595's truncation on fetch)."""
        log = replica.log
        if log.end < theirs.log.start:
            log.restart_at(theirs.log.start)
            return True
        last = log.epochs.latest
        epoch, end = theirs.log.epochs.end_of(last, theirs.log.end)
        if last < 0 or end < 0 or (epoch == last and end >= log.end):
            return False
        ours = log.epochs.end_of(epoch, log.end).start if epoch >= 0 else log.start
        target = min(end, ours if ours >= 0 else end)
        if target >= log.end:
            return False
        log.truncate(target)
        return True

    # As the leader

    def note_fetch(self, replica: Replica, asking: Replica) -> None:
        """A follower asks, and by that tells where its log ends."""
        follower = replica.followers[asking.node]
        self._note(replica, follower, asking.log.end, self._cluster.now_s())
        self.advance(replica)
        self._readmit(replica, asking.node, follower)

    def _note(self, replica: Replica, follower: Follower, end: int, now_s: float) -> None:
        if end >= replica.log.end:
            follower.caught_up_s = now_s
        elif end >= follower.leader_end_then:
            follower.caught_up_s = max(follower.caught_up_s, follower.last_fetch_s)
        follower.end = end
        follower.last_fetch_s, follower.leader_end_then = now_s, replica.log.end

    def _readmit(self, replica: Replica, node: int, follower: Follower) -> None:
        caught_up = follower.end >= max(replica.log.high_watermark, replica.epoch_start)
        if node not in replica.assigned.isr and caught_up:
            isr = tuple(sorted((*replica.assigned.isr, node)))
            self._cluster.controller.alter_isr(replica.where, replica.assigned, isr)

    def advance(self, replica: Replica) -> None:
        """Let the high watermark follow, and tell whoever waits."""
        hold = self._cluster.settings.hold_high_watermark_below_min_isr
        if replica.log.raise_high_watermark(replica.replicated_to(hold=hold)):
            self._cluster.note_high_watermark(replica)
            self.wake(replica)
        self._broker.waiting.changed(replica.where)

    def changed(self, replica: Replica) -> None:
        """The log has grown, or begins later: followers hear of it, and what waits is looked at."""
        self.wake(replica)
        self.advance(replica)

    def wake(self, replica: Replica) -> None:
        """Answer the followers whose questions wait for something new."""
        for follower in replica.followers.values():
            if follower.parked is not None:
                wake, follower.parked = follower.parked, None
                wake()
        if len(replica.assigned.isr) > 1 and replica.where not in self._watched:
            self._watched.add(replica.where)
            self._broker.after(self._cluster.settings.replica_lag_max_s / 2, self._look_for_laggards, replica)

    def _look_for_laggards(self, replica: Replica) -> None:
        self._watched.discard(replica.where)
        if not replica.leads:
            return
        now_s, most_s = self._cluster.now_s(), self._cluster.settings.replica_lag_max_s
        slow = {
            node
            for node, f in replica.followers.items()
            if node in replica.assigned.isr and f.end < replica.log.end and now_s - f.caught_up_s > most_s
        }
        if slow:
            isr = tuple(node for node in replica.assigned.isr if node not in slow)
            self._cluster.controller.alter_isr(replica.where, replica.assigned, isr)
        if any(f.end < replica.log.end for f in replica.followers.values()):
            self._watched.add(replica.where)
            self._broker.after(most_s / 2, self._look_for_laggards, replica)


def _has_news(theirs: Replica, replica: Replica) -> bool:
    """Whether the leader has something to say that its follower does not know."""
    ours, log = replica.log, theirs.log
    return log.end > ours.end or log.high_watermark > ours.high_watermark or log.start > ours.start
