"""A destination that refuses a producer's first batch, of which it then knows nothing, and would take any behind it."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.sim import load
from tests.sim.cluster import SimCluster
from tests.sim.settings import Settings
from tests.sim.world import run_world

from twinlog.batch.records import Record, encode

SEEDS = range(3)
LASTS_S = 14.0


def quiet(seed: int) -> Settings:
    """One partition, one worker, three brokers, no faults but the test's own."""
    return replace(
        Settings.of(seed),
        workers=1,
        partitions=1,
        source_nodes=1,
        destination_nodes=3,
        faults=(),
        fault_every_s=1000.0,
        lasts_s=LASTS_S,
        old_records=False,
        transactions=0.0,
        long_runs=False,
        compacted=False,
        expiration_ms=86_400_000,
        delay_s=0.01,
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_appended_in_the_place_of_a_batch_that_is_too_large(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partition fails with what to do, and its log stays empty."""

    async def run(self: Any) -> None:
        await asyncio.sleep(8.0)
        where, now_ms = self._stage.partitions[0], self._stage.source.wall_ms()
        for value in (b"x" * 1_500_000, b"a", b"b", b"c"):
            self._append(where, encode([Record(0, now_ms, b"k", value, ())], codec=0))
        await asyncio.sleep(LASTS_S - 8.0)

    monkeypatch.setattr(load.Load, "run", run)
    outcome = run_world(quiet(seed))
    assert (len(outcome.anomalies), outcome.appends) == (0, 0)
    (reason,) = outcome.failed.values()
    assert "max.message.bytes" in reason


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_appended_in_the_place_of_a_batch_that_wants_more_replicas(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With acks=all the first is refused, with acks=1 the next would not be; all arrives once."""
    create = SimCluster.create_topic

    def strict(self: Any, name: str, *given: Any, **known: Any) -> Any:
        if known.get("replicas") == 3:
            known["configs"] = {**known.get("configs", {}), "min.insync.replicas": "3"}
        return create(self, name, *given, **known)

    async def run(self: Any) -> None:
        await asyncio.sleep(5.0)
        where, destination = self._stage.partitions[0], self._stage.destination
        leader = destination.leader_of(where)
        destination.kill(next(node for node in destination.up if node != leader))
        await asyncio.sleep(5.0)
        now_ms = self._stage.source.wall_ms()
        for n in range(60):
            self._append(where, encode([Record(0, now_ms, b"k", b"v%d" % n, ())], codec=0))
            await asyncio.sleep(0.004)
        await asyncio.sleep(LASTS_S - 12.0)

    monkeypatch.setattr(SimCluster, "create_topic", strict)
    monkeypatch.setattr(load.Load, "run", run)
    outcome = run_world(quiet(seed))
    assert not outcome.anomalies
    assert outcome.identical
