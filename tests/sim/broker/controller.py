"""The controller: who leads what, in which epoch, and which replicas are in sync."""

from typing import TYPE_CHECKING

from tests.sim.broker.partition import NO_LEADER, Assignment

from twinlog.names import TopicPartition

if TYPE_CHECKING:
    from tests.sim.cluster import SimCluster


class Controller:
    """Decides at once; brokers learn of it a little later, each at its own time."""

    def __init__(self, cluster: "SimCluster") -> None:
        self._cluster = cluster
        self.assigned: dict[TopicPartition, Assignment] = {}
        self.fenced: set[int] = set()

    def create(self, where: TopicPartition, replicas: tuple[int, ...]) -> Assignment:
        """Place a new partition."""
        leader = next((node for node in replicas if node not in self.fenced), NO_LEADER)
        isr = tuple(node for node in replicas if node not in self.fenced)
        made = self.assigned[where] = Assignment(leader, 0, isr, replicas, 0)
        return made

    def remove(self, topic: str) -> None:
        """Forget a deleted topic."""
        for where in [w for w in self.assigned if w.topic == topic]:
            del self.assigned[where]

    def alter_isr(self, where: TopicPartition, seen: Assignment, isr: tuple[int, ...]) -> None:
        """A leader asks for another set of replicas in sync; refused where it does not know the latest decision."""
        now = self.assigned.get(where)
        if now is not None and now.version == seen.version and not self.fenced.intersection(isr):
            self._decide(where, self._in_sync(where, now, isr))

    def fence(self, node: int) -> None:
        """A broker is silent for too long: others lead what it led, and nothing waits for it any more."""
        self.fenced.add(node)
        for where, now in list(self.assigned.items()):
            isr = tuple(n for n in now.isr if n != node) or now.isr
            changed = self._in_sync(where, now, isr)
            if now.leader == node:
                self._elect(where, changed)
            elif isr != now.isr:
                self._decide(where, changed)

    def unfence(self, node: int) -> None:
        """A broker is back: it leads again what nobody else could."""
        self.fenced.discard(node)
        for where, now in list(self.assigned.items()):
            if now.leader == NO_LEADER and node in (*now.isr, *now.elr):
                self._elect(where, now)

    def registered_anew(self, node: int) -> None:
        """A broker begins a new life after an unclean end: where it was not in sync it may not lead."""
        for where, now in list(self.assigned.items()):
            if node in now.elr:
                self._decide(where, now._replace(elr=tuple(n for n in now.elr if n != node)))

    def move(self, where: TopicPartition, node: int) -> bool:
        """Give a partition another leader, if that one is in sync; says whether it did."""
        now = self.assigned[where]
        if now.leader == node or node not in now.isr or node in self.fenced:
            return False
        self._decide(where, now._replace(leader=node, epoch=now.epoch + 1))
        return True

    def hand_over(self, node: int) -> None:
        """A broker ends in order: others lead what they can, before it goes."""
        for where, now in list(self.assigned.items()):
            others = [n for n in now.replicas if n in now.isr and n != node and n not in self.fenced]
            if now.leader == node and others:
                changed = self._in_sync(where, now, tuple(n for n in now.isr if n != node))
                self._decide(where, changed._replace(leader=others[0], epoch=now.epoch + 1))

    def _elect(self, where: TopicPartition, now: Assignment) -> None:
        able = [node for node in now.replicas if node in now.isr and node not in self.fenced]
        eligible = [node for node in now.replicas if node in now.elr and node not in self.fenced]
        if not able and eligible:
            now = self._in_sync(where, now, (eligible[0],))
        leader = next(iter((*able, *eligible)), NO_LEADER)
        self._decide(where, now._replace(leader=leader, epoch=now.epoch + 1))

    def _in_sync(self, where: TopicPartition, now: Assignment, isr: tuple[int, ...]) -> Assignment:
        """The partition with other replicas in sync, and who may lead besides them."""
        least = min(self._cluster.topics[where.topic].rules.min_isr, len(now.replicas))
        held = self._cluster.settings.hold_high_watermark_below_min_isr and len(isr) < least
        former = (*now.elr, *now.isr) if held else ()
        return now._replace(isr=isr, elr=tuple(n for n in now.replicas if n in former and n not in isr))

    def _decide(self, where: TopicPartition, decision: Assignment) -> None:
        decided = self.assigned[where] = decision._replace(version=decision.version + 1)
        self._cluster.publish(where, decided)
