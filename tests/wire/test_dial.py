"""Dialling: which addresses are tried, for how long, and what is said when none answers."""

import socket
import time
from typing import Any

import pytest

from twinlog.config.client import ClientSettings
from twinlog.errors import AuthenticationFailed, BadInput, Unreachable
from twinlog.wire.connection import Connection
from twinlog.wire.dial import Dialler, Target, resolve


class FakeConnection:
    """A connection that only remembers whether it was reset."""

    was_reset = False

    def reset(self) -> None:
        """Remember."""
        self.was_reset = True


class Opened:
    """Replaces `Connection.open`: notes the targets, and refuses those in `refused`."""

    def __init__(self) -> None:
        """Refuse nothing."""
        self.targets: list[tuple[str, int, str]] = []
        self.timeouts: list[float] = []
        self.refused: dict[int, Exception] = {}
        self.connections: list[FakeConnection] = []

    async def __call__(self, host: str, port: int, _security: object, **more: Any) -> FakeConnection:
        """Open, or refuse."""
        self.targets.append((host, port, more["server_name"]))
        self.timeouts.append(more["timeout_s"])
        if port in self.refused:
            raise self.refused[port]
        self.connections.append(FakeConnection())
        return self.connections[-1]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    """Dial into nowhere."""
    fake = Opened()
    monkeypatch.setattr(Connection, "open", fake)
    return fake


def dialler(*addresses: tuple[str, int]) -> Dialler:
    """A dialler with these bootstrap addresses."""
    return Dialler(ClientSettings(addresses), "test", label="dr")


async def itself(connection: Any) -> Any:
    """Use a connection as it is."""
    return connection


async def test_a_name_stands_for_all_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every numeric address of a name is a target once, under its name; a name without any is a reason."""

    def lookup(host: str, port: int, *_more: object, **_named: object) -> list[Any]:
        if host == "nobody":
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, 1, 6, "", (ip, port)) for ip in ("10.0.0.1", "10.0.0.2", "10.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    targets, reason = await resolve([("many", 9), ("nobody", 9)], 5.0)
    assert targets == [Target("many", 9, "10.0.0.1"), Target("many", 9, "10.0.0.2")]
    assert "nobody:9" in reason
    assert str(targets[0]) == "many:9 (10.0.0.1)"


async def test_the_next_address_is_tried(opened: Opened) -> None:
    """What refuses or breaks is passed over, and the time is shared so that each address gets some."""
    opened.refused = {1: Unreachable("refused"), 2: OSError("no route")}
    connection = await dialler().first_useful([("127.0.0.1", n) for n in (1, 2, 3)], itself, timeout_s=3.0)
    assert connection is opened.connections[0]
    assert [port for _, port, _ in opened.targets] == [1, 2, 3]
    assert opened.timeouts[0] <= 1.0
    assert opened.targets[0][2] == "127.0.0.1"


async def test_no_answer_names_addresses_and_reason(opened: Opened) -> None:
    """The error lists what was tried and why the last one failed."""
    opened.refused = {1: Unreachable("refused"), 2: Unreachable("no route")}
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1, 127\.0\.0\.1:2 .* last reason: .*no route"):
        await dialler().first_useful([("127.0.0.1", 1), ("127.0.0.1", 2)], itself, timeout_s=3.0)


async def test_refused_credentials_are_not_tried_elsewhere(opened: Opened) -> None:
    """They are refused everywhere, and trying may lock the account."""
    opened.refused = {1: AuthenticationFailed("wrong password")}
    with pytest.raises(AuthenticationFailed):
        await dialler(("127.0.0.1", 1), ("127.0.0.1", 2)).bootstrap(itself, timeout_s=3.0)
    assert len(opened.targets) == 1


async def test_a_connection_that_cannot_be_used_is_reset(opened: Opened) -> None:
    """A broker that answers but knows no cluster yet is passed over, and its connection does not stay behind."""

    async def picky(connection: Any) -> Any:
        if len(opened.connections) < 2:
            raise Unreachable("not ready")
        return connection

    found = await dialler().first_useful([("127.0.0.1", 1), ("127.0.0.1", 2)], picky, timeout_s=3.0)
    assert found is opened.connections[1]
    assert opened.connections[0].was_reset


async def test_bootstrap_goes_round_until_its_bound(opened: Opened) -> None:
    """It tries every address again, with waits, and says how often and how long."""
    opened.refused = {1: Unreachable("refused"), 2: Unreachable("refused too")}
    began = time.monotonic()
    with pytest.raises(Unreachable, match=r"in 0\.\d s \([34] rounds\); last reason: .*refused too"):
        await dialler(("127.0.0.1", 1), ("127.0.0.1", 2)).bootstrap(itself, timeout_s=0.6)
    assert time.monotonic() - began < 1.0
    assert len(opened.targets) in (6, 8)


async def test_a_store_that_cannot_be_used_is_a_mistake_at_first(opened: Opened) -> None:
    """Nobody waits for a file that was never right."""
    opened.refused = {1: BadInput("ssl.keystore.location (k.pem) cannot be used.")}
    with pytest.raises(BadInput, match=r"k\.pem"):
        await dialler(("127.0.0.1", 1)).bootstrap(itself, timeout_s=3.0)
    assert len(opened.targets) == 1


async def test_a_store_that_was_good_once_is_read_again_until_it_is_whole(opened: Opened) -> None:
    """Whoever renews certificates may be caught between two writes: each round reads them anew."""
    dials = dialler(("127.0.0.1", 1))
    await dials.bootstrap(itself, timeout_s=3.0)
    broken = BadInput("ssl.keystore.location (k.pem) cannot be used.")
    opened.refused = {1: broken}
    with pytest.raises(Unreachable, match=r"credentials for the dr cannot be read now: .*k\.pem"):
        await dials.bootstrap(itself, timeout_s=0.3)
    assert len(opened.targets) > 2
    del opened.refused[1]
    assert await dials.bootstrap(itself, timeout_s=3.0) is opened.connections[-1]


async def test_the_reason_of_the_last_failure_is_known_until_one_succeeds(opened: Opened) -> None:
    """Whoever gives up waiting can say why."""
    dials = dialler(("127.0.0.1", 1))
    opened.refused = {1: Unreachable("refused.")}
    with pytest.raises(Unreachable):
        await dials.bootstrap(itself, timeout_s=0.1)
    assert dials.trouble == "refused."
    opened.refused = {}
    await dials.bootstrap(itself, timeout_s=1.0)
    assert dials.trouble == ""
