"""Soak: thousands of groups in one sync, and groups that come to life while they are synced."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer
from tests.real.mirrored_logs import numbered, write
from tests.real.mirroring import Mirror
from tests.soak.soaking import FIGURES

from twinlog.config.mirror import MirrorConfig
from twinlog.names import TopicPartition as At
from twinlog.sync import groups
from twinlog.testing.kafka import LocalKafka
from twinlog.wire.ops_groups import Committed, commit_offsets, committed_offsets

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]

GROUPS, PARTITIONS, TOPIC = 5_000, 8, "grouped"
FIRST_S, IDLE_S = 60.0, 10.0
RACE_S = 30.0


@pytest.fixture(scope="module")
def sides() -> Iterator[Mirror]:
    """Two clusters with the same topic; nothing is mirrored, the sync is called as a worker calls it."""
    with LocalKafka() as source, LocalKafka() as destination, Mirror(source, destination, workers=0) as sides:
        sides.create(TOPIC, partitions=PARTITIONS)
        for kafka in (source, destination):
            for partition in range(PARTITIONS):
                write(kafka, TOPIC, numbered(50), partition=partition)
        yield sides


def config(sides: Mirror, include: str) -> MirrorConfig:
    """The config of a mirror that syncs some groups."""
    return MirrorConfig.from_properties(
        {"bootstrap.servers": sides.source.bootstrap, "mirror.groups.include": include}, "test"
    )


def test_thousands_of_groups_are_synced_in_few_requests(sides: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    """5,000 groups of 8 partitions: the first pass commits each, a pass without news asks for 50 at once."""
    source, destination = sides.clusters
    names = [f"many-{number}" for number in range(GROUPS)]
    sent: Counter[str] = Counter()
    for cluster in sides.clusters:
        _count(monkeypatch, cluster, sent)

    async def commit_all() -> None:
        gate = asyncio.Semaphore(50)

        async def one(number: int) -> None:
            async with gate:
                at = {At(TOPIC, p): Committed((number + p) % 50, "n") for p in range(PARTITIONS)}
                await commit_offsets(source, names[number], at)

        await asyncio.gather(*(one(number) for number in range(GROUPS)))

    sides.run(commit_all(), 300)
    passes = []
    for _ in range(2):
        sent.clear()
        began = time.monotonic()
        done = sides.run(groups.sync(source, destination, config(sides, "many-.*"), {TOPIC}), 300)
        passes.append((time.monotonic() - began, done, dict(sent)))
    (first_s, first, asked), (idle_s, idle, asked_idle) = passes
    FIGURES.append(f"{GROUPS} groups: first pass {first_s:.1f} s ({asked}), without news {idle_s:.1f} s ({asked_idle})")
    assert (len(first.synced), first.skipped, first.errors) == (GROUPS, (), 0)
    assert (idle.synced, idle.skipped, idle.errors) == ((), (), 0)
    assert asked_idle["OffsetFetchRequest"] == 2 * GROUPS / 50
    assert "OffsetCommitRequest" not in asked_idle
    assert first_s < FIRST_S
    assert idle_s < IDLE_S
    last = sides.run(committed_offsets(destination, names[-1]))
    assert last == {At(TOPIC, p): Committed((GROUPS - 1 + p) % 50, "n") for p in range(PARTITIONS)}


def _count(monkeypatch: pytest.MonkeyPatch, cluster: Any, sent: Counter[str]) -> None:
    usual = cluster.call

    async def counted(message: Any, **given: Any) -> Any:
        sent[type(message).__name__] += 1
        return await usual(message, **given)

    monkeypatch.setattr(cluster, "call", counted)


def test_groups_that_come_to_life_meanwhile_are_left_alone_and_hold_up_nothing(sides: Mirror) -> None:
    """Members come and go at the destination all the time: no failure is counted, a quiet group is always synced."""
    source, destination = sides.clusters
    over = threading.Event()
    lively = [f"race-{protocol}" for protocol in ("classic", "consumer")]
    threads = [threading.Thread(target=_come_and_go, args=(sides.destination, name, over)) for name in lively]
    for thread in threads:
        thread.start()
    outcomes: Counter[str] = Counter()
    deadline = time.monotonic() + RACE_S
    number = 0
    while time.monotonic() < deadline:
        number += 1
        for name in (*lively, "race-quiet"):
            sides.run(commit_offsets(source, name, {At(TOPIC, 0): Committed(number % 50, str(number))}))
        done = sides.run(groups.sync(source, destination, config(sides, "race-.*"), {TOPIC}))
        assert done.errors == 0, done
        assert "race-quiet" in done.synced
        outcomes.update("synced" for name in done.synced if name in lively)
        outcomes.update(item.reason.split("(")[0] for item in done.skipped)
    over.set()
    for thread in threads:
        thread.join()
    FIGURES.append(f"groups coming to life: {number} passes, {dict(outcomes)}")
    assert outcomes["synced"] > 0
    assert sum(outcomes.values()) == 2 * number


def _come_and_go(kafka: LocalKafka, group: str, over: threading.Event) -> None:
    while not over.is_set():
        reader = Consumer(
            {
                "bootstrap.servers": kafka.bootstrap,
                "group.id": group,
                "group.protocol": group.split("-")[1],
                "enable.auto.commit": False,
            }
        )
        reader.subscribe([TOPIC])
        reader.poll(0.2)
        reader.close()
        over.wait(0.05)
