"""Whose an append is, and whether it came late."""

from kafka.protocol.producer import ProduceRequest, WriteTxnMarkersRequest
from tests.sim.attribution import WINDOW_S, Submissions
from tests.sim.broker.log import control_batch

from twinlog.batch.edit import stamped
from twinlog.batch.records import Record, encode
from twinlog.batch.view import Batch
from twinlog.names import TopicPartition
from twinlog.wire.produce import PRODUCE, WRITE_TXN_MARKERS

WHERE = TopicPartition("twin", 1)


def data() -> Batch:
    """A batch of producer 7 at epoch 2, sequence 5."""
    sent = stamped(encode([Record(0, 0, b"k", b"v", ())], codec=0), producer_id=7, epoch=2, sequence=5)
    return Batch(memoryview(sent.header + bytes(sent.body)))


def produced() -> ProduceRequest:
    """A request that carries it."""
    topic = ProduceRequest.TopicProduceData
    part = topic.PartitionProduceData(index=1, records=bytes(data().raw))
    return ProduceRequest(topic_data=[topic(name="twin", partition_data=[part])])


def marked(epoch: int) -> WriteTxnMarkersRequest:
    """A request for one marker of producer 7."""
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    topic = marker.WritableTxnMarkerTopic(name="twin", partition_indexes=[1])
    return WriteTxnMarkersRequest(markers=[marker(producer_id=7, producer_epoch=epoch, topics=[topic])])


def marker(epoch: int) -> Batch:
    """The marker of that request in a log."""
    return control_batch(7, epoch, commit=False, coordinator_epoch=0, now_ms=0)


def test_appends_have_owners() -> None:
    """By what they carry; what nobody handed over is somebody else's."""
    submissions = Submissions()
    assert submissions.submitted("a", PRODUCE, produced(), 1.0) == {WHERE}
    assert submissions.submitted("b", WRITE_TXN_MARKERS, marked(3), 1.0) == {WHERE}
    assert submissions.appended(WHERE, data(), 1.1) == "a"
    assert submissions.appended(WHERE, marker(3), 1.1) == "b"
    assert submissions.appended(WHERE, marker(4), 1.1) == "somebody else"
    assert submissions.late == []


def test_only_what_came_late_excuses_and_only_for_a_moment() -> None:
    """An append in time excuses nothing; a late one only what follows it at once, in its own partition."""
    submissions = Submissions()
    submissions.submitted("a", WRITE_TXN_MARKERS, marked(3), 1.0)
    submissions.appended(WHERE, marker(3), 2.0)
    assert not submissions.excuses(WHERE, 2.0)
    submissions.appended(WHERE, marker(3), 9.0)
    assert submissions.excuses(WHERE, 9.0 + WINDOW_S / 2)
    assert not submissions.excuses(WHERE, 9.0 + WINDOW_S * 2)
    assert not submissions.excuses(TopicPartition("twin", 0), 9.0)
    assert "8.000 s after it was handed over" in str(submissions.late[0])
