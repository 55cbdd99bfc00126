"""The simulated log: what truncation, cleaning and deletion leave of it and of what is known of producers."""

from tests.sim.broker.cleaner import clean
from tests.sim.broker.log import PartitionLog, control_batch
from tests.sim.broker.producers import Origin
from tests.sim.broker.rules import TopicRules

from twinlog.batch import layout
from twinlog.batch.blank import filler_batch
from twinlog.batch.records import decode
from twinlog.batch.scan import Blank, Data, readable
from twinlog.batch.view import Batch

RULES = TopicRules()


def data(
    count: int, sequence: int, *, epoch: int = 0, codec: int = layout.NO_CODEC, transactional: bool = False
) -> Batch:
    """A batch of producer 1."""
    made = filler_batch(
        count, producer_id=1, epoch=epoch, sequence=sequence, transactional=transactional, timestamp_ms=5, codec=codec
    )
    return Batch(memoryview(made.header + bytes(made.body)))


def log_of(*batches: Batch, epoch: int = 0) -> PartitionLog:
    """A log that holds these, all below its high watermark."""
    log = PartitionLog()
    for batch in batches:
        origin = Origin.COORDINATOR if batch.control else Origin.CLIENT
        log.append_as_leader(batch, epoch=epoch, origin=origin, rules=RULES, now_ms=10, verified=True)
    log.raise_high_watermark(log.end)
    return log


def test_a_truncated_log_has_forgotten() -> None:
    """Producers and the index of aborted transactions are as if what was cut off had never been."""
    marker = control_batch(1, 0, commit=False, coordinator_epoch=2, now_ms=10)
    log = log_of(data(2, 0), data(2, 2, transactional=True), marker, data(1, 4))
    assert [txn.first_offset for txn in log.aborted] == [2]
    log.truncate(4)
    assert (log.end, log.high_watermark, log.aborted) == (4, 4, [])
    assert log.producers.known[1].txn_start == 2
    assert log.producers.known[1].last_sequence == 3
    log.truncate(3)
    assert (log.end, log.producers.known[1].txn_start) == (2, None)


def test_a_cleaned_batch_keeps_its_place() -> None:
    """Its offsets and times stay, its checksum is right, and holes are where records were, whatever the codec."""
    for codec in (layout.NO_CODEC, layout.ZSTD, layout.LZ4):
        log = log_of(data(6, 0, codec=codec), data(2, 6, codec=codec))
        clean(log, lambda offset: offset not in {0, 2, 3}, below=6)
        first = log.batches[0]
        assert first.crc_ok()
        assert (first.base_offset, first.last_offset, first.count) == (0, 5, 3)
        assert [record.offset for record in decode(first)] == [1, 4, 5]
        buffer = memoryview(b"".join(batch.raw for batch in log.batches))
        assert readable(buffer, position=0, stable=log.end).next_offset == 8


def test_an_empty_batch_stays_only_as_the_last_of_its_producer() -> None:
    """The cleaner keeps the header of a producer's last batch, and what is left of the others goes."""
    log = log_of(data(2, 0), data(2, 2), data(2, 4))
    clean(log, lambda _: False, below=6)
    assert [(b.base_offset, b.count) for b in log.batches] == [(4, 0)]
    log.rebuild()
    assert log.producers.known[1].last_sequence == 5


def test_a_deletion_keeps_the_batch_around_the_start() -> None:
    """The log may begin within a batch."""
    log = log_of(data(4, 0), data(4, 4))
    log.delete_before(2)
    assert (log.start, len(log.batches)) == (2, 2)
    log.delete_before(8)
    assert (log.start, log.end, len(log.batches)) == (8, 8, 0)


def test_a_marker_is_a_blank() -> None:
    """Twinlog's own scan reads what the simulated broker writes."""
    log = log_of(data(1, 0), control_batch(1, 1, commit=False, coordinator_epoch=0, now_ms=10), data(1, 0, epoch=2))
    buffer = memoryview(b"".join(batch.raw for batch in log.batches))
    kinds = [type(item) for item in readable(buffer, position=0, stable=log.end).items]
    assert kinds == [Data, Blank, Data]
