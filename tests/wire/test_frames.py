"""Request headers, and the cutting of a byte stream into responses, with garbage too."""

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.api_header import RequestHeader

from twinlog.errors import ProtocolViolation
from twinlog.wire.frames import (
    STAGING_BYTES,
    FrameReader,
    client_part,
    correlation_of,
    request_head,
    response_body,
)


def feed(reader: FrameReader, stream: bytes, chunk: int) -> list[bytes]:
    """Give a stream to a reader, at most `chunk` bytes at a time, and return copies of the frames."""
    found: list[bytes] = []
    position = 0
    while position < len(stream):
        room = reader.buffer()
        assert len(room) > 0
        piece = stream[position : position + min(chunk, len(room))]
        room[: len(piece)] = piece
        position += len(piece)
        found += map(bytes, reader.fed(len(piece)))
    return found


def sized(payload: bytes) -> bytes:
    """A payload with its size before it."""
    return pack(">i", len(payload)) + payload


@pytest.mark.parametrize("flexible", [False, True])
def test_the_request_header_is_as_kafka_python_encodes_it(flexible: bool) -> None:  # noqa: FBT001  # a table's column
    """Header versions 1 and 2 are those of Kafka's `RequestHeader.json`."""
    header = RequestHeader(request_api_key=1, request_api_version=12, correlation_id=77, client_id="zoë")
    expected = bytes(header.encode(flexible=flexible))
    tail = client_part("zoë") + (b"\0" if flexible else b"")
    head = request_head(1, 12, 77, tail=tail, body_bytes=100)
    assert head == pack(">i", len(expected) + 100) + expected


@given(
    st.lists(st.one_of(st.binary(min_size=4, max_size=50), st.integers(4, 3 * STAGING_BYTES).map(bytes)), max_size=8),
    st.integers(1, 2 * STAGING_BYTES),
)
def test_frames_come_out_whole_however_they_are_cut(frames: list[bytes], chunk: int) -> None:
    """Any frames in any pieces come out as they went in, in order."""
    stream = b"".join(map(sized, frames))
    if len(stream) > 2000 * chunk:
        chunk = len(stream) // 2000 + 1
    assert feed(FrameReader(), stream, chunk) == frames


def test_byte_by_byte() -> None:
    """A size of four bytes may come in four reads."""
    frames = [b"abcd", b"efghijkl", bytes(300)]
    assert feed(FrameReader(), b"".join(map(sized, frames)), 1) == frames


def test_a_large_response_is_read_into_its_own_memory() -> None:
    """Once the size is known, reads go directly where views of the response stay valid, and are read-only."""
    reader = FrameReader()
    payload = bytes(range(256)) * 4096
    first = sized(payload)[:STAGING_BYTES]
    reader.buffer()[:] = first
    assert reader.fed(STAGING_BYTES) == []
    rest = payload[STAGING_BYTES - 4 :]
    assert len(reader.buffer()) == len(rest)
    reader.buffer()[:] = rest
    (frame,) = reader.fed(len(rest))
    feed(reader, sized(b"other"), 100)
    assert frame == payload
    assert frame.readonly


def test_small_responses_stay_valid_after_more_has_come() -> None:
    """What was handed out does not change when the staging buffer is used again."""
    reader = FrameReader()
    reader.buffer()[:8] = sized(b"1111")
    (first,) = reader.fed(8)
    reader.buffer()[:8] = sized(b"2222")
    (second,) = reader.fed(8)
    assert (bytes(first), bytes(second)) == (b"1111", b"2222")


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 3, 1001, 2**31 - 1])
@pytest.mark.parametrize("before", [b"", sized(b"good")])
def test_an_absurd_size_is_a_violation(size: int, before: bytes) -> None:
    """Negative, too small for a correlation id, or above the limit: no memory is taken for it."""
    with pytest.raises(ProtocolViolation, match=f"size of {size} bytes; allowed are 4 to 1000"):
        feed(FrameReader(1000), before + pack(">i", size), 1000)


def test_a_tls_record_is_recognised() -> None:
    """Who forgot security.protocol learns it from the message."""
    with pytest.raises(ProtocolViolation, match=r"expects security\.protocol SSL"):
        feed(FrameReader(), bytes.fromhex("15030300020250"), 100)


def test_a_plain_header_is_a_correlation_id() -> None:
    """Response header version 0."""
    frame = memoryview(pack(">i", 7) + b"body")
    assert correlation_of(frame) == 7
    assert response_body(frame, flexible=False) == b"body"


@pytest.mark.parametrize(
    "tags", [b"\0", b"\x01\x00\x03abc", b"\x02\x00\x00\x81\x01\x01x", b"\x01\x05\x80\x01" + bytes(128)]
)
def test_tagged_fields_of_a_flexible_header_are_skipped(tags: bytes) -> None:
    """Response header version 1, with tags that no release has yet."""
    assert response_body(memoryview(pack(">i", 7) + tags + b"body"), flexible=True) == b"body"


@pytest.mark.parametrize(
    "tags", [b"", b"\x01", b"\x01\x00\x7f", b"\x80\x80\x80\x80\x80\x80\x01", b"\xff\xff\xff\xff\x0f"]
)
def test_a_header_that_does_not_end_is_refused(tags: bytes) -> None:
    """Cut or endless tagged fields raise, and never read beyond the frame."""
    with pytest.raises((IndexError, ValueError)):
        response_body(memoryview(pack(">i", 7) + tags), flexible=True)


@given(st.binary(max_size=64), st.booleans())
def test_garbage_after_the_correlation_id(garbage: bytes, flexible: bool) -> None:  # noqa: FBT001  # hypothesis
    """Any bytes give a body that is a tail of the frame, or an error of the two kinds promised."""
    frame = memoryview(pack(">i", 7) + garbage)
    try:
        body = response_body(frame, flexible=flexible)
    except (IndexError, ValueError):
        return
    assert bytes(frame).endswith(bytes(body))
