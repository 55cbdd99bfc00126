"""One replica's log of one partition: batches as bytes, and what is known of them. Pure; time is an argument.

Rules: `UnifiedLog`, `TransactionIndex` of Apache Kafka.
"""

from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter
from struct import Struct
from typing import Final, NamedTuple

from tests.sim.broker.epochs import Epochs
from tests.sim.broker.producers import Ended, Origin, Producers
from tests.sim.broker.refusals import Refused
from tests.sim.broker.rules import TopicRules
from tests.sim.broker.validate import checked

from twinlog.batch import layout
from twinlog.batch.edit import sealed
from twinlog.batch.scan import Aborted
from twinlog.batch.view import Batch, zigzag
from twinlog.wire import codes

_PLACE: Final = Struct(">qii")  # base offset, length, leader epoch: outside of what the checksum covers
_CONTROL_ATTRIBUTES: Final = layout.CONTROL_BIT | layout.TRANSACTIONAL_BIT


class Appended(NamedTuple):
    """Where a batch stands; `fresh` is False for one that had been there already."""

    base_offset: int
    last_offset: int
    fresh: bool
    log_append_time: int


class AbortedTxn(NamedTuple):
    """An entry of the index of aborted transactions."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class PartitionLog:
    """A log; `end` is the offset that the next record gets, `high_watermark` is what this replica knows of it."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.start = 0
        self.end = 0
        self.high_watermark = 0
        self.epochs = Epochs()
        self.producers = Producers()
        self.aborted: list[AbortedTxn] = []

    def __repr__(self) -> str:
        return f"<PartitionLog {self.start}..{self.high_watermark}..{self.end}, {len(self.batches)} batches>"

    @property
    def last_stable_offset(self) -> int:
        """Up to where a read_committed reader may read."""
        unstable = self.producers.first_unstable()
        return self.high_watermark if unstable is None else min(max(unstable, self.start), self.high_watermark)

    # Appending

    def append_as_leader(
        self, batch: Batch, *, epoch: int, origin: Origin, rules: TopicRules, now_ms: int, verified: bool = False
    ) -> Appended:
        """Append one batch at the end in the leader's epoch, or recognise it, or raise Refused."""
        if origin is Origin.CLIENT:
            batch = checked(batch, rules, now_ms)
        placed = _placed(batch, self.end, epoch)
        if origin is Origin.CLIENT:
            known = self.producers.recognise(placed)
            if known is not None:
                return Appended(known.first_offset, known.last_offset, False, known.timestamp)
        self.producers.check(placed, origin, verified=verified)
        self._store(placed)
        return Appended(placed.base_offset, placed.last_offset, True, now_ms if rules.append_time else -1)

    def append_as_follower(self, batches: Sequence[Batch]) -> None:
        """Append what the leader has, as it is."""
        for batch in batches:
            if batch.base_offset < self.end:
                if self.batches:
                    raise AssertionError(f"a follower at {self.end} was given a batch from {batch.base_offset} on")
                self.start = batch.base_offset  # the leader's log begins within a batch
            self._store(batch)

    def _store(self, batch: Batch) -> None:
        self.epochs.assign(batch.leader_epoch, batch.base_offset)
        self.batches.append(batch)
        self.end = batch.next_offset
        self._index(self.producers.note(batch))

    def _index(self, ended: Ended | None) -> None:
        if ended is None or not ended.aborted:
            return
        open_at = self.producers.first_open(but=ended.producer_id)
        stable = ended.marker_offset + 1 if open_at is None else open_at
        self.aborted.append(AbortedTxn(ended.producer_id, ended.first_offset, ended.marker_offset, stable))

    # The two ends, and the middle

    def raise_high_watermark(self, offset: int) -> bool:
        """Let the high watermark follow; it never falls. Says whether it rose."""
        offset = min(offset, self.end)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self.producers.replicated(offset)
        return True

    def delete_before(self, offset: int) -> None:
        """Let the log begin at `offset`; 1 when that is above the high watermark."""
        if offset > self.high_watermark:
            raise Refused(codes.OFFSET_OUT_OF_RANGE, f"{offset} is above the high watermark {self.high_watermark}")
        if offset > self.start:
            self.start = offset
            self.batches = self.batches[self._at(offset) :]
            self.epochs.cut_start(offset)
            self.aborted = [txn for txn in self.aborted if txn.last_offset >= offset]

    def truncate(self, end: int) -> None:
        """Take back what stands at `end` and behind it."""
        if end >= self.end:
            return
        self.batches = [batch for batch in self.batches if batch.last_offset < end]
        self.end = self.batches[-1].next_offset if self.batches else max(end, self.start)
        self.start = min(self.start, self.end)
        self.high_watermark = min(self.high_watermark, self.end)
        self.epochs.cut_end(self.end)
        self.rebuild()

    def restart_at(self, offset: int) -> None:
        """Throw everything away and begin anew at `offset`, as a follower does whose leader's log begins later."""
        self.batches, self.aborted = [], []
        self.start = self.end = self.high_watermark = offset
        self.epochs, self.producers = Epochs(), Producers()

    def rebuild(self) -> None:
        """Learn anew from the batches what is known of producers and transactions."""
        self.producers, self.aborted = Producers(), []
        for batch in self.batches:
            self._index(self.producers.note(batch))
        self.producers.replicated(self.high_watermark)

    def replace(self, batches: list[Batch]) -> None:
        """Put in the batches that the cleaner has left; what is known of producers stays."""
        self.batches = batches

    # Reading

    def from_offset(self, offset: int, upper: int, max_bytes: int) -> list[Batch]:
        """The batches that hold `offset` and what follows below `upper`; at least one, when there is one."""
        found: list[Batch] = []
        size = 0
        for batch in self.batches[self._at(offset) :]:
            if batch.base_offset >= upper or (found and size >= max_bytes):
                break
            found.append(batch)
            size += batch.size
        return found

    def aborted_in(self, first: int, upper: int) -> list[Aborted]:
        """The aborted transactions that touch a range of offsets."""
        found: list[Aborted] = []
        for txn in self.aborted:
            if txn.last_offset >= first and txn.first_offset < upper:
                found.append(Aborted(txn.producer_id, txn.first_offset))
            if txn.last_stable_offset >= upper:
                break
        return found

    def _at(self, offset: int) -> int:
        """The index of the first batch that reaches `offset`."""
        return bisect_left(self.batches, offset, key=attrgetter("last_offset"))


def _placed(batch: Batch, base_offset: int, leader_epoch: int) -> Batch:
    raw = bytearray(batch.raw)
    length = len(raw) - layout.LOG_OVERHEAD
    _PLACE.pack_into(raw, 0, base_offset, length, leader_epoch)
    return Batch(memoryview(bytes(raw)))


def control_batch(producer_id: int, epoch: int, *, commit: bool, coordinator_epoch: int, now_ms: int) -> Batch:
    """A marker as a broker writes it (`MemoryRecords.withEndTransactionMarker`)."""
    kind = layout.COMMIT if commit else layout.ABORT
    key = (0).to_bytes(2, "big") + kind.to_bytes(2, "big")
    value = (0).to_bytes(2, "big") + coordinator_epoch.to_bytes(4, "big", signed=True)
    fields = b"\x00\x00\x00" + zigzag(len(key)) + key + zigzag(len(value)) + value + b"\x00"
    body = zigzag(len(fields)) + fields
    summed = layout.CHECKSUMMED.pack(_CONTROL_ATTRIBUTES, 0, now_ms, now_ms, producer_id, epoch, layout.NO_SEQUENCE, 1)
    return Batch(memoryview(sealed(summed, body) + body))
