"""The worker's ear for operators and their tools: `/metrics`, `/healthz`, `/readyz`, on the worker's own event loop."""

import asyncio
import logging
import socket
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import uvicorn

from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import NEVER_RETRY
from twinlog.errors import BadInput
from twinlog.relay.waiting import cancelled
from twinlog.service.metrics import LOOK_EVERY_S, Sample, View, exposition, now_s
from twinlog.service.supervisor import Supervisor

log = logging.getLogger("twinlog.http")

# A source answers each fetch within half a second by default; one that says nothing for so long is not reached.
SILENT_S = 10.0
# The worker promises to end within 10 s, and this comes behind all else.
END_WITHIN_S = 0.3
# More scrapers at once than anybody has; beyond it the answer is 503.
MOST_CONNECTIONS = 32
TEXT, PROMETHEUS = "text/plain; charset=utf-8", "text/plain; version=0.0.4; charset=utf-8"

Send = Callable[[dict[str, Any]], Awaitable[None]]


def listening(text: str) -> socket.socket:
    """A socket that listens at HOST:PORT; port 0 takes a free one. Raises BadInput with a sentence."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise BadInput(f"--http needs HOST:PORT with a port from 0 to 65535, as in 127.0.0.1:9404, not '{text}'")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        made = socket.socket(family, kind, protocol)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(address)
            made.listen(MOST_CONNECTIONS)
        except OSError:
            made.close()
            raise
    except OSError as error:
        raise BadInput(
            f"--http {text}: cannot listen there: {error.strerror or error}. Give another address."
        ) from error
    made.setblocking(False)
    return made


class Endpoints:
    """Answers for whichever incarnation of the worker runs at the moment; `view` is None while there is none."""

    def __init__(self) -> None:
        self.view: View | None = None
        self.waits_for = "the worker has not begun"
        self._one_at_a_time = asyncio.Lock()
        self._last: tuple[float, bytes] = (float("-inf"), b"")

    async def __call__(self, scope: Mapping[str, Any], receive: object, send: Send) -> None:
        """Answer one request (ASGI)."""
        del receive
        if scope["type"] != "http":
            return
        status, kind, body = await self._answer(scope["method"], scope["path"])
        headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    async def _answer(self, method: str, path: str) -> tuple[int, str, bytes]:
        if method not in {"GET", "HEAD"}:
            return 405, TEXT, b"only GET is answered\n"
        if path == "/metrics":
            return 200, PROMETHEUS, await self._metrics()
        if path == "/healthz":
            return 200, TEXT, b"ok\n"
        if path == "/readyz":
            reasons = self.reasons()
            return (503, TEXT, "".join(f"{one}\n" for one in reasons).encode()) if reasons else (200, TEXT, b"ready\n")
        return 404, TEXT, b"/metrics, /healthz and /readyz are here\n"

    async def _metrics(self) -> bytes:
        """At most one look a second, written out in a thread: the data path must not wait for who asks often."""
        async with self._one_at_a_time:
            now = now_s()
            if now - self._last[0] >= LOOK_EVERY_S:
                samples: list[Sample] = [] if self.view is None else self.view.samples(now)
                self._last = (now, await asyncio.to_thread(exposition, samples))
            return self._last[1]

    def reasons(self) -> list[str]:
        """Why the worker is not ready; empty where it is."""
        view = self.view
        if view is None:
            return [self.waits_for]
        reasons = []
        if not view.lease.valid():
            reasons.append(
                "the lease is not held: the destination has not taken a renewal in time (unreachable, or it cannot "
                "write; the worker's log names the error)"
            )
        wanted: dict[str, list[Supervisor]] = defaultdict(list)
        for one in view.shards.supervisors:
            topic = view.image.topic(one.mirror, one.topic)
            if topic is not None and topic.desired is DesiredState.MIRRORING:
                wanted[one.mirror].append(one)
        for mirror, partitions in sorted(wanted.items()):
            trouble = view.sources.trouble(mirror) or _failing(mirror, partitions) or _silence(mirror, partitions, view)
            reasons += [trouble] if trouble else []
        return reasons


def _failing(mirror: str, partitions: Sequence[Supervisor]) -> str:
    """What a source does that refuses everything, and may not for long."""
    failed = [one.record for one in partitions if one.state is PartitionState.FAILED]
    if len(failed) < len(partitions) or all(record.retry_attempt == NEVER_RETRY for record in failed):
        return ""
    return f"mirror {mirror}: none of its {len(failed)} partitions here goes on, the first: {failed[0].error}"


def _silence(mirror: str, partitions: Sequence[Supervisor], view: View) -> str:
    now = now_s()
    asking = [one for one in partitions if one.state is not PartitionState.FAILED]
    silent_s = now - max((view.sights.heard_at(one, now) for one in asking), default=now)
    return f"mirror {mirror}: its source has said nothing for {silent_s:.0f} s" if silent_s >= SILENT_S else ""


class _Server(uvicorn.Server):
    """Leaves the signals to the worker."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


class HttpServer:
    """Serves until `close`, which takes no longer than END_WITHIN_S."""

    def __init__(self, endpoints: Endpoints, at: socket.socket) -> None:
        self._socket = at
        self._server = _Server(
            uvicorn.Config(
                endpoints,
                lifespan="off",
                ws="none",
                http="h11",
                log_config=None,
                access_log=False,
                server_header=False,
                limit_concurrency=MOST_CONNECTIONS,
                timeout_graceful_shutdown=1,
            )
        )
        self._task = asyncio.create_task(self._server.serve(sockets=[at]), name="http")
        host, port = at.getsockname()[:2]
        log.info("serving /metrics, /healthz and /readyz at http://%s:%d", f"[{host}]" if ":" in host else host, port)

    async def close(self) -> None:
        """End it, whoever is still being answered."""
        self._server.should_exit = self._server.force_exit = True
        await asyncio.wait({self._task}, timeout=END_WITHIN_S)
        await cancelled({self._task})
        self._socket.close()
