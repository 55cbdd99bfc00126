"""Connections through a simulated network, with the real `Connection` on top: only its transport is another one.

All bytes are real: requests are encoded and responses decoded by twinlog, framed and matched by its own code. A broker
handles one request of a connection at a time and answers in order. What may go wrong on the way: any direction may be
slow or stand still, a connection may break with each end noticing at its own time, and what had reached the broker
before may be carried out later (`late_s`), or not at all.
"""

import asyncio
import contextvars
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, NamedTuple

from kafka.protocol.metadata import ApiVersionsRequest
from tests.sim.broker.asks import Ask, Message, decoded
from tests.sim.broker.node import SimBroker
from tests.sim.broker.settings import Span
from tests.sim.cluster import SimCluster
from tests.sim.loop import PROCESS, Fate, Process

from twinlog.config.client import Security
from twinlog.errors import Unreachable
from twinlog.wire.connection import Connection
from twinlog.wire.messages import is_flexible

_HEAD: Final = 8  # API key, version, correlation id
_API_VERSIONS: Final = ApiVersionsRequest.API_KEY


class Sent(NamedTuple):
    """A request on its way."""

    api_key: int
    version: int
    correlation: int
    message: Message


BeforeSend = Callable[[Process | None, "SimConnection", int, Message], None]


class SimNetwork:
    """Every connection between processes and brokers; one for each loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rng: Random) -> None:
        self.loop = loop
        self.rng = rng
        self.delay = Span(0.000_1, 0.001)  # one way
        self.late_s = 1.5  # the longest that a broker may take to what a broken connection left behind
        self.before_send: BeforeSend | None = None
        self.context = contextvars.Context()
        self._clusters: list[SimCluster] = []
        self._links: dict[SimConnection, Link] = {}
        _NETWORKS[loop] = self

    def __repr__(self) -> str:
        return f"<SimNetwork, {len(self._links)} connections>"

    def end(self) -> None:
        """The loop's world is over: nothing here keeps it any more."""
        _NETWORKS.pop(self.loop, None)

    @staticmethod
    def current() -> "SimNetwork":
        """The network of the loop that runs."""
        return _NETWORKS[asyncio.get_running_loop()]

    def serve(self, cluster: SimCluster) -> None:
        """Make a cluster's brokers reachable."""
        self._clusters.append(cluster)

    def broker_at(self, host: str, port: int) -> SimBroker | None:
        """The broker that listens there, whatever its fate."""
        for cluster in self._clusters:
            for node, broker in cluster.brokers.items():
                if (cluster.host(node), cluster.port(node)) == (host, port):
                    return broker
        return None

    def after(self, delay_s: float, work: Callable[..., None], *args: Any) -> None:
        """Do something later, as nobody's."""
        self.loop.call_later(delay_s, work, *args, context=self.context)

    def draw(self) -> float:
        """One way through the network."""
        return self.rng.uniform(self.delay.least_s, self.delay.most_s)

    # What a schedule may do

    def of(self, process: Process | None) -> "list[SimConnection]":
        """The open connections of a process."""
        return [connection for connection, link in self._links.items() if link.process is process]

    def cut(self, connection: "SimConnection") -> None:
        """Break a connection; each end notices at its own time, and what is on its way may or may not arrive."""
        link = self._links.get(connection)
        if link is not None:
            link.cut()

    def stall(self, connection: "SimConnection") -> None:
        """Let nothing more arrive at either end, and nobody notice."""
        link = self._links.get(connection)
        if link is not None:
            link.stall()

    def resume(self, connection: "SimConnection") -> None:
        """End a stall: what waited arrives now."""
        link = self._links.get(connection)
        if link is not None:
            link.resume()

    def died(self, process: Process) -> None:
        """A process was killed: its sockets are closed by the kernel, after what is in them."""
        for connection in self.of(process):
            self._links.pop(connection).client_died()

    def broker_died(self, cluster: SimCluster, node: int) -> None:
        """A broker was killed: whoever is connected to it hears of it."""
        broker = cluster.brokers[node]
        for connection, link in list(self._links.items()):
            if link.broker is broker:
                del self._links[connection]
                link.broker_gone()

    def opened(self, connection: "SimConnection", link: "Link") -> None:
        """Keep a connection."""
        self._links[connection] = link

    def closed(self, connection: "SimConnection") -> None:
        """Forget a connection."""
        self._links.pop(connection, None)


_NETWORKS: Final["weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, SimNetwork]"] = weakref.WeakKeyDictionary()


class SimConnection(Connection):
    """A connection whose bytes go through the simulated network; in every other way the real one."""

    async def _connect(self, security: Security, server_name: str, timeout_s: float) -> None:
        del security, server_name, timeout_s
        network = SimNetwork.current()
        await asyncio.sleep(network.draw() * 2)
        broker = network.broker_at(self.peer.host, self.peer.port)
        if broker is None or not broker.alive or not broker.registered:  # it listens only once it is let in
            raise Unreachable(f"{self.peer} refuses connections")
        link = Link(network, self, broker)
        network.opened(self, link)
        self.connection_made(link)


class Link(asyncio.Transport):
    """The way of one connection's bytes to its broker and back; the client's end of it is a transport."""

    def __init__(self, network: SimNetwork, connection: SimConnection, broker: SimBroker) -> None:
        super().__init__()
        self.process = PROCESS.get()
        self.broker = broker
        self._network = network
        self._connection = connection
        self._client = contextvars.copy_context()  # what arrives for the client is the client's to handle
        self._life = broker.life
        self._held: deque[Sent] = deque()  # in the buffer of a process that was frozen as it sent
        self._inbox: deque[Sent] = deque()
        self._busy = False
        self._heard = True  # whether the broker still takes what comes
        self._open = True  # whether the client still takes what comes
        self._severed = False
        self._late_until_s = 0.0  # the broker takes its time until then
        self._stalled: list[Callable[[], None]] | None = None
        self._to_broker_s = self._to_client_s = 0.0
        broker.on_resume.append(self._serve)

    # The client's end

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """A socket that takes every option."""
        return _Socket() if name == "socket" else default

    def writelines(self, list_of_data: Sequence[Any]) -> None:
        """Send a request; a process that is frozen in this very moment sends it when it thaws."""
        sent = _parsed(memoryview(b"".join(list_of_data))[4:])
        network = self._network
        if network.before_send is not None:
            network.before_send(self.process, self._connection, sent.api_key, sent.message)
        if self.process is not None and self.process.fate is not Fate.RUNNING:
            network.loop.call_soon(self._flush)  # in the client's context, which is kept back
            self._held.append(sent)
        elif self._held:
            self._held.append(sent)
        else:
            self._leave(sent)

    def _flush(self) -> None:
        while self._held:
            self._leave(self._held.popleft())

    def _leave(self, sent: Sent) -> None:
        if self._open:
            self._to_broker_s = self._in_order(self._to_broker_s, lambda: self._arrive(sent))

    def abort(self) -> None:
        """Reset the connection: what has not left is thrown away, what is under way may arrive."""
        self._end(orderly=False)

    def close(self) -> None:
        """Close the connection after what was sent, all of which arrives."""
        self._flush()
        self._end(orderly=True)

    def _end(self, *, orderly: bool) -> None:
        if not self._open:
            return
        self._open = False
        self._held.clear()
        self._network.closed(self._connection)
        self._network.loop.call_soon(self._connection.connection_lost, None, context=self._client)
        if orderly:
            self._in_order(self._to_broker_s, lambda: self.client_gone(orderly=True))
        else:
            self._dawdle()
            self._network.after(self._network.draw(), self.client_gone)

    def client_died(self) -> None:
        """The client's process is dead: what is under way may arrive, what was held back never leaves."""
        self._open = False
        self._held.clear()
        self._dawdle()
        self._network.after(self._network.draw(), self.client_gone)

    def is_closing(self) -> bool:
        """Whether it was given up."""
        return not self._open

    # The way

    def _in_order(self, earliest_s: float, arrive: Callable[[], None]) -> float:
        """Let something arrive after its delay, and behind what was sent before it."""
        now_s = self._network.loop.time()
        at_s = max(earliest_s, now_s + self._network.draw())
        # At that very moment: a delay would be rounded, and two frames could change places.
        self._network.loop.call_at(at_s, self._pass, arrive, context=self._network.context)
        return at_s

    def _pass(self, arrive: Callable[[], None]) -> None:
        if self._stalled is not None:
            self._stalled.append(arrive)
        else:
            arrive()

    def stall(self) -> None:
        """Keep back whatever would arrive."""
        if self._stalled is None:
            self._stalled = []

    def resume(self) -> None:
        """Let it arrive, in order."""
        kept, self._stalled = self._stalled or [], None
        for arrive in kept:
            arrive()

    def cut(self) -> None:
        """Break it: the client notices soon, the broker perhaps later; what waits may be lost on the way."""
        rng = self._network.rng
        if self._stalled is not None and rng.random() < 0.5:
            self._stalled.clear()
        self._dawdle()
        self._severed = rng.random() < 0.75  # no answer comes any more, though the client has not noticed yet
        self._network.closed(self._connection)
        self._network.after(rng.uniform(0.0, 0.2), self._tell_client)
        self._network.after(rng.uniform(0.0, self._network.late_s), self.client_gone)

    def _tell_client(self) -> None:
        if self._open:
            self._open = False
            lost = ConnectionResetError("the network broke")
            self._network.loop.call_soon(self._connection.connection_lost, lost, context=self._client)

    def broker_gone(self) -> None:
        """The broker has died: nothing that waits there is done, and the client's kernel hears a reset."""
        self._heard = False
        self._inbox.clear()
        self._forget()
        self._network.after(self._network.draw(), self._tell_client)

    def client_gone(self, *, orderly: bool = False) -> None:
        """The broker notices the end: of what it has got, it still carries out the first few requests, or none.

        After an orderly end it carries out all.
        """
        if not self._heard:
            return
        self._heard = False
        rng = self._network.rng
        kept = len(self._inbox) if orderly else rng.randint(0, len(self._inbox))
        while len(self._inbox) > kept:
            self._inbox.pop()
        if not self._inbox:
            self._forget()
        elif not self._busy:
            self._busy = True
            self.broker.after(rng.uniform(0.0, self._network.late_s), self._next)

    def _forget(self) -> None:
        if self._serve in self.broker.on_resume:
            self.broker.on_resume.remove(self._serve)

    # The broker's end

    def _arrive(self, sent: Sent) -> None:
        if self._heard and self.broker.alive and self.broker.life == self._life:
            self._inbox.append(sent)
            self._serve()

    def _serve(self) -> None:
        """Take the next request, if none is in hand."""
        if self._inbox and not self._busy and self.broker.up:
            self._busy = True
            settings = self.broker.cluster.settings
            self.broker.after(self.broker.cluster.draw(settings.handling), self._next)

    def _dawdle(self) -> None:
        """What the broker has got of a connection that breaks, or gets just now, it may carry out much later."""
        rng = self._network.rng
        if rng.random() < 0.4:
            self._late_until_s = self._network.loop.time() + rng.uniform(0.0, self._network.late_s)

    def _next(self) -> None:
        if not self._inbox:
            self._busy = False
            return
        late_s = self._late_until_s - self._network.loop.time()
        if late_s > 0:
            self.broker.after(late_s, self._next)
            return
        sent = self._inbox.popleft()
        ask = Ask(sent.api_key, sent.version, sent.message, _Reply(self, sent).send)
        self.broker.cluster.submit(self.broker.node, ask)

    def answered(self, frame: bytes) -> None:
        """The broker has answered the request in hand."""
        self._busy = False
        if self._open and self._heard:
            self._to_client_s = self._in_order(self._to_client_s, lambda: self._deliver(frame))
        self._serve()
        if not self._heard and not self._inbox:
            self._forget()

    def _deliver(self, frame: bytes) -> None:
        if self._open and not self._severed:
            self._network.loop.call_soon(self._feed, frame, context=self._client)

    def _feed(self, frame: bytes) -> None:
        """Hand bytes to the client as a socket would, in as many pieces as its buffers ask for."""
        view = memoryview(frame)
        while view and self._open:
            room = self._connection.get_buffer(-1)
            taken = min(len(room), len(view))
            room[:taken] = view[:taken]
            view = view[taken:]
            self._connection.buffer_updated(taken)


class _Reply:
    """Turns a response into bytes, once."""

    def __init__(self, link: Link, sent: Sent) -> None:
        self._link = link
        self._asked = sent
        self._answered = False

    def send(self, response: Message) -> None:
        """Send the response."""
        if self._answered:
            raise AssertionError(f"request {self._asked} was answered twice")
        self._answered = True
        api_key, version, correlation, _ = self._asked
        flexible = is_flexible(api_key, version) and api_key != _API_VERSIONS
        body = bytes(response.encode(version=version))
        payload = correlation.to_bytes(4, "big") + (b"\0" if flexible else b"") + body
        self._link.answered(len(payload).to_bytes(4, "big") + payload)


class _Socket:
    """Takes options and does nothing."""

    def setsockopt(self, *_options: Any) -> None:
        """Take an option."""

    def getsockopt(self, *_options: Any) -> int:
        """Have as much of everything as anybody asks for."""
        return 1 << 30


def _parsed(frame: memoryview) -> Sent:
    """Read a request without its size."""
    api_key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
    name_bytes = int.from_bytes(frame[_HEAD : _HEAD + 2], "big", signed=True)
    body = _HEAD + 2 + max(0, name_bytes) + (1 if is_flexible(api_key, version) else 0)
    message = decoded(api_key, version, frame[body:])
    return Sent(api_key, version, int.from_bytes(frame[4:8], "big"), message)
