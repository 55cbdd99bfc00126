"""What a copy says of itself in the log: where it begins, how far it is, where it ends. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from twinlog.names import TopicPartition

SHOWN: Final = 12


@dataclass(slots=True)
class Counts:
    """What was done so far."""

    bytes: int = 0
    rounds: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Fact:
    """Where a part stands; `end` is what it is read from ends at (-1: not told yet)."""

    where: TopicPartition
    position: int
    end: int
    error: str

    @property
    def lag(self) -> int:
        """How many offsets are still to be read, as far as the end is known."""
        return max(0, self.end - self.position)


def begins(facts: Iterable[tuple[Fact, str]]) -> str:
    """From which positions to which topics: `orders to orders-copy from 0:17, 1:0 (partition:offset)`."""
    routes: dict[tuple[str, str], list[Fact]] = {}
    for fact, target in facts:
        routes.setdefault((fact.where.topic, target), []).append(fact)
    told = [f"{topic} to {target} from {_positions(those)}" for (topic, target), those in routes.items()]
    return _some(told, "; ") + (" (partition:offset)" if told else "")


def goes_on(facts: Sequence[Fact], since: Counts, now: Counts) -> str:
    """How far it is, and what it did since."""
    most = max(facts, key=lambda fact: fact.lag, default=None)
    behind = "up to date"
    if most is not None and most.lag:
        behind = (
            f"{sum(fact.lag for fact in facts)} offsets behind, most in {most.where} "
            f"(position {most.position}, end {most.end})"
        )
    stopped = sum(bool(fact.error) for fact in facts)
    return (
        f"{len(facts)} partitions, {behind}, {stopped} stopped; since the last such line "
        f"{(now.bytes - since.bytes) / 1e6:.1f} MB in {now.rounds - since.rounds} rounds, "
        f"{now.failures - since.failures} interrupted; positions {ends(facts)}"
    )


def ends(facts: Iterable[Fact]) -> str:
    """Where each partition stands: `orders 0:17, 1:0`."""
    topics: dict[str, list[Fact]] = {}
    for fact in facts:
        topics.setdefault(fact.where.topic, []).append(fact)
    return _some([f"{topic} {_positions(those)}" for topic, those in topics.items()], "; ") or "none"


def _positions(facts: Iterable[Fact]) -> str:
    return _some([f"{fact.where.partition}:{fact.position}" for fact in facts], ", ")


def _some(told: Sequence[str], between: str) -> str:
    """Of very many the first few."""
    more = f"{between}and {len(told) - SHOWN} more" if len(told) > SHOWN else ""
    return between.join(told[:SHOWN]) + more
