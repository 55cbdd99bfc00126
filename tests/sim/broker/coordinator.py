"""A broker's transaction coordinator: its state is durable, its markers are written at least once.

It answers EndTxn before the markers are written, sends a marker again when it has no answer, and after a change of
coordinator the new one sends all markers of a decided transaction again, those too that had been written.
Rules: `TransactionCoordinator`, `TransactionStateManager`, `TransactionMarkerChannelManager` of Apache Kafka.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafka.protocol.producer import AddPartitionsToTxnResponse, EndTxnResponse, InitProducerIdResponse
from tests.sim.broker.asks import Ask
from tests.sim.broker.partition import Assignment
from tests.sim.broker.refusals import Refused
from tests.sim.broker.transactions import (
    PREPARED,
    State,
    Txn,
    check_owner,
    check_producer,
    completed,
    ended,
    extended,
    fenced,
    initialised,
)
from tests.sim.broker.txn_markers import MarkerSender

from twinlog.names import TopicPartition
from twinlog.wire import codes

if TYPE_CHECKING:
    from tests.sim.broker.node import SimBroker

INVALID_TRANSACTION_TIMEOUT = 50
OPERATION_NOT_ATTEMPTED = 55
TRANSACTION_ABORTABLE = 120


@dataclass(eq=False, slots=True)
class Entry:
    """A transactional id in memory; `pending` while a change of it is being written down."""

    txn: Txn
    pending: bool = False


@dataclass(eq=False, slots=True)
class Slot:
    """A partition of the transaction topic that this broker leads."""

    partition: int
    epoch: int
    loading: bool = True
    entries: dict[str, Entry] = field(default_factory=dict)


class Coordinator:
    """Answers for the transactional ids whose slots its broker leads."""

    def __init__(self, broker: "SimBroker") -> None:
        self._broker = broker
        self._cluster = broker.cluster
        self._slots: dict[int, Slot] = {}

    def __repr__(self) -> str:
        return f"<Coordinator at {self._broker.node}, slots {sorted(self._slots)}>"

    # Slots

    def forget(self) -> None:
        """The broker has died."""
        self._slots.clear()

    def learn(self, partition: int, assigned: Assignment) -> None:
        """Take over a slot, or give it up."""
        held = self._slots.get(partition)
        if assigned.leader != self._broker.node:
            self._slots.pop(partition, None)
        elif held is None or held.epoch != assigned.epoch:
            slot = self._slots[partition] = Slot(partition, assigned.epoch)
            self._broker.after(self._cluster.draw(self._cluster.settings.state_write), self._load, slot)
            self._broker.after(self._cluster.settings.transaction_check_s, self._expire, slot)

    def _load(self, slot: Slot) -> None:
        if self._slots.get(slot.partition) is not slot:
            return
        slot.entries = {name: Entry(txn) for name, txn in self._cluster.stored(slot.partition).items()}
        slot.loading = False
        for name, entry in list(slot.entries.items()):
            if entry.txn.state in PREPARED:
                self._send_markers(slot, name, entry)

    def leads(self, slot: Slot) -> bool:
        """Whether this broker still believes that the slot is its own."""
        return self._slots.get(slot.partition) is slot

    def find(self, transactional_id: str) -> tuple[Slot, Entry | None]:
        """The slot of an id, and what is known of the id; 16 and 14 where this is not the coordinator, or not yet."""
        slot = self._slots.get(self._cluster.slot_of(transactional_id))
        if slot is None:
            raise Refused(codes.NOT_COORDINATOR)
        if slot.loading:
            raise Refused(codes.COORDINATOR_LOAD_IN_PROGRESS)
        return slot, slot.entries.get(transactional_id)

    def _write(self, slot: Slot, name: str, entry: Entry, txn: Txn, done: Callable[[int], None]) -> None:
        """Write a change down, on all replicas in sync, before it counts."""
        entry.pending = True

        def written() -> None:
            entry.pending = False
            if not self._cluster.store(self._broker.node, slot.partition, slot.epoch, name, txn):
                done(codes.NOT_COORDINATOR)
                return
            entry.txn = txn
            done(codes.NONE)

        self._broker.after(self._cluster.draw(self._cluster.settings.state_write), written)

    # Requests

    def init_producer_id(self, ask: Ask) -> None:
        """Answer InitProducerId."""
        asked = ask.message

        def answer(code: int, txn: Txn | None = None) -> None:
            known = txn if txn is not None and code == codes.NONE else Txn(-1)
            ask.reply(
                InitProducerIdResponse(
                    throttle_time_ms=0, error_code=code, producer_id=known.producer_id, producer_epoch=known.epoch
                )
            )

        if asked.transactional_id is None:
            answer(codes.NONE, Txn(self._cluster.new_producer_id(), 0))
            return
        try:
            self._init(asked, answer)
        except Refused as refused:
            answer(refused.code)

    def _init(self, asked: Any, answer: Callable[..., None]) -> None:
        name = asked.transactional_id
        if not name:
            raise Refused(codes.INVALID_REQUEST)
        if not 0 < asked.transaction_timeout_ms <= self._cluster.settings.max_transaction_timeout_ms:
            raise Refused(INVALID_TRANSACTION_TIMEOUT)
        slot, entry = self.find(name)
        if entry is None:
            entry = slot.entries[name] = Entry(Txn(self._cluster.new_producer_id()))
        given = (getattr(asked, "producer_id", -1), getattr(asked, "producer_epoch", -1))
        expected = given if given[0] is not None and given[0] >= 0 else None
        if entry.pending:
            raise Refused(codes.CONCURRENT_TRANSACTIONS)
        check_owner(entry.txn, expected)
        if entry.txn.state in PREPARED:
            raise Refused(codes.CONCURRENT_TRANSACTIONS)
        if entry.txn.state is State.ONGOING:
            self._fence(slot, name, entry, lambda code: answer(code or codes.CONCURRENT_TRANSACTIONS))
            return
        fresh_id = self._cluster.new_producer_id() if entry.txn.exhausted else -1
        txn = initialised(entry.txn, asked.transaction_timeout_ms, expected, fresh_id)
        self._write(slot, name, entry, txn, lambda code: answer(code, txn))

    def _fence(self, slot: Slot, name: str, entry: Entry, done: Callable[[int], None]) -> None:
        def written(code: int) -> None:
            done(code)
            if code == codes.NONE:
                self._send_markers(slot, name, entry)

        self._write(slot, name, entry, fenced(entry.txn), written)

    def add_partitions(self, ask: Ask) -> None:
        """Answer AddPartitionsToTxn of the classic protocol."""
        asked = ask.message
        if ask.version > 3:
            raise AssertionError(f"AddPartitionsToTxn version {ask.version} is not simulated")
        wanted = tuple(TopicPartition(topic.name, n) for topic in asked.v3_and_below_topics for n in topic.partitions)
        unknown = {where for where in wanted if where not in self._broker.known}
        if unknown:
            each = {w: codes.UNKNOWN_TOPIC_OR_PARTITION if w in unknown else OPERATION_NOT_ATTEMPTED for w in wanted}
            ask.reply(_added(each))
            return
        try:
            slot, entry = self._owned(
                asked.v3_and_below_transactional_id, asked.v3_and_below_producer_id, asked.v3_and_below_producer_epoch
            )
            txn = extended(entry.txn, wanted, self._cluster.wall_ms())
        except Refused as refused:
            ask.reply(_added(dict.fromkeys(wanted, refused.code)))
            return
        if txn is None:
            ask.reply(_added(dict.fromkeys(wanted, codes.NONE)))
            return
        name = asked.v3_and_below_transactional_id
        self._write(slot, name, entry, txn, lambda code: ask.reply(_added(dict.fromkeys(wanted, code))))

    def end_txn(self, ask: Ask) -> None:
        """Answer EndTxn of the classic protocol; the markers follow."""
        asked = ask.message
        if ask.version > 4:
            raise AssertionError(f"EndTxn version {ask.version} is not simulated")

        def answer(code: int) -> None:
            ask.reply(EndTxnResponse(throttle_time_ms=0, error_code=code))

        try:
            slot, entry = self._owned(asked.transactional_id, asked.producer_id, asked.producer_epoch)
            txn = ended(entry.txn, commit=asked.committed)
        except Refused as refused:
            answer(refused.code)
            return
        if txn is None:
            answer(codes.NONE)
            return

        def written(code: int) -> None:
            answer(code)
            if code == codes.NONE:
                self._send_markers(slot, asked.transactional_id, entry)

        self._write(slot, asked.transactional_id, entry, txn, written)

    def _owned(self, name: str, producer_id: int, epoch: int) -> tuple[Slot, Entry]:
        slot, entry = self.find(name)
        if entry is None:
            raise Refused(codes.INVALID_PRODUCER_ID_MAPPING)
        check_producer(entry.txn, producer_id, epoch)
        if entry.pending:
            raise Refused(codes.CONCURRENT_TRANSACTIONS)
        return slot, entry

    def verdict(self, name: str, producer_id: int, epoch: int, where: TopicPartition) -> int:
        """What a partition's leader is told that asks whether it may begin a transaction."""
        try:
            _, entry = self.find(name)
            if entry is None:
                raise Refused(codes.INVALID_PRODUCER_ID_MAPPING)
            check_producer(entry.txn, producer_id, epoch)
        except Refused as refused:
            return refused.code
        if entry.pending or entry.txn.state in PREPARED:
            return codes.CONCURRENT_TRANSACTIONS
        return codes.NONE if where in entry.txn.partitions else TRANSACTION_ABORTABLE

    # Ends

    def _send_markers(self, slot: Slot, name: str, entry: Entry) -> None:
        def all_written() -> None:
            if self.leads(slot):
                self._write(slot, name, entry, completed(entry.txn), lambda _: None)

        MarkerSender(self._broker, entry.txn, slot.epoch, lambda: self.leads(slot), all_written).start()

    def _expire(self, slot: Slot) -> None:
        """Abort transactions whose owners have taken too long."""
        if not self.leads(slot):
            return
        now_ms = self._cluster.wall_ms()
        for name, entry in list(slot.entries.items()):
            overdue = entry.txn.started_ms + entry.txn.timeout_ms < now_ms
            if entry.txn.state is State.ONGOING and overdue and not entry.pending:
                self._fence(slot, name, entry, lambda _: None)
        self._broker.after(self._cluster.settings.transaction_check_s, self._expire, slot)


def _added(by_partition: dict[TopicPartition, int]) -> AddPartitionsToTxnResponse:
    topic_kind = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
    topics: dict[str, list[Any]] = {}
    for where, code in by_partition.items():
        part = topic_kind.AddPartitionsToTxnPartitionResult(partition_index=where.partition, partition_error_code=code)
        topics.setdefault(where.topic, []).append(part)
    return AddPartitionsToTxnResponse(
        throttle_time_ms=0,
        results_by_topic_v3_and_below=[
            topic_kind(name=name, results_by_partition=parts) for name, parts in topics.items()
        ],
    )
