"""What a transaction coordinator remembers of a transactional id, and what may happen to it. Pure.

Rules: `TransactionMetadata`, `TransactionCoordinator` of Apache Kafka, for clients of the classic protocol.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from tests.sim.broker.refusals import Refused

from twinlog.names import TopicPartition
from twinlog.wire import codes

NONE: Final = -1
LAST_EPOCH: Final = 32_766  # one below the highest, so that a fence is always possible


class State(Enum):
    """States of a transactional id."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


PREPARED: Final = (State.PREPARE_COMMIT, State.PREPARE_ABORT)


@dataclass(frozen=True, slots=True)
class Txn:
    """One transactional id as it stands in the coordinator's log."""

    producer_id: int
    epoch: int = NONE
    last_epoch: int = NONE
    previous_id: int = NONE
    timeout_ms: int = 60_000
    state: State = State.EMPTY
    partitions: tuple[TopicPartition, ...] = ()
    started_ms: int = NONE

    @property
    def exhausted(self) -> bool:
        """Whether no epoch is left under this producer id."""
        return self.epoch >= LAST_EPOCH


def initialised(txn: Txn, timeout_ms: int, expected: tuple[int, int] | None, fresh_id: int) -> Txn:
    """The next owner's state, where nothing is open; `fresh_id` is taken when the epochs are used up."""
    check_owner(txn, expected)
    if txn.exhausted and (expected is None or expected[1] == txn.epoch):
        last = txn.epoch if expected is not None else NONE
        return Txn(fresh_id, 0, last, txn.producer_id, timeout_ms)
    epoch, last = _next_epoch(txn, expected)
    return Txn(txn.producer_id, epoch, last, txn.producer_id, timeout_ms)


def check_owner(txn: Txn, expected: tuple[int, int] | None) -> None:
    """Refuse an owner whose producer id is another one (KIP-360)."""
    if expected is None or txn.epoch == NONE or expected[0] == txn.producer_id:
        return
    if not (expected[0] == txn.previous_id and expected[1] >= LAST_EPOCH):
        raise Refused(codes.PRODUCER_FENCED, f"the producer id is {txn.producer_id}")


def _next_epoch(txn: Txn, expected: tuple[int, int] | None) -> tuple[int, int]:
    if expected is None:
        return txn.epoch + 1, NONE
    if txn.epoch == NONE or expected[1] == txn.epoch:
        return txn.epoch + 1, txn.epoch
    if expected[1] == txn.last_epoch:  # the answer to the same question was lost
        return txn.epoch, txn.last_epoch
    raise Refused(codes.PRODUCER_FENCED, f"the epoch is {txn.epoch}")


def fenced(txn: Txn) -> Txn:
    """The state in which what a former owner left open is aborted."""
    return replace(txn, epoch=txn.epoch + 1, last_epoch=NONE, state=State.PREPARE_ABORT)


def check_producer(txn: Txn, producer_id: int, epoch: int) -> None:
    """Refuse whoever does not own the id: 49 for another producer id, 90 for another epoch."""
    if txn.producer_id != producer_id:
        raise Refused(codes.INVALID_PRODUCER_ID_MAPPING, f"the producer id is {txn.producer_id}")
    if txn.epoch != epoch:
        raise Refused(codes.PRODUCER_FENCED, f"the epoch is {txn.epoch}")


def extended(txn: Txn, partitions: tuple[TopicPartition, ...], now_ms: int) -> Txn | None:
    """The transaction with these partitions; None where they are in it already."""
    if txn.state in PREPARED:
        raise Refused(codes.CONCURRENT_TRANSACTIONS, txn.state.value)
    if txn.state is State.ONGOING:
        if set(partitions) <= set(txn.partitions):
            return None
        return replace(txn, partitions=tuple(dict.fromkeys((*txn.partitions, *partitions))))
    return replace(txn, state=State.ONGOING, partitions=partitions, started_ms=now_ms)


def ended(txn: Txn, *, commit: bool) -> Txn | None:
    """The transaction with its end decided; None where that was done before."""
    wanted = (State.PREPARE_COMMIT, State.COMPLETE_COMMIT) if commit else (State.PREPARE_ABORT, State.COMPLETE_ABORT)
    if txn.state is State.ONGOING:
        return replace(txn, state=wanted[0])
    if txn.state is wanted[1]:
        return None
    if txn.state is wanted[0]:
        raise Refused(codes.CONCURRENT_TRANSACTIONS, txn.state.value)
    raise Refused(codes.INVALID_TXN_STATE, txn.state.value)


def completed(txn: Txn) -> Txn:
    """The transaction with all its markers written."""
    state = State.COMPLETE_COMMIT if txn.state is State.PREPARE_COMMIT else State.COMPLETE_ABORT
    return replace(txn, state=state, partitions=())
