"""What a cluster last said of its brokers, topics and leaders. Pure: responses in, values out.

A broker that lags behind must not undo what another one has told: of two leaders of a partition the one with the higher
epoch is kept, as long as the topic is the same by its id (as in Kafka's client, `Metadata.updateLatestMetadata`).
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from uuid import UUID

from kafka.protocol.metadata import MetadataResponse

from twinlog.errors import TwinlogError
from twinlog.names import TopicPartition

NO_ID = UUID(int=0)
NO_LEADER = -1
NO_EPOCH = -1
# So often in a row a lower epoch has to be told before it is believed: brokers lag behind for a moment, but those of a
# cluster that was restored from a backup begin at lower epochs for good. A wrong hint does no harm, it is refused.
STALE_ANSWERS = 5


class Broker(NamedTuple):
    """A broker and the address that it advertises."""

    node: int
    host: str
    port: int
    rack: str | None = None


class Leader(NamedTuple):
    """The broker that leads a partition, and in which epoch (-1 where the broker is too old to say)."""

    node: int
    epoch: int


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition: `leader` is -1 when it has none; `error` is Kafka's code, 0 when there is none."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    error: int


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """One topic: `id` is zero where the cluster has no topic ids; `error` is Kafka's code, 0 when there is none."""

    name: str
    id: UUID
    error: int
    internal: bool
    partitions: dict[int, PartitionInfo] = field(default_factory=dict)


def told_id(told: UUID | None) -> UUID:
    """Return a topic's id; zero where the response's version has none, which the library decodes as None."""
    return NO_ID if told is None else told


def topic_infos(response: MetadataResponse) -> dict[str, TopicInfo]:
    """Return the topics of a response by name."""
    return {
        topic.name: TopicInfo(
            name=topic.name,
            id=told_id(topic.topic_id),
            error=topic.error_code,
            internal=topic.is_internal,
            partitions={
                part.partition_index: PartitionInfo(
                    leader=part.leader_id,
                    leader_epoch=part.leader_epoch,
                    replicas=tuple(part.replica_nodes),
                    isr=tuple(part.isr_nodes),
                    error=part.error_code,
                )
                for part in topic.partitions
            },
        )
        for topic in response.topics
        if topic.name is not None
    }


class Metadata:
    """The newest known brokers, controller and topics of one cluster."""

    def __init__(self) -> None:
        self.cluster_id = ""
        self.controller = NO_LEADER
        self.brokers: dict[int, Broker] = {}
        self._topics: dict[str, TopicInfo] = {}
        self._distrusted: set[str] = set()
        self._stale: Counter[tuple[str, int]] = Counter()
        # Equal answers are one object while they are remembered (`messages.decoder`).
        self._last: tuple[MetadataResponse | None, dict[str, TopicInfo]] = (None, {})

    def absorb(self, response: MetadataResponse, asked: Collection[str] | None) -> dict[str, TopicInfo]:
        """Take in a response to a question about the topics `asked` (None: all), and return those topics.

        Raises TwinlogError when the response comes from another cluster than before.
        """
        self._check_cluster(response.cluster_id)
        if response.brokers:
            self.brokers = {b.node_id: Broker(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
        self.controller = response.controller_id
        if self._last[0] is not response:
            self._last = (response, topic_infos(response))
        found = {name: self._merged(topic) for name, topic in self._last[1].items()}
        for name in list(self._topics) if asked is None else asked:
            self._topics.pop(name, None)
            self._distrusted.discard(name)
        self._topics.update({name: topic for name, topic in found.items() if topic.error == 0})
        return found

    def topic(self, name: str) -> TopicInfo | None:
        """Return a topic as last told."""
        return self._topics.get(name)

    def topic_id(self, name: str) -> UUID:
        """Return the topic's id, zero when none is known."""
        topic = self._topics.get(name)
        return topic.id if topic is not None else NO_ID

    def leader(self, tp: TopicPartition) -> Leader | None:
        """Return the partition's leader as last told, None when none is known or the topic is distrusted."""
        topic = self._topics.get(tp.topic) if tp.topic not in self._distrusted else None
        part = topic.partitions.get(tp.partition) if topic is not None else None
        if part is None or part.leader == NO_LEADER:
            return None
        return Leader(part.leader, part.leader_epoch)

    def note_leader(self, tp: TopicPartition, leader: Leader) -> None:
        """Take a leader from another response (a Fetch or Produce answer names it) when its epoch is higher."""
        topic = self._topics.get(tp.topic)
        part = topic.partitions.get(tp.partition) if topic is not None else None
        if topic is None or part is None or leader.epoch <= part.leader_epoch:
            return
        changed = replace(part, leader=leader.node, leader_epoch=leader.epoch)
        self._topics[tp.topic] = replace(topic, partitions={**topic.partitions, tp.partition: changed})

    def note_broker(self, broker: Broker) -> None:
        """Take a broker from a coordinator's address, when metadata has not named it yet."""
        self.brokers.setdefault(broker.node, broker)

    def distrust(self, topic: str) -> None:
        """Take a topic's leaders for unknown until the cluster tells them anew; their epochs are kept to compare."""
        self._distrusted.add(topic)

    def _check_cluster(self, cluster_id: str | None) -> None:
        if not cluster_id:
            return
        if self.cluster_id and self.cluster_id != cluster_id:
            raise TwinlogError(
                f"The brokers now belong to cluster {cluster_id}, not to {self.cluster_id} as before: an address "
                f"leads to another cluster. Nothing was asked of it. Correct the addresses, then restart."
            )
        self.cluster_id = cluster_id

    def _merged(self, told: TopicInfo) -> TopicInfo:
        known = self._topics.get(told.name)
        if known is told or known is None or known.id != told.id or told.id == NO_ID:
            return told  # without ids a topic created anew, whose epochs begin again, looks like the old one
        partitions = {
            n: self._newer((told.name, n), known.partitions.get(n), part) for n, part in told.partitions.items()
        }
        return told if partitions == told.partitions else replace(told, partitions=partitions)

    def _newer(self, where: tuple[str, int], known: PartitionInfo | None, told: PartitionInfo) -> PartitionInfo:
        if known is None or not NO_EPOCH < told.leader_epoch < known.leader_epoch:
            self._stale.pop(where, None)
            return told
        self._stale[where] += 1
        if self._stale[where] < STALE_ANSWERS:
            return known
        del self._stale[where]
        return told
