"""Before the first transactional append to a partition its leader asks the coordinator (KIP-890, part one)."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.sim.broker.partition import NO_LEADER
from tests.sim.broker.refusals import Refused
from tests.sim.broker.validate import one_batch

from twinlog.batch.view import Batch
from twinlog.names import TopicPartition
from twinlog.wire import codes

if TYPE_CHECKING:
    from tests.sim.broker.node import SimBroker

Verdicts = dict[TopicPartition, int]
# What the coordinator may say for a while only; a producer is told to try again (`ReplicaManager`).
_PASSING = frozenset(
    {
        codes.CONCURRENT_TRANSACTIONS,
        codes.COORDINATOR_LOAD_IN_PROGRESS,
        codes.COORDINATOR_NOT_AVAILABLE,
        codes.NOT_COORDINATOR,
    }
)


def verify(
    broker: "SimBroker", name: str, items: list[tuple[TopicPartition, Any]], then: Callable[[Verdicts], None]
) -> None:
    """Call `then` with 0 or a code for each partition that begins a transaction here; the others need no question."""
    wanted = {where: batch for where, records in items if (batch := _begins(broker, where, records)) is not None}
    if not wanted:
        then({})
        return
    cluster = broker.cluster
    assigned = broker.known.get(TopicPartition(cluster.TXN_TOPIC, cluster.slot_of(name)))

    def ask() -> None:
        node = assigned.leader if assigned is not None else NO_LEADER
        target = cluster.brokers.get(node)
        if target is None or not target.up:
            answer(dict.fromkeys(wanted, codes.NOT_ENOUGH_REPLICAS))
            return
        told = {
            where: target.coordinator.verdict(name, batch.producer_id, batch.producer_epoch, where)
            for where, batch in wanted.items()
        }
        answer({where: _told_to_producers(code) for where, code in told.items()})

    def answer(verdicts: Verdicts) -> None:
        broker.after(cluster.draw(cluster.settings.handling), then, verdicts)

    broker.after(cluster.draw(cluster.settings.handling), ask)


def _told_to_producers(code: int) -> int:
    """What a producer is told: it knows no fence from a Produce (`AddPartitionsToTxnManager`)."""
    if code in _PASSING:
        return codes.NOT_ENOUGH_REPLICAS
    return codes.INVALID_PRODUCER_EPOCH if code == codes.PRODUCER_FENCED else code


def _begins(broker: "SimBroker", where: TopicPartition, records: Any) -> Batch | None:
    """The batch, if it is transactional and its producer has no transaction open in this partition."""
    try:
        batch = one_batch(records)
        replica = broker.replica(where)
    except Refused:
        return None
    known = replica.log.producers.known.get(batch.producer_id)
    is_open = known is not None and known.txn_start is not None and known.epoch == batch.producer_epoch
    return batch if batch.transactional and not is_open else None
