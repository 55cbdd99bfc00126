"""Lanes: named connections to brokers, one for each name and broker, opened at need and replaced when closed."""

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from twinlog.errors import TwinlogError, Unreachable
from twinlog.wire.connection import Connection
from twinlog.wire.dial import Dialler
from twinlog.wire.flights import Flights
from twinlog.wire.metadata import Broker
from twinlog.wire.retry import Backoff


class _Failure(NamedTuple):
    in_a_row: int
    at_s: float


class Lanes:
    """All connections of one cluster client."""

    def __init__(
        self,
        dialler: Dialler,
        brokers: Callable[[], Mapping[int, Broker]],
        *,
        clock: Callable[[], float] = time.monotonic,
        spread: Callable[[], float] = random.random,
    ) -> None:
        self._dialler = dialler
        self._brokers = brokers
        settings = dialler.settings
        self._backoff = Backoff(settings.reconnect_backoff_ms / 1000, settings.reconnect_backoff_max_ms / 1000)
        self._clock = clock
        self._spread = spread
        self._open: dict[tuple[int, str], Connection] = {}
        self._used_at_s: dict[tuple[int, str], float] = {}
        self._failures: dict[int, _Failure] = {}
        self._flights = Flights("The cluster client was closed.")

    async def get(self, node: int, name: str, *, client_id: str | None = None) -> Connection:
        """Return the open connection of that name to that broker, opening it when there is none.

        After failures the next opening waits its backoff first; two callers at once share one opening. Raises
        Unreachable after one failed try of every address of the broker.
        """
        key = (node, name)
        connection = self._open.get(key)
        if connection is not None and not connection.closed:
            return connection
        return await self._flights.join(key, lambda: self._replace(node, name, client_id))

    async def get_fresh(self, node: int, name: str) -> Connection:
        """As `get`, but a connection that lay idle for almost the broker's limit is replaced first.

        Only for lanes on which every request is preceded by this call: the idle time is counted from here.
        """
        key = (node, name)
        connection = self._open.get(key)
        idle_s = self._clock() - self._used_at_s.get(key, self._clock())
        # A tenth earlier than the broker, which would else close it just as the next request is on its way.
        most_s = self._dialler.settings.connections_max_idle_ms / 1000 * 0.9
        if connection is not None and 0 <= most_s < idle_s and not connection.in_flight:
            await connection.close()
        self._used_at_s[key] = self._clock()
        return await self.get(node, name)

    def by_promise(self, nodes: Iterable[int], name: str) -> list[int]:
        """Sort brokers for a question that any of them answers.

        First those without a recent failure, and among them those with an open connection of that name.
        """

        def rank(node: int) -> tuple[float, bool, float]:
            connection = self._open.get((node, name))
            is_open = connection is not None and not connection.closed
            return self._penalty_s(node), not is_open, self._spread()

        return sorted(nodes, key=rank)

    async def close(self) -> None:
        """Close every connection, and end openings under way."""
        await self._flights.land()
        connections = list(self._open.values())
        self._open.clear()
        await asyncio.gather(*(c.close() for c in connections), return_exceptions=True)

    async def _replace(self, node: int, name: str, client_id: str | None) -> Connection:
        await asyncio.sleep(self._penalty_s(node))
        broker = self._brokers().get(node)
        if broker is None:
            raise Unreachable(f"Broker {node} is not among the brokers that the cluster names.")
        most_s = self._dialler.settings.connection_setup_timeout_max_ms / 1000
        try:
            connection = await self._dialler.first_useful(
                [(broker.host, broker.port)], _itself, timeout_s=most_s, client_id=client_id
            )
        except TwinlogError as refused:
            self._note_failure(node)
            if isinstance(refused, Unreachable):
                raise Unreachable(f"Broker {node}: {refused}") from refused
            raise
        self._failures.pop(node, None)
        self._open[node, name] = connection
        return connection

    def _note_failure(self, node: int) -> None:
        before = self._failures.get(node)
        self._failures[node] = _Failure(before.in_a_row + 1 if before else 1, self._clock())

    def _penalty_s(self, node: int) -> float:
        failure = self._failures.get(node)
        if failure is None:
            return 0.0
        # The spread is left out: the wait must not change while it is being looked at.
        return max(0.0, failure.at_s + self._backoff.wait_s(failure.in_a_row, 0.0) - self._clock())


async def _itself(connection: Connection) -> Connection:
    return connection
