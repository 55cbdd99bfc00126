"""A network that misbehaves on command: a TCP proxy in front of each broker.

The proxies run on a thread of their own, so blocking and asyncio tests use them alike: a control has taken effect
when its call returns. One fault at a time for each direction of each broker; `resume()` ends it.

| control   | what the two ends see                                                                       |
|-----------|---------------------------------------------------------------------------------------------|
| `cut`     | all connections are reset; new ones work                                                    |
| `refuse`  | all connections are reset, and new ones, too                                                |
| `stall`   | nothing more arrives, not even the end of a connection; after `resume` all of it does       |
| `slow`    | bytes arrive at a given rate, all connections of the broker together                        |
| `swallow` | bytes are taken and lost; `resume` resets each connection that lost some                    |

With `after_bytes=n` exactly n more bytes pass first (counted over all connections of that broker and direction),
so a fault can begin in the middle of a frame; `wait_until_begun` tells when it has.
"""

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, Flag, auto
from typing import Any, TypeVar

CHUNK_BYTES = 64 << 10
SLOW_TICKS_PER_S = 20
CONTROL_TIMEOUT_S = 10.0  # a control only sets a field or closes sockets
RESET = struct.pack("ii", 1, 0)  # SO_LINGER with 0 s: close() sends RST

T = TypeVar("T")


class Direction(Flag):
    """Which way bytes flow: requests to the broker, responses from it."""

    REQUESTS = auto()
    RESPONSES = auto()
    BOTH = REQUESTS | RESPONSES


class _Kind(Enum):
    CUT = auto()
    STALL = auto()
    SLOW = auto()
    SWALLOW = auto()


@dataclass
class _Fault:
    kind: _Kind
    after_bytes: int = 0
    bytes_per_s: int = 0
    begun: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(eq=False)
class _Connection:
    """The two sockets of one proxied connection; `spoiled` once bytes of it were lost."""

    client: asyncio.StreamWriter
    broker: asyncio.StreamWriter
    spoiled: bool = False

    def reset(self) -> None:
        for writer in (self.client, self.broker):
            _reset(writer)


class _Lane:
    """One direction of all connections of one broker."""

    def __init__(self, on_cut: Callable[[], None]) -> None:
        self.passed_bytes = 0
        self._on_cut = on_cut
        self._fault: _Fault | None = None
        self._changed = asyncio.Event()
        self._slow_turn = asyncio.Lock()

    def set(self, fault: _Fault | None) -> None:
        self._fault = fault
        self._changed.set()
        self._changed = asyncio.Event()
        if fault is not None and fault.after_bytes == 0:
            self._begin(fault)

    async def wait_until_begun(self) -> None:
        if self._fault is not None:
            await self._fault.begun.wait()

    async def pass_on(self, data: bytes, to: asyncio.StreamWriter, connection: _Connection) -> None:
        """Do with `data` what the fault of the moment says; returns when none of it is left."""
        while data:
            fault = self._fault
            if fault is None or fault.after_bytes > 0:
                data = data[self._pass_until(fault, data, to) :]
            elif fault.kind is _Kind.SLOW:
                data = data[await self._trickle(fault, data, to) :]
            elif fault.kind is _Kind.SWALLOW:
                connection.spoiled = True
                return
            else:
                await self._changed.wait()
                continue
            await to.drain()

    async def wait_until_open(self) -> None:
        """Return when the end of a connection may be passed on."""
        while self._fault is not None and self._fault.kind in (_Kind.STALL, _Kind.SWALLOW):
            if self._fault.after_bytes > 0:
                return
            await self._changed.wait()

    def _pass_until(self, fault: _Fault | None, data: bytes, to: asyncio.StreamWriter) -> int:
        passing = len(data) if fault is None else min(len(data), fault.after_bytes)
        to.write(data[:passing])
        self.passed_bytes += passing
        if fault is not None:
            fault.after_bytes -= passing
            if fault.after_bytes == 0:
                self._begin(fault)
        return passing

    async def _trickle(self, fault: _Fault, data: bytes, to: asyncio.StreamWriter) -> int:
        async with self._slow_turn:
            passing = min(len(data), max(1, fault.bytes_per_s // SLOW_TICKS_PER_S))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), passing / fault.bytes_per_s)
            to.write(data[:passing])
            self.passed_bytes += passing
            return passing

    def _begin(self, fault: _Fault) -> None:
        fault.begun.set()
        if fault.kind is _Kind.CUT:
            self._fault = None
            self._on_cut()


class BrokerProxy:
    """The proxy of one broker: its address, its faults, and what passed through it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, target_port: int) -> None:
        self.port = 0
        self.accepted_connections = 0
        self._loop = loop
        self._target_port = target_port
        self._refusing = False
        self._connections: dict[_Connection, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._lanes = {side: _Lane(self._reset_all) for side in (Direction.REQUESTS, Direction.RESPONSES)}

    @property
    def address(self) -> str:
        """Where clients connect."""
        return f"127.0.0.1:{self.port}"

    @property
    def open_connections(self) -> int:
        """How many connections lead to the broker now."""
        return len(self._connections)

    def passed_bytes(self, direction: Direction) -> int:
        """How many bytes were passed on so far."""
        return sum(lane.passed_bytes for lane in self._lanes_of(direction))

    def cut(self, direction: Direction = Direction.RESPONSES, *, after_bytes: int = 0) -> None:
        """Reset every connection, at once or when `after_bytes` more bytes went in that direction."""
        self._set(direction, _Kind.CUT, after_bytes=after_bytes)

    def refuse(self) -> None:
        """Reset every connection and every new one, until `resume`."""

        def begin() -> None:
            self._refusing = True
            self._reset_all()

        self._do(begin)

    def stall(self, direction: Direction = Direction.BOTH, *, after_bytes: int = 0) -> None:
        """Hold everything back until `resume`."""
        self._set(direction, _Kind.STALL, after_bytes=after_bytes)

    def slow(self, bytes_per_s: int, direction: Direction = Direction.BOTH, *, after_bytes: int = 0) -> None:
        """Pass on at most so many bytes a second in each direction, until `resume`."""
        self._set(direction, _Kind.SLOW, after_bytes=after_bytes, bytes_per_s=bytes_per_s)

    def swallow(self, direction: Direction = Direction.RESPONSES, *, after_bytes: int = 0) -> None:
        """Take what is sent and lose it, until `resume`."""
        self._set(direction, _Kind.SWALLOW, after_bytes=after_bytes)

    def wait_until_begun(self, direction: Direction = Direction.RESPONSES, *, timeout_s: float = 30.0) -> None:
        """Wait until a fault set with `after_bytes` has begun; raises TimeoutError."""

        async def wait() -> None:
            async with asyncio.timeout(timeout_s):
                for lane in self._lanes_of(direction):
                    await lane.wait_until_begun()

        _on_loop(self._loop, wait(), timeout_s + CONTROL_TIMEOUT_S)

    def resume(self) -> None:
        """End every fault; connections that lost bytes are reset."""

        def end() -> None:
            self._refusing = False
            for connection in [one for one in self._connections if one.spoiled]:
                connection.reset()
            for lane in self._lanes.values():
                lane.set(None)

        self._do(end)

    async def serve(self) -> asyncio.Server:
        """Begin to listen on a port of the system's choice."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def close(self) -> None:
        """Reset all connections and wait until their tasks are done."""
        for lane in self._lanes.values():
            lane.set(None)
        self._reset_all()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if self._refusing:
            _reset(to_client)
            return
        self.accepted_connections += 1
        try:
            from_broker, to_broker = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:  # the broker is down: the client sees it at once
            _reset(to_client)
            return
        connection = _Connection(to_client, to_broker)
        self._connections[connection] = None
        try:
            await asyncio.gather(
                self._pump(from_client, to_broker, Direction.REQUESTS, connection),
                self._pump(from_broker, to_client, Direction.RESPONSES, connection),
            )
        finally:
            connection.reset()
            del self._connections[connection]

    async def _pump(
        self, source: asyncio.StreamReader, to: asyncio.StreamWriter, side: Direction, connection: _Connection
    ) -> None:
        lane = self._lanes[side]
        try:
            while data := await source.read(CHUNK_BYTES):
                await lane.pass_on(data, to, connection)
            await lane.wait_until_open()
            to.write_eof()
        except OSError:
            await lane.wait_until_open()
            connection.reset()

    def _reset_all(self) -> None:
        for connection in list(self._connections):
            connection.reset()

    def _lanes_of(self, direction: Direction) -> list[_Lane]:
        return [lane for side, lane in self._lanes.items() if side in direction]

    def _set(self, direction: Direction, kind: _Kind, *, after_bytes: int, bytes_per_s: int = 0) -> None:
        def begin() -> None:
            for lane in self._lanes_of(direction):
                lane.set(_Fault(kind, after_bytes, bytes_per_s))

        self._do(begin)

    def _do(self, change: Callable[[], None]) -> None:
        async def apply() -> None:
            change()

        _on_loop(self._loop, apply(), CONTROL_TIMEOUT_S)


class ClusterProxy:
    """One proxy for each broker: `targets` maps broker ids to the ports on 127.0.0.1 behind them.

    `proxy[2].stall()` is the control of one broker; iterating gives them all.
    """

    def __init__(self, targets: Mapping[int, int]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="twinlog-proxy", daemon=True)
        self._thread.start()
        self._proxies = {number: BrokerProxy(self._loop, port) for number, port in targets.items()}
        self._servers = [_on_loop(self._loop, proxy.serve(), CONTROL_TIMEOUT_S) for proxy in self]

    def __getitem__(self, number: int) -> BrokerProxy:
        return self._proxies[number]

    def __iter__(self) -> Iterator[BrokerProxy]:
        return iter(self._proxies.values())

    @property
    def bootstrap(self) -> str:
        """The proxies' addresses, `127.0.0.1:port,...`."""
        return ",".join(proxy.address for proxy in self)

    def resume(self) -> None:
        """End every fault of every broker."""
        for proxy in self:
            proxy.resume()

    def close(self) -> None:
        """Reset all connections and end the thread; may be called twice."""
        if self._loop.is_closed():
            return
        _on_loop(self._loop, self._close(), CONTROL_TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CONTROL_TIMEOUT_S)
        self._loop.close()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for proxy in self:
            await proxy.close()


def _on_loop(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
    return asyncio.run_coroutine_threadsafe(work, loop).result(timeout_s)


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    if sock is not None and sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()
