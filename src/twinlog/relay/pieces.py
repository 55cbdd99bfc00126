"""Cuts what one fetch returned into pieces: between two of them the event loop is free for everybody else.

Judging and stamping a batch takes some ten microseconds, so a fetch of small batches would hold up every partition and
the lease for a good part of a second, and the destination would run dry before the first request goes out.
"""

from collections.abc import Iterator
from dataclasses import replace
from struct import unpack_from
from typing import Final

from twinlog.config.mirror import MAX_JOINED_BYTES
from twinlog.relay.progress import Chunk

# A piece is closed once it has grown to either. Its last batch is never cut. Small batches are joined within a piece,
# so that it has to hold as many as may become one.
PIECE_BYTES: Final = MAX_JOINED_BYTES
PIECE_BATCHES: Final = 256
# As much of a batch as tells where it ends; older formats have less.
_HEAD_BYTES: Final = 27


def pieces(chunk: Chunk, whole_bytes: int) -> Iterator[Chunk]:
    """`chunk` itself where it is small, else its batches in several chunks, in order.

    `whole_bytes` are those of the whole batches; the beginning of another one stays behind the last of them.

    With aborted transactions it stays whole: which of them lie behind a piece already, the broker does not say. What
    is malformed or of an older format stays together, for `decide` to look at.
    """
    records, position = chunk.records, chunk.position
    begin = at = batches = 0
    while not chunk.aborted and whole_bytes - at >= _HEAD_BYTES:
        base, length, epoch, magic = unpack_from(">qiib", records, at)
        end = at + 12 + length
        if magic != 2 or end < at + _HEAD_BYTES or end > whole_bytes:
            break
        delta = unpack_from(">i", records, at + 23)[0]
        at, batches = end, batches + 1
        if (at - begin >= PIECE_BYTES or batches >= PIECE_BATCHES) and whole_bytes - at >= _HEAD_BYTES:
            yield replace(chunk, position=position, records=records[begin:at], conclusive=False, last_epoch=epoch)
            position, begin, batches = base + delta + 1, at, 0
    yield replace(chunk, position=position, records=records[begin:]) if begin else chunk
