"""What the tail check takes for a difference."""

import pytest

from twinlog.batch.compare import unmatched
from twinlog.batch.fill import HEADER_NAME
from twinlog.batch.records import Record, encode
from twinlog.batch.scan import Blank, Data
from twinlog.errors import PartitionFailed
from twinlog.names import TopicPartition
from twinlog.relay.tailcheck import Compacted, _compare

WHERE = TopicPartition("orders", 3)


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
