"""What is written to a source topic by hand is what a transactional producer and a coordinator would write."""

from bench.fill import _markers, _transactional
from bench.loads import LOADS
from kafka.protocol.producer import WriteTxnMarkersRequest

from twinlog.batch.view import Batch
from twinlog.wire.ops import Producer
from twinlog.wire.produce import MarkerRun

RUNS = [MarkerRun("load", part, 77, 3, 1) for part in range(3)]


def decoded(chunks: list[bytes]) -> list[tuple[int, int, bool, list[int]]]:
    """A request's markers, read by the library: producer, epoch, whether committed, partitions."""
    request = WriteTxnMarkersRequest.decode(b"".join(chunks), version=1)
    return [
        (m.producer_id, m.producer_epoch, m.transaction_result, m.topics[0].partition_indexes) for m in request.markers
    ]


def test_commit_markers_say_commit_and_abort_markers_abort() -> None:
    """One marker a partition, with the producer that wrote the data."""
    for commit in (True, False):
        assert decoded(_markers(RUNS, commit=commit)) == [(77, 3, commit, [part]) for part in range(3)]


def test_a_transactional_batch_keeps_its_records_and_has_its_producer() -> None:
    """The header is new, with a right checksum."""
    batch = Batch(memoryview(LOADS["txn100"].made()[0]))
    made = Batch(memoryview(_transactional(batch, Producer(77, 3), 40) + bytes(batch.body)))
    assert (made.producer_id, made.producer_epoch, made.base_sequence, made.transactional) == (77, 3, 40, True)
    assert made.crc_ok()
    assert made.body == batch.body
