"""The proxy does to a connection what its controls say, and nothing else."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from twinlog.testing.proxy import BrokerProxy, ClusterProxy, Direction

SOON_S = 5.0
SILENCE_S = 0.3


class Echo:
    """Stands for a broker: sends back what it gets, on each connection."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.received = b""
        self.ended = threading.Event()
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        """End all threads; may be called twice."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(SOON_S)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                one, _ = self._listener.accept()
                self._sockets.append(one)
                self._threads.append(threading.Thread(target=self._echo, args=(one,)))
                self._threads[-1].start()

    def _echo(self, one: socket.socket) -> None:
        with contextlib.suppress(OSError), one:
            while data := one.recv(65536):
                self.received += data
                one.sendall(data)
        self.ended.set()


@pytest.fixture
def echo() -> Iterator[Echo]:
    """The far end."""
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[BrokerProxy]:
    """A proxy in front of `echo`."""
    cluster = ClusterProxy({1: echo.port})
    yield cluster[1]
    cluster.close()


@pytest.fixture
def client(proxy: BrokerProxy) -> Iterator[socket.socket]:
    """A connection through the proxy that has carried one byte each way."""
    with _connected(proxy) as one:
        one.sendall(b".")
        assert one.recv(1) == b"."
        yield one


def _connected(proxy: BrokerProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=SOON_S)


def _exactly(one: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count:
        got += one.recv(count - len(got))
    return got


def _is_silent(one: socket.socket) -> bool:
    one.settimeout(SILENCE_S)
    try:
        one.recv(1)
    except TimeoutError:
        return True
    finally:
        one.settimeout(SOON_S)
    return False


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_passes_bytes_unchanged(client: socket.socket, proxy: BrokerProxy) -> None:
    """Without a fault all bytes come through, in order, and are counted."""
    data = bytes(range(256)) * 4096
    threading.Thread(target=client.sendall, args=(data,)).start()
    assert _exactly(client, len(data)) == data
    # Bytes are counted once they are passed, so the last ones may be here before they are counted.
    _until(lambda: proxy.passed_bytes(Direction.BOTH) >= 2 * (len(data) + 1))
    assert proxy.passed_bytes(Direction.REQUESTS) == len(data) + 1
    assert proxy.passed_bytes(Direction.BOTH) == 2 * (len(data) + 1)


def test_passes_the_end_on(client: socket.socket, echo: Echo) -> None:
    """A client's orderly end reaches the broker, and the broker's the client."""
    client.shutdown(socket.SHUT_WR)
    assert client.recv(1) == b""
    assert echo.ended.wait(SOON_S)


def test_cut_resets_and_lets_new_ones_in(client: socket.socket, proxy: BrokerProxy) -> None:
    """A cut is a reset, not an orderly end, and a new connection works at once."""
    proxy.cut()
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    with _connected(proxy) as another:
        another.sendall(b"x")
        assert another.recv(1) == b"x"


def test_cut_in_the_middle_of_a_response(client: socket.socket, proxy: BrokerProxy) -> None:
    """With `after_bytes` exactly that many bytes arrive before the reset."""
    proxy.cut(Direction.REQUESTS, after_bytes=3)
    client.sendall(b"12345")
    with pytest.raises(ConnectionResetError):
        _exactly(client, 5)
    assert proxy.passed_bytes(Direction.REQUESTS) == 1 + 3


def test_refuse_resets_new_connections_until_resume(client: socket.socket, proxy: BrokerProxy) -> None:
    """While refusing, every connection is reset; afterwards new ones work."""
    proxy.refuse()
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    with pytest.raises(ConnectionError), _connected(proxy) as another:  # noqa: PT012
        another.sendall(b"x")
        another.recv(1)
    proxy.resume()
    with _connected(proxy) as another:
        another.sendall(b"x")
        assert another.recv(1) == b"x"


def test_stall_holds_back_and_loses_nothing(client: socket.socket, proxy: BrokerProxy, echo: Echo) -> None:
    """Stalled requests reach the broker after resume, complete and in order."""
    proxy.stall(Direction.REQUESTS)
    client.sendall(b"12345")
    assert _is_silent(client)
    assert echo.received == b"."
    proxy.resume()
    assert _exactly(client, 5) == b"12345"


def test_stall_of_responses_lets_requests_through(client: socket.socket, proxy: BrokerProxy, echo: Echo) -> None:
    """The broker gets and answers the request; only the answer is held back."""
    proxy.stall(Direction.RESPONSES)
    client.sendall(b"12345")
    _until(lambda: echo.received == b".12345")
    assert _is_silent(client)
    proxy.resume()
    assert _exactly(client, 5) == b"12345"


def test_stall_hides_the_end_of_a_connection(client: socket.socket, proxy: BrokerProxy, echo: Echo) -> None:
    """A stalled network does not tell the broker that its client has gone."""
    proxy.stall()
    client.close()
    assert not echo.ended.wait(SILENCE_S)
    proxy.resume()
    assert echo.ended.wait(SOON_S)


def test_swallow_loses_responses(client: socket.socket, proxy: BrokerProxy, echo: Echo) -> None:
    """The broker has acted, the client never hears of it, and resume resets that connection."""
    proxy.swallow(Direction.RESPONSES)
    client.sendall(b"12345")
    _until(lambda: echo.received == b".12345")
    assert _is_silent(client)
    proxy.resume()
    with pytest.raises(ConnectionResetError):
        client.recv(1)


def test_resume_spares_connections_that_lost_nothing(client: socket.socket, proxy: BrokerProxy) -> None:
    """A connection that was idle during a swallow goes on."""
    proxy.swallow()
    proxy.resume()
    client.sendall(b"x")
    assert client.recv(1) == b"x"


def test_swallow_after_bytes_begins_in_the_middle(client: socket.socket, proxy: BrokerProxy) -> None:
    """The first bytes of the response arrive, the rest is lost, and the test can wait for that."""
    proxy.swallow(Direction.RESPONSES, after_bytes=2)
    client.sendall(b"12345")
    proxy.wait_until_begun(Direction.RESPONSES, timeout_s=SOON_S)
    assert _exactly(client, 2) == b"12"
    assert _is_silent(client)


def test_wait_until_begun_is_bounded(proxy: BrokerProxy) -> None:
    """A fault that never begins is a TimeoutError."""
    proxy.stall(Direction.RESPONSES, after_bytes=1000)
    with pytest.raises(TimeoutError):
        proxy.wait_until_begun(timeout_s=0.05)


def test_slow_keeps_the_rate(client: socket.socket, proxy: BrokerProxy) -> None:
    """10,000 bytes at 20,000 a second need at least half a second less one tick, and come unchanged."""
    proxy.slow(20_000, Direction.REQUESTS)
    began = time.monotonic()
    client.sendall(b"x" * 10_000)
    assert _exactly(client, 10_000) == b"x" * 10_000
    assert time.monotonic() - began > 0.4


def test_resume_ends_slowness(client: socket.socket, proxy: BrokerProxy) -> None:
    """What was waiting goes at full speed after resume."""
    proxy.slow(10)
    client.sendall(b"x" * 100_000)
    proxy.resume()
    assert len(_exactly(client, 100_000)) == 100_000


def test_a_dead_broker_is_seen(proxy: BrokerProxy, echo: Echo) -> None:
    """Where nobody listens behind the proxy, the client's connection is reset."""
    echo.close()
    with pytest.raises(ConnectionResetError), _connected(proxy) as one:
        one.recv(1)


def test_each_broker_has_its_own_proxy(echo: Echo) -> None:
    """A fault of one broker leaves the other alone."""
    cluster = ClusterProxy({1: echo.port, 2: echo.port})
    cluster[1].refuse()
    with _connected(cluster[2]) as one:
        one.sendall(b"x")
        assert one.recv(1) == b"x"
    assert cluster.bootstrap == f"{cluster[1].address},{cluster[2].address}"
    cluster.resume()
    cluster.close()
    cluster.close()
