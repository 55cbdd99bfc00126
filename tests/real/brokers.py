"""Faults of a destination of three brokers: one hurt at a time, leaders that die with their followers behind, moves."""

import contextlib
import random
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from kafka.protocol.admin import AlterPartitionReassignmentsRequest
from tests.real.faults import FaultyMirror

from twinlog.errors import TwinlogError
from twinlog.names import TopicPartition
from twinlog.testing.kafka import LocalKafka
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops import DEBUGGER, LATEST, list_offsets

# A follower that is paused for longer is given up by the controller (`broker.session.timeout.ms`).
IN_SYNC_S: Final = 3.0
NEW_LEADER_WITHIN_S: Final = 30.0
SAMPLE_S: Final = 0.05


def hurt(cluster: LocalKafka, number: int, rng: random.Random, *, longest_s: float = 12.0) -> str:
    """Kill, stop or pause a broker, bring it back after some seconds, and say which it was."""
    broker, kind = cluster[number], rng.choice(["killed", "stopped", "paused", "paused"])
    if kind == "paused":
        broker.pause()
        time.sleep(rng.uniform(0.2, longest_s))
        broker.resume()
        return kind
    if kind == "killed":
        broker.kill()
    else:
        broker.stop()
    time.sleep(rng.uniform(0.0, longest_s * 0.7))
    broker.start()
    return kind


def coordinator_of(mirror: FaultyMirror, transactional_id: str) -> int:
    """The destination's broker that coordinates a transactional id."""
    return mirror.run(mirror.clusters[1].coordinator(transactional_id, "transaction", refresh=True))


def true_ends(mirror: FaultyMirror, topic: str, partitions: Collection[int]) -> dict[int, int]:
    """Log ends at the leaders, the part that followers lack included; those that cannot be told are left out."""
    return mirror.run(_ends(mirror.clusters[1], topic, partitions, DEBUGGER))


async def _ends(cluster: Cluster, topic: str, partitions: Collection[int], replica_id: int) -> dict[int, int]:
    asked = {TopicPartition(topic, partition): LATEST for partition in partitions}
    try:
        listed = await list_offsets(cluster, asked, replica_id=replica_id, timeout_s=1.0, lane="sampling")
    except TwinlogError:
        return {}
    return {where.partition: found.offset for where, found in listed.items() if not found.error}


@dataclass
class Losses:
    """How often leaders died with acknowledged batches that no follower had, and how many offsets that cost."""

    kills: int = 0
    with_loss: int = 0
    offsets: int = 0
    most: int = 0

    def lose_leader(self, mirror: FaultyMirror, topic: str, rng: random.Random) -> None:
        """Pause one or both followers of a leader, let it go on for a moment, kill it, and let the followers go on."""
        cluster = mirror.destination
        leaders = mirror.leaders(topic)
        victim = rng.choice([leader for leader in leaders.values() if leader >= 0])
        followers = [number for number in cluster.brokers if number != victim]
        rng.shuffle(followers)
        paused = followers[: rng.choice([1, 2, 2])]
        led = [partition for partition, leader in leaders.items() if leader == victim]
        for number in paused:
            cluster[number].pause()
        time.sleep(rng.uniform(0.05, IN_SYNC_S - 1.0))
        before = true_ends(mirror, topic, led)
        cluster[victim].kill()
        time.sleep(rng.uniform(0.0, 0.3))
        for number in paused:
            cluster[number].resume()
        self._count(before, self._ends_of_successors(mirror, topic, led, victim))
        time.sleep(rng.uniform(0.0, 6.0))
        cluster[victim].start()
        cluster.wait_ready()

    def _count(self, before: Mapping[int, int], after: Mapping[int, int]) -> None:
        lost = sum(max(0, end - after.get(partition, end)) for partition, end in before.items())
        self.kills += 1
        self.with_loss += lost > 0
        self.offsets += lost
        self.most = max(self.most, lost)

    def _ends_of_successors(
        self, mirror: FaultyMirror, topic: str, partitions: Collection[int], dead: int
    ) -> dict[int, int]:
        """Where each new leader's log ends, asked as soon as there is one."""
        found: dict[int, int] = {}
        deadline = time.monotonic() + NEW_LEADER_WITHIN_S
        while len(found) < len(partitions) and time.monotonic() < deadline:
            with contextlib.suppress(TwinlogError):
                leaders = mirror.leaders(topic)
                led = [p for p in partitions if p not in found and leaders.get(p, -1) not in {-1, dead}]
                found |= true_ends(mirror, topic, led)
            time.sleep(SAMPLE_S)
        return found

    def __str__(self) -> str:
        return (
            f"{self.kills} leaders killed behind whom followers were paused, {self.with_loss} of them with offsets "
            f"that no follower had: {self.offsets} in all, {self.most} at most"
        )


@dataclass
class Unconfirmed:
    """Samples how many offsets of each partition lie beyond the high watermark; never more than there really are."""

    mirror: FaultyMirror
    topic: str
    most: int = 0
    samples: int = 0
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(30)

    def _run(self) -> None:
        partitions = self.mirror.ends(self.topic).keys()
        while not self._stopping.wait(SAMPLE_S):
            with contextlib.suppress(TwinlogError, TimeoutError):
                ends, marks = self.mirror.run(self._sample(partitions), timeout_s=20.0)
                gaps = [end - marks[partition] for partition, end in ends.items() if partition in marks]
                self.most = max([self.most, *gaps])
                self.samples += 1

    async def _sample(self, partitions: Collection[int]) -> tuple[dict[int, int], dict[int, int]]:
        cluster = self.mirror.clusters[1]
        # In this order: what grows in between makes the difference smaller, not larger.
        ends = await _ends(cluster, self.topic, partitions, DEBUGGER)
        return ends, await _ends(cluster, self.topic, partitions, -1)


def reassign(cluster: Cluster, where: TopicPartition, replicas: Collection[int]) -> AlterPartitionReassignmentsRequest:
    """The request that moves a partition to other brokers; for `cluster.call(..., node=Cluster.CONTROLLER)`."""
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic
    partition = topic.ReassignablePartition
    moved = partition(partition_index=where.partition, replicas=list(replicas))
    return AlterPartitionReassignmentsRequest(
        timeout_ms=int(cluster.request_timeout_s * 1000), topics=[topic(name=where.topic, partitions=[moved])]
    )
