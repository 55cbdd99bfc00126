"""What the tail check takes for a difference, and where it says that it is the source that was changed."""

import pytest

from twinlog.batch import layout
from twinlog.batch.compare import unmatched
from twinlog.batch.fill import HEADER_NAME
from twinlog.batch.records import Record, encode
from twinlog.batch.scan import Blank, Data
from twinlog.batch.view import Batch
from twinlog.errors import LogsDiffer, PartitionFailed
from twinlog.names import TopicPartition
from twinlog.relay.tailcheck import Compacted, _compare

WHERE = TopicPartition("orders", 3)
OURS = 4711


def _batch(*offsets: int) -> Data:
    return Data(encode([Record(offset, 1_000_000, b"k%d" % offset, b"v", ()) for offset in offsets], codec=0))


def test_record_that_the_source_has_compacted_away_meanwhile_is_no_difference() -> None:
    """A worker that takes over after the source's cleaner has run finds older records at the destination."""
    source, destination = [Blank(100, 100), _batch(101, 102)], [_batch(100, 101, 102)]
    ours = destination[0].batch.producer_id
    _compare(WHERE, source, destination, (100, 102), compacted=Compacted(frozenset({ours})))
    _compare(WHERE, source, destination, (100, 102), compacted=Compacted(None))
    _compare(WHERE, destination, [_batch(101, 102)], (100, 102), compacted=Compacted(frozenset({ours})))


def test_record_of_somebody_else_is_a_difference_in_a_compacted_topic_too() -> None:
    """Where the source has a blank, only what the mirror itself wrote may stand."""
    source, destination = [Blank(100, 100), _batch(101, 102)], [_batch(100, 101, 102)]
    with pytest.raises(PartitionFailed, match="offset 100"):
        _compare(WHERE, source, destination, (100, 102), compacted=Compacted(frozenset({4711})))


def test_record_that_the_source_does_not_have_is_a_difference_elsewhere() -> None:
    """A topic that is not compacted loses nothing in the middle."""
    source, destination = [Blank(100, 100), _batch(101, 102)], [_batch(100, 101, 102)]
    with pytest.raises(PartitionFailed, match="offset 100"):
        _compare(WHERE, source, destination, (100, 102), compacted=None)


def test_changed_record_is_a_difference_in_any_topic() -> None:
    """Both sides have a record at the offset, and it is not the same."""
    changed = Data(encode([Record(100, 1_000_000, b"other", b"v", ())], codec=0))
    with pytest.raises(PartitionFailed, match="offset 100"):
        _compare(WHERE, [_batch(100)], [changed], (100, 100), compacted=Compacted(None))


@pytest.mark.parametrize("hidden", [Blank(100, 100), Blank(90, 105)])
def test_marker_where_the_source_has_a_record_is_not_compaction(hidden: Blank) -> None:
    """A surplus marker stands there; the cleaner would have left nothing."""
    source, destination = [_batch(100), _batch(101, 102)], [Blank(100, 100), _batch(101, 102)]
    compacted = Compacted(None)
    elsewhere = [Blank(80, 85), Blank(103, 103)]
    _compare(WHERE, source, destination, (100, 102), compacted=compacted, hidden=(elsewhere, elsewhere))
    with pytest.raises(PartitionFailed, match="offset 100"):
        _compare(WHERE, source, destination, (100, 102), compacted=compacted, hidden=([], [Blank(80, 85), hidden]))


def test_record_where_the_source_has_a_marker_is_not_compaction() -> None:
    """An offset that has a marker never had a record: the same batch was appended twice."""
    source, destination = [Blank(100, 100), _batch(101, 102)], [_batch(100, 101, 102)]
    compacted = Compacted(frozenset({destination[0].batch.producer_id}))
    _compare(WHERE, source, destination, (100, 102), compacted=compacted, hidden=([Blank(99, 99)], []))
    with pytest.raises(PartitionFailed, match="offset 100"):
        _compare(WHERE, source, destination, (100, 102), compacted=compacted, hidden=([Blank(100, 100)], []))


def test_record_that_fills_a_marker_of_the_source_is_no_surplus() -> None:
    """The first copy of a compacted topic fills markers and aborted records, too, until the cleaner has been there."""
    filling = Record(100, 1_000_000, b"k", None, ((HEADER_NAME, None),))
    kept = Record(101, 1_000_000, b"k", b"v", ())
    source = [Blank(100, 100), Data(encode([kept], codec=0))]
    destination = [Data(encode([filling, kept], codec=0))]
    compacted = Compacted(frozenset({destination[0].batch.producer_id}))
    marker = [Blank(100, 100)]
    assert unmatched(source, destination, first=100, last=101).destination.keys() == {100}
    _compare(WHERE, source, destination, (100, 101), compacted=compacted, hidden=(marker, []))
    with pytest.raises(PartitionFailed, match="offset 100"):
        _compare(WHERE, source, destination, (100, 101), compacted=None, hidden=(marker, []))


def _written(base: int, *values: bytes, producer: int = OURS, attributes: int = 0, at: int = 1_000_000) -> Data:
    """One batch of a producer, with these values from offset `base` on."""
    records = [Record(base + n, at, b"k", value, ()) for n, value in enumerate(values)]
    raw = bytearray(encode(records, codec=0).raw)
    raw[layout.PRODUCER_ID : layout.PRODUCER_EPOCH] = producer.to_bytes(8, "big", signed=True)
    raw[layout.ATTRIBUTES : layout.LAST_OFFSET_DELTA] = attributes.to_bytes(2, "big")
    return Data(Batch(memoryview(raw)))


def _differing(source: list[Data | Blank], destination: list[Data | Blank], compacted: Compacted | None) -> LogsDiffer:
    """What the comparison of offsets 0 to 9 says."""
    with pytest.raises(LogsDiffer) as raised:
        _compare(WHERE, source, destination, (0, 9), compacted=compacted, own=frozenset({OURS}))
    return raised.value


@pytest.mark.parametrize("compacted", [None, Compacted(frozenset({OURS}))])
@pytest.mark.parametrize(
    ("source", "destination", "first", "rewritten_at"),
    [
        pytest.param(_written(5, b"a", b"X"), _written(5, b"a", b"b"), 6, 6, id="the source has another record"),
        pytest.param(_written(5, b"b", b"c"), _written(5, b"a", b"b"), 5, 5, id="the source lost one and goes on"),
        pytest.param(_written(5, b"X"), _written(5, b"a", producer=1), 5, -1, id="somebody else wrote"),
        pytest.param(_written(5, b"X"), _written(5, b"a", producer=-1), 5, -1, id="a plain producer wrote"),
        pytest.param(_written(5, b"a"), _written(5, b"a", at=2), 5, -1, id="only its time differs"),
        pytest.param(
            _written(5, b"a"),
            _written(5, b"a", at=2, attributes=layout.LOG_APPEND_TIME_BIT),
            5,
            -1,
            id="the destination's broker set its time",
        ),
        pytest.param(
            _written(5, b"X"), _written(5, b"a", attributes=layout.LOG_APPEND_TIME_BIT), 5, -1, id="stamped by a broker"
        ),
        pytest.param(_written(5, b"a", b"b"), _written(5, b"b", b"b2"), 5, 6, id="the first may have moved"),
        pytest.param(_written(5, b"a", b"b"), _written(4, b"a", b"b"), 4, -1, id="the destination began elsewhere"),
    ],
)
def test_the_source_was_changed_where_it_lacks_what_the_mirror_wrote(
    source: Data, destination: Data, first: int, rewritten_at: int, compacted: Compacted | None
) -> None:
    """By that a topic may be deleted: what others wrote, a time or a record that stands elsewhere prove nothing.

    The first difference is the lower one of both sides' offsets.
    """
    told = _differing([source], [destination], compacted)
    assert (told.offset, told.rewritten_at) == (first, rewritten_at)


def test_what_compaction_explains_is_not_where_the_source_was_changed() -> None:
    """The first difference may be that; the proof is the first offset at which both have a record."""
    told = _differing([_written(7, b"X")], [_written(3, b"a"), _written(7, b"b")], Compacted(frozenset({OURS})))
    assert (told.offset, told.rewritten_at) == (3, 7)


def test_without_known_producers_nothing_is_proven() -> None:
    """As for a failback, which only asks where the logs part."""
    with pytest.raises(LogsDiffer) as raised:
        _compare(WHERE, [_written(5, b"X")], [_written(5, b"a")], (0, 9), compacted=None)
    assert raised.value.rewritten_at == -1
