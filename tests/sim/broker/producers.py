"""What a partition remembers of its producers. Pure.

Rules: `ProducerStateManager`, `ProducerStateEntry` and `ProducerAppendInfo` of Apache Kafka.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from tests.sim.broker.refusals import Refused

from twinlog.batch import layout
from twinlog.batch.view import Batch
from twinlog.wire import codes

REMEMBERED_BATCHES: Final = 5
NONE: Final = -1


class Origin(Enum):
    """Who appends: that decides what is checked."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


class Written(NamedTuple):
    """A batch that is remembered to recognise it when it comes again."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class Ended(NamedTuple):
    """A transaction that a marker has ended."""

    producer_id: int
    first_offset: int
    marker_offset: int
    aborted: bool


@dataclass(slots=True)
class Producer:
    """One producer; `epoch` is -1 before its first append, `txn_start` where its open transaction begins."""

    producer_id: int
    epoch: int = NONE
    coordinator_epoch: int = NONE
    last_timestamp: int = NONE
    txn_start: int | None = None
    batches: deque[Written] = field(default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES))

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record under the present epoch, -1 when there is none."""
        return self.batches[-1].last_sequence if self.batches else NONE

    def duplicate_of(self, batch: Batch) -> Written | None:
        """The remembered batch that has this one's epoch and sequences."""
        if batch.producer_epoch != self.epoch:
            return None
        wanted = (batch.base_sequence, last_sequence(batch))
        return next((w for w in self.batches if (w.first_sequence, w.last_sequence) == wanted), None)

    def check(self, batch: Batch) -> None:
        """Refuse a client's data batch that is not the next one: 47 for its epoch, 45 for its sequence."""
        self.check_epoch(batch.producer_epoch)
        if batch.producer_epoch != self.epoch:
            if batch.base_sequence != 0 and self.epoch != NONE:
                raise Refused(codes.OUT_OF_ORDER_SEQUENCE_NUMBER, "a new epoch begins with sequence 0")
        elif not _follows(batch.base_sequence, self.last_sequence):
            raise Refused(codes.OUT_OF_ORDER_SEQUENCE_NUMBER, f"sequence {batch.base_sequence} does not follow")

    def check_epoch(self, epoch: int) -> None:
        """Refuse an epoch below the present one."""
        if epoch < self.epoch:
            raise Refused(codes.INVALID_PRODUCER_EPOCH, f"epoch {epoch} is below {self.epoch}")

    def note_epoch(self, epoch: int) -> None:
        """Take another epoch: what was written under the old one is forgotten."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()


class Producers:
    """All producers of one partition, and its transactions."""

    def __init__(self) -> None:
        self.known: dict[int, Producer] = {}
        self.ended: list[Ended] = []  # whose markers are not below the high watermark yet

    def recognise(self, batch: Batch) -> Written | None:
        """The place of a client's batch that is here already."""
        known = self.known.get(batch.producer_id)
        return known.duplicate_of(batch) if known is not None else None

    def check(self, batch: Batch, origin: Origin, *, verified: bool) -> None:
        """Refuse what must not be appended (`UnifiedLog.analyzeAndValidateProducerState`); changes nothing.

        `verified` says that the coordinator knows the partition as part of the producer's transaction.
        """
        if batch.producer_id == layout.NO_PRODUCER or origin is Origin.REPLICATION:
            return
        known = self.known.get(batch.producer_id) or Producer(batch.producer_id)
        if batch.control:
            known.check_epoch(batch.producer_epoch)
            marker = batch.marker()
            if marker is not None and known.coordinator_epoch > marker.coordinator_epoch:
                raise Refused(codes.TRANSACTION_COORDINATOR_FENCED, f"the last was {known.coordinator_epoch}")
            return
        if batch.transactional and known.txn_start is None and not verified:
            raise Refused(codes.INVALID_TXN_STATE, "Record was not part of an ongoing transaction")
        if origin is Origin.CLIENT:
            known.check(batch)
        else:
            known.check_epoch(batch.producer_epoch)
        if known.txn_start is not None and not batch.transactional:
            raise Refused(codes.INVALID_TXN_STATE, "Expected transactional write")

    def note(self, batch: Batch) -> Ended | None:
        """Take a batch that is in the log now; returns the transaction that it ends."""
        if batch.producer_id == layout.NO_PRODUCER:
            return None
        if batch.control:
            return self._note_marker(batch)
        known = self.known.setdefault(batch.producer_id, Producer(batch.producer_id))
        known.note_epoch(batch.producer_epoch)
        known.batches.append(
            Written(
                batch.base_sequence, last_sequence(batch), batch.base_offset, batch.last_offset, batch.max_timestamp
            )
        )
        known.last_timestamp = batch.max_timestamp
        if batch.transactional and known.txn_start is None:
            known.txn_start = batch.base_offset
        return None

    def _note_marker(self, batch: Batch) -> Ended | None:
        marker = batch.marker()
        if marker is None:  # the cleaner has removed the whole transaction
            return None
        known = self.known.setdefault(batch.producer_id, Producer(batch.producer_id))
        ended = None
        if known.txn_start is not None:
            ended = Ended(known.producer_id, known.txn_start, batch.base_offset, marker.type == layout.ABORT)
            self.ended.append(ended)
        known.note_epoch(batch.producer_epoch)
        known.coordinator_epoch = marker.coordinator_epoch
        known.last_timestamp = batch.max_timestamp
        known.txn_start = None
        return ended

    def first_unstable(self) -> int | None:
        """Where the first transaction begins that is open, or whose marker is not replicated yet."""
        starts = [p.txn_start for p in self.known.values() if p.txn_start is not None]
        starts += [e.first_offset for e in self.ended]
        return min(starts, default=None)

    def first_open(self, *, but: int) -> int | None:
        """Where the first open transaction of any other producer begins."""
        starts = [p.txn_start for p in self.known.values() if p.txn_start is not None and p.producer_id != but]
        return min(starts, default=None)

    def replicated(self, high_watermark: int) -> None:
        """Markers below the high watermark are final."""
        if self.ended:
            self.ended = [e for e in self.ended if e.marker_offset >= high_watermark]

    def expire(self, now_ms: int, expiration_ms: int) -> list[int]:
        """Forget producers whose last record's *timestamp* is that old; returns their ids."""
        old = [
            p.producer_id
            for p in self.known.values()
            if p.txn_start is None and now_ms - p.last_timestamp >= expiration_ms
        ]
        for producer_id in old:
            del self.known[producer_id]
        return old

    def snapshot(self) -> None:
        """Keep what a clean stop writes down: of each producer the last batch only."""
        for producer in self.known.values():
            producer.batches = deque(list(producer.batches)[-1:], maxlen=REMEMBERED_BATCHES)


def _follows(sequence: int, last: int) -> bool:
    return sequence == last + 1 or (sequence == 0 and last == layout.MAX_SEQUENCE)


def last_sequence(batch: Batch) -> int:
    """The sequence of a batch's last record (`DefaultRecordBatch.incrementSequence`)."""
    if batch.base_sequence == layout.NO_SEQUENCE:
        return layout.NO_SEQUENCE
    return (batch.base_sequence + batch.last_offset_delta) & layout.MAX_SEQUENCE
