"""The five codecs of a batch's body, as Java producers write them and as Kafka's own readers take them.

Only the slow paths come here. What is read may be hostile: the decompressed size is bounded, and whatever cannot be
read raises Malformed. Rule: `org.apache.kafka.common.compress`.
"""

import zlib
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final

import cramjam

from twinlog.batch import layout

MAX_DECODED_BYTES: Final = 256 << 20
"""Decompressed bytes of one batch, at most.

Producers bound a batch before compression (batch.size, message.max.bytes), by default to 1 MB at most; this leaves
room for 256 times that, and a bomb does not take the worker with it.
"""

_INT: Final = Struct(">i")
_INT_LE: Final = Struct("<I")

_GZIP_MAGIC: Final = b"\x1f\x8b"
_GZIP_STEP: Final = 1 << 16
"""Input given to zlib at once; it answers with at most 1,032 times as much, and copies no more when a member ends."""

_SNAPPY_MAGIC: Final = b"\x82SNAPPY\0"
_SNAPPY_HEADER: Final = _SNAPPY_MAGIC + b"\0\0\0\1\0\0\0\1"
_SNAPPY_BLOCK: Final = 32 << 10
"""Uncompressed bytes a block: the default of xerial's `SnappyOutputStream`."""

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_HEADER: Final = _LZ4_MAGIC + b"\x60\x40\x82"
"""Version 1, independent blocks, no checksums; blocks of 64 KB; their checksum (`Lz4BlockOutputStream`)."""
_LZ4_BLOCK: Final = 64 << 10
_LZ4_STORED: Final = 0x80000000

_ZSTD_LEVEL: Final = 3
_ZSTD_BLOCK: Final = 128 << 10
"""A block of zstd's never yields more (RFC 8878), and takes 4 bytes at least."""


class Malformed(ValueError):
    """Bytes that cannot be read as what they claim to be; the text is the reason, for a CorruptBatch."""


def compress(codec: int, data: bytes) -> bytes:
    """Compress `data` with one of layout's codecs; raises ValueError for any other."""
    writer = _WRITERS.get(codec)
    if writer is None:
        raise ValueError(f"there is no codec {codec}")
    return writer(data)


def decompress(codec: int, data: memoryview, *, limit_bytes: int = MAX_DECODED_BYTES) -> bytes:
    """Decompress all of `data`.

    Raises Malformed when it is broken, of a codec that does not exist, or yields more than `limit_bytes`.
    """
    reader = _READERS.get(codec)
    if reader is None:
        raise Malformed(f"there is no codec {codec}")
    try:
        return reader(data, limit_bytes)
    except (zlib.error, cramjam.DecompressionError) as reason:
        raise Malformed(f"{_NAMES[codec]} cannot decompress it ({reason})") from None


def _joined(pieces: Iterator[bytes], limit_bytes: int) -> bytes:
    """Join what a reader yields, and stop it where the bound is passed."""
    kept: list[bytes] = []
    size = 0
    for piece in pieces:
        size += len(piece)
        _bounded(size, limit_bytes)
        kept.append(piece)
    return b"".join(kept)


def _bounded(size: int, limit_bytes: int) -> None:
    if size > limit_bytes:
        raise Malformed(f"it decompresses to more than {limit_bytes} bytes")


def _plain(data: memoryview, limit_bytes: int) -> bytes:
    _bounded(len(data), limit_bytes)
    return bytes(data)


def _gzip(data: bytes) -> bytes:
    return zlib.compress(data, wbits=31)


def _gunzip(data: memoryview, limit_bytes: int) -> bytes:
    return _joined(_gzip_pieces(data), limit_bytes)


def _gzip_pieces(data: memoryview) -> Iterator[bytes]:
    """Yield a stream's content, member after member; what follows and is no member is ignored (`GZIPInputStream`)."""
    at = 0
    inflate = zlib.decompressobj(wbits=31)
    while at < len(data):
        given = data[at : at + _GZIP_STEP]
        yield inflate.decompress(given)
        at += len(given) - len(inflate.unused_data)
        if inflate.eof:
            if bytes(data[at : at + 2]) != _GZIP_MAGIC:
                return
            inflate = zlib.decompressobj(wbits=31)
    if not inflate.eof:
        raise Malformed("gzip's stream is cut")


def _snappy(data: bytes) -> bytes:
    """Write xerial's framing, which every Kafka client reads."""
    out = [_SNAPPY_HEADER]
    for at in range(0, len(data), _SNAPPY_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + _SNAPPY_BLOCK]))
        out += (_INT.pack(len(block)), block)
    return b"".join(out)


def _unsnappy(data: memoryview, limit_bytes: int) -> bytes:
    """Read xerial's framing, or one raw block (librdkafka), as `SnappyInputStream` does."""
    if bytes(data[:8]) != _SNAPPY_MAGIC:
        return _unsnappy_block(data, limit_bytes)
    return _joined(_snappy_pieces(data, limit_bytes), limit_bytes)


def _snappy_pieces(data: memoryview, limit_bytes: int) -> Iterator[bytes]:
    """Yield xerial's blocks; its header may stand again where streams were joined.

    The two version numbers are not looked at: some writers have them in the wrong byte order.
    """
    at = 0
    while at < len(data):
        if bytes(data[at : at + 8]) == _SNAPPY_MAGIC:
            at += len(_SNAPPY_HEADER)
            continue
        size = int.from_bytes(data[at : at + 4], "big", signed=True)
        at += 4
        if not 0 < size <= len(data) - at:
            raise Malformed(f"a snappy block of {size} bytes reaches beyond the end")
        yield _unsnappy_block(data[at : at + size], limit_bytes)
        at += size


def _unsnappy_block(block: memoryview, limit_bytes: int) -> bytes:
    _bounded(cramjam.snappy.decompress_raw_len(block), limit_bytes)
    return bytes(cramjam.snappy.decompress_raw(block))


def _lz4(data: bytes) -> bytes:
    """Write the one kind of frame that `Lz4BlockInputStream` reads; a block that does not shrink is stored."""
    out = [_LZ4_HEADER]
    for at in range(0, len(data), _LZ4_BLOCK):
        block = data[at : at + _LZ4_BLOCK]
        packed = bytes(cramjam.lz4.compress_block(block, store_size=False))
        if len(packed) < len(block):
            out += (_INT_LE.pack(len(packed)), packed)
        else:
            out += (_INT_LE.pack(len(block) | _LZ4_STORED), block)
    out.append(_INT_LE.pack(0))
    return b"".join(out)


def _unlz4(data: memoryview, limit_bytes: int) -> bytes:
    return _joined(_lz4_pieces(data), limit_bytes)


def _lz4_pieces(data: memoryview) -> Iterator[bytes]:
    """Yield a frame's blocks; what follows its end mark is ignored, as `Lz4BlockInputStream` does.

    No checksum of the frame's is looked at: the batch's own CRC covers them, and old Java producers computed that of
    the header over the wrong bytes (KAFKA-3160), which readers of magic 0 must tolerate.
    """
    at, largest, trailer = _lz4_header(data)
    scratch = bytearray(largest)
    while True:
        if len(data) - at < 4:
            raise Malformed("lz4's end mark is missing")
        word = int.from_bytes(data[at : at + 4], "little")
        if word == 0:
            return
        size, at = word & ~_LZ4_STORED, at + 4
        if size > largest or size + trailer > len(data) - at:
            raise Malformed(f"an lz4 block of {size} bytes is too long")
        block = data[at : at + size]
        if word & _LZ4_STORED:
            yield bytes(block)
        else:
            yield bytes(scratch[: cramjam.lz4.decompress_block_into(block, scratch)])
        at += size + trailer


def _lz4_header(data: memoryview) -> tuple[int, int, int]:
    """Read a frame's descriptor: where its blocks begin, how large they are at most, and the bytes behind each."""
    if len(data) < len(_LZ4_HEADER) or bytes(data[:4]) != _LZ4_MAGIC:
        raise Malformed("lz4's frame does not begin as one")
    flags, sizes = data[4], data[5]
    if flags & 0b11100011 != 0b01100000:
        raise Malformed(f"lz4's frame has flags {flags:#x} that Kafka does not read")
    if sizes & 0b10001111 or not 4 <= sizes >> 4 <= 7:
        raise Malformed(f"lz4's frame has a block size {sizes:#x} that Kafka does not read")
    content_size = 8 if flags & 0b1000 else 0
    return len(_LZ4_HEADER) + content_size, 1 << (2 * (sizes >> 4) + 8), 4 if flags & 0b10000 else 0


def _zstd(data: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL))


def _unzstd(data: memoryview, limit_bytes: int) -> bytes:
    """Decompress into a buffer of fixed size, the only way in which cramjam is bounded, and into a larger one again.

    Frames that were streamed, as Java's are, do not tell their size beforehand.
    """
    most = min(limit_bytes, (len(data) // 4 + 1) * _ZSTD_BLOCK)
    size = min(most, max(_ZSTD_BLOCK, 8 * len(data)))
    while True:
        out = bytearray(size)
        try:
            return bytes(memoryview(out)[: cramjam.zstd.decompress_into(data, out)])
        except cramjam.DecompressionError as reason:
            if size == most:
                raise Malformed(f"zstd cannot decompress it into {most} bytes ({reason})") from None
        size = min(most, 8 * size)


_NAMES: Final = {
    layout.NO_CODEC: "none",
    layout.GZIP: "gzip",
    layout.SNAPPY: "snappy",
    layout.LZ4: "lz4",
    layout.ZSTD: "zstd",
}

_WRITERS: Final[dict[int, Callable[[bytes], bytes]]] = {
    layout.NO_CODEC: bytes,
    layout.GZIP: _gzip,
    layout.SNAPPY: _snappy,
    layout.LZ4: _lz4,
    layout.ZSTD: _zstd,
}

_READERS: Final[dict[int, Callable[[memoryview, int], bytes]]] = {
    layout.NO_CODEC: _plain,
    layout.GZIP: _gunzip,
    layout.SNAPPY: _unsnappy,
    layout.LZ4: _unlz4,
    layout.ZSTD: _unzstd,
}
