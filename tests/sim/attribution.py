"""Whose each append at the destination is, and how late: what a worker has handed over, by what it writes.

An append that is carried out long after its owner looked at the lease is what the protocol cannot wholly exclude (W1
and W2 in the internals): it may come in the milliseconds in which another owner writes blanks. Only such an append
excuses a surplus, and only one right before it.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.sim.judge import describe

from twinlog.batch.scan import batches
from twinlog.batch.view import Batch
from twinlog.names import TopicPartition
from twinlog.relay.settle import SETTLE_S
from twinlog.wire.produce import PRODUCE

# Between an owner's look at the log end and the broker's handling of its first run, on the same connection.
WINDOW_S = 0.25


class Spelling(NamedTuple):
    """What tells one append from another: sequence -1 for markers."""

    where: TopicPartition
    producer_id: int
    epoch: int
    sequence: int


class Late(NamedTuple):
    """An append that was carried out when a successor might have been at work."""

    where: TopicPartition
    at_s: float
    after_s: float
    what: str

    def __str__(self) -> str:
        return f"{self.where} at {self.at_s:.3f} s, {self.after_s:.3f} s after it was handed over: {self.what}"


@dataclass(slots=True)
class Handed:
    """When something was handed over, and by whom."""

    owner: str
    at_s: float


class Submissions:
    """What was handed to connections and may be appended some time."""

    def __init__(self) -> None:
        self._handed: dict[Spelling, list[Handed]] = {}
        self.late: list[Late] = []

    def submitted(self, owner: str, api_key: int, message: Any, at_s: float) -> set[TopicPartition]:
        """A process has handed over an append, its lease being good in this moment; returns to which partitions."""
        spellings = _produced(message) if api_key == PRODUCE else _marked(message)
        for spelling in spellings:
            self._handed.setdefault(spelling, []).append(Handed(owner, at_s))
        return {spelling.where for spelling in spellings}

    def appended(self, where: TopicPartition, batch: Batch, at_s: float) -> str:
        """Note what a leader has appended; returns whose it is."""
        spelling = Spelling(where, batch.producer_id, batch.producer_epoch, batch.base_sequence)
        handed = self._handed.get(spelling, [])
        if not handed:
            return "somebody else"
        # A long run goes in several requests under one epoch.
        latest = handed[-1]
        if at_s - latest.at_s >= SETTLE_S:
            self.late.append(Late(where, at_s, at_s - latest.at_s, f"{describe(batch)} of {latest.owner}"))
        return latest.owner

    def excuses(self, where: TopicPartition, at_s: float, *, within_s: float = WINDOW_S) -> bool:
        """Whether something late was appended to this partition right before, or just then."""
        return any(late.where == where and 0 <= at_s - late.at_s <= within_s for late in self.late)


def _produced(message: Any) -> list[Spelling]:
    return [
        Spelling(TopicPartition(topic.name, part.index), batch.producer_id, batch.producer_epoch, batch.base_sequence)
        for topic in message.topic_data
        for part in topic.partition_data
        for batch in batches(memoryview(part.records or b""), check=False)
        if isinstance(batch, Batch)
    ]


def _marked(message: Any) -> list[Spelling]:
    return [
        Spelling(TopicPartition(topic.name, partition), entry.producer_id, entry.producer_epoch, -1)
        for entry in message.markers
        for topic in entry.topics
        for partition in topic.partition_indexes
    ]
