"""A fake broker for the tests of connections: it answers what a test tells it to, and remembers what it was asked."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Any

import pytest
import uvloop
from kafka.protocol.metadata.api_versions import ApiVersionsResponse

from twinlog.config.security import Security
from twinlog.wire.connection import Connection

TLS = Path(__file__).parent / "tls"
HEADER = Struct(">hhih")
ON_BOTH_LOOPS = {"test_connection.py", "test_auth.py"}
CLOSE = b""
"""As an answer: close the connection."""


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run what touches a transport on both event loops, which treat buffers and aborts differently."""
    loops: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
    if item.path.name in ON_BOTH_LOOPS:
        loops["uvloop"] = uvloop.new_event_loop
    return loops


@dataclass(frozen=True)
class Asked:
    """A request as it arrived; `body` is all behind the client id."""

    api_key: int
    version: int
    correlation: int
    client_id: str
    body: bytes

    @classmethod
    def of(cls, frame: bytes) -> "Asked":
        """Take a request's header apart."""
        api_key, version, correlation, name_bytes = HEADER.unpack_from(frame)
        end = HEADER.size + name_bytes
        return cls(api_key, version, correlation, frame[HEADER.size : end].decode(), frame[end:])


Answer = Callable[[Asked], bytes | None]


def framed(correlation: int, body: bytes, *, flexible: bool = False) -> bytes:
    """A response with its size and header."""
    payload = correlation.to_bytes(4, "big") + (b"\0" if flexible else b"") + body
    return len(payload).to_bytes(4, "big") + payload


def replying(response: Any, *, flexible: bool = False) -> Answer:
    """An answer that is the same message whatever was asked, in the version asked for."""
    return lambda asked: framed(asked.correlation, bytes(response.encode(version=asked.version)), flexible=flexible)


def api_versions(ranges: Mapping[int, tuple[int, int]], *, error: int = 0, highest: int = 4) -> Answer:
    """The answer of a broker that has these versions, ApiVersions itself up to `highest`."""

    def answer(asked: Asked) -> bytes:
        refused = asked.version > highest
        entries = [(key, low, high) for key, (low, high) in {18: (0, highest), **ranges}.items()]
        response = ApiVersionsResponse(error_code=35 if refused else error, api_keys=entries, throttle_time_ms=0)
        return framed(asked.correlation, bytes(response.encode(version=0 if refused else asked.version)))

    return answer


@dataclass
class FakeBroker:
    """Answers by API key; `None` as an answer means silence. Every request is kept in `asked`.

    While `reading` is clear it reads nothing. `first` is set with the first request; `over`, and why in `ended`, when a
    connection ends.
    """

    answers: dict[int, Answer] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    reading: asyncio.Event = field(default_factory=asyncio.Event)
    ended: list[BaseException | None] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    first: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0

    def __post_init__(self) -> None:
        self.reading.set()
        self.answers.setdefault(
            18, api_versions({0: (0, 9), 1: (0, 16), 2: (0, 9), 3: (0, 12), 17: (0, 1), 36: (0, 2)})
        )

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it ends."""
        end: BaseException | None = None
        self.writers.append(writer)
        try:
            while await self._one(reader, writer):
                pass
        except (OSError, EOFError) as error:
            end = error
        self.ended.append(end)
        self.over.set()
        writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        await self.reading.wait()
        size = int.from_bytes(await reader.readexactly(4), "big")
        frame = await reader.readexactly(size)
        asked = Asked.of(frame)
        self.asked.append(asked)
        self.first.set()
        answer = self.answers.get(asked.api_key, lambda _: None)(asked)
        if answer:
            writer.write(answer)
            await writer.drain()
        return answer != CLOSE

    async def open(self, security: Security | None = None, **options: Any) -> Connection:
        """Open a connection to this broker."""
        bounds = {"client_id": "tester", "timeout_s": 5.0, "label": "dr"} | options
        return await Connection.open("localhost", self.port, security or Security(), **bounds)


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    """A fake broker that listens without TLS."""
    fake = FakeBroker()
    async with Listening(fake, None):
        yield fake


@pytest.fixture
async def tls_broker() -> AsyncIterator[FakeBroker]:
    """A fake broker that listens with TLS, and asks for a certificate without insisting on one."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=TLS / "ca.pem")
    context.load_cert_chain(TLS / "broker.pem")
    context.verify_mode = ssl.CERT_OPTIONAL
    fake = FakeBroker()
    async with Listening(fake, context):
        yield fake


class Listening:
    """A listener on a free port for as long as the block lasts; connections it still has are cut then."""

    def __init__(self, fake: FakeBroker, context: ssl.SSLContext | None) -> None:
        self._fake = fake
        self._context = context
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._context)
        self._fake.port = self._server.sockets[0].getsockname()[1]

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._fake.serve(reader, writer))
        self._tasks.add(task)
        try:
            await task
        finally:
            writer.transport.abort()
