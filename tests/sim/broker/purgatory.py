"""Requests that wait for something: followers, data, or the end of their patience."""

from asyncio import TimerHandle
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twinlog.names import TopicPartition

if TYPE_CHECKING:
    from tests.sim.broker.node import SimBroker


@dataclass(eq=False, slots=True)
class Waiting:
    """`attempt` answers if it can and says so; `give_up` answers in any case."""

    partitions: tuple[TopicPartition, ...]
    attempt: Callable[[], bool]
    give_up: Callable[[], None]
    done: bool = False
    patience: TimerHandle | None = None

    def look(self) -> bool:
        """Answer, if that is possible now."""
        if not self.done:
            self.done = self.attempt()
            if self.done and self.patience is not None:
                self.patience.cancel()
        return self.done


class Purgatory:
    """What waits at one broker, by partition."""

    def __init__(self, broker: "SimBroker") -> None:
        self._broker = broker
        self._by_partition: dict[TopicPartition, list[Waiting]] = {}

    def wait(
        self,
        partitions: Iterable[TopicPartition],
        attempt: Callable[[], bool],
        give_up: Callable[[], None],
        *,
        most_s: float,
    ) -> None:
        """Answer now, or as soon as one of the partitions changes so that it is possible, or after `most_s`."""
        waiting = Waiting(tuple(partitions), attempt, give_up)
        if waiting.look():
            return
        for where in waiting.partitions:
            self._by_partition.setdefault(where, []).append(waiting)
        waiting.patience = self._broker.after(most_s, self._end, waiting)

    def changed(self, where: TopicPartition) -> None:
        """Look again at what waits for a partition."""
        waiting = self._by_partition.get(where)
        if waiting:
            self._by_partition[where] = [w for w in waiting if not w.look()]

    def moved(self, where: TopicPartition) -> None:
        """The partition is not led from here any more; whoever waits finds that out by looking."""
        self.changed(where)

    def _end(self, waiting: Waiting) -> None:
        if waiting.done:
            return
        waiting.done = True
        waiting.give_up()
        for where in waiting.partitions:
            self._by_partition[where] = [w for w in self._by_partition.get(where, []) if not w.done]
