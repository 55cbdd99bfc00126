"""The simulated coordinator: markers at least once, also around its own death, and transactions that take too long."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest
from tests.sim.clocks import simulated
from tests.sim.cluster import SimCluster
from tests.sim.connection import SimConnection, SimNetwork
from tests.sim.loop import SimLoop

from twinlog.batch.view import Marker
from twinlog.config.client import ClientSettings
from twinlog.names import TopicPartition
from twinlog.wire import dial, ops
from twinlog.wire.cluster import Cluster

WHERE = TopicPartition("t", 0)
NAME = "owner"


def markers(seed: int, client: Callable[[SimCluster, Cluster], Awaitable[None]]) -> list[Marker]:
    """Let a client do something at three brokers; returns the control records that are there in the end."""
    loop = SimLoop()
    network = SimNetwork(loop, Random(f"network {seed}"))
    cluster = SimCluster("c", nodes=3, loop=loop, rng=Random(f"cluster {seed}"), network=network)
    cluster.create_topic("t", replicas=3, configs={"min.insync.replicas": "2"})

    async def main() -> None:
        own = ClientSettings.from_properties({}, bootstrap=cluster.bootstrap, origin="a test")
        wire = await Cluster.connect(own, client_id="c", label="c")
        await client(cluster, wire)
        await asyncio.sleep(60.0)
        await wire.close()

    try:
        with pytest.MonkeyPatch.context() as patch, simulated(loop, seed):
            patch.setattr(dial, "Connection", SimConnection)
            loop.run(main())
        assert not loop.mistakes
        found = [batch.marker() for batch in cluster.leader_log(WHERE).batches]
        return [marker for marker in found if marker is not None]
    finally:
        loop.dispose()


async def empty_transaction(cluster: SimCluster, wire: Cluster) -> None:
    """Begin and abort."""
    del cluster
    producer = await ops.init_producer_id(wire, NAME)
    await ops.add_partitions(wire, NAME, producer, [WHERE])
    await ops.end_txn(wire, NAME, producer, commit=False)


async def coordinator_dies(cluster: SimCluster, wire: Cluster) -> None:
    """Begin and abort, and then the coordinator is killed while the markers are written."""
    await empty_transaction(cluster, wire)
    node = cluster.leader_of(TopicPartition(cluster.TXN_TOPIC, cluster.slot_of(NAME)))
    await asyncio.sleep(cluster.rng.uniform(0.0, 0.01))
    cluster.kill(node)


async def answers_are_lost(cluster: SimCluster, wire: Cluster) -> None:
    """Begin and abort, while half of the answers to the coordinator's markers are lost."""
    cluster.settings.marker_surplus = 0.5
    await empty_transaction(cluster, wire)


async def nobody_ends_it(cluster: SimCluster, wire: Cluster) -> None:
    """Begin, and leave it."""
    del cluster
    producer = await ops.init_producer_id(wire, NAME, timeout_ms=5_000)
    await ops.add_partitions(wire, NAME, producer, [WHERE])


def test_an_undisturbed_transaction_leaves_one_marker() -> None:
    """One, of the coordinator's first epoch."""
    assert [len(markers(seed, empty_transaction)) for seed in range(5)] == [1] * 5


def test_a_coordinator_that_dies_leaves_one_or_more() -> None:
    """Its successor sends all again under a higher epoch; sometimes the first had been written already."""
    counts = set()
    for seed in range(30):
        left = markers(seed, coordinator_dies)
        epochs = [marker.coordinator_epoch for marker in left]
        assert epochs == sorted(epochs)
        counts.add(len(left))
    assert counts == {1, 2}


def test_a_lost_answer_leaves_a_surplus() -> None:
    """A marker whose answer was lost is sent again, and appended again."""
    counts = [len(markers(seed, answers_are_lost)) for seed in range(20)]
    assert min(counts) == 1
    assert max(counts) > 1


def test_an_abandoned_transaction_is_aborted() -> None:
    """After its time the coordinator ends it, and its marker takes an offset."""
    assert len(markers(1, nobody_ends_it)) == 1
