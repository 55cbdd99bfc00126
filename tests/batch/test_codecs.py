"""Each codec against an independent implementation, in known bytes, and against hostile input."""

import gzip
import time
from collections.abc import Callable

import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from kafka import codec as kafka_codec

from twinlog.batch import layout
from twinlog.batch.codecs import Malformed, compress, decompress

CODECS = (layout.NO_CODEC, layout.GZIP, layout.SNAPPY, layout.LZ4, layout.ZSTD)
COMPRESSED = CODECS[1:]

READERS: dict[int, Callable[[bytes], bytes]] = {
    layout.NO_CODEC: bytes,
    layout.GZIP: gzip.decompress,
    layout.SNAPPY: kafka_codec.snappy_decode,
    layout.LZ4: lz4.frame.decompress,
    layout.ZSTD: kafka_codec.zstd_decode,
}
WRITERS: dict[int, Callable[[bytes], bytes]] = {
    layout.NO_CODEC: bytes,
    layout.GZIP: gzip.compress,
    layout.SNAPPY: kafka_codec.snappy_encode,
    layout.LZ4: kafka_codec.lz4_encode,
    layout.ZSTD: kafka_codec.zstd_encode,
}

contents = st.one_of(
    st.binary(max_size=300),
    st.builds(lambda piece, times: piece * times, st.binary(min_size=1, max_size=40), st.integers(1, 9000)),
)


def read(codec: int, data: bytes, limit_bytes: int = 1 << 24) -> bytes:
    """Decompress bytes."""
    return decompress(codec, memoryview(data), limit_bytes=limit_bytes)


@pytest.mark.parametrize("codec", CODECS)
@given(data=contents)
def test_others_read_what_is_written(codec: int, data: bytes) -> None:
    """An independent reader finds the same bytes in what we compress, and so do we."""
    written = compress(codec, data)
    assert read(codec, written) == data
    if data or codec != layout.SNAPPY:  # kafka-python takes a snappy stream without a block for a raw one
        assert READERS[codec](written) == data


@pytest.mark.parametrize("codec", CODECS)
@given(data=contents)
def test_what_others_write_is_read(codec: int, data: bytes) -> None:
    """Whatever an independent writer compresses is read."""
    assert read(codec, WRITERS[codec](data)) == data


def test_snappy_is_framed_as_java_does() -> None:
    """The framing is xerial's, in blocks of 32 KB: magic, version 1, readable from 1, then length and block."""
    assert compress(layout.SNAPPY, b"abc") == b"\x82SNAPPY\0\0\0\0\1\0\0\0\1" + b"\0\0\0\5" + b"\x03\x08abc"
    data = bytes(70_000)
    written, blocks, at = compress(layout.SNAPPY, data), [], 16
    while at < len(written):
        size = int.from_bytes(written[at : at + 4], "big")
        blocks.append(len(snappy.decompress(written[at + 4 : at + 4 + size])))
        at += 4 + size
    assert blocks == [32768, 32768, 4464]


def test_a_raw_snappy_block_is_read() -> None:
    """Some clients write no framing."""
    assert read(layout.SNAPPY, snappy.compress(b"raw" * 100)) == b"raw" * 100


def test_joined_snappy_streams_are_read() -> None:
    """Xerial's header may stand again inside, with version numbers in either byte order."""
    swapped = b"\x82SNAPPY\0\1\0\0\0\1\0\0\0"
    joined = compress(layout.SNAPPY, b"one") + swapped + compress(layout.SNAPPY, b"two")[16:]
    assert read(layout.SNAPPY, joined) == b"onetwo"


def test_lz4_frames_are_as_java_reads_them() -> None:
    """Version 1, independent blocks of 64 KB, no checksums, the right one over the header; what grows is stored."""
    assert compress(layout.LZ4, b"abc") == bytes.fromhex("04224d18 60 40 82 03000080") + b"abc" + bytes(4)
    info = lz4.frame.get_frame_info(compress(layout.LZ4, bytes(200_000)))
    assert info["block_size"] == 64 << 10
    assert not info["block_linked"]
    assert not info["content_checksum"]


@pytest.mark.parametrize("block_size", [4, 5, 6, 7])
@pytest.mark.parametrize("checksums", [False, True])
@pytest.mark.parametrize("store_size", [False, True])
def test_every_lz4_frame_that_java_reads(block_size: int, checksums: bool, store_size: bool) -> None:  # noqa: FBT001
    """All block sizes, with and without checksums and content size."""
    data = bytes(range(256)) * 9000
    frame = lz4.frame.compress(
        data,
        block_size=block_size,
        block_linked=False,
        block_checksum=checksums,
        content_checksum=checksums,
        store_size=store_size,
    )
    assert read(layout.LZ4, frame) == data


def test_a_wrong_lz4_header_checksum_is_tolerated() -> None:
    """Producers of magic 0 computed it over the wrong bytes (KAFKA-3160)."""
    frame = kafka_codec.lz4_encode_old_kafka(b"old" * 100)
    with pytest.raises(RuntimeError):
        lz4.frame.decompress(frame)
    assert read(layout.LZ4, frame) == b"old" * 100


@pytest.mark.parametrize(
    "frame",
    [
        lz4.frame.compress(bytes(200_000), block_linked=True),
        bytes.fromhex("04224d18 a0 40 82 00000000"),
        bytes.fromhex("04224d18 60 30 82 00000000"),
        bytes.fromhex("04224d18 60 41 82 00000000"),
        bytes.fromhex("04224d18 60 40 82 01000100") + bytes(70_000),
        bytes.fromhex("04224d18 60 40 82 03000080") + b"abc",
        bytes.fromhex("05224d18 60 40 82 00000000"),
    ],
    ids=["linked", "version", "block size", "reserved", "long block", "no end", "magic"],
)
def test_lz4_frames_that_java_does_not_read(frame: bytes) -> None:
    """What Kafka's reader refuses is refused."""
    with pytest.raises(Malformed):
        read(layout.LZ4, frame)


def test_gzip_members_are_joined_and_what_follows_is_ignored() -> None:
    """As `GZIPInputStream` does; also where members end inside and at the end of a step."""
    data = bytes(range(256)) * 1000
    stream = gzip.compress(data, 0) + gzip.compress(b"") + gzip.compress(b"second")
    assert read(layout.GZIP, stream + b"trailer") == data + b"second"


def test_zstd_frames_are_joined_and_need_not_tell_their_size() -> None:
    """Java streams its frames; highly compressed ones need more than the first guess."""
    data = bytes(9 << 20)
    streamed = zstandard.ZstdCompressor(write_content_size=False).compress(data)
    assert read(layout.ZSTD, streamed + compress(layout.ZSTD, b"second")) == data + b"second"


@pytest.mark.parametrize("codec", CODECS)
def test_the_bound_is_exact(codec: int) -> None:
    """As many bytes as the bound are read, one more is refused."""
    data = bytes(100_000)
    written = compress(codec, data)
    assert read(codec, written, len(data)) == data
    with pytest.raises(Malformed):
        read(codec, written, len(data) - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_is_refused_soon(codec: int) -> None:
    """Half a gigabyte of zeros stops at the bound, in a moment."""
    piece = compress(codec, bytes(64 << 20))
    bomb = piece * 8 if codec != layout.LZ4 else piece[:-4] + piece[7:-4] * 7 + bytes(4)
    began = time.thread_time()
    with pytest.raises(Malformed):
        read(codec, bomb, 16 << 20)
    assert time.thread_time() - began < 2


@pytest.mark.parametrize("codec", COMPRESSED)
@given(data=st.binary(max_size=60), place=st.integers(0, 200), cut=st.integers(0, 200), junk=st.binary(max_size=9))
def test_broken_streams_raise_malformed_only(codec: int, data: bytes, place: int, cut: int, junk: bytes) -> None:
    """Bytes changed, cut or added: either something is read, or Malformed is raised."""
    stream = bytearray(compress(codec, data * 20))
    stream[place % len(stream) : place % len(stream) + len(junk)] = junk
    for hostile in (bytes(stream), bytes(stream[: cut % (len(stream) + 1)]), junk):
        try:
            assert isinstance(read(codec, hostile), (bytes, bytearray, memoryview))
        except Malformed:
            continue


@pytest.mark.parametrize("codec", COMPRESSED)
def test_every_cut_is_noticed(codec: int) -> None:
    """No codec yields all of its data from a cut stream."""
    data = bytes(range(256)) * 3
    stream = compress(codec, data)
    for end in range(len(stream)):
        try:
            assert read(codec, stream[:end]) != data
        except Malformed:
            continue


def test_unknown_codecs() -> None:
    """Numbers 5 to 7 fit into the attributes and mean nothing."""
    with pytest.raises(Malformed):
        read(5, b"")
    with pytest.raises(ValueError, match="no codec 5"):
        compress(5, b"")
