"""How a position is written and read."""

import pytest

from twinlog.batch.records import Record, decode
from twinlog.errors import BadInput
from twinlog.names import TopicPartition
from twinlog.reo.positions import Place, Position, decoded, encoded, share_of

WHERE = TopicPartition("copy-positions", 0)
PLACE = Place("copy", "cluster", "orders", "id", 3)


def test_positions_come_back_as_they_were_written() -> None:
    """Also with what stops a partition."""
    written = {
        PLACE: Position(17, 4, "orders", "other", 99, ""),
        Place("c", "d", "e", "f", 0): Position(0, -1, "", "", 1, "é"),
    }
    assert dict(decoded(record, WHERE) for record in decode(encoded(written))) == written


@pytest.mark.parametrize("key", [None, b"{", b"[]", b'{"topic":1}'])
def test_a_foreign_record_is_refused(key: bytes | None) -> None:
    """Nothing is guessed from it."""
    with pytest.raises(BadInput, match="offset 5 a record that is no position"):
        decoded(Record(5, 0, key, b"{}"), WHERE)


def test_a_tombstone_says_that_there_is_no_position() -> None:
    """For its place."""
    (record,) = decode(encoded({PLACE: Position(1, 1, "", "", 1)}))
    assert decoded(record._replace(value=None), WHERE) == (PLACE, None)


def test_the_partitions_of_a_topic_are_dealt_out_evenly() -> None:
    """Always the same way, and none is left out."""
    dealt = [share_of("orders", number, 4) for number in range(8)]
    assert sorted(dealt) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert dealt == [share_of("orders", number, 4) for number in range(8)]
    assert {share_of("any", number, 1) for number in range(5)} == {0}
