"""All fetchers of one mirror: which reads what, under which client id, and what is kept of each."""

import asyncio
from typing import Any, cast
from uuid import UUID

from twinlog.errors import RetryLater
from twinlog.names import TopicPartition
from twinlog.relay import fetch as fetch_module
from twinlog.relay.budget import Budget
from twinlog.relay.fetch import FetchSettings
from twinlog.relay.progress import Progress
from twinlog.wire.cluster import Cluster, Leader

A, B = (TopicPartition("orders", n) for n in range(2))
ID = UUID(int=7)


def test_partitions_of_a_topic_are_spread_over_the_fetchers() -> None:
    """Those of one topic go round, so that no fetcher has all of them; one fetcher has everything."""
    spread = [fetch_module._spread(TopicPartition("orders", n), 3) for n in range(6)]
    assert sorted(spread) == [0, 0, 1, 1, 2, 2]
    assert spread[:3] == spread[3:]
    assert {fetch_module._spread(TopicPartition(topic, 0), 4) for topic in "abcdefghijkl"} == {0, 1, 2, 3}
    assert fetch_module._spread(TopicPartition("orders", 5), 1) == 0


async def test_source_knows_for_how_long_all_of_its_fetchers_were_throttled() -> None:
    """What was learnt of a quota stays when a fetcher is begun again; client ids are those of KIP-1279."""
    asked: list[str] = []

    class Leading:
        async def find_leader(self, _where: TopicPartition, *, refresh: bool) -> Leader:
            assert refresh
            return Leader(3, 4)

        async def lane(self, _node: int, name: str, *, client_id: str) -> Any:
            assert name == client_id
            asked.append(client_id)
            raise RetryLater("away")

        async def close(self) -> None:
            """As the cluster's."""

    settings = FetchSettings(fetchers=2, backoff_ms=10)
    source = fetch_module.Source(cast("Cluster", Leading()), mirror="m", settings=settings, budget=Budget(1 << 20))
    for where in (A, B):
        await source.subscribe(Progress(where, 0, 1, 0, 0, 0), topic_id=ID, destination_leader=9)
    await asyncio.sleep(0.05)
    assert sorted(asked) == ["broker-9-fetcher-0-mirror-m", "broker-9-fetcher-1-mirror-m"]
    for fetcher, task in source._fetchers.values():
        fetcher.quota.answered(100, 0.0, size=1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await source.subscribe(Progress(A, 0, 1, 0, 0, 0), topic_id=ID, destination_leader=9)
    assert source.throttled_ms == 200
    await source.close()
