"""Requests and responses as bytes on a connection: headers, and the cutting of a byte stream into responses.

A frame is a big-endian int32 size and that many bytes (`org.apache.kafka.common.network.NetworkReceive`). Pure: bytes
and values in, bytes and values out; `connection` does the reading and writing.
"""

from struct import Struct
from typing import Final

from twinlog.errors import ProtocolViolation

MAX_RESPONSE_BYTES: Final = 100 * 1024 * 1024
"""A broker sends at most fetch.max.bytes, or one batch, whose bound is max.message.bytes; above this it is no Kafka."""

STAGING_BYTES: Final = 64 * 1024
"""What one read may bring while no large response is under way: some hundred acknowledgements at once."""

_INT32: Final = Struct(">i")
_REQUEST_START: Final = Struct(">ihhi")
_CORRELATION_BYTES: Final = 4
_TLS_RECORD: Final = (b"\x15\x03", b"\x16\x03")  # alert, handshake


def client_part(client_id: str) -> bytes:
    """Encode the part of a request header that is the same in all requests of a client."""
    name = client_id.encode()
    return len(name).to_bytes(2, "big") + name


def request_head(api_key: int, version: int, correlation: int, *, tail: bytes, body_bytes: int) -> bytes:
    """Encode size and header of a request.

    Parameters: `tail` is `client_part`, followed by one zero byte (no tagged fields) where the header is flexible;
    `body_bytes` is the size of what follows.
    """
    size = 8 + len(tail) + body_bytes
    return _REQUEST_START.pack(size, api_key, version, correlation) + tail


def correlation_of(frame: memoryview) -> int:
    """Return the correlation id with which every response begins."""
    return int(_INT32.unpack_from(frame)[0])


def response_body(frame: memoryview, *, flexible: bool) -> memoryview:
    """Return what follows a response's header; a flexible header ends with tagged fields, which are skipped.

    Raises IndexError or ValueError if the header does not end within the frame.
    """
    if not flexible:
        return frame[_CORRELATION_BYTES:]
    if frame[_CORRELATION_BYTES] == 0:
        return frame[_CORRELATION_BYTES + 1 :]
    return _after_tagged_fields(frame, _CORRELATION_BYTES)


def _after_tagged_fields(frame: memoryview, position: int) -> memoryview:
    count, position = _varint(frame, position)
    for _ in range(count):
        _, position = _varint(frame, position)
        size, position = _varint(frame, position)
        position += size
    if position > len(frame):
        raise ValueError("its header is longer than the response")
    return frame[position:]


def _varint(frame: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):  # an unsigned varint has at most five bytes
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("a number in its header does not end")


class FrameReader:
    """Cuts what arrives into responses, and says into which memory the next bytes belong.

    Small responses are read many at a time into a staging buffer and copied out of it. One that does not fit there gets
    a buffer of its own size, into which the rest is read directly; nothing is copied twice, and views of it stay valid.
    """

    __slots__ = ("_body", "_end", "_limit", "_room", "_staging")

    def __init__(self, limit: int = MAX_RESPONSE_BYTES) -> None:
        self._limit = limit
        self._staging = memoryview(bytearray(STAGING_BYTES))
        self._end = 0
        self._body: bytearray | None = None
        self._room = self._staging

    def buffer(self) -> memoryview:
        """Return the memory, never empty, for the next bytes; `fed` must be told how many came."""
        return self._room

    def fed(self, count: int) -> list[memoryview]:
        """Take note of `count` bytes in `buffer()`, and return the responses that are complete now, without their size.

        Raises ProtocolViolation for a size that is negative, too small for a correlation id, or above the limit; the
        reader is of no use after that.
        """
        if self._body is None:
            return self._from_staging(self._end + count)
        self._room = self._room[count:]
        if self._room:
            return []
        whole = memoryview(self._body).toreadonly()
        self._body = None
        self._room = self._staging
        return [whole]

    def _from_staging(self, end: int) -> list[memoryview]:
        staging = self._staging
        start = 0
        frames: list[memoryview] = []
        while end - start >= 4:
            size = self._checked_size(start)
            next_start = start + 4 + size
            if next_start > end:
                break
            frames.append(memoryview(bytes(staging[start + 4 : next_start])))
            start = next_start
        self._keep(start, end)
        return frames

    def _checked_size(self, start: int) -> int:
        size: int = _INT32.unpack_from(self._staging, start)[0]
        if _CORRELATION_BYTES <= size <= self._limit:
            return size
        hint = ""
        if bytes(self._staging[start : start + 2]) in _TLS_RECORD:
            hint = "; these bytes begin a TLS record, so the listener expects security.protocol SSL or SASL_SSL"
        raise ProtocolViolation(
            f"a response announces a size of {size} bytes; allowed are {_CORRELATION_BYTES} to {self._limit}{hint}"
        )

    def _keep(self, start: int, end: int) -> None:
        """Move the beginning of an incomplete response to where its rest can follow."""
        staging = self._staging
        left = end - start
        size = self._checked_size(start) if left >= 4 else 0
        if size + 4 <= len(staging):
            if start:
                staging[:left] = staging[start:end]
            self._end = left
            self._room = staging[left:]
            return
        self._body = body = bytearray(size)
        self._room = memoryview(body)
        self._room[: left - 4] = staging[start + 4 : end]
        self._room = self._room[left - 4 :]
        self._end = 0
