"""A fetched buffer: cut into batches, refused when hostile, and read as a read_committed reader reads it."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from twinlog.batch import layout
from twinlog.batch.scan import Aborted, Blank, Data, Scan, batches, readable
from twinlog.batch.view import Batch, OldBatch
from twinlog.errors import CorruptBatch
from twinlog.names import TopicPartition

Raw = Callable[..., bytes]

WHERE = TopicPartition("orders", 3)
FAR = 2**62


def offsets(buffer: bytes, **options: bool) -> list[tuple[int, int]]:
    """First and last offset of each batch."""
    return [(b.base_offset, b.last_offset) for b in batches(memoryview(buffer), WHERE, **options)]


def outline(scan: Scan) -> list[tuple[str, int, int]]:
    """What a scan found, in a form that is easy to compare."""
    return [
        ("blank", i.first, i.last) if isinstance(i, Blank) else ("data", i.batch.base_offset, i.batch.last_offset)
        for i in scan.items
    ]


def test_batches_of_every_magic_are_cut_out_in_order(raw_batch: Raw, old_message: Raw) -> None:
    """Each batch is a view over its own bytes; a log may change its format on the way."""
    parts = [old_message(3, magic=0), old_message(9, magic=1, attributes=1), raw_batch(12, count=4), raw_batch(20)]
    found = list(batches(memoryview(b"".join(parts))))
    assert [type(b) for b in found] == [OldBatch, OldBatch, Batch, Batch]
    assert [bytes(b.raw) for b in found] == parts
    assert [(b.base_offset, b.last_offset) for b in found] == [(3, 3), (9, 9), (12, 15), (20, 20)]


def test_a_cut_tail_is_ignored_wherever_it_is_cut(raw_batch: Raw, old_message: Raw) -> None:
    """Cut at each byte, a buffer yields exactly the batches that are still whole."""
    parts = [raw_batch(0, count=2), old_message(2), raw_batch(3)]
    ends = [sum(map(len, parts[: n + 1])) for n in range(3)]
    whole = b"".join(parts)
    for size in range(len(whole) + 1):
        assert len(offsets(whole[:size])) == sum(end <= size for end in ends)


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 13, layout.MAX_BATCH_BYTES + 1, 2**31 - 1])
def test_an_absurd_length_is_corrupt(raw_batch: Raw, length: int) -> None:
    """A length that no batch has is refused with topic, partition and offset."""
    raw = raw_batch(6) + raw_batch(7)[:8] + length.to_bytes(4, "big", signed=True) + raw_batch(7)[12:]
    with pytest.raises(
        CorruptBatch, match=f"orders-3 holds a corrupt batch at offset 7: its length says {length} bytes"
    ):
        offsets(raw)


@pytest.mark.parametrize(("magic", "length"), [(0, 13), (1, 21), (2, 48)])
def test_a_length_below_its_magics_least_is_corrupt(magic: int, length: int) -> None:
    """Each format has a least length, and one byte less is refused."""
    raw = (7).to_bytes(8, "big") + length.to_bytes(4, "big") + bytes(4) + bytes([magic]) + bytes(100)
    with pytest.raises(CorruptBatch, match=r"offset 7: (its length says|\d+ bytes are too few)"):
        offsets(raw, check=False)


@pytest.mark.parametrize("magic", [-128, -1, 3, 127])
def test_an_unknown_magic_is_corrupt(raw_batch: Raw, magic: int) -> None:
    """There are magic 0, 1 and 2."""
    raw = bytearray(raw_batch(7))
    raw[layout.MAGIC] = magic & 0xFF
    with pytest.raises(CorruptBatch, match=f"offset 7: its magic is {magic}"):
        offsets(bytes(raw))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"count": -1, "span": 3}, "says -1 records in 3 offsets"),
        ({"count": 4, "span": 3}, "says 4 records in 3 offsets"),
        ({"count": 0, "span": 0}, "says 0 records in 0 offsets"),
        ({"count": 1, "span": -5}, "says 1 records in -5 offsets"),
        ({"attributes": 5}, "codec is 5"),
        ({"attributes": 7}, "codec is 7"),
    ],
)
def test_a_header_that_contradicts_itself_is_corrupt(raw_batch: Raw, fields: dict[str, int], reason: str) -> None:
    """Counts, deltas and codecs that no broker writes are refused even when the checksum is right."""
    with pytest.raises(CorruptBatch, match=f"offset 7: .*{reason}"):
        offsets(raw_batch(7, **fields))


@pytest.mark.parametrize("second", [-1, -(2**63), 0, 6, 7, 9])
def test_offsets_that_run_backwards_are_corrupt(raw_batch: Raw, second: int) -> None:
    """A batch begins behind the last offset of the one before."""
    with pytest.raises(CorruptBatch, match=f"offset {second}: its offset is out of order behind 9"):
        offsets(raw_batch(7, count=3) + raw_batch(second))


def test_offsets_beyond_the_largest_are_corrupt(raw_batch: Raw, old_message: Raw) -> None:
    """An offset behind which no next one can be written down is refused."""
    for raw in (raw_batch(2**63 - 1), old_message(2**63 - 1), raw_batch(2**63 - 5, count=5)):
        with pytest.raises(CorruptBatch, match="offset"):
            offsets(raw)
    assert offsets(raw_batch(2**63 - 5, count=4)) == [(2**63 - 5, 2**63 - 2)]


def test_a_wrong_checksum_is_corrupt_unless_it_is_not_checked(raw_batch: Raw, old_message: Raw) -> None:
    """One changed byte of the records is found, in every format."""
    for raw in (raw_batch(7), old_message(7, magic=0), old_message(7, magic=1)):
        damaged = raw[:-1] + bytes([raw[-1] ^ 1])
        with pytest.raises(CorruptBatch, match="offset 7: its checksum differs") as caught:
            offsets(damaged)
        assert caught.value.offset == 7
        assert not caught.value.retriable
        assert offsets(damaged, check=False) == [(7, 7)]


@given(buffer=st.binary(max_size=300), check=st.booleans())
@example(buffer=bytes(300), check=False)
@example(buffer=b"\xff" * 300, check=True)
def test_any_bytes_are_batches_or_corrupt(buffer: bytes, check: bool) -> None:  # noqa: FBT001 - hypothesis names it
    """Random bytes raise nothing but CorruptBatch, in both readers."""
    assert isinstance(outcome(lambda: offsets(buffer, check=check)), list | str)
    assert isinstance(outcome(lambda: readable(memoryview(buffer), position=0, stable=FAR)), Scan | str)


@given(data=st.data())
def test_a_flipped_bit_is_found_or_lies_where_no_checksum_reaches(
    data: st.DataObject, raw_batch: Raw, raw_marker: Raw, old_message: Raw
) -> None:
    """Any bit of any batch: CorruptBatch, or the flip was in the offset, the leader epoch or (cut tail) the length."""
    buffer = raw_batch(5, count=2) + raw_marker(8, 0) + old_message(9)
    bit = data.draw(st.integers(0, len(buffer) * 8 - 1))
    flipped = bytearray(buffer)
    flipped[bit // 8] ^= 1 << bit % 8
    found = outcome(lambda: offsets(bytes(flipped)))
    starts = (0, len(raw_batch(5, count=2)), len(raw_batch(5, count=2) + raw_marker(8, 0)))
    within = bit // 8 - max(start for start in starts if start <= bit // 8)
    assert found == str(found) or within < layout.MAGIC
    aborted = [Aborted(1, 6), Aborted(-1, 0)]
    assert outcome(lambda: readable(memoryview(flipped), position=5, stable=FAR, aborted=aborted)) is not None


def outcome(action: Callable[[], object]) -> object:
    """What the action returned, or the reason of the one error that it may raise."""
    try:
        return action()
    except CorruptBatch as error:
        return error.reason


def test_data_comes_as_it_is_with_blanks_between(raw_batch: Raw, raw_marker: Raw) -> None:
    """Markers, empty batches and offsets without a batch become one blank between two data."""
    log = raw_batch(10, count=2) + raw_marker(12, 1) + raw_batch(15, count=0, span=3) + raw_batch(20)
    scan = readable(memoryview(log), position=10, stable=21)
    assert outline(scan) == [("data", 10, 11), ("blank", 12, 19), ("data", 20, 20)]
    assert (scan.next_offset, scan.bytes) == (21, len(log))


def test_a_hole_before_the_first_and_a_marker_behind_the_last(raw_batch: Raw, raw_marker: Raw) -> None:
    """Blanks stand at both ends too."""
    scan = readable(memoryview(raw_batch(10) + raw_marker(11, 1)), position=7, stable=FAR)
    assert outline(scan) == [("blank", 7, 9), ("data", 10, 10), ("blank", 11, 11)]
    assert scan.next_offset == 12


def test_a_hole_inside_a_batch_stays_inside_its_data(raw_batch: Raw) -> None:
    """Only decoding tells which offsets of a compacted batch are left."""
    assert outline(readable(memoryview(raw_batch(3, count=1, span=4)), position=3, stable=FAR)) == [("data", 3, 6)]


def test_nothing_fetched_is_nothing_found() -> None:
    """An empty buffer leaves the position where it is."""
    assert readable(memoryview(b""), position=4, stable=9) == Scan((), 4, 0)


def test_a_batch_that_starts_below_the_position_is_whole_data(raw_batch: Raw) -> None:
    """A fetch returns the batch that contains its offset; what ends below the position is left out."""
    log = raw_batch(0, count=2) + raw_batch(2, count=4)
    scan = readable(memoryview(log), position=4, stable=FAR)
    assert outline(scan) == [("data", 2, 5)]
    assert (scan.next_offset, scan.bytes) == (6, len(log))


def test_a_blank_that_starts_below_the_position_is_trimmed(raw_batch: Raw) -> None:
    """Of an empty batch only the part from the position on counts."""
    assert outline(readable(memoryview(raw_batch(2, count=0, span=5)), position=4, stable=FAR)) == [("blank", 4, 6)]


@pytest.mark.parametrize(("stable", "end"), [(0, 0), (1, 0), (2, 2), (4, 2), (5, 5), (6, 5)])
def test_a_batch_that_reaches_beyond_the_stable_offset_ends_the_scan(raw_batch: Raw, stable: int, end: int) -> None:
    """Nothing undecided is read, not even part of a batch."""
    first = raw_batch(0, count=2)
    scan = readable(memoryview(first + raw_batch(2, count=3) + raw_batch(9)), position=0, stable=stable)
    assert scan.next_offset == end
    assert scan.bytes == {0: 0, 2: len(first), 5: len(first + raw_batch(2, count=3))}[end]


def test_an_aborted_transaction_is_blank_up_to_its_marker(raw_batch: Raw, raw_marker: Raw) -> None:
    """What the producer writes after its abort marker is data again; other producers are not touched."""
    log = (
        raw_batch(0, attributes=0x10, producer=1)  # committed long ago
        + raw_batch(1, attributes=0x10, producer=1)
        + raw_batch(2, attributes=0x10, producer=2)
        + raw_batch(3, attributes=0x10, producer=1)
        + raw_marker(4, 0, producer=1)
        + raw_batch(5, attributes=0x10, producer=1)
        + raw_marker(6, 1, producer=1)
    )
    scan = readable(memoryview(log), position=0, stable=FAR, aborted=[Aborted(1, 1)])
    assert outline(scan) == [
        ("data", 0, 0),
        ("blank", 1, 1),
        ("data", 2, 2),
        ("blank", 3, 4),
        ("data", 5, 5),
        ("blank", 6, 6),
    ]


def test_a_plain_batch_of_an_aborted_producer_is_data(raw_batch: Raw) -> None:
    """Only transactional batches belong to a transaction."""
    log = raw_batch(1, producer=1, epoch=0, sequence=0)
    assert outline(readable(memoryview(log), position=1, stable=FAR, aborted=[Aborted(1, 0)])) == [("data", 1, 1)]


def test_a_commit_marker_does_not_end_an_aborted_transaction(raw_batch: Raw, raw_marker: Raw) -> None:
    """Only an abort marker takes the producer off the list."""
    log = raw_marker(1, 1, producer=1) + raw_batch(2, attributes=0x10, producer=1)
    assert outline(readable(memoryview(log), position=1, stable=FAR, aborted=[Aborted(1, 0)])) == [("blank", 1, 2)]


def test_the_aborted_list_may_come_in_any_order(raw_batch: Raw, raw_marker: Raw) -> None:
    """Two transactions of one producer, listed the later one first."""
    one = raw_batch(0, attributes=0x10, producer=1) + raw_marker(1, 0, producer=1)
    two = raw_batch(2, attributes=0x10, producer=1) + raw_marker(3, 1, producer=1)
    three = raw_batch(4, attributes=0x10, producer=1) + raw_marker(5, 0, producer=1)
    scan = readable(memoryview(one + two + three), position=0, stable=FAR, aborted=[Aborted(1, 4), Aborted(1, 0)])
    assert outline(scan) == [("blank", 0, 1), ("data", 2, 2), ("blank", 3, 5)]


def test_a_broken_marker_names_the_partition(raw_batch: Raw, raw_marker: Raw) -> None:
    """A control record that cannot be read is refused when it matters, with topic and partition."""
    log = raw_batch(0, attributes=0x10, producer=1) + raw_marker(1, 0, producer=1, body=b"?")
    with pytest.raises(CorruptBatch, match="orders-3 holds a corrupt batch at offset 1"):
        readable(memoryview(log), position=0, stable=FAR, aborted=[Aborted(1, 0)], where=WHERE)


def test_old_messages_are_data_and_a_wrapper_reaches_back_to_the_one_before(old_message: Raw) -> None:
    """Holes before a single message are seen; before a wrapper they are part of its data."""
    log = old_message(3) + old_message(6) + old_message(9, attributes=1) + old_message(10, magic=0)
    scan = readable(memoryview(log), position=2, stable=FAR)
    assert outline(scan) == [
        ("blank", 2, 2),
        ("data", 3, 3),
        ("blank", 4, 5),
        ("data", 6, 6),
        ("data", 9, 9),
        ("data", 10, 10),
    ]


@dataclass
class Log:
    """A partition written step by step, with what a reader must find noted at each step."""

    raw_batch: Raw
    raw_marker: Raw
    parts: list[tuple[int, int, bytes]] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    open: dict[int, list[int]] = field(default_factory=dict)
    aborted: list[tuple[Aborted, int]] = field(default_factory=list)
    end: int = 0

    def step(self, kind: str, producer: int, count: int) -> None:
        """Append one thing of the given kind."""
        span = range(self.end, self.end + count)
        if kind in {"commit", "abort"}:
            self.finish(producer, kind)
        elif kind == "transactional":
            self.open.setdefault(producer, []).extend(span)
            self.add(self.raw_batch(self.end, count=count, attributes=0x10, producer=producer), count)
        elif kind == "plain":
            self.seen.update(span)
            self.add(self.raw_batch(self.end, count=count, producer=producer), count)
        elif kind == "empty":
            self.add(self.raw_batch(self.end, count=0, span=count, body=b"", producer=producer), count)
        else:
            self.end += count

    def finish(self, producer: int, kind: str) -> None:
        """End the producer's transaction, if it has one, with a marker."""
        mine = self.open.pop(producer, [])
        if kind == "commit":
            self.seen.update(mine)
        elif mine:
            self.aborted.append((Aborted(producer, mine[0]), self.end))
        self.add(self.raw_marker(self.end, int(kind == "commit"), producer=producer), 1)

    def add(self, raw: bytes, count: int) -> None:
        """Append one batch."""
        self.parts.append((self.end, self.end + count - 1, raw))
        self.end += count

    @property
    def stable(self) -> int:
        """First offset that is not decided."""
        return min([self.end, *(mine[0] for mine in self.open.values())])


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["plain", "transactional", "transactional", "commit", "abort", "empty", "hole"]),
        st.integers(0, 2),
        st.integers(1, 4),
    ),
    max_size=25,
)


@given(steps=STEPS, data=st.data())
def test_a_scan_says_what_a_dumb_twin_noted_while_writing(
    steps: list[tuple[str, int, int]], data: st.DataObject, raw_batch: Raw, raw_marker: Raw
) -> None:
    """From any position, each offset is in one item, and in data exactly when a reader sees it."""
    log = Log(raw_batch, raw_marker)
    for step in steps:
        log.step(*step)
    position = data.draw(st.integers(0, log.end))
    fetched = [part for part in log.parts if part[1] >= position]
    aborted = [a for a, marker in log.aborted if marker >= min([position, *(p[0] for p in fetched)])]
    scan = readable(
        memoryview(b"".join(raw for _, _, raw in fetched)),
        position=position,
        stable=log.stable,
        aborted=data.draw(st.permutations(aborted)),
    )
    decided = [last for _, last, _ in fetched if last < log.stable]
    assert scan.next_offset == max([position - 1, *decided]) + 1
    assert_covers(scan, position, log.seen)


def assert_covers(scan: Scan, position: int, seen: set[int]) -> None:
    """Items follow each other without a gap, blanks never meet, and data is where `seen` says."""
    at, blank_before = position, False
    for item in scan.items:
        first, last = (
            (item.batch.base_offset, item.batch.last_offset) if isinstance(item, Data) else (item.first, item.last)
        )
        assert max(first, position) == at
        assert {o in seen for o in range(at, last + 1)} == {isinstance(item, Data)}
        assert not (blank_before and isinstance(item, Blank))
        at, blank_before = last + 1, isinstance(item, Blank)
    assert at == scan.next_offset
