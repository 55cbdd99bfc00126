"""Which records of one side only compaction explains."""

import pytest

from twinlog.batch.compare import Difference, Kind
from twinlog.batch.records import Record
from twinlog.verify.compaction import Doubt, KeyHistory, is_compacted

END = 100
Log = dict[int, bytes | None]


def history(log: Log, end: int = END) -> KeyHistory:
    """One side that holds these values of the key."""
    found = KeyHistory([b"k"], end)
    found.feed(Record(at, 0, b"k", value) for at, value in log.items())
    found.feed([Record(90, 0, b"other", b"v"), Record(91, 0, None, b"v")])
    return found


@pytest.mark.parametrize(
    ("source", "destination", "offset", "explained"),
    [
        ({5: b"v", 9: b"w"}, {9: b"w"}, 5, True),  # a later value on both sides
        ({5: b"v"}, {}, 5, False),
        ({5: b"v", 9: b"w"}, {}, 5, False),  # the later value is missing too
        ({5: b"v", 9: None}, {}, 5, True),  # deleted; the cleaner has removed the tombstone as well
        ({9: None}, {}, 9, True),
        ({9: None}, {3: b"v"}, 9, False),  # the tombstone is missing: the value would live on
        ({5: b"v"}, {101: b"w"}, 5, True),  # removed for a record that was not compared
        ({5: b"v", 101: None}, {}, 5, False),  # the destination cannot know that one yet
    ],
)
def test_a_record_that_the_destination_lacks(source: Log, destination: Log, offset: int, *, explained: bool) -> None:
    """And the same the other way round."""
    assert is_compacted(Doubt(Kind.LOST, offset, b"k"), history(source), history(destination)) is explained
    assert is_compacted(Doubt(Kind.EXTRA, offset, b"k"), history(destination), history(source)) is explained


def test_what_is_in_doubt_at_all() -> None:
    """Records of one side only, with a key; a changed or moved one never is."""
    keyed, bare = Record(3, 0, b"k", b"v"), Record(3, 0, None, b"v")
    assert Doubt.of(Difference(Kind.LOST, 3, source=keyed)) == Doubt(Kind.LOST, 3, b"k")
    assert Doubt.of(Difference(Kind.EXTRA, 3, destination=keyed)) == Doubt(Kind.EXTRA, 3, b"k")
    assert Doubt.of(Difference(Kind.LOST, 3, source=bare)) is None
    assert Doubt.of(Difference(Kind.CHANGED, 3, source=keyed, destination=bare)) is None
    assert Doubt.of(Difference(Kind.SHIFTED, 3, source=keyed, destination=keyed)) is None
