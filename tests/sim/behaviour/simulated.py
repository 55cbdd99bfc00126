"""The simulated brokers of the behaviour tests."""

import asyncio

from tests.sim.behaviour.bench import EXPIRATION_CHECK_MS, EXPIRATION_MS, SESSION_S
from tests.sim.broker.settings import Settings
from tests.sim.cluster import SimCluster


def settings() -> Settings:
    """The same configs as the real brokers have."""
    return Settings(
        producer_expiration_ms=EXPIRATION_MS,
        expiration_check_s=EXPIRATION_CHECK_MS / 1000,
        session_timeout_s=SESSION_S,
    )


class SimulatedBrokers:
    """Simulated ones."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self._stopped: set[int] = set()

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return self.cluster.wall_ms()

    async def pause(self, node: int) -> None:
        """SIGSTOP."""
        self.cluster.pause(node)

    async def resume(self, node: int) -> None:
        """SIGCONT."""
        self.cluster.resume(node)

    async def kill(self, node: int) -> None:
        """SIGKILL."""
        self.cluster.kill(node)

    async def stop(self, node: int) -> None:
        """SIGTERM, and wait for the end."""
        self.cluster.shut_down(node)
        await asyncio.sleep(1.0)
        self._stopped.add(node)

    async def start(self, node: int) -> None:
        """Start it again, and wait until it serves."""
        self.cluster.restart(node, clean=node in self._stopped)
        self._stopped.discard(node)
        await asyncio.sleep(1.0)
