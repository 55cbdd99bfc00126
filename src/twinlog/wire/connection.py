"""One connection to one broker: many requests under way, answered in the order in which they were sent.

A request is handed to the transport before `submit` returns, with no await between, so that what a caller has just
checked (a lease, a position) still holds. A broker handles one request of a connection at a time and answers in order
(`kafka.network.SocketServer`), so answers are matched by order and the correlation id only proves it.

What can go wrong has one outcome each:

* the connection ends, for whatever reason: every request under way fails with ConnectionLost, its outcome unknown;
* the peer sends what no Kafka sends: the request it concerns fails with ProtocolViolation, all others as above;
* `submit` on a closed connection: ConnectionLost is raised at once, and nothing was sent.
"""

import asyncio
import contextlib
import re
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Any, Final, NamedTuple, Self, TypeAlias, TypeVar, cast

from kafka.protocol.metadata.api_versions import ApiVersionsRequest

from twinlog.config.client import Security
from twinlog.errors import ConnectionLost, ProtocolViolation, RequestTimedOut, Unreachable, UnsupportedVersion
from twinlog.wire import auth, codes
from twinlog.wire.frames import (
    MAX_RESPONSE_BYTES,
    FrameReader,
    client_part,
    correlation_of,
    request_head,
    response_body,
)
from twinlog.wire.messages import (
    API_VERSIONS,
    Decoder,
    Message,
    MessageClass,
    api_name,
    decoder,
    is_flexible,
    versions,
)

T = TypeVar("T")
Chunk: TypeAlias = bytes | bytearray | memoryview

CLOSE_SECONDS: Final = 5.0
"""How long `close` waits for a peer that does not take what is left to send."""

RETIRE_AT: Final = 0.8
REFUSE_AT: Final = 0.9
"""Shares of a SASL session's lifetime: from the first on an idle connection closes, from the second none takes more.

A broker drops the connection when a request comes after the session (KIP-368), so that its outcome would be unknown.
"""

_LINGER_NONE: Final = struct.pack("ii", 1, 0)
_CORRELATIONS: Final = 1 << 31


class _Plan(NamedTuple):
    """How one kind of request is sent on this connection."""

    api_key: int
    version: int
    tail: bytes
    decode: Decoder


class _Pending(NamedTuple):
    """A request under way."""

    future: asyncio.Future[Any]
    correlation: int
    api_key: int
    flexible: bool
    decode: Decoder


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end, as messages name it: `dr broker kafka-1:9092`."""

    label: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.label} broker {host}:{self.port}"


class Connection(asyncio.BufferedProtocol):
    """A connection that is ready for requests; made by `open`, used by one event loop.

    The methods of `asyncio.BufferedProtocol` are for the event loop only.
    """

    def __init__(self, peer: Peer, *, client_id: str, max_response_bytes: int = MAX_RESPONSE_BYTES) -> None:
        self.peer: Final = peer
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(max_response_bytes)
        self._client_part = client_part(client_id)
        self._ranges = {API_VERSIONS: versions(ApiVersionsRequest)}
        self._plans: dict[tuple[MessageClass, int | None], _Plan] = {}
        self._pending: deque[_Pending] = deque()
        self._correlation = 0
        self._transport: asyncio.Transport | None = None
        self._refusal: str | None = None  # why nothing more may be sent
        self._ended = False
        self._gone = asyncio.Event()
        self._retiring = False
        self._advice = ""  # until something is answered behind the set-up
        self._timers: list[asyncio.TimerHandle] = []

    def __repr__(self) -> str:
        state = f"closed: {self._refusal}" if self._ended else f"{len(self._pending)} in flight"
        return f"<Connection to {self.peer}, {state}>"

    # -- for callers --

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        security: Security,
        *,
        client_id: str,
        timeout_s: float,
        label: str,
        server_name: str | None = None,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
    ) -> Self:
        """Connect, agree on versions (KIP-35, KIP-511) and authenticate (KIP-152), all within `timeout_s`.

        Parameters: `label` names the cluster in messages; `server_name` is the name in the broker's certificate where
        `host` is an address; `max_response_bytes` bounds what one response may occupy.

        Raises Unreachable, AuthenticationFailed, ProtocolViolation, UnsupportedVersion (no broker, or one from before
        Kafka 0.10), BadInput (unusable certificates or keys).
        """
        peer = Peer(label, host, port)
        connection = cls(peer, client_id=client_id, max_response_bytes=max_response_bytes)
        try:
            async with asyncio.timeout(timeout_s):
                with auth.explained(str(peer), security):
                    await connection._connect(security, server_name or host, timeout_s)
                    await connection._negotiate()
                    connection._hold_session(await auth.authenticate(connection.submit, security, str(peer)))
                    # A listener that wants a login tells its versions without, and closes at the next request.
                    connection._advice = "" if security.sasl else f" {auth.advice(security)}"
        except TimeoutError as error:
            connection.reset()
            raise Unreachable(f"{peer} did not complete the set-up of a connection within {timeout_s:g} s.") from error
        except BaseException:  # whatever ended it, a cancellation too, no half-open connection stays behind
            connection.reset()
            raise
        return connection

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more.

        What was under way has failed then; only before the end of a SASL session it is still answered (`in_flight`).
        """
        return self._refusal is not None

    @property
    def in_flight(self) -> int:
        """How many requests are sent and not answered."""
        return len(self._pending)

    def version_of(self, request: MessageClass, max_version: int | None = None) -> int:
        """Return the version in which `submit` would send a request; UnsupportedVersion if there is none."""
        lowest, highest = versions(request)
        wanted = highest if max_version is None else min(highest, max_version)
        low, high = self.offered(request)
        version = min(wanted, high)
        if version >= max(lowest, low):
            return version
        offered = f"versions {low} to {high}" if high >= 0 else "no version"
        raise UnsupportedVersion(
            f"{self.peer} offers {offered} of {api_name(request.API_KEY)}, and {lowest} to {wanted} are needed; "
            f"use brokers of a Kafka release that has one of these."
        )

    def offered(self, request: MessageClass) -> tuple[int, int]:
        """Return the lowest and highest version of a request that the broker offers; (0, -1) where it has none."""
        return self._ranges.get(request.API_KEY, (0, -1))

    def supports(self, request: MessageClass) -> bool:
        """Say whether the broker has any version of a request that can be sent."""
        try:
            self.version_of(request)
        except UnsupportedVersion:
            return False
        return True

    def submit(self, message: Message, *, max_version: int | None = None) -> asyncio.Future[Message]:
        """Send a request in the highest version that both sides have; the future's result is the response.

        Raises UnsupportedVersion, or ConnectionLost if the connection is closed already: then nothing was sent.
        """
        kind = type(message)
        plan = self._plans.get((kind, max_version)) or self._plan(kind, max_version)
        body = message.encode(version=plan.version)
        return self._send(plan, (body,), len(body))

    def submit_frame(
        self, api_key: int, version: int, chunks: Sequence[Chunk], decode: "Callable[[memoryview], T]"
    ) -> "asyncio.Future[T]":
        """Send a request whose body is encoded already, chunk after chunk, without joining the chunks.

        Parameters: `chunks` are all that follows the request header, and must not be changed until the answer is there;
        `decode` gets the response's body, and whatever it raises becomes a ProtocolViolation.

        Raises ConnectionLost as `submit` does. Whether the broker has that version, `version_of` tells.
        """
        tail = self._client_part + b"\0" if is_flexible(api_key, version) else self._client_part
        return self._send(_Plan(api_key, version, tail, decode), chunks, sum(map(len, chunks)))

    async def request(self, message: Message, *, timeout_s: float, max_version: int | None = None) -> Message:
        """Send a request and wait for its response.

        Raises RequestTimedOut after `timeout_s` (the connection is reset, since what was asked may still be done), and
        ConnectionLost, ProtocolViolation, UnsupportedVersion as `submit` does.
        """
        future = self.submit(message, max_version=max_version)
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError as error:
            name = api_name(type(message).API_KEY)
            self._end(f"{name} had no answer within {timeout_s:g} s, so it was reset")
            raise RequestTimedOut(
                f"{self.peer} did not answer {name} within {timeout_s:g} s. The connection was reset; "
                f"whether the request was carried out is unknown."
            ) from error

    def raise_receive_buffer(self, size: int) -> None:
        """Make the receive buffer at least `size` bytes large; where it is already, the system goes on adjusting it."""
        if self._transport is None or self._ended:
            return
        with contextlib.suppress(OSError):  # without it the connection is slower at worst
            own = self._transport.get_extra_info("socket")
            if own.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) < size:
                own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)

    def reset(self) -> None:
        """Give the connection up at once: what is still buffered is thrown away, not sent (SO_LINGER 0).

        A plain close would still send it, seconds later perhaps. What the broker has received, it may carry out.
        """
        self._end("it was reset")

    async def close(self) -> None:
        """Send what is buffered, then close; requests under way fail with ConnectionLost."""
        transport = self._transport
        if not self._ended and transport is not None:
            self._settle("it was closed", None)
            transport.close()
        await self.wait_closed()

    async def wait_closed(self) -> None:
        """Wait until the socket of a closed connection is gone too; at most some seconds, then it is reset."""
        if self._transport is None:
            return
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._gone.wait()
        except TimeoutError:
            self._abort()

    # -- for the event loop --

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)
        if self._ended:  # reset before the handshake was through
            self._abort()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  # the response's own size is the better hint
        """Say where the next bytes belong."""
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Answer the requests whose responses are complete now."""
        if self._ended:
            return
        try:
            for frame in self._reader.fed(nbytes):
                self._answer(frame)
        except ProtocolViolation as error:
            self._violated(str(error), error)

    def eof_received(self) -> None:
        """Let the transport close; `connection_lost` follows."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what is under way."""
        self._gone.set()
        self._settle(f"{type(exc).__name__}: {exc}" if exc else "the broker closed it", exc, self._advice)

    # -- sending --

    def _plan(self, kind: MessageClass, max_version: int | None) -> _Plan:
        version = self.version_of(kind, max_version)
        flexible = is_flexible(kind.API_KEY, version)
        tail = self._client_part + b"\0" if flexible else self._client_part
        plan = self._plans[kind, max_version] = _Plan(kind.API_KEY, version, tail, decoder(kind, version))
        return plan

    def _send(self, plan: _Plan, chunks: Sequence[Chunk], body_bytes: int) -> asyncio.Future[Any]:
        transport = self._transport
        if self._refusal is not None or transport is None:
            name = api_name(plan.api_key)
            raise ConnectionLost(f"{self.peer}: {name} was not sent, the connection is closed ({self._refusal}).")
        correlation = self._correlation
        self._correlation = (correlation + 1) % _CORRELATIONS
        head = request_head(plan.api_key, plan.version, correlation, tail=plan.tail, body_bytes=body_bytes)
        future = self._loop.create_future()
        flexible = plan.api_key != API_VERSIONS and len(plan.tail) > len(self._client_part)
        self._pending.append(_Pending(future, correlation, plan.api_key, flexible, plan.decode))
        transport.writelines((head, *chunks))
        return future

    # -- receiving --

    def _answer(self, frame: memoryview) -> None:
        correlation = correlation_of(frame)
        if not self._pending:
            raise ProtocolViolation(f"a response (correlation id {correlation}) came that nothing had asked for")
        asked = self._pending[0]
        if correlation != asked.correlation:
            raise ProtocolViolation(f"a response carries correlation id {correlation}, not {asked.correlation}")
        if not asked.future.done():  # else the caller was cancelled: nobody wants to know
            try:
                answer = asked.decode(response_body(frame, flexible=asked.flexible))
            except Exception as error:  # garbage can make a decoder raise anything
                raise ProtocolViolation(f"a response cannot be decoded ({type(error).__name__}: {error})") from error
            asked.future.set_result(answer)
        self._pending.popleft()
        self._advice = ""
        if self._retiring and not self._pending:
            self._retire()

    # -- ending --

    def _violated(self, problem: str, error: ProtocolViolation) -> None:
        head = self._pending.popleft() if self._pending else None
        name = f" where {api_name(head.api_key)} was to be answered" if head else ""
        violation = ProtocolViolation(f"{self.peer}{name}: {problem}. The connection was reset.")
        violation.__cause__ = error.__cause__
        if head is not None:
            _fail(head.future, violation)
        self._end(f"it broke the protocol: {problem}", violation)

    def _end(self, why: str, cause: BaseException | None = None) -> None:
        self._settle(why, cause)
        self._abort()

    def _abort(self) -> None:
        transport = self._transport
        if transport is None or self._gone.is_set():
            return
        with contextlib.suppress(OSError):  # the socket may be gone already, which is as good
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
        transport.abort()

    def _settle(self, why: str, cause: BaseException | None, advice: str = "") -> None:
        """Become closed and fail all that is under way, now and not in a later turn of the loop."""
        if not self._ended:
            self._ended, self._refusal = True, why
        for timer in self._timers:
            timer.cancel()
        while self._pending:
            asked = self._pending.popleft()
            text = (
                f"{self.peer}: the connection was lost while {api_name(asked.api_key)} was under way ({self._refusal})."
            )
            unknown = "Whether the request was carried out is unknown."
            _fail(asked.future, ConnectionLost(f"{text} {unknown}{advice}"), cause)

    def _retire(self) -> None:
        """Close before the SASL session ends: at once if idle, else as soon as everything is answered."""
        self._retiring = True
        if not self._pending and not self._ended and self._transport is not None:
            self._settle("its SASL session ends soon", None)
            self._transport.close()

    def _refuse(self) -> None:
        self._refusal = self._refusal or "its SASL session ends soon"

    # -- setting up --

    async def _connect(self, security: Security, server_name: str, timeout_s: float) -> None:
        context = auth.ssl_context(security)
        tls: dict[str, Any] = {}
        if context is not None:
            tls = {
                "ssl": context,
                "server_hostname": server_name,
                "ssl_handshake_timeout": timeout_s,
                "ssl_shutdown_timeout": CLOSE_SECONDS,
            }
        await self._loop.create_connection(lambda: self, self.peer.host, self.peer.port, **tls)
        if self._transport is not None:
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    async def _negotiate(self) -> None:
        """Ask for the broker's versions in the newest version, and in the oldest if that is too new for it."""
        question = ApiVersionsRequest(client_software_name="twinlog", client_software_version=_own_version())
        answer = await self.submit(question)
        if answer.error_code == codes.UNSUPPORTED_VERSION:
            answer = await self.submit(question, max_version=0)
        codes.check(answer.error_code, f"{self.peer} does not tell which versions it supports")
        self._ranges = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        self._plans.clear()

    def _hold_session(self, lifetime_ms: int) -> None:
        """Prepare for the end of a SASL session (KIP-368); 0 means that it has none."""
        if lifetime_ms > 0:
            lifetime_s = lifetime_ms / 1000
            self._timers = [
                self._loop.call_later(lifetime_s * RETIRE_AT, self._retire),
                self._loop.call_later(lifetime_s * REFUSE_AT, self._refuse),
            ]


def _fail(future: asyncio.Future[Any], error: Exception, cause: BaseException | None = None) -> None:
    """Fail a request; one whose caller has gone is not reported as an exception that nobody saw."""
    if future.done():
        return
    error.__cause__ = error.__cause__ or cause
    future.set_exception(error)
    future.exception()


@cache
def _own_version() -> str:
    """Our version in the form that brokers accept (KIP-511); "0" where the package is not installed."""
    try:
        return re.sub(r"[^a-zA-Z0-9.-]", "-", metadata.version("twinlog"))
    except metadata.PackageNotFoundError:
        return "0"
