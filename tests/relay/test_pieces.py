"""What one fetch returned, cut into pieces."""

from typing import Any

import pytest

from twinlog.batch.records import Record, encode
from twinlog.batch.scan import Aborted
from twinlog.relay.inbox import tail_of
from twinlog.relay.pieces import PIECE_BATCHES, PIECE_BYTES, pieces
from twinlog.relay.progress import Chunk

LARGE = bytes(PIECE_BYTES // 4)


def _batch(first: int, value: bytes = b"v", count: int = 1, epoch: int = 0) -> bytes:
    raw = bytearray(encode([Record(first + n, 1_000_000, b"k", value, ()) for n in range(count)], codec=0).raw)
    raw[12:16] = epoch.to_bytes(4, "big")
    return bytes(raw)


def _cut(chunk: Chunk) -> list[Chunk]:
    tail = tail_of(chunk.records)
    return list(pieces(chunk, 0 if tail is None else tail.size))


def test_what_is_small_stays_as_it_is(made: Any) -> None:
    """Also where it ends with a part of a batch, or holds nothing."""
    for chunk in (made.chunk(100, made.data(100) + made.data(103)[:-5]), made.chunk(100)):
        assert _cut(chunk) == [chunk]


def test_pieces_follow_each_other_and_lose_nothing(made: Any) -> None:
    """Each begins where the one before it ends, behind its last record; only the last may say what follows."""
    batches = [_batch(100 + 10 * at, LARGE, count=2, epoch=at) for at in range(7)]
    whole = made.chunk(95, *batches, _batch(170)[:-1], last_epoch=6, log_start_offset=3)
    cut = _cut(whole)
    assert b"".join(piece.records for piece in cut) == bytes(whole.records)
    assert [piece.position for piece in cut] == [95, 112, 132, 152]
    assert [piece.last_epoch for piece in cut] == [1, 3, 5, 6]
    assert [piece.conclusive for piece in cut] == [False, False, False, True]
    assert all(piece.log_start_offset == 3 for piece in cut)
    assert all(tail_of(piece.records) is not None for piece in cut)


def test_last_piece_is_never_only_a_part_of_a_batch(made: Any) -> None:
    """Such a piece would look as if the source had nothing whole to give."""
    whole = made.chunk(100, *(_batch(100 + at, LARGE) for at in range(4)), _batch(104, LARGE)[:-1])
    assert len(_cut(whole)) == 1


def test_small_batches_are_cut_by_their_number(made: Any) -> None:
    """Each costs the same, however little is in it."""
    whole = made.chunk(0, *(_batch(at) for at in range(2 * PIECE_BATCHES + 1)))
    assert [piece.position for piece in _cut(whole)] == [0, PIECE_BATCHES, 2 * PIECE_BATCHES]


def test_aborted_transactions_keep_it_whole(made: Any) -> None:
    """In a piece behind the transaction's marker its entry would hide what the same producer committed since."""
    whole = made.chunk(100, *(_batch(100 + at, LARGE) for at in range(9)), aborted=(Aborted(7, 100),))
    assert _cut(whole) == [whole]


@pytest.mark.parametrize("at", [8, 16])
def test_what_cannot_be_read_stays_with_what_follows_it(made: Any, at: int) -> None:
    """A size that makes no sense or an older format: what is before it is cut, the rest is left as it is."""
    batches = bytearray(b"".join(_batch(100 + n, LARGE) for n in range(12)))
    size = len(batches) // 12
    batches[6 * size + at] = 0xFF if at == 8 else 1
    chunk = made.chunk(100, bytes(batches))
    cut = list(pieces(chunk, len(batches)))
    assert b"".join(piece.records for piece in cut) == bytes(batches)
    assert [piece.position for piece in cut] == [100, 104]
