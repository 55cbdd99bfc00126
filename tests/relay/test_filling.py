"""How holes of a first copy are written: as filling records while all is old enough, else as blanks."""

from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from twinlog.batch import layout
from twinlog.batch.codecs import decompress
from twinlog.batch.fill import is_filling
from twinlog.batch.records import Record, decode, encode
from twinlog.batch.scan import Blank, Data
from twinlog.batch.section import frame_of, framed_at, packed
from twinlog.batch.view import Batch, zigzag
from twinlog.names import TopicPartition
from twinlog.relay.decide import sendable
from twinlog.relay.filling import MARGIN_MS, MAX_HOLE, Filling
from twinlog.relay.progress import Progress

WHERE = TopicPartition("t", 0)
NOW_MS, ROLL_MS = 1_000_000_000, 10_000
OLD_MS, NEW_MS = NOW_MS - ROLL_MS - MARGIN_MS, NOW_MS - ROLL_MS - MARGIN_MS + 1
BIG = 1_000_000


def holed(first: int, last: int, records: Sequence[Record], codec: int = 0) -> Batch:
    """A batch of the span `first` to `last` of which the cleaner has left `records`."""
    base = records[0].timestamp
    section = b"".join(
        framed_at(frame_of(record), zigzag(record.timestamp - base), zigzag(record.offset - first))
        for record in records
    )
    times = (base, max(record.timestamp for record in records))
    whole = packed(section, codec=codec, first=first, count=last - first + 1, times=times)
    return Batch(memoryview(bytes(whole.raw[: layout.COUNT]) + len(records).to_bytes(4, "big") + bytes(whole.body)))


def data(first: int, last: int, *offsets: int, at_ms: int = OLD_MS, key: bytes | None = b"k") -> Data:
    """A batch with records at `offsets` only."""
    return Data(holed(first, last, [Record(offset, at_ms, key, b"v%d" % offset) for offset in offsets]))


def filling(until: int = 1_000, *, newest_ms: int = -1, max_batch_bytes: int = BIG) -> Filling:
    """A filling whose time is NOW_MS."""
    made = Filling(until, roll_ms=ROLL_MS, newest_ms=newest_ms, max_batch_bytes=max_batch_bytes)
    made.now_ms = NOW_MS
    return made


class Out(NamedTuple):
    """What came out: the source's records, the offsets that were filled, and those that are blank."""

    records: list[Record]
    filled: list[int]
    blank: list[int]


def taken(items: Sequence[Batch | Blank], position: int) -> Out:
    """Take items apart; they have to follow each other, and each batch has to be one that a broker takes."""
    out = Out([], [], [])
    for item in items:
        if isinstance(item, Blank):
            assert item.first == position
            out.blank.extend(range(item.first, item.last + 1))
            position = item.last + 1
            continue
        assert item.whole
        assert item.base_offset == position
        assert item.crc_ok()
        for record in decode(item):
            if is_filling(record):
                out.filled.append(record.offset)
            else:
                out.records.append(record)
        position = item.next_offset
    return out


def test_holes_inside_and_between_batches_are_filled() -> None:
    """In front, in the middle, at the end of a batch, between two, and where a batch is gone as a whole."""
    made = filling()
    items = [data(10, 19, 12, 15), Blank(20, 29), data(30, 39, 30, 39), data(40, 41, 40, 41)]
    out = taken(made.form(items, 10, WHERE), 10)
    assert [record.offset for record in out.records] == [12, 15, 30, 39, 40, 41]
    assert out.filled == [10, 11, 13, 14, *range(16, 30), *range(31, 39)]
    assert out.blank == []
    assert made.last_below(1_000) == 38
    assert made.last_below(38) == -1


def test_blanks_at_the_end_wait_for_the_next_record() -> None:
    """The source is read on behind them, and what is fetched next fills them."""
    made = filling()
    progress = Progress(WHERE, 18, 1, 0, 0, 0)
    first = made.form([data(10, 19, 17), Blank(20, 24)], 10, WHERE)
    assert made.held == Blank(18, 24)
    assert made.ahead(progress).position == 25
    second = made.form([data(25, 26, 26)], 25, WHERE)
    out = taken([*first, *second], 10)
    assert out.filled == [*range(10, 17), *range(18, 26)]
    assert made.held is None
    assert made.ahead(progress) is progress


def test_what_is_held_back_is_forgotten_with_the_subscription() -> None:
    """And so is the last filling record, where it was not written."""
    made = filling()
    made.form([data(10, 19, 17), Blank(20, 24)], 10, WHERE)
    made.begin_at(18)
    assert (made.held, made.last_below(100)) == (None, 16)
    made.begin_at(16)
    assert made.last_below(100) == -1


def test_the_blank_at_the_end_of_the_filling_is_a_marker() -> None:
    """The run with it as a whole, whatever is behind: its append rolls the segment."""
    made = filling(until=50)
    out = taken(made.form([data(30, 39, 31), data(40, 60, 45, 60)], 30, WHERE), 30)
    assert out.filled == [30, *range(32, 45)]
    assert out.blank == list(range(46, 60))
    assert made.over(61)


def test_held_back_up_to_the_end_of_the_filling() -> None:
    """Where the chunk ends right there, the run goes with what follows."""
    made = filling(until=50)
    first = made.form([data(40, 49, 45)], 40, WHERE)
    assert made.held == Blank(46, 49)
    assert not made.over(50)
    out = taken([*first, *made.form([Blank(50, 54), data(55, 55, 55)], 50, WHERE)], 40)
    assert out.blank == list(range(46, 55))


def test_nothing_is_filled_behind_a_new_record() -> None:
    """It might be the first of a segment, which then would not roll; nor does a new record share its batch."""
    made = filling()
    out = made.form([data(0, 9, 5), data(10, 19, 10, 15, at_ms=NEW_MS), data(20, 29, 25)], 0, WHERE)
    seen = taken(out, 0)
    assert seen.filled == [0, 1, 2, 3, 4, *range(6, 10)] or seen.filled == [0, 1, 2, 3, 4]
    assert set(range(11, 15)) | set(range(16, 25)) <= set(seen.blank)
    for item in out:
        if isinstance(item, Batch) and item.max_timestamp == NEW_MS:
            assert not any(is_filling(record) for record in decode(item))


def test_nothing_is_filled_behind_a_marker_until_it_is_old() -> None:
    """A marker bears the broker's time."""
    made = filling()
    out = taken(made.form([data(0, 9, 5, 9, key=None), data(10, 19, 15, 19)], 0, WHERE), 0)
    assert out.filled == []
    made.now_ms = NOW_MS + ROLL_MS + MARGIN_MS - 1
    assert taken(made.form([data(20, 29, 25, 29)], 20, WHERE), 20).filled == []
    made.now_ms = NOW_MS + 2 * (ROLL_MS + MARGIN_MS)
    assert taken(made.form([data(30, 39, 35, 39)], 30, WHERE), 30).filled != []


def test_after_a_takeover_the_first_blanks_are_markers() -> None:
    """Whatever the times: only markers at a higher epoch fence those that a former owner may have under way."""
    made = Filling(1_000, roll_ms=ROLL_MS, newest_ms=-1, max_batch_bytes=BIG, behind_marker=True)
    made.now_ms = NOW_MS
    out = taken(made.form([data(0, 9, 0, 5), Blank(10, 12)], 0, WHERE), 0)
    assert out.filled == []
    assert made.held is None
    made.now_ms = NOW_MS + 2 * (ROLL_MS + MARGIN_MS)
    assert taken(made.form([data(13, 19, 19)], 13, WHERE), 13).filled == list(range(13, 19))


def test_what_does_not_fit_is_a_marker() -> None:
    """A hole that is too long, and one whose filling would make the batch larger than the destination takes."""
    assert taken(filling(10**6).form([data(0, MAX_HOLE + 1, MAX_HOLE + 1)], 0, WHERE), 0).filled == []
    long_key = data(0, 9, 9, key=b"k" * 1_000)
    assert taken(filling(max_batch_bytes=12_000).form([long_key], 0, WHERE), 0).filled == []
    assert len(taken(filling().form([long_key], 0, WHERE), 0).filled) == 9


def test_whole_batches_pass_as_they_are() -> None:
    """Byte for byte, without a look at their records."""
    batch = encode([Record(10, OLD_MS, None, b"v"), Record(11, OLD_MS, b"k", b"v")], codec=layout.LZ4)
    made = filling().form([Data(batch)], 10, WHERE)
    assert made == (batch,)
    assert made[0] is batch


CODECS = st.sampled_from([layout.NO_CODEC, layout.NO_CODEC, layout.GZIP, layout.SNAPPY, layout.LZ4, layout.ZSTD])


@st.composite
def partitions(draw: st.DrawFn) -> tuple[list[Data | Blank], int]:
    """A compacted log as scan shows it, and the offset behind."""
    at, items = 0, []
    for _ in range(draw(st.integers(1, 12))):
        if draw(st.booleans()):
            span = draw(st.integers(1, 40))
            items.append(Blank(at, at + span - 1))
            at += span
        span = draw(st.integers(1, 30))
        offsets = sorted(draw(st.sets(st.integers(at, at + span - 1), min_size=1)))
        time = draw(st.sampled_from([OLD_MS] * 9 + [NEW_MS]))
        keys = st.sampled_from([b"a", b"b", b"", None] if draw(st.integers(0, 5)) == 0 else [b"a", b"b", b""])
        records = [Record(offset, time, draw(keys), draw(st.sampled_from([b"v", None]))) for offset in offsets]
        items.append(Data(holed(at, at + span - 1, records, draw(CODECS))))
        at += span
    return items, at


def cleaned(records: Sequence[Record]) -> list[Record]:
    """What a cleaner leaves of a log: of each key the last record."""
    last = {record.key: record.offset for record in records if record.key is not None}
    return [record for record in records if record.key is None or last[record.key] == record.offset]


@given(partitions(), st.data())
def test_a_cleaner_makes_holes_of_all_that_was_filled(
    made: tuple[list[Data | Blank], int], draw: st.DataObject
) -> None:
    """However it is cut into chunks, a cleaner leaves of it what it would leave of the source's own log."""
    items, end = made
    until = draw.draw(st.integers(0, end))
    form = filling(until)
    out: list[Batch | Blank] = []
    position, rest = 0, list(items)
    while rest:
        count = draw.draw(st.integers(1, len(rest)))
        chunk, rest = rest[:count], rest[count:]
        out += form.form(chunk, position, WHERE)
        last = chunk[-1]
        position = last.last + 1 if isinstance(last, Blank) else last.batch.next_offset
    expected = taken(sendable(items, 0, WHERE), 0).records
    written = [record for item in out if isinstance(item, Batch) for record in decode(item)]
    seen = taken(out, 0)
    assert seen.records == expected
    assert len(seen.records) + len(seen.filled) + len(seen.blank) == (form.held.first if form.held else end)
    assert cleaned(written) == cleaned(expected)
    assert all(offset < until for offset in seen.filled)
    assert form.last_below(end) == max(seen.filled, default=-1)
    for batch in (item for item in out if isinstance(item, Batch)):
        section = decompress(batch.codec, batch.body)
        assert len(section) < BIG
