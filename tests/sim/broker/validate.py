"""What a leader looks at before it appends what a client sent. Pure.

Rules: `ProduceRequest.validateRecords`, `UnifiedLog.analyzeAndValidateRecords` and `LogValidator` of Apache Kafka.
"""

from crc32c import crc32c
from tests.sim.broker.refusals import Refused
from tests.sim.broker.rules import TopicRules

from twinlog.batch import layout
from twinlog.batch.records import decode
from twinlog.batch.scan import batches
from twinlog.batch.view import Batch
from twinlog.errors import CorruptBatch
from twinlog.wire import codes


def one_batch(records: bytes | memoryview | None) -> Batch:
    """Return the only batch of a Produce request's records; 87 when there is not exactly one of magic 2, 2 when cut."""
    raw = memoryview(records or b"")
    if len(raw) < layout.HEADER_SIZE:
        raise Refused(codes.INVALID_RECORD, "Produce requests must have exactly one record batch per partition")
    try:
        found = list(batches(raw, None))
    except CorruptBatch as reason:
        raise Refused(codes.CORRUPT_MESSAGE, str(reason)) from reason
    if len(found) != 1 or not isinstance(found[0], Batch):
        raise Refused(codes.INVALID_RECORD, "Produce requests must have exactly one record batch per partition")
    return found[0]


def checked(batch: Batch, rules: TopicRules, now_ms: int) -> Batch:
    """Return a client's batch as it may be stored, or refuse it."""
    if batch.size > rules.max_message_bytes:
        raise Refused(codes.MESSAGE_TOO_LARGE, f"{batch.size} bytes are above {rules.max_message_bytes}")
    if not batch.crc_ok():
        raise Refused(codes.CORRUPT_MESSAGE, "the checksum is wrong")
    _check_shape(batch)
    if rules.compacted and any(record.key is None for record in decode(batch)):
        raise Refused(codes.INVALID_RECORD, "Compacted topic cannot accept message without key")
    if rules.append_time:
        return _stamped(batch, now_ms)
    _check_times(batch, rules, now_ms)
    return batch


def _check_shape(batch: Batch) -> None:
    if batch.control:
        raise Refused(codes.INVALID_RECORD, "Clients are not allowed to write control records")
    if batch.last_offset_delta < 0 or not batch.whole or batch.count <= 0:
        raise Refused(codes.INVALID_RECORD, "the count of records and the span of offsets disagree")
    if batch.producer_id != layout.NO_PRODUCER and batch.base_sequence < 0:
        raise Refused(codes.INVALID_RECORD, "a producer's batch needs a sequence")
    if batch.transactional and batch.producer_id == layout.NO_PRODUCER:
        raise Refused(codes.INVALID_RECORD, "a transactional batch needs a producer")


def _check_times(batch: Batch, rules: TopicRules, now_ms: int) -> None:
    if batch.log_append_time:
        raise Refused(codes.INVALID_TIMESTAMP, "a client must not send the log append time")
    if batch.max_timestamp > now_ms + rules.after_max_ms:
        raise Refused(codes.INVALID_TIMESTAMP, "a time too far ahead")
    if batch.max_timestamp != layout.NO_TIMESTAMP and now_ms - batch.max_timestamp > rules.before_max_ms:
        raise Refused(codes.INVALID_TIMESTAMP, "a time too far back")


def _stamped(batch: Batch, now_ms: int) -> Batch:
    """Put in the broker's own time, as `DefaultRecordBatch.setMaxTimestamp` does: bit, field and checksum."""
    raw = bytearray(batch.raw)
    attributes = batch.attributes | layout.LOG_APPEND_TIME_BIT
    raw[layout.ATTRIBUTES : layout.ATTRIBUTES + 2] = attributes.to_bytes(2, "big", signed=True)
    raw[layout.MAX_TIMESTAMP : layout.MAX_TIMESTAMP + 8] = now_ms.to_bytes(8, "big", signed=True)
    raw[layout.CRC : layout.CRC + 4] = crc32c(bytes(raw[layout.ATTRIBUTES :])).to_bytes(4, "big")
    return Batch(memoryview(bytes(raw)))
