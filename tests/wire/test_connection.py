"""One connection: order, versions, bounds, and what becomes of requests when it ends. On both event loops."""

import asyncio
import gc
import random
import socket
from struct import pack
from typing import Any

import pytest
from kafka.protocol.metadata.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.producer.transaction import WriteTxnMarkersRequest

from twinlog.config.security import Security
from twinlog.errors import (
    ConnectionLost,
    ProtocolViolation,
    RequestTimedOut,
    Unreachable,
    UnsupportedVersion,
)
from twinlog.wire.connection import Connection

FETCH, PRODUCE, METADATA, API_VERSIONS = 1, 0, 3, 18
SILENT = {PRODUCE: lambda _: None, METADATA: lambda _: None}

Fake = Any  # the fixture `broker`: a FakeBroker


def framed(correlation: int, body: bytes, *, flexible: bool = False) -> bytes:
    """A response with its size and header."""
    payload = pack(">i", correlation) + (b"\0" if flexible else b"") + body
    return pack(">i", len(payload)) + payload


def metadata_answer(asked: Any) -> bytes:
    """A Metadata response in the version asked for."""
    response = MetadataResponse(throttle_time_ms=0, brokers=[(1, "b", 9092, None)], cluster_id="c", topics=[])
    return framed(asked.correlation, bytes(response.encode(version=asked.version)), flexible=asked.version >= 9)


def echo(asked: Any) -> bytes:
    """The request's body as the response's."""
    return framed(asked.correlation, asked.body)


def raw(connection: Connection, *chunks: bytes | memoryview) -> "asyncio.Future[bytes]":
    """A Produce request in a version without flexible headers, whose answer is taken as it is."""
    return connection.submit_frame(PRODUCE, 8, chunks, bytes)


async def ended(future: "asyncio.Future[Any]") -> BaseException | None:
    """How a future ended, waiting at most some seconds."""
    await asyncio.wait({future}, timeout=5)
    return future.exception()


async def test_a_request_is_answered_in_the_highest_common_version(broker: Fake) -> None:
    """Metadata 12 is what this broker has, though 13 is known here; the client id goes with it."""
    broker.answers[METADATA] = metadata_answer
    connection = await broker.open()
    answer = await connection.request(MetadataRequest(topics=[]), timeout_s=5)
    assert answer.brokers[0].host == "b"
    assert (broker.asked[-1].version, broker.asked[-1].client_id) == (12, "tester")
    assert connection.in_flight == 0
    await connection.close()


@pytest.mark.parametrize(("max_version", "sent"), [(8, 8), (9, 9), (99, 12), (None, 12)])
async def test_a_caller_may_ask_for_an_older_version(broker: Fake, max_version: int | None, sent: int) -> None:
    """`max_version` bounds what is sent; plain and flexible headers are both right."""
    broker.answers[METADATA] = metadata_answer
    connection = await broker.open()
    assert connection.version_of(MetadataRequest, max_version) == sent
    answer = await connection.request(MetadataRequest(topics=[]), timeout_s=5, max_version=max_version)
    assert (answer.cluster_id, broker.asked[-1].version) == ("c", sent)
    await connection.close()


async def test_a_request_that_the_broker_does_not_have(broker: Fake) -> None:
    """Nothing is sent, and the message names the API and the versions."""
    connection = await broker.open()
    with pytest.raises(UnsupportedVersion, match="offers no version of WriteTxnMarkers, and 1 to 2 are needed"):
        connection.submit(WriteTxnMarkersRequest(markers=[]))
    with pytest.raises(UnsupportedVersion, match="offers versions 0 to 12 of Metadata"):
        connection.version_of(MetadataRequest, max_version=-1)
    assert not connection.supports(WriteTxnMarkersRequest)
    assert connection.supports(MetadataRequest)
    assert [asked.api_key for asked in broker.asked] == [API_VERSIONS]
    await connection.close()


async def test_an_old_broker_is_asked_again_in_version_0(broker: Fake) -> None:
    """ApiVersions starts with the newest version, and falls back when that is refused (KIP-511)."""
    newest = broker.answers[API_VERSIONS]

    def old(asked: Any) -> bytes:
        if asked.version > 0:
            return framed(asked.correlation, pack(">hihhh", 35, 1, API_VERSIONS, 0, 0))
        return bytes(newest(asked))

    broker.answers[API_VERSIONS] = old
    connection = await broker.open()
    assert [asked.version for asked in broker.asked] == [4, 0]
    assert connection.version_of(MetadataRequest) == 12
    await connection.close()


async def test_many_requests_are_answered_in_order(broker: Fake) -> None:
    """A thousand requests under way at once, of sizes from nothing to larger than any buffer."""
    broker.answers[PRODUCE] = echo
    connection = await broker.open()
    rng = random.Random(7)
    bodies = [rng.randbytes(rng.choice((0, 1, 30, 1000, 70_000))) for _ in range(1000)]
    futures = [raw(connection, body[:10], memoryview(body)[10:]) for body in bodies]
    assert connection.in_flight == 1000
    assert await asyncio.gather(*futures) == bodies
    assert connection.in_flight == 0
    await connection.close()


async def test_a_frame_made_by_hand_gets_the_header_of_its_version(broker: Fake) -> None:
    """Flexible versions end the request header with an empty tag section, and so does the answer's."""
    broker.answers[PRODUCE] = lambda asked: framed(asked.correlation, asked.body, flexible=asked.version >= 9)
    connection = await broker.open()
    plain = await connection.submit_frame(PRODUCE, 8, [b"ab", b"cd"], bytes)
    flexible = await connection.submit_frame(PRODUCE, 9, [b"ab", b"cd"], bytes)
    assert (plain, flexible) == (b"abcd", b"\0abcd")
    await connection.close()


async def test_a_response_in_pieces(broker: Fake) -> None:
    """A response that trickles in is put together."""
    broker.answers[PRODUCE] = echo
    connection = await broker.open()
    big = random.Random(1).randbytes(3_000_000)
    assert await raw(connection, big) == big
    await connection.close()


async def test_a_cancelled_caller_does_not_disturb_the_others(broker: Fake) -> None:
    """The answer to a request that nobody awaits any more is read and thrown away."""
    broker.answers[PRODUCE] = echo
    connection = await broker.open()
    first, second = raw(connection, b"first"), raw(connection, b"second")
    first.cancel()
    assert await second == b"second"
    assert await raw(connection, b"third") == b"third"
    await connection.close()


async def test_a_timeout_resets_the_connection(broker: Fake) -> None:
    """The outcome is unknown, so the connection must not be used on; all others under way are lost with it."""
    broker.answers |= SILENT
    connection = await broker.open()
    other = raw(connection, b"x")
    with pytest.raises(RequestTimedOut, match=r"dr broker localhost:\d+ did not answer Metadata within 0\.05 s"):
        await connection.request(MetadataRequest(topics=[]), timeout_s=0.05)
    assert connection.closed
    assert "Produce was under way (Metadata had no answer within 0.05 s" in str(await ended(other))
    await connection.wait_closed()


@pytest.mark.parametrize("how", ["broker", "reset", "close"])
async def test_whatever_ends_it_nothing_stays_pending(broker: Fake, how: str) -> None:
    """Every request under way fails with ConnectionLost that names peer and API, and later ones at once."""
    broker.answers |= SILENT
    connection = await broker.open()
    futures = [raw(connection, b"x") for _ in range(5)]
    if how == "broker":
        broker.answers[METADATA] = lambda _: b""
        futures.append(connection.submit(MetadataRequest(topics=[])))
    elif how == "reset":
        connection.reset()
        assert all(future.done() for future in futures)
    else:
        await connection.close()
    outcomes = [await ended(future) for future in futures]
    assert all(type(outcome) is ConnectionLost for outcome in outcomes)
    assert "dr broker localhost:" in str(outcomes[0])
    assert "the connection was lost while Produce was under way" in str(outcomes[0])
    assert "unknown" in str(outcomes[0])
    assert (connection.closed, connection.in_flight) == (True, 0)
    with pytest.raises(ConnectionLost, match="Produce was not sent, the connection is closed"):
        raw(connection, b"late")
    await connection.wait_closed()


async def test_lost_requests_that_nobody_awaits_are_silent(broker: Fake) -> None:
    """No "exception was never retrieved" reaches the loop's handler: the caller may have gone for good reason."""
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    broker.answers |= SILENT
    connection = await broker.open()
    raw(connection, b"x")
    connection.reset()
    await connection.wait_closed()
    gc.collect()
    await asyncio.sleep(0)
    assert complaints == []


async def test_receive_buffer_is_raised_and_never_lowered(broker: Fake) -> None:
    """Where the system gives more by itself, it is left to choose; a closed connection has none."""
    connection = await broker.open()
    own = connection._transport.get_extra_info("socket")
    before = own.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    for size in (-1, 1024, before):
        connection.raise_receive_buffer(size)
        assert own.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == before
    connection.raise_receive_buffer(before + 4096)
    assert own.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) > before
    connection.reset()
    await connection.wait_closed()
    connection.raise_receive_buffer(1 << 20)


async def test_reset_throws_buffered_bytes_away(broker: Fake) -> None:
    """What the socket has not taken is never sent: the broker sees the connection reset in the middle of a frame."""
    broker.answers |= SILENT
    connection = await broker.open()
    broker.reading.clear()
    for _ in range(64):
        raw(connection, bytes(1 << 20))
    await asyncio.sleep(0.2)
    connection.reset()
    await connection.wait_closed()
    await asyncio.sleep(0.1)
    broker.reading.set()
    await asyncio.wait_for(broker.over.wait(), 10)
    assert isinstance(broker.ended[0], ConnectionResetError)
    assert len(broker.asked) < 40


async def test_close_sends_what_is_buffered(broker: Fake) -> None:
    """A polite end: the broker gets every byte, and then the end of the stream."""
    broker.answers |= SILENT
    connection = await broker.open()
    broker.reading.clear()
    for _ in range(32):
        raw(connection, bytes(1 << 20))
    closing = asyncio.create_task(connection.close())
    await asyncio.sleep(0.1)
    broker.reading.set()
    await closing
    await asyncio.wait_for(broker.over.wait(), 10)
    assert len(broker.asked) == 1 + 32


HOSTILE = [  # what no Kafka sends, and what the message says of it
    pytest.param(lambda _: pack(">i", -5), "size of -5 bytes", id="negative"),
    pytest.param(lambda _: pack(">i", 2**31 - 1), "size of 2147483647 bytes", id="huge"),
    pytest.param(lambda _: pack(">i", 2), "size of 2 bytes", id="tiny"),
    pytest.param(lambda a: framed(a.correlation + 1, b"xx"), "correlation id", id="wrong-id"),
    pytest.param(lambda _: framed(-1, b"xx"), "correlation id -1", id="negative-id"),
    pytest.param(lambda a: framed(a.correlation, b""), "cannot be decoded", id="empty"),
    pytest.param(lambda a: framed(a.correlation, b"\x7f" * 40), "cannot be decoded", id="garbage"),
    pytest.param(lambda a: framed(a.correlation, metadata_answer(a)[9:-3], flexible=True), "decoded", id="cut"),
    pytest.param(
        lambda a: framed(a.correlation, b"\x01\x05\xff\xff\xff\xff\x0f"), "cannot be decoded", id="endless-tags"
    ),
]


@pytest.mark.parametrize(("answer", "problem"), HOSTILE)
async def test_a_hostile_peer(broker: Fake, answer: Any, problem: str) -> None:
    """The request it concerns fails with ProtocolViolation, those behind it are lost, and the connection is reset."""
    broker.answers |= SILENT | {METADATA: answer}
    connection = await broker.open()
    asked = connection.submit(MetadataRequest(topics=[]))
    behind = raw(connection, b"behind")
    outcome = await ended(asked)
    assert isinstance(outcome, ProtocolViolation)
    assert problem in str(outcome)
    assert "dr broker localhost:" in str(outcome)
    assert "Metadata" in str(outcome)
    assert type(await ended(behind)) is ConnectionLost
    assert connection.closed
    await connection.wait_closed()


async def test_a_response_that_nothing_asked_for(broker: Fake) -> None:
    """Whatever comes unasked ends the connection."""
    broker.answers[PRODUCE] = lambda asked: echo(asked) * 2
    connection = await broker.open()
    assert await raw(connection, b"x") == b"x"
    await connection.wait_closed()
    with pytest.raises(ConnectionLost, match="nothing had asked for"):
        raw(connection, b"y")


async def test_a_truncated_response_is_a_lost_connection(broker: Fake) -> None:
    """The peer went away in the middle: no judgement about it, the outcome is unknown."""
    closing = iter([pack(">i", 100) + b"only a part"])
    broker.answers[PRODUCE] = lambda _: next(closing)
    broker.answers[METADATA] = lambda _: b""
    connection = await broker.open()
    future = raw(connection, b"x")
    connection.submit(MetadataRequest(topics=[]))
    assert type(await ended(future)) is ConnectionLost
    await connection.wait_closed()


async def test_random_garbage_ends_in_one_of_our_errors(broker: Fake) -> None:
    """Whatever bytes come back, nothing hangs and nothing else is raised."""
    rng = random.Random(11)
    for _ in range(30):
        junk = rng.randbytes(rng.randrange(1, 200))
        framing = rng.random() < 0.7
        broker.answers[METADATA] = lambda a, junk=junk, framing=framing: (
            framed(a.correlation, junk, flexible=True) if framing else junk + bytes(8)
        )
        connection = await broker.open()
        future = connection.submit(MetadataRequest(topics=[]))
        await asyncio.wait({future}, timeout=0.2)
        connection.reset()
        assert isinstance(await ended(future), ProtocolViolation | ConnectionLost)
        await connection.wait_closed()


async def test_a_bound_on_what_a_response_may_occupy(broker: Fake) -> None:
    """The bound is the caller's to lower."""
    broker.answers[PRODUCE] = echo
    connection = await broker.open(max_response_bytes=10_000)
    assert await raw(connection, bytes(9_000)) == bytes(9_000)
    assert isinstance(await ended(raw(connection, bytes(11_000))), ProtocolViolation)
    await connection.wait_closed()


async def test_nobody_listens(unused_tcp_port: int) -> None:
    """The message names the address and why."""
    with pytest.raises(Unreachable, match=rf"dr broker 127\.0\.0\.1:{unused_tcp_port} cannot be reached"):
        await Connection.open("127.0.0.1", unused_tcp_port, Security(), client_id="t", timeout_s=5, label="dr")


async def test_a_name_that_does_not_exist() -> None:
    """A failed look-up is as bad as a refused connection."""
    with pytest.raises(Unreachable, match=r"dr broker no-such-host\.invalid:9092 cannot be reached"):
        await Connection.open("no-such-host.invalid", 9092, Security(), client_id="t", timeout_s=10, label="dr")


async def test_a_silent_listener(broker: Fake) -> None:
    """Set-up has one bound for everything, and nothing stays open behind it."""
    broker.answers[API_VERSIONS] = lambda _: None
    with pytest.raises(Unreachable, match=r"did not complete the set-up of a connection within 0\.1 s"):
        await broker.open(timeout_s=0.1)
    await asyncio.wait_for(broker.over.wait(), 5)
    assert len(broker.ended) == 1


async def test_a_listener_that_hangs_up(broker: Fake) -> None:
    """The likeliest reason is a listener with other security; the message says so."""
    broker.answers[API_VERSIONS] = lambda _: b""
    with pytest.raises(Unreachable, match=r"check whether security\.protocol of this listener is PLAINTEXT"):
        await broker.open()


async def test_a_listener_that_hangs_up_at_the_first_request_behind_the_set_up(broker: Fake) -> None:
    """One that wants a login tells its versions without; once something was answered it is a broker that went."""
    broker.answers[METADATA] = lambda _: b""
    connection = await broker.open()
    lost = await ended(connection.submit(MetadataRequest(topics=[])))
    assert str(lost).endswith("If it does so each time, check whether security.protocol of this listener is PLAINTEXT.")
    broker.answers[METADATA] = metadata_answer
    connection = await broker.open()
    await connection.submit(MetadataRequest(topics=[]))
    broker.answers[METADATA] = lambda _: b""
    assert "security.protocol" not in str(await ended(connection.submit(MetadataRequest(topics=[]))))


async def test_a_listener_that_is_no_kafka(broker: Fake) -> None:
    """An HTTP server's answer is recognised as something else."""
    broker.answers[API_VERSIONS] = lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n"
    with pytest.raises(ProtocolViolation, match="size of 1213486160 bytes"):
        await broker.open()


async def test_no_half_open_connection_after_cancellation(broker: Fake) -> None:
    """A caller that gives up during set-up leaves nothing behind."""
    broker.answers[API_VERSIONS] = lambda _: None
    opening = asyncio.create_task(broker.open())
    await broker.first.wait()
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await asyncio.wait_for(broker.over.wait(), 5)
    assert len(broker.ended) == 1


async def test_what_an_operator_sees(broker: Fake) -> None:
    """The representation names the peer and the state."""
    broker.answers |= SILENT
    connection = await broker.open()
    raw(connection, b"x")
    assert repr(connection) == f"<Connection to dr broker localhost:{broker.port}, 1 in flight>"
    connection.reset()
    assert repr(connection).endswith("closed: it was reset>")
    await connection.wait_closed()
