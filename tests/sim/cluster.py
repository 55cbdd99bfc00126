"""A simulated Kafka cluster: its brokers, controller and topics, and what a schedule may do to them.

No time passes in it but the loop's, and no chance is in it but that of `rng`. Whatever it plans belongs to no process,
so that freezing a client freezes nothing of the cluster.
"""

import asyncio
import contextvars
import time
from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from tests.sim.broker import apis
from tests.sim.broker.appending import append
from tests.sim.broker.asks import Ask, Message
from tests.sim.broker.controller import Controller
from tests.sim.broker.coordinator import Coordinator
from tests.sim.broker.log import PartitionLog
from tests.sim.broker.node import SimBroker
from tests.sim.broker.partition import NO_LEADER, Assignment, Replica
from tests.sim.broker.producers import Origin
from tests.sim.broker.refusals import Refused
from tests.sim.broker.rules import DEFAULTS, TopicRules
from tests.sim.broker.settings import Settings, Span
from tests.sim.broker.transactions import Txn
from tests.sim.clocks import WALL_S
from tests.sim.loop import SimLoop

from twinlog.batch.view import Batch
from twinlog.names import TopicPartition
from twinlog.wire import codes

if TYPE_CHECKING:
    from tests.sim.connection import SimNetwork

FIRST_PORT: Final = 9_091
TXN_SLOTS: Final = 3


class CreatedTopic(NamedTuple):
    """What a client is told of a topic that it has created."""

    id: UUID
    partitions: int
    replication: int


class Topic:
    """One topic: its id, its configs, and what follows from those."""

    def __init__(self, name: str, topic_id: UUID, configs: Mapping[str, str]) -> None:
        self.name = name
        self.id = topic_id
        self.configs = dict(configs)
        self.rules = TopicRules.of(self.configs)


class SimCluster:
    """`nodes` brokers with the ids 1, 2 and so on; with a `network`, clients reach them at `bootstrap`."""

    TXN_TOPIC: Final = "__transaction_state"

    def __init__(
        self,
        name: str,
        *,
        nodes: int = 1,
        loop: asyncio.AbstractEventLoop,
        rng: Random,
        network: "SimNetwork | None" = None,
        settings: Settings | None = None,
    ) -> None:
        self.name = name
        self.loop = loop
        self.rng = rng
        self.settings = settings or Settings()
        self.cluster_id = f"sim-{name}"
        self.topics: dict[str, Topic] = {}
        self.controller = Controller(self)
        self.on_append: Callable[[TopicPartition, Batch], None] | None = None
        self.on_truncate: Callable[[TopicPartition], None] | None = None
        self.on_high_watermark: Callable[[TopicPartition, int], None] | None = None
        self._context = contextvars.Context()
        self._stalled: set[TopicPartition] = set()
        self._next_producer = rng.randrange(1_000, 9_000)
        self._txns: dict[int, dict[str, Txn]] = {slot: {} for slot in range(TXN_SLOTS)}
        self.nodes = list(range(1, nodes + 1))
        self.brokers = {node: SimBroker(self, node) for node in self.nodes}
        for broker in self.brokers.values():
            broker.begin()
        self.create_topic(self.TXN_TOPIC, TXN_SLOTS, replicas=min(3, nodes))
        self.network = network
        if network is not None:
            network.serve(self)

    def __repr__(self) -> str:
        return f"<SimCluster {self.name}, up: {self.up}>"

    # Time and chance

    def now_s(self) -> float:
        """The loop's clock."""
        return self.loop.time()

    def wall_ms(self) -> int:
        """Milliseconds since 1970, as brokers read them."""
        if isinstance(self.loop, SimLoop):
            return int((WALL_S + self.loop.time()) * 1000)
        return int(time.time() * 1000)

    def after(self, delay_s: float, work: Callable[..., None], *args: Any) -> asyncio.TimerHandle:
        """Do something later, as nobody's."""
        return self.loop.call_later(delay_s, work, *args, context=self._context)

    def draw(self, span: Span) -> float:
        """A duration out of a span."""
        return self.rng.uniform(span.least_s, span.most_s)

    # Addresses

    @property
    def bootstrap(self) -> str:
        """Where clients begin."""
        return ",".join(f"{self.host(node)}:{self.port(node)}" for node in self.nodes)

    def host(self, node: int) -> str:
        """A broker's name."""
        return f"{self.name}-{node}.sim"

    def port(self, node: int) -> int:
        """A broker's port."""
        return FIRST_PORT + node

    # Faults

    @property
    def up(self) -> list[int]:
        """The brokers that run."""
        return [node for node, broker in self.brokers.items() if broker.up]

    def pause(self, node: int) -> None:
        """Stop a broker as SIGSTOP does; after the session's timeout others lead in its place."""
        broker = self.brokers[node]
        if broker.up:
            broker.pause()
            self._watch(broker)

    def resume(self, node: int) -> None:
        """Let a paused broker go on: first as what it believes to be, until it learns better."""
        broker = self.brokers[node]
        if broker.alive and broker.paused:
            broker.resume()
            self._greet(broker)

    def kill(self, node: int) -> None:
        """End a broker as SIGKILL does: its connections break, its logs stay."""
        broker = self.brokers[node]
        if broker.alive:
            broker.die()
            if self.network is not None:
                self.network.broker_died(self, node)
            self._watch(broker)

    def restart(self, node: int, *, clean: bool = False) -> None:
        """Start a dead broker again."""
        broker = self.brokers[node]
        if not broker.alive:
            broker.start(clean=clean)
            self._greet(broker)

    def shut_down(self, node: int) -> None:
        """End a broker in order: others lead before it goes."""
        self.controller.hand_over(node)
        self.after(self.settings.learning.most_s, self.kill, node)
        self.after(self.settings.learning.most_s, self.controller.fence, node)

    def move_leader(self, where: TopicPartition, node: int) -> bool:
        """Let another replica lead, if it is in sync; says whether it does."""
        return self.controller.move(where, node)

    def lose_leader(self, where: TopicPartition) -> int:
        """Kill the leader and let another replica in sync lead at once, without what it has not fetched yet."""
        node = self.leader_of(where)
        if node != NO_LEADER:
            self.kill(node)
            self.controller.fence(node)
        self.resume_replication(where)
        return node

    def stall_replication(self, where: TopicPartition) -> None:
        """Let no follower fetch this partition."""
        self._stalled.add(where)

    def resume_replication(self, where: TopicPartition) -> None:
        """Let followers go on."""
        self._stalled.discard(where)

    def stalled(self, where: TopicPartition, node: int) -> bool:
        """Whether a follower is kept from fetching."""
        del node
        return where in self._stalled

    def _watch(self, broker: SimBroker) -> None:
        """Fence a broker that is silent for the session's timeout."""
        life = broker.life

        def look() -> None:
            if broker.life == life and not (broker.up and broker.registered):
                self.controller.fence(broker.node)

        self.after(self.settings.session_timeout_s, look)

    def _greet(self, broker: SimBroker) -> None:
        """A broker is back: after a moment it knows what was decided, and counts again.

        A new life is not let in before its former one is fenced (`ClusterControlManager.registerBroker`).
        """
        life = broker.life

        def meet() -> None:
            if broker.life != life or not broker.up:
                return
            if not broker.registered and broker.node not in self.controller.fenced:
                self.after(self.settings.follower_retry_s, meet)
                return
            if not broker.registered:
                broker.registered = True
                self.controller.registered_anew(broker.node)
            self.controller.unfence(broker.node)
            for where, assigned in self.controller.assigned.items():
                broker.learn(where, assigned)

        self.after(self.draw(self.settings.catching_up), meet)

    # Topics

    def create_topic(
        self, name: str, partitions: int = 1, *, replicas: int = 0, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic that every living broker knows at once."""
        for where, assigned in self._place(name, partitions, replicas, configs or {}).items():
            for broker in self.brokers.values():
                if broker.alive:
                    broker.learn(where, assigned)

    def ask_to_create(
        self, name: str, partitions: int, replication: int, configs: Mapping[str, str], *, validate_only: bool
    ) -> CreatedTopic:
        """Create a topic as a client asks; brokers learn of it one after another."""
        if name in self.topics:
            raise Refused(codes.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        partitions = self.settings.default_partitions if partitions < 0 else partitions
        replication = self.settings.default_replication if replication < 0 else replication
        if partitions < 1:
            raise Refused(codes.INVALID_PARTITIONS, "at least one partition is needed")
        if not 1 <= replication <= len(self.nodes) - len(self.controller.fenced):
            raise Refused(codes.INVALID_REPLICATION_FACTOR, f"{replication} replicas need as many brokers")
        if validate_only:
            return CreatedTopic(UUID(int=0), partitions, replication)
        for where, assigned in self._place(name, partitions, replication, configs).items():
            self.publish(where, assigned)
        return CreatedTopic(self.topics[name].id, partitions, replication)

    def _place(
        self, name: str, partitions: int, replicas: int, configs: Mapping[str, str]
    ) -> dict[TopicPartition, Assignment]:
        own = {"min.insync.replicas": str(self.settings.min_isr)} if self.settings.min_isr > 1 else {}
        self.topics[name] = Topic(name, UUID(int=self.rng.getrandbits(128), version=4), {**own, **configs})
        count = replicas or self.settings.default_replication
        placed = {}
        for number in range(partitions):
            turned = [self.nodes[(number + at) % len(self.nodes)] for at in range(count)]
            where = TopicPartition(name, number)
            placed[where] = self.controller.create(where, tuple(turned))
        return placed

    def delete_topic(self, name: str) -> None:
        """Delete a topic, everywhere at once."""
        del self.topics[name]
        self.controller.remove(name)
        for broker in self.brokers.values():
            broker.forget(name)

    def alter_configs(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Set configs, or drop those that are None."""
        topic = self.topics[name]
        topic.configs |= {key: value for key, value in changes.items() if value is not None}
        for key in [key for key, value in changes.items() if value is None]:
            topic.configs.pop(key, None)
        topic.rules = TopicRules.of(topic.configs)
        for broker in self.brokers.values():
            for where, replica in broker.replicas.items():
                if where.topic == name:
                    replica.rules = topic.rules

    def default_configs(self) -> Mapping[str, str]:
        """What a topic has that does not say otherwise."""
        return DEFAULTS

    def broker_configs(self) -> Mapping[str, str]:
        """What brokers say of themselves."""
        settings = self.settings
        return {
            "producer.id.expiration.ms": str(settings.producer_expiration_ms),
            "transactional.id.expiration.ms": "604800000",
            "transaction.max.timeout.ms": str(settings.max_transaction_timeout_ms),
            "message.max.bytes": DEFAULTS["max.message.bytes"],
            "default.replication.factor": str(settings.default_replication),
            "min.insync.replicas": str(settings.min_isr),
            "broker.session.timeout.ms": str(int(settings.session_timeout_s * 1000)),
        }

    def topic_id(self, name: str) -> UUID:
        """A topic's id, zero where there is no such topic."""
        topic = self.topics.get(name)
        return topic.id if topic is not None else UUID(int=0)

    def topic_name(self, topic_id: UUID) -> str:
        """The topic with an id, empty where there is none."""
        return next((topic.name for topic in self.topics.values() if topic.id == topic_id), "")

    def known_topics(self, broker: SimBroker) -> list[str]:
        """The topics that a broker knows."""
        return list(dict.fromkeys(where.topic for where in broker.known))

    def publish(self, where: TopicPartition, assigned: Assignment) -> None:
        """Let each broker that runs learn what the controller has decided; the others learn it when they are back."""

        def tell(broker: SimBroker) -> None:
            if broker.up and broker.registered:
                broker.learn(where, assigned)

        for broker in self.brokers.values():
            self.after(self.draw(self.settings.learning), tell, broker)

    # Partitions

    def leader_of(self, where: TopicPartition) -> int:
        """Who leads by the controller's decision, -1 for nobody."""
        return self.controller.assigned[where].leader

    def leader_log(self, where: TopicPartition) -> PartitionLog:
        """The log of who leads, or of who would."""
        assigned = self.controller.assigned[where]
        node = assigned.leader if assigned.leader != NO_LEADER else assigned.isr[0]
        return self.brokers[node].replicas[where].log

    def log(self, where: TopicPartition, node: int) -> PartitionLog:
        """One replica's log."""
        return self.brokers[node].replicas[where].log

    def low_watermark(self, where: TopicPartition) -> int:
        """Where the log begins on the slowest living replica."""
        alive = [node for node in self.controller.assigned[where].replicas if self.brokers[node].alive]
        return min((self.log(where, node).start for node in alive), default=-1)

    def append(self, where: TopicPartition, batch: Batch) -> bool:
        """Append at the leader without a client, whatever its records say; False where nobody leads."""
        node = self.leader_of(where)
        if node == NO_LEADER or not self.brokers[node].up:
            return False
        result = append(self.brokers[node], where, batch, origin=Origin.REPLICATION, acks=1)
        return result.code == codes.NONE

    def note_append(self, replica: Replica, batch: Batch) -> None:
        """A leader has appended; one that is no leader any more does not count."""
        assigned = self.controller.assigned.get(replica.where)
        if self.on_append is not None and assigned is not None and assigned.epoch == replica.assigned.epoch:
            self.on_append(replica.where, batch)

    def note_high_watermark(self, replica: Replica) -> None:
        """A leader's high watermark has risen."""
        if self.on_high_watermark is not None:
            self.on_high_watermark(replica.where, replica.log.high_watermark)

    def note_lead(self, replica: Replica) -> None:
        """A broker begins to lead; its log may be shorter than its predecessor's."""
        if self.on_truncate is not None and replica.assigned.epoch > 0:
            self.on_truncate(replica.where)

    # Transactions

    def coordinator_for(self, broker: SimBroker) -> Coordinator:
        """A broker's coordinator."""
        return Coordinator(broker)

    def slot_of(self, transactional_id: str) -> int:
        """The partition of the transaction topic that an id belongs to."""
        return sum(transactional_id.encode()) % TXN_SLOTS

    def stored(self, slot: int) -> Mapping[str, Txn]:
        """What the transaction topic holds."""
        return self._txns[slot]

    def store(self, node: int, slot: int, epoch: int, name: str, txn: Txn) -> bool:
        """Write to the transaction topic; refused where another coordinator has taken over, or too few are in sync."""
        assigned = self.controller.assigned[TopicPartition(self.TXN_TOPIC, slot)]
        if (assigned.leader, assigned.epoch) != (node, epoch):
            return False
        self._txns[slot][name] = txn
        return True

    def new_producer_id(self) -> int:
        """A producer id that nobody had before."""
        self._next_producer += 1
        return self._next_producer

    # Requests

    def api_keys(self) -> list[int]:
        """The requests that are answered."""
        return list(apis.HANDLERS)

    def submit(self, node: int, ask: Ask) -> None:
        """Let a broker handle a request; a paused or dead one must not be asked."""
        apis.handle(self.brokers[node], ask)

    async def handle(self, node: int, api_key: int, message: Message, version: int) -> Message:
        """Ask a broker without a connection, and wait for its response."""
        answer: asyncio.Future[Message] = self.loop.create_future()
        self.submit(node, Ask(api_key, version, message, answer.set_result))
        return await answer
