"""One simulated broker: its replicas, what it knows of the cluster, and its fate (alive, paused, dead)."""

from asyncio import TimerHandle
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.sim.broker.partition import NO_LEADER, Assignment, Replica
from tests.sim.broker.purgatory import Purgatory
from tests.sim.broker.refusals import Refused
from tests.sim.broker.replication import Replication

from twinlog.names import TopicPartition
from twinlog.wire import codes

if TYPE_CHECKING:
    from tests.sim.broker.coordinator import Coordinator
    from tests.sim.cluster import SimCluster


class SimBroker:
    """A broker. While it is paused nothing of it runs: what comes due is kept, and runs when it is resumed."""

    def __init__(self, cluster: "SimCluster", node: int) -> None:
        self.cluster = cluster
        self.node = node
        self.alive = True
        self.paused = False
        self.registered = True  # with the controller; a new life has to register anew
        self.life = 0  # counts its starts: what an earlier life had planned is never done
        self.replicas: dict[TopicPartition, Replica] = {}
        self.known: dict[TopicPartition, Assignment] = {}
        self.waiting = Purgatory(self)
        self.replication = Replication(self)
        self.coordinator: Coordinator = cluster.coordinator_for(self)
        self._paused_s = 0.0
        self._held: list[Callable[[], None]] = []
        self.on_resume: list[Callable[[], None]] = []  # connections that have requests for it

    def __repr__(self) -> str:
        fate = "paused" if self.paused else "alive" if self.alive else "dead"
        return f"<SimBroker {self.cluster.name}/{self.node} {fate}>"

    @property
    def up(self) -> bool:
        """Whether it does anything just now."""
        return self.alive and not self.paused

    @property
    def asleep_s(self) -> float:
        """How long it has been paused by now."""
        return self.cluster.now_s() - self._paused_s if self.paused else 0.0

    # Time

    def after(self, delay_s: float, work: Callable[..., None], *args: Any) -> TimerHandle:
        """Do something later, unless the broker dies before; a paused one does it when it goes on."""
        life = self.life

        def come_due() -> None:
            if life != self.life or not self.alive:
                return
            if self.paused:
                self._held.append(come_due)
            else:
                work(*args)

        return self.cluster.after(delay_s, come_due)

    def pause(self) -> None:
        """Stop, as SIGSTOP does."""
        self.paused = True
        self._paused_s = self.cluster.now_s()

    def resume(self) -> None:
        """Go on, with what has come due first and then with what has arrived."""
        if not self.alive or not self.paused:
            return
        self.paused = False
        held, self._held = self._held, []
        for work in held:
            work()
        for wake in list(self.on_resume):
            wake()

    def die(self) -> None:
        """End at once, as SIGKILL does; what is in its logs stays there."""
        self.alive = self.paused = self.registered = False
        self.life += 1
        self._held.clear()
        self.on_resume.clear()
        for replica in self.replicas.values():
            self.replication.wake(replica)  # followers that wait here hear a reset, and ask again
        self.waiting = Purgatory(self)
        self.coordinator.forget()

    def start(self, *, clean: bool) -> None:
        """Begin a new life. What is known of producers comes from a snapshot, which holds the last batch of each.

        After an unclean end the log is read first, but to write such a snapshot (`LogLoader.recoverSegment`).
        """
        self.alive = True
        for replica in self.replicas.values():
            if not clean:
                replica.log.rebuild()
            replica.log.producers.snapshot()
            replica.log.producers.expire(self.cluster.wall_ms(), self.cluster.settings.producer_expiration_ms)
            replica.assigned = replica.assigned._replace(leader=NO_LEADER)
            replica.followers.clear()
        self.known.clear()
        self.begin()

    def begin(self) -> None:
        """Start what a broker does by itself."""
        self.after(self.cluster.settings.expiration_check_s, self._expire)

    def _expire(self) -> None:
        settings = self.cluster.settings
        for replica in self.replicas.values():
            replica.log.producers.expire(self.cluster.wall_ms(), settings.producer_expiration_ms)
        self.after(settings.expiration_check_s, self._expire)

    # What the controller says

    def learn(self, where: TopicPartition, assigned: Assignment) -> None:
        """Take in a decision of the controller's, unless a later one is known."""
        known = self.known.get(where)
        if known is not None and known.version >= assigned.version:
            return
        self.known[where] = assigned
        if self.node in assigned.replicas:
            self._play(where, assigned)
        if where.topic == self.cluster.TXN_TOPIC:
            self.coordinator.learn(where.partition, assigned)

    def _play(self, where: TopicPartition, assigned: Assignment) -> None:
        replica = self.replicas.get(where)
        if replica is None:
            unassigned = Assignment(NO_LEADER, -1, (), (), -1)
            replica = self.replicas[where] = Replica(
                where, self.node, unassigned, self.cluster.topics[where.topic].rules
            )
        before, replica.assigned = replica.assigned, assigned
        if assigned.epoch != before.epoch or assigned.leader != before.leader:
            if replica.leads:
                replica.lead(self.cluster.now_s())
                self.cluster.note_lead(replica)
            replica.fetching += 1
            if not replica.leads:
                self.waiting.moved(where)
                self.replication.follow(replica)
        if replica.leads:
            self.replication.wake(replica)  # who is out of sync now has to ask again
            self.replication.advance(replica)

    def forget(self, topic: str) -> None:
        """The topic was deleted."""
        for where in [w for w in self.known if w.topic == topic]:
            del self.known[where]
            self.replicas.pop(where, None)
            self.waiting.moved(where)

    def replica(self, where: TopicPartition) -> Replica:
        """The copy here; 6 where another broker has it, 3 where nobody has."""
        found = self.replicas.get(where)
        if found is not None:
            return found
        if where in self.known:
            raise Refused(codes.NOT_LEADER_OR_FOLLOWER, f"broker {self.node} has no replica of {where}")
        raise Refused(codes.UNKNOWN_TOPIC_OR_PARTITION, f"{where} is unknown")
