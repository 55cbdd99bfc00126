"""Each test of this folder runs twice: against the simulated brokers, without any time passing, and against real ones.

What holds for both is what the simulation is trusted for; where they disagree, the real ones are right.
"""

import asyncio
import os
import re
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from random import Random

import pytest
from tests.real.conftest import _shared
from tests.sim.behaviour.bench import BROKER_CONFIG, Bench, Brokers, RealBrokers
from tests.sim.behaviour.simulated import SimulatedBrokers, settings
from tests.sim.clocks import simulated
from tests.sim.cluster import SimCluster
from tests.sim.connection import SimConnection, SimNetwork
from tests.sim.loop import SimLoop

from twinlog.config.client import ClientSettings
from twinlog.testing.kafka import LocalKafka
from twinlog.wire import dial
from twinlog.wire.cluster import Cluster

HERE = Path(__file__).parent
BROKERS = 3
SEED = int(os.environ.get("TWINLOG_SIM_SEED", "1"))


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop decides which brokers a test meets."""
    del item
    return {"simulated": SimLoop, "real": asyncio.new_event_loop}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that meet real brokers."""
    for item in items:
        if HERE in item.path.parents and "[real" in item.name:
            item.add_marker(pytest.mark.real)


@pytest.fixture(scope="session")
def real_kafka() -> Iterator[LocalKafka]:
    """Three real brokers that forget producers soon."""
    yield from _shared("behaviour", LocalKafka(BROKERS, config=BROKER_CONFIG))


@pytest.fixture
async def bench(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    """A client of the three brokers, and a topic's name that no other test has."""
    topic = f"{re.sub(r'[^A-Za-z0-9]+', '-', request.node.originalname)[:60]}-{uuid.uuid4().hex[:8]}"
    loop = asyncio.get_running_loop()
    if isinstance(loop, SimLoop):
        with simulated(loop, seed=SEED):
            monkeypatch.setattr(dial, "Connection", SimConnection)
            network = SimNetwork(loop, Random(f"network {SEED}"))
            cluster = SimCluster(
                "sim", nodes=BROKERS, loop=loop, rng=Random(f"cluster {SEED}"), network=network, settings=settings()
            )
            async for made in _benches(cluster.bootstrap, SimulatedBrokers(cluster), topic):
                yield made
            assert not loop.mistakes
        return
    kafka: LocalKafka = request.getfixturevalue("real_kafka")
    async for made in _benches(kafka.bootstrap, RealBrokers(kafka), topic):
        yield made


async def _benches(bootstrap: str, brokers: Brokers, topic: str) -> AsyncIterator[Bench]:
    own = ClientSettings.from_properties({}, bootstrap=bootstrap, origin="the behaviour tests")
    client = await Cluster.connect(own, client_id="behaviour", label="behaviour")
    yield Bench(client, brokers, topic)
    await client.close()
