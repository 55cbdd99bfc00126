"""Too few replicas in sync on the destination: of which partitions, and whether a transaction waits for them.

While a partition has fewer replicas in sync than its min.insync.replicas, its leader refuses records and markers alike
(`Partition.appendRecordsToLeader`). A transaction with that partition in it can then neither be committed nor aborted.
"""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from twinlog.errors import TwinlogError
from twinlog.names import TopicPartition
from twinlog.wire.cluster import Cluster
from twinlog.wire.metadata import NO_LEADER, PartitionInfo, TopicInfo
from twinlog.wire.ops import describe_configs
from twinlog.wire.ops_transactions import describe_transaction

LOOK_WITHIN_S: Final = 5.0
SHOWN: Final = 5
CONFIG: Final = "min.insync.replicas"
TRANSACTIONS: Final = "__transaction_state"


@dataclass(frozen=True, slots=True)
class Replicas:
    """A partition's replicas by broker; `needed` is its min.insync.replicas (None: this client may not read it)."""

    where: TopicPartition
    leader: int
    every: tuple[int, ...]
    in_sync: tuple[int, ...]
    needed: int | None

    @property
    def too_few(self) -> bool:
        """Whether its leader refuses what is written, or there is none."""
        if self.leader == NO_LEADER:
            return True
        # No more than there are is asked for (`Partition.effectiveMinIsr`).
        return self.needed is not None and len(self.in_sync) < min(self.needed, len(self.every))

    @property
    def suspect(self) -> bool:
        """Whether it may have too few: some are missing, and how many are needed is not known."""
        return self.too_few or (self.needed is None and len(self.in_sync) < len(self.every))

    def __str__(self) -> str:
        """What is the matter, and what to do."""
        away = [node for node in self.every if node not in self.in_sync]
        offline = self.leader == NO_LEADER
        state = "no leader" if offline else f"{len(self.in_sync)} of {len(self.every)} replicas in sync"
        needed = f"is {self.needed}" if self.needed is not None else "may not be read (DESCRIBE_CONFIGS)"
        lower = "" if offline else f", or lower {CONFIG} of {self.where.topic}"
        return (
            f"{self.where} has {state} (replicas on brokers {_listed(self.every)}; in sync: {_listed(self.in_sync)}), "
            f"and {CONFIG} {needed}. Bring broker {_listed(away or self.every)} back{lower}."
        )


def _listed(nodes: Collection[int]) -> str:
    return ", ".join(map(str, sorted(nodes))) or "none"


async def short_of_replicas(cluster: Cluster, topics: Collection[str]) -> dict[TopicPartition, Replicas]:
    """The partitions of `topics` that have too few replicas in sync now. Raises TwinlogError."""
    told = await cluster.topics(topics) if topics else {}
    wheres = [TopicPartition(name, number) for name, info in told.items() for number in info.partitions]
    found = await _looked_at(cluster, wheres, told)
    return {one.where: one for one in found if one.too_few}


async def what_holds(cluster: Cluster, transactional_id: str, written: Collection[TopicPartition]) -> list[Replicas]:
    """The partitions for whose replicas the transaction waits; none where it waits for nothing like that.

    `written` is what may be in it, where the coordinator cannot tell. Where it can, what merely lacks a replica counts
    only while its marker is missing. Raises TwinlogError.
    """
    wheres = doubtful = frozenset(written)
    with suppress(TwinlogError):
        told = await describe_transaction(cluster, transactional_id, timeout_s=LOOK_WITHIN_S)
        wheres, doubtful = (frozenset(), frozenset()) if told is None else (told.partitions, told.unmarked)
    topics = await cluster.topics({TRANSACTIONS, *(where.topic for where in wheres)})
    kept = topics.get(TRANSACTIONS)
    if kept is not None and kept.partitions:
        own = {TopicPartition(TRANSACTIONS, coordinator_partition(transactional_id, len(kept.partitions)))}
        wheres, doubtful = wheres | own, doubtful | own
    found = await _looked_at(cluster, sorted(wheres), topics)
    return [one for one in found if one.too_few or (one.suspect and one.where in doubtful)]


def held(transactional_id: str, short: Collection[Replicas]) -> str:
    """The sentence for a transaction that cannot end."""
    shown = " ".join(map(str, sorted(short, key=lambda one: one.where)[:SHOWN]))
    more = f" And {len(short) - SHOWN} partitions more." if len(short) > SHOWN else ""
    return (
        f"The transaction of {transactional_id} cannot end, so that nothing that shares it is copied: {shown}{more} "
        f"It then goes on by itself."
    )


def coordinator_partition(transactional_id: str, partitions: int) -> int:
    """Where the coordinator keeps an id: Java's hash of its text (`TransactionStateManager.partitionFor`)."""
    code = 0
    for letter in transactional_id:
        code = (31 * code + ord(letter)) & 0xFFFFFFFF
    signed = code - (1 << 32) if code >= 1 << 31 else code
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions


async def _looked_at(
    cluster: Cluster, wheres: Collection[TopicPartition], told: dict[str, TopicInfo]
) -> list[Replicas]:
    """Those that lack a replica or their leader; only of their topics the config is read."""
    found = {where: info for where in wheres if (info := _info(where, told)) is not None and _lacks(info)}
    needed = await _needed(cluster, {where.topic for where in found}) if found else {}
    return [
        Replicas(where, info.leader, info.replicas, info.isr, needed.get(where.topic)) for where, info in found.items()
    ]


def _info(where: TopicPartition, told: dict[str, TopicInfo]) -> PartitionInfo | None:
    topic = told.get(where.topic)
    return None if topic is None else topic.partitions.get(where.partition)


def _lacks(info: PartitionInfo) -> bool:
    return info.leader == NO_LEADER or len(info.isr) < len(info.replicas)


async def _needed(cluster: Cluster, topics: Collection[str]) -> dict[str, int]:
    """How many replicas have to be in sync, by topic; nothing where that may not be read."""
    with suppress(TwinlogError):
        told = await describe_configs(cluster, "topic", topics, keys=[CONFIG], timeout_s=LOOK_WITHIN_S)
        values = {topic: entries[CONFIG].value for topic, entries in told.items() if CONFIG in entries}
        return {topic: int(value) for topic, value in values.items() if value is not None}
    return {}
