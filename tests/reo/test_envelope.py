"""What a record of the proxy topic says, and what it means to a reader that stands somewhere."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.batch.records import Record, decode
from twinlog.errors import BadInput
from twinlog.names import TopicPartition
from twinlog.reo.envelope import NOTHING_KNOWN, Envelope, Means, meaning, read, written
from twinlog.reo.positions import Place

WHERE = TopicPartition("orders-proxy", 3)
PLACE = Place("copy", "cluster", "orders", "id", 3)
PLAIN = Envelope(PLACE, 10, 20, 4, "positions", "target")
BEGIN = replace(PLAIN, next_offset=10, after=NOTHING_KNOWN)


def means(envelope: Envelope, reached: int | None) -> Means:
    """To a reader of the same topics."""
    return meaning(envelope, reached, positions_id="positions", target_id="target")


@pytest.mark.parametrize("envelope", [PLAIN, BEGIN, replace(PLAIN, after=7)])
def test_an_envelope_comes_back_as_it_was_written(envelope: Envelope) -> None:
    """Beside the bytes that it holds."""
    (record,) = decode(written(envelope, b"batches", time_ms=5))
    assert (read(record, WHERE), record.value, record.timestamp) == (envelope, b"batches", 5)


@pytest.mark.parametrize("key", [None, b"", b"{}", b'{"twinlog":1,"first":3}', b'{"twinlog":1,'])
def test_a_record_of_somebody_else_is_refused(key: bytes | None) -> None:
    """With what to do."""
    with pytest.raises(BadInput, match="orders-proxy-3 holds at offset 8 a record that is not of this program"):
        read(Record(8, 0, key, b"x"), WHERE)


@pytest.mark.parametrize(
    ("reached", "expected"),
    [
        (None, Means.UNKNOWN),
        (9, Means.GAP),
        (10, Means.TAKE),
        (19, Means.TAKE),
        (20, Means.SEEN),
        (99, Means.SEEN),
    ],
)
def test_a_reader_takes_what_comes_next_and_drops_what_it_has_seen(reached: int | None, expected: Means) -> None:
    """What would leave a gap is neither."""
    assert means(PLAIN, reached) is expected


def test_a_beginning_counts_only_in_the_state_that_it_answers() -> None:
    """So that one that comes twice, or late, changes nothing."""
    assert means(BEGIN, None) is Means.BEGIN
    assert means(BEGIN, 10) is Means.SEEN
    assert means(BEGIN, 15) is Means.SEEN
    onward = replace(BEGIN, after=7)
    assert means(onward, 7) is Means.BEGIN
    assert means(onward, None) is Means.UNKNOWN
    assert means(onward, 8) is Means.GAP


@pytest.mark.parametrize("other", [{"positions_id": "before"}, {"target_id": "before"}])
def test_a_beginning_for_topics_that_were_created_again_counts_no_more(other: dict[str, str]) -> None:
    """What a lost position topic knew is not guessed from it."""
    assert means(replace(BEGIN, **other), None) is Means.UNKNOWN


@given(st.data())
def test_however_many_write_each_offset_is_taken_once_and_in_order(data: st.DataObject) -> None:
    """Writers begin where all before is written, and leave nothing out; their records are mixed at will."""
    log: list[Envelope] = [replace(BEGIN, first=0, next_offset=0)]
    stands: list[int] = []
    for _ in range(data.draw(st.integers(1, 30), "steps")):
        if not stands or data.draw(st.booleans(), "another writer"):
            stands.append(data.draw(st.integers(0, _written(log)), "from"))
            continue
        at = data.draw(st.integers(0, len(stands) - 1), "who")
        further = stands[at] + data.draw(st.integers(1, 5), "how far")
        log.append(replace(PLAIN, first=stands[at], next_offset=further))
        stands[at] = further
    taken: list[int] = []
    reached: int | None = None
    for envelope in log:
        said = means(envelope, reached)
        assert said in {Means.BEGIN, Means.TAKE, Means.SEEN}
        if said is Means.BEGIN:
            reached = envelope.first
        elif said is Means.TAKE and reached is not None:
            taken += range(reached, envelope.next_offset)
            reached = envelope.next_offset
    assert taken == list(range(_written(log)))


def _written(log: Sequence[Envelope]) -> int:
    return max(envelope.next_offset for envelope in log)
