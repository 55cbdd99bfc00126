"""How a coordinator writes the markers of one decided transaction: again and again, until each is acknowledged."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.sim.broker.appending import Marker, append_markers
from tests.sim.broker.partition import NO_LEADER
from tests.sim.broker.transactions import State, Txn

from twinlog.names import TopicPartition
from twinlog.wire import codes

if TYPE_CHECKING:
    from tests.sim.broker.node import SimBroker

# The transaction has gone on without this coordinator, or without this producer: no marker is sent any more.
_GIVEN_UP = frozenset({codes.INVALID_PRODUCER_EPOCH, codes.TRANSACTION_COORDINATOR_FENCED})


class MarkerSender:
    """Sends one marker to each partition of a transaction; `done` is called when all are there."""

    def __init__(
        self,
        broker: "SimBroker",
        txn: Txn,
        coordinator_epoch: int,
        ours: Callable[[], bool],
        done: Callable[[], None],
    ) -> None:
        self._broker = broker
        self._cluster = broker.cluster
        self._txn = txn
        self._coordinator_epoch = coordinator_epoch
        self._ours = ours
        self._done = done
        self._left = set(txn.partitions)

    def start(self) -> None:
        """Send to all partitions."""
        if not self._left:
            self._done()
        for where in self._txn.partitions:
            self._send(where)

    def _send(self, where: TopicPartition) -> None:
        if not self._ours():
            return
        known = self._broker.known.get(where)
        if known is None:  # the topic is gone, and its marker with it
            self._written(where)
            return
        target = self._cluster.brokers[known.leader] if known.leader != NO_LEADER else None
        if target is None or not target.alive:
            self._again(where)
            return
        _Flight(self, where, target).begin()

    def _again(self, where: TopicPartition) -> None:
        self._broker.after(self._cluster.settings.marker_retry_s, self._send, where)

    def _answered(self, where: TopicPartition, code: int) -> None:
        if code == codes.NONE:
            self._written(where)
        elif code not in _GIVEN_UP:
            self._again(where)

    def _written(self, where: TopicPartition) -> None:
        self._left.discard(where)
        if not self._left and self._ours():
            self._done()


class _Flight:
    """One request to one leader; an answer that does not come in time, or is lost, means another one."""

    def __init__(self, sender: MarkerSender, where: TopicPartition, target: "SimBroker") -> None:
        self._sender = sender
        self._where = where
        self._target = target
        self._life = target.life
        self._over = False
        self._left_s = sender._cluster.settings.request_timeout_s

    def begin(self) -> None:
        """Send it."""
        cluster, target = self._sender._cluster, self._target
        cluster.after(cluster.draw(cluster.settings.handling), lambda: target.after(0.0, self._carry_out))
        self._watch()

    def _carry_out(self) -> None:
        txn = self._sender._txn
        marker = Marker(
            self._where,
            txn.producer_id,
            txn.epoch,
            self._sender._coordinator_epoch,
            txn.state is State.PREPARE_COMMIT,
        )
        append_markers(self._target, [marker], self._reply)

    def _reply(self, codes_of: list[int]) -> None:
        cluster = self._sender._cluster
        lost = cluster.rng.random() < cluster.settings.marker_surplus
        code = None if lost else codes_of[0]
        self._sender._broker.after(cluster.draw(cluster.settings.handling), self._arrive, code)

    def _arrive(self, code: int | None) -> None:
        if self._over:
            return
        self._over = True
        if code is None:
            self._sender._again(self._where)
        elif self._sender._ours():
            self._sender._answered(self._where, code)

    def _watch(self) -> None:
        """Notice that the target has died, or takes too long."""
        if self._over or not self._sender._ours():
            return
        if self._target.life != self._life or self._left_s <= 0:
            self._over = True
            self._sender._again(self._where)
            return
        step_s = self._sender._cluster.settings.marker_retry_s
        self._left_s -= step_s
        self._sender._broker.after(step_s, self._watch)
