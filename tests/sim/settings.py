"""What one seed's world is like: drawn once, so that the seed alone tells it.

Each world allows only some kinds of faults (swarm testing): all at once hide what a few alone would bring out.
"""

from dataclasses import dataclass
from random import Random

# Kinds of faults and how often each is drawn, where it is allowed at all.
WORKER_FAULTS = {
    "kill worker": 3,
    "freeze worker": 4,
    "freeze at send": 4,
    "kill at send": 2,
    "isolate worker": 3,
    "stop worker": 1,
    "shuffle": 3,
}
NETWORK_FAULTS = {
    "cut one": 4,
    "cut at send": 5,
    "cut all": 1,
    "stall one": 2,
}
BROKER_FAULTS = {
    "pause destination": 2,
    "pause at send": 3,
    "kill destination": 2,
    "move destination leader": 2,
    "lose destination leader": 2,
    "flap at send": 3,
    "stall replication": 2,
    "pause source": 1,
    "kill source": 1,
    "move source leader": 1,
}
CONTENT_FAULTS = {
    "compact source": 2,
    "trim source": 1,
}
GROUPS_OF_FAULTS = (WORKER_FAULTS, NETWORK_FAULTS, BROKER_FAULTS, CONTENT_FAULTS)
# Faults that only a cluster of several brokers can have.
NEED_REPLICAS = frozenset({"move destination leader", "lose destination leader", "stall replication", "flap at send"})
NEED_SOURCES = frozenset({"move source leader"})
# In a compacted topic nothing is deleted, in any other nothing compacted.
NEED_COMPACTED, NEED_DELETED = frozenset({"compact source"}), frozenset({"trim source"})


@dataclass(frozen=True, slots=True)
class Settings:
    """One world; times in seconds of the simulation, `expiration_ms` is the brokers' producer.id.expiration.ms."""

    seed: int
    workers: int
    partitions: int
    source_nodes: int
    destination_nodes: int
    faults: tuple[str, ...]
    fault_every_s: float
    load_every_s: float
    lasts_s: float
    old_records: bool
    transactions: float
    long_runs: bool
    compacted: bool
    expiration_ms: int
    # One way through the network, at most, and twice what a broker needs for a request: where both are slow, more
    # happens between two steps of somebody else.
    delay_s: float = 0.001
    foreign_at_s: float | None = None

    @classmethod
    def of(cls, seed: int) -> "Settings":
        """Draw what `seed` stands for."""
        rng = Random(f"settings {seed}")
        destination_nodes = rng.choice((1, 3, 3))
        source_nodes = rng.choice((1, 1, 2))
        old, compacted = rng.random() < 0.3, rng.random() < 0.2
        return cls(
            seed=seed,
            workers=rng.choice((1, 2, 2, 3)),
            partitions=rng.choice((1, 1, 2)),
            source_nodes=source_nodes,
            destination_nodes=destination_nodes,
            faults=_faults(rng, source_nodes, destination_nodes, compacted=compacted),
            fault_every_s=rng.choice((0.5, 1.5, 3.0)),
            load_every_s=rng.choice((0.05, 0.15, 0.4)),
            lasts_s=rng.choice((6.0, 10.0, 16.0)),
            old_records=old,
            transactions=rng.choice((0.1, 0.3, 0.6)),
            long_runs=rng.random() < 0.3,
            compacted=compacted,
            expiration_ms=20_000 if old else 86_400_000,
            delay_s=rng.choice((0.001, 0.001, 0.001, 0.01, 0.04)),
        )

    @classmethod
    def foreign(cls, seed: int) -> "Settings":
        """A quiet world in which somebody else writes to the mirror topic."""
        rng = Random(f"foreign {seed}")
        return cls(
            seed=seed,
            workers=rng.choice((1, 2)),
            partitions=2,
            source_nodes=1,
            destination_nodes=rng.choice((1, 3)),
            faults=(),
            fault_every_s=1_000.0,
            load_every_s=rng.choice((0.03, 0.2, 1.0)),
            lasts_s=12.0,
            old_records=False,
            transactions=rng.choice((0.0, 0.3)),
            long_runs=False,
            compacted=False,
            expiration_ms=86_400_000,
            foreign_at_s=rng.uniform(4.0, 10.0),
        )


def _faults(rng: Random, source_nodes: int, destination_nodes: int, *, compacted: bool) -> tuple[str, ...]:
    """A few kinds of faults out of those that such clusters can have, each as often as it weighs."""
    impossible: set[str] = set()
    impossible |= NEED_REPLICAS if destination_nodes == 1 else set()
    impossible |= NEED_SOURCES if source_nodes == 1 else set()
    impossible |= NEED_DELETED if compacted else NEED_COMPACTED
    possible = [
        (kind, weight) for group in GROUPS_OF_FAULTS for kind, weight in group.items() if kind not in impossible
    ]
    chosen = rng.sample(possible, rng.randint(1, 5))
    return tuple(kind for kind, weight in chosen for _ in range(weight))
