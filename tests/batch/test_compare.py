"""Two logs compared: what counts as the same, what each difference is called, and how much is listed."""

import time
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.batch import compare
from twinlog.batch.compare import Difference, Differences, Kind, Pairing, Unmatched, differences, same_bytes, unmatched
from twinlog.batch.records import Record, encode, rewritten
from twinlog.batch.scan import Blank, Data
from twinlog.batch.view import Batch, OldBatch
from twinlog.errors import CorruptBatch
from twinlog.names import TopicPartition

Raw = Callable[..., bytes]
Log = Mapping[int, bytes]


def record(offset: int, value: bytes) -> Record:
    """A record whose content is its value."""
    return Record(offset, 1000, b"k", value)


def scan(log: Log, *, batch_size: int = 3, codec: int = 0) -> list[Data | Blank]:
    """A log as a scan, in batches of at most so many records, blanks between them."""
    items: list[Data | Blank] = []
    run: list[Record] = []
    for offset in range(max(log, default=-1) + 2):
        if run and (offset not in log or len(run) == batch_size):
            items.append(Data(encode(run, codec=codec)))
            run = []
        if offset in log:
            run.append(record(offset, log[offset]))
        else:
            items.append(Blank(offset, offset))
    return items


def compared(source: Log, destination: Log, *, first: int = 0, last: int = 1000, limit: int = 100) -> Differences:
    """Compare two logs that are batched differently, so that records are looked at."""
    return differences(scan(source), scan(destination, batch_size=2), first=first, last=last, limit=limit)


def named(found: Differences) -> list[tuple[Kind, int]]:
    """Kinds and offsets of what is listed."""
    return [(one.kind, one.offset) for one in found.listed]


def other(batch: Batch) -> Batch:
    """The same bytes elsewhere in memory."""
    return Batch(memoryview(b"x" + bytes(batch.raw))[1:])


LETTERS = {at: b"%c" % (97 + at) for at in range(8)}


def test_equal_logs() -> None:
    """However they are batched and compressed."""
    assert compared(LETTERS, LETTERS).total == 0
    found = differences(scan(LETTERS), scan(LETTERS, codec=4), first=0, last=7)
    assert found == Differences((), dict.fromkeys(Kind, 0))


def test_blanks_are_equal_to_nothing() -> None:
    """A control record, a filler and a hole are all the same."""
    data = Data(encode([record(5, b"x")], codec=0))
    assert differences([Blank(0, 4), data, Blank(6, 9)], [data], first=0, last=9).total == 0


def test_lost() -> None:
    """Only at the source."""
    assert named(compared({0: b"a", 1: b"b"}, {0: b"a"})) == [(Kind.LOST, 1)]


def test_extra() -> None:
    """Only at the destination."""
    (one,) = compared({0: b"a"}, {0: b"a", 3: b"x"}).listed
    assert one == Difference(Kind.EXTRA, 3, destination=record(3, b"x"))
    assert str(one) == "offset 3: extra"


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({"value": b"y"}, ("value",)),
        ({"value": None}, ("value",)),
        ({"key": b""}, ("key",)),
        ({"timestamp": -1}, ("timestamp",)),
        ({"headers": ((b"h", None),)}, ("headers",)),
        ({"key": None, "headers": ((b"h", b""),)}, ("key", "headers")),
    ],
)
def test_changed_names_the_fields(change: dict[str, object], fields: tuple[str, ...]) -> None:
    """Both have a record there, and it differs."""
    ours = record(4, b"x")
    made = Record(**(ours._asdict() | change))  # type: ignore[arg-type]
    found = differences([Data(encode([ours], codec=0))], [Data(encode([made], codec=0))], first=0, last=9)
    assert found.listed == (Difference(Kind.CHANGED, 4, fields, source=ours, destination=made),)
    assert all(name in str(found.listed[0]) for name in fields)


def test_a_message_is_short() -> None:
    """Whatever the record's size."""
    big = [record(4, bytes(10_000)), Record(4, 1000, b"k", b"", ((b"h", bytes(10_000)),))]
    one, two = ([Data(encode([one], codec=0))] for one in big)
    (found,) = differences(one, two, first=0, last=9).listed
    assert len(str(found)) < 600


def test_header_order_and_repeats_count() -> None:
    """They are part of a record."""
    one, two = (b"h", b"1"), (b"h", b"2")
    ours, theirs = (Data(encode([Record(0, 0, None, None, both)], codec=0)) for both in ((one, two), (two, one)))
    assert named(differences([ours], [theirs], first=0, last=0)) == [(Kind.CHANGED, 0)]


def test_a_surplus_marker_shifts_all_behind_it() -> None:
    """Each record is named with where it stands now, though its old place is taken by its neighbour."""
    source = {at: b"%d" % at for at in range(6)}
    destination = {at + (at >= 3): value for at, value in source.items()}
    found = compared(source, destination)
    assert named(found) == [(Kind.SHIFTED, 3), (Kind.SHIFTED, 4), (Kind.SHIFTED, 5)]
    assert [one.destination_offset for one in found.listed] == [4, 5, 6]
    assert str(found.listed[0]) == "offset 3: shifted, it stands at offset 4 of the destination"


def test_equal_contents_are_paired_in_order() -> None:
    """The first lost with the first extra; one left over is lost."""
    found = compared({0: b"x", 1: b"x", 2: b"x"}, {5: b"x", 7: b"x"})
    assert [(one.kind, one.offset, one.destination_offset) for one in found.listed] == [
        (Kind.SHIFTED, 0, 5),
        (Kind.SHIFTED, 1, 7),
        (Kind.LOST, 2, None),
    ]


def test_a_duplicate_is_extra() -> None:
    """The original stands where it should."""
    assert named(compared({0: b"x"}, {0: b"x", 1: b"x"})) == [(Kind.EXTRA, 1)]


def test_a_foreign_record_where_a_shifted_one_was() -> None:
    """Both are told."""
    found = compared({0: b"a"}, {0: b"foreign", 1: b"a"})
    assert named(found) == [(Kind.SHIFTED, 0), (Kind.EXTRA, 0)]


def test_a_lost_record_whose_place_a_shifted_one_took() -> None:
    """It is lost, not changed."""
    assert named(compared({0: b"a", 1: b"b"}, {1: b"a"})) == [(Kind.SHIFTED, 0), (Kind.LOST, 1)]


def test_only_the_range_counts() -> None:
    """Both ends are included; batches may reach beyond."""
    found = compared(dict.fromkeys(range(9), b"a"), {}, first=4, last=6)
    assert named(found) == [(Kind.LOST, 4), (Kind.LOST, 5), (Kind.LOST, 6)]


def test_listing_is_bounded_and_counting_is_not() -> None:
    """The first ones in offset order, and all of each kind counted."""
    source = {at: b"s%d" % at for at in range(50)}
    destination = {at: b"d%d" % at for at in range(25, 60)}
    found = compared(source, destination, limit=3)
    assert named(found) == [(Kind.LOST, 0), (Kind.LOST, 1), (Kind.LOST, 2)]
    assert found.counts == {Kind.LOST: 25, Kind.CHANGED: 25, Kind.EXTRA: 10, Kind.SHIFTED: 0}
    assert found.total == 60
    assert compared(source, destination, limit=0).listed == ()


logs = st.dictionaries(st.integers(0, 12), st.sampled_from([b"a", b"b", b"c"]), max_size=8)


@given(source=logs, destination=logs)
def test_differences_account_for_everything(source: dict[int, bytes], destination: dict[int, bytes]) -> None:
    """Against a dumb twin: none exactly when equal, and each differing offset is told once for each side."""
    found = compared(source, destination)
    assert (found.total == 0) == (source == destination)
    told = {Kind.LOST: 0, Kind.EXTRA: 0, Kind.CHANGED: 0, Kind.SHIFTED: 0} | found.counts
    equal = sum(destination.get(offset) == value for offset, value in source.items())
    assert told[Kind.LOST] + told[Kind.CHANGED] + told[Kind.SHIFTED] == len(source) - equal
    assert told[Kind.EXTRA] + told[Kind.CHANGED] + told[Kind.SHIFTED] == len(destination) - equal
    for one in found.listed:
        if one.kind is Kind.SHIFTED:
            assert destination[one.destination_offset or 0] == source[one.offset]


def test_stamped_and_rewritten_batches_are_equal(raw_batch: Raw) -> None:
    """What the source's broker stamped has other bytes here, and the same times."""
    body = bytes(encode([record(0, b"a"), record(1, b"b")], codec=0).body)
    stamped = Batch(memoryview(raw_batch(7, count=2, attributes=8, base_time=5, max_time=99, body=body)))
    made = rewritten(stamped, from_offset=0)
    assert not same_bytes(stamped, made[0])
    assert differences([Data(stamped)], [Data(one) for one in made], first=0, last=9).total == 0


def test_old_messages_and_their_rewriting_are_equal(old_message: Raw) -> None:
    """Magic 1 against magic 2."""
    message = OldBatch(memoryview(old_message(7)))
    made = [Data(one) for one in rewritten(message, from_offset=0)]
    assert differences([Data(message)], made, first=0, last=9).total == 0
    assert named(differences([Data(message)], [], first=0, last=9)) == [(Kind.LOST, 7)]


def test_equal_batches_are_not_decoded(raw_batch: Raw) -> None:
    """Even one that could not be; another batch that cannot be read is named."""
    broken = Batch(memoryview(raw_batch(3, body=b"no record")))
    assert differences([Data(broken)], [Data(other(broken))], first=0, last=9).total == 0
    with pytest.raises(CorruptBatch, match="t-3 holds a corrupt batch at offset 3"):
        differences([Data(broken)], [], first=0, last=9, where=TopicPartition("t", 3))


def scattered(log: Log, sizes: list[int]) -> list[Data | Blank]:
    """A log without holes as a scan, in batches of these sizes in turn; times in every batch begin elsewhere."""
    items: list[Data | Blank] = []
    offsets, turn = sorted(log), 0
    while offsets:
        size = sizes[turn % len(sizes)]
        taken, offsets, turn = offsets[:size], offsets[size:], turn + 1
        items.append(Data(encode([Record(at, 1000 + 7 * at, b"k", log[at]) for at in taken], codec=0)))
    return items


MANY = {at: b"value %d" % at for at in range(40)}


@pytest.mark.parametrize("joined_side", ["destination", "source"])
def test_batches_that_were_joined_are_not_decoded(monkeypatch: pytest.MonkeyPatch, joined_side: str) -> None:
    """Several on one side are one on the other, in the same bytes once they are joined."""
    small, large = scattered(MANY, [1, 3]), scattered(MANY, [8, 12])
    sides = (small, large) if joined_side == "destination" else (large, small)
    monkeypatch.setattr(compare, "decode", None)
    assert unmatched(*sides, first=0, last=39) == Unmatched({}, {}, 40)
    assert unmatched(*sides, first=5, last=30) == Unmatched({}, {}, 26)


@given(
    ours=st.lists(st.integers(1, 7), min_size=1, max_size=5),
    theirs=st.lists(st.integers(1, 7), min_size=1, max_size=5),
    changed=st.sets(st.integers(0, 39), max_size=3),
    lost=st.integers(30, 40),
)
def test_differences_are_found_however_both_sides_are_batched(
    ours: list[int], theirs: list[int], changed: set[int], lost: int
) -> None:
    """Each at its own offset, and nothing beside it."""
    there = {at: b"another" if at in changed else value for at, value in MANY.items() if at < lost}
    found = unmatched(scattered(MANY, ours), scattered(there, theirs), first=0, last=39)
    assert sorted(found.source) == sorted(changed | set(range(lost, 40)))
    assert sorted(found.destination) == sorted(at for at in changed if at < lost)
    assert found.records == 40


def test_same_bytes_ignores_what_rewriting_the_header_changes(raw_batch: Raw) -> None:
    """Producer, leader epoch, transactional bit and checksum may differ."""
    ours = Batch(memoryview(raw_batch(9, producer=1, epoch=2, sequence=3, leader_epoch=4, attributes=0x10)))
    theirs = Batch(memoryview(raw_batch(9, producer=5, epoch=6, sequence=7, leader_epoch=8)))
    assert same_bytes(ours, theirs)
    assert same_bytes(ours, other(ours))


@pytest.mark.parametrize(
    "fields",
    [
        {"span": 2},
        {"count": 2, "span": 1},
        {"attributes": 1},
        {"attributes": 8},
        {"attributes": 32},
        {"base_time": 1},
        {"max_time": 1},
        {"body": b"recordz"},
        {"body": b"record"},
        {"body": b"records!"},
    ],
    ids=str,
)
def test_same_bytes_sees_what_readers_see(raw_batch: Raw, fields: dict[str, int]) -> None:
    """Offsets, codec, how times are kept, times, count and every byte of the body."""
    ours = Batch(memoryview(raw_batch(9)))
    assert not same_bytes(ours, Batch(memoryview(raw_batch(9, **fields))))
    assert not same_bytes(ours, Batch(memoryview(raw_batch(8))))


def test_large_bodies_are_compared_fast(raw_batch: Raw) -> None:
    """By memcmp: 256 MB in far less than the 0.4 s that comparing element by element takes."""
    ours = Batch(memoryview(raw_batch(9, body=bytes(1 << 20))))
    theirs = other(ours)
    began = time.thread_time()
    assert all(same_bytes(ours, theirs) for _ in range(256))
    assert time.thread_time() - began < 0.2


def left(ours: Log, theirs: Log) -> Unmatched:
    """What two sides of a range do not have alike."""
    return Unmatched(*({at: record(at, value) for at, value in log.items()} for log in (ours, theirs)), records=0)


def test_what_is_unmatched() -> None:
    """Equal records are left out, however they are batched, and counted."""
    found = unmatched(scan(LETTERS), scan(LETTERS | {2: b"x"}, batch_size=2), first=1, last=6)
    assert (found.records, list(found.source), list(found.destination)) == (6, [2], [2])


def test_equal_batches_are_counted_within_the_range() -> None:
    """Also one that lies only partly in it, with a hole or without."""
    assert unmatched(scan(LETTERS), scan(LETTERS), first=1, last=6).records == 6
    holed = encode([record(at, b"v") for at in range(4)], codec=0)
    raw = bytearray(holed.raw)
    raw[23:27] = (5).to_bytes(4, "big")  # two offsets more than records
    items = [Data(Batch(memoryview(raw)))]
    assert unmatched(items, items, first=2, last=9).records == 2
    assert unmatched(items, items, first=0, last=9).records == 4


def test_pairing_goes_on_across_ranges() -> None:
    """A record that moved into the next range is shifted, neither lost nor extra."""
    pairing = Pairing()
    assert not list(pairing.add(left({3: b"a"}, {})))
    found = list(pairing.add(left({}, {5: b"a", 6: b"b"})))
    assert [(one.kind, one.offset, one.destination_offset) for one in found] == [(Kind.SHIFTED, 3, 5)]
    assert [(one.kind, one.offset) for one in pairing.rest()] == [(Kind.EXTRA, 6)]
    assert not list(pairing.rest())


def test_pairing_keeps_a_bounded_amount() -> None:
    """What waits longest is settled by its offset alone, and nothing is named twice."""
    pairing = Pairing(keep_bytes=600)
    found = [one for at in range(5) for one in pairing.add(left({at: b"%d" % at}, {at: b"other"} if at == 1 else {}))]
    found += pairing.rest()
    kinds = [Kind.LOST, Kind.CHANGED, Kind.LOST, Kind.LOST, Kind.LOST]
    assert [(one.kind, one.offset) for one in found] == list(zip(kinds, range(5), strict=True))
