"""From an address to a connection: every address that a name stands for is tried, within a bound."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, TypeVar

from twinlog.config.client import ClientSettings
from twinlog.errors import BadInput, ProtocolViolation, RetryLater, TwinlogError, Unreachable, UnsupportedVersion
from twinlog.wire.connection import Connection
from twinlog.wire.retry import Attempts

T = TypeVar("T")
Address = tuple[str, int]

# What one address may answer while another one still helps; refused credentials are refused everywhere.
_TRY_NEXT = (RetryLater, ProtocolViolation, UnsupportedVersion, OSError)

TELLING_ROUND_S: Final = 0.5
"""A last round that is shorter says only that there was no time left; the reason of the one before it is told."""


class Target(NamedTuple):
    """One numeric address to try, and the name that it was found under (a certificate is checked against that)."""

    host: str
    port: int
    numeric: str

    def __str__(self) -> str:
        where = f"{self.host}:{self.port}"
        return where if self.numeric == self.host else f"{where} ({self.numeric})"


async def resolve(addresses: Sequence[Address], timeout_s: float) -> tuple[list[Target], str]:
    """Return all numeric addresses behind `addresses`, and the reason of the last name that has none."""
    loop = asyncio.get_running_loop()

    async def one(host: str, port: int) -> list[Target]:
        found = await asyncio.wait_for(loop.getaddrinfo(host, port, type=socket.SOCK_STREAM), timeout_s)
        return [Target(host, port, str(n)) for n in dict.fromkeys(entry[4][0] for entry in found)]

    answers = await asyncio.gather(*(one(*a) for a in addresses), return_exceptions=True)
    targets: list[Target] = []
    reason = ""
    for (host, port), answer in zip(addresses, answers, strict=True):
        if isinstance(answer, list):
            targets += answer
        elif isinstance(answer, OSError | TimeoutError | UnicodeError):
            reason = f"{host}:{port}: the name cannot be resolved ({str(answer) or 'no answer'})"
        else:
            raise answer
    return targets, reason


class Dialler:
    """Opens connections with one client's settings; `trouble` is why the last one failed, "" where it did not."""

    def __init__(self, settings: ClientSettings, client_id: str, *, label: str) -> None:
        self.settings = settings
        self.client_id = client_id
        self.label = label
        self.trouble = ""
        self._usable_once = False  # whether the credentials' files have ever been fit for a connection

    async def first_useful(
        self,
        addresses: Sequence[Address],
        use: Callable[[Connection], Awaitable[T]],
        *,
        timeout_s: float,
        client_id: str | None = None,
    ) -> T:
        """Open the first address that answers, and return what `use` makes of the connection.

        Each numeric address gets its share of `timeout_s`, so that a silent one leaves time for the rest. The
        connection is reset when `use` fails. Raises Unreachable with the last reason, and AuthenticationFailed at once.
        """
        attempts = Attempts(timeout_s)
        targets, reason = await resolve(addresses, timeout_s)
        for number, target in enumerate(targets):
            share_s = attempts.share_s(self._setup_s, least_s=0.1)
            share_s = min(share_s, max(0.1, attempts.left_s / (len(targets) - number)))
            try:
                connection = await self._open(target, share_s, client_id)
                return await _used(connection, use)
            except _TRY_NEXT as refused:
                reason = f"{target}: {str(refused) or type(refused).__name__}"
        names = ", ".join(f"{host}:{port}" for host, port in addresses)
        raise Unreachable(f"{names} did not answer within {attempts.elapsed_s:.1f} s; last reason: {reason}")

    async def bootstrap(self, use: Callable[[Connection], Awaitable[T]], *, timeout_s: float) -> T:
        """Go round the bootstrap addresses, with backoff, until `use` succeeds with one of them.

        Raises Unreachable, naming the addresses, the time and the last reason.
        """
        attempts = Attempts(timeout_s)
        addresses = self.settings.bootstrap
        reason = ""
        while True:
            round_s = max(0.1, attempts.left_s)
            try:
                return await self.first_useful(addresses, use, timeout_s=round_s)
            except Unreachable as refused:
                if not reason or round_s >= TELLING_ROUND_S:
                    reason = str(refused).partition("last reason: ")[2]
            if not await attempts.again():
                names = ", ".join(f"{host}:{port}" for host, port in addresses)
                raise Unreachable(
                    f"No broker at {names} answered in {attempts.elapsed_s:.1f} s "
                    f"({attempts.failures} rounds); last reason: {reason}"
                )

    @property
    def _setup_s(self) -> float:
        return self.settings.connection_setup_timeout_ms / 1000

    async def _open(self, target: Target, timeout_s: float, client_id: str | None) -> Connection:
        try:
            connection = await self._opened(target, timeout_s, client_id)
        except TwinlogError as error:
            self.trouble = str(error)
            raise
        self.trouble, self._usable_once = "", True
        return connection

    async def _opened(self, target: Target, timeout_s: float, client_id: str | None) -> Connection:
        try:
            # Small local files, read in less time than a thread takes to begin.
            security = self.settings.security_now()
        except BadInput as problem:  # they could be read before: somebody is about to renew them
            raise self._unreadable(problem) from problem
        try:
            return await Connection.open(
                target.numeric,
                target.port,
                security,
                client_id=client_id or self.client_id,
                timeout_s=timeout_s,
                label=self.label,
                server_name=target.host,
            )
        except BadInput as problem:
            if self._usable_once:  # a certificate or store that is half written, and will be whole soon
                raise self._unreadable(problem) from problem
            raise

    def _unreadable(self, problem: BadInput) -> Unreachable:
        return Unreachable(f"the credentials for the {self.label} cannot be read now: {problem}")


async def _used(connection: Connection, use: Callable[[Connection], Awaitable[T]]) -> T:
    try:
        return await use(connection)
    except BaseException:  # a cancelled caller leaves no connection behind either
        connection.reset()
        raise
