"""What the fault tests share beyond `mirroring`: other addresses than the clusters' own, moments, and measuring."""

import contextlib
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Final
from unittest.mock import patch

from confluent_kafka import ElectionType, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from tests.real import mirroring
from tests.real.mirroring import WORKER, Mirror, Worker
from tests.real.repeated import Repeated

from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.sharding import shard_of
from twinlog.testing.checker import Report, assert_identical, compare
from twinlog.testing.kafka import LocalKafka
from twinlog.testing.load import Load
from twinlog.testing.proxy import BrokerProxy, Direction

# A takeover after SIGKILL takes about 10 s; this much is a machine that others use, too.
CAUGHT_UP_S: Final = 90.0
SOON_SEEN: Final = {"mirror.metadata.refresh.interval.ms": "2000"}
"""Two refreshes have to agree before a topic counts as deleted."""


class FaultyMirror(Mirror):
    """A mirror whose workers may be told other addresses than the clusters' own, for example a proxy's."""

    def __init__(
        self,
        source: LocalKafka,
        destination: LocalKafka,
        *,
        source_address: str = "",
        destination_address: str = "",
        workers: int = 1,
    ) -> None:
        address = {"bootstrap.servers": source_address} if source_address else {}
        super().__init__(source, destination, configs={**SOON_SEEN, **address}, workers=workers)
        self._worker_bootstrap = destination_address or destination.bootstrap
        self.watched: set[str] = set()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._keep_evidence()
        super().__exit__(kind, error, trace)

    def start_worker(self, script: str = WORKER) -> Worker:
        """Start one more worker on the destination, by a script of its own if need be."""
        with patch.object(mirroring, "WORKER", script):
            worker = Worker(self._worker_bootstrap)
        self.workers.append(worker)
        return worker

    def create(self, topic: str, **options: object) -> None:
        """As `Mirror.create`; where the test fails, the topic's logs are kept."""
        self.watched.add(topic)
        super().create(topic, **options)  # type: ignore[arg-type]  # they are those of the method above

    def owners(self, topic: str, partitions: int) -> dict[int, str]:
        """The worker that has claimed each partition and not given it up, by its id."""
        assert self._log is not None
        shards = {p: self._image.shards.get(shard_of(self.name, topic, p, self._log.shards)) for p in range(partitions)}
        return {p: shard.worker for p, shard in shards.items() if shard is not None and shard.held}

    def shards_of(self, worker: Worker) -> int:
        """How many shards a worker has claimed; how many partitions these hold is a matter of hashes."""
        ids = {record.worker for record in self._image.workers.values() if record.pid == worker.pid}
        return sum(shard.worker in ids and shard.held for shard in self._image.shards.values())

    def pids(self) -> dict[str, int]:
        """The process of each worker that has a record, by its id."""
        return {record.worker: record.pid for record in self._image.workers.values()}

    def desire(self, topic: str, desired: DesiredState) -> None:
        """Let the topic be started or stopped, also where a cluster or the topic itself is gone."""
        record = self._image.topic(self.name, topic)
        assert record is not None
        self.put(replace(record, desired=desired))

    def wait_mirroring(self, topic: str, partitions: int, timeout_s: float = CAUGHT_UP_S) -> None:
        """Wait until every partition is MIRRORING."""
        wanted = dict.fromkeys(range(partitions), PartitionState.MIRRORING)
        self.wait_for(lambda: self.states(topic) == wanted, lambda: f"the states are {self.states(topic)}", timeout_s)

    def assert_twins(self, topic: str, *, timeout_s: float = CAUGHT_UP_S) -> int:
        """Wait until the destination has caught up, let the independent checker compare, return the records."""
        self.wait_level(topic, timeout_s=timeout_s)
        return assert_identical(self.source, self.destination, topic).source_records

    def failed(self, topic: str) -> list[int]:
        """The partitions that are FAILED."""
        return [p for p, state in self.states(topic).items() if state is PartitionState.FAILED]

    def assert_twins_or_failed(self, topic: str, *, timeout_s: float = CAUGHT_UP_S) -> Report:
        """Wait until every partition is level or FAILED; only those that are FAILED may differ."""

        def level() -> bool:
            wanted, reached, states = self.ends(topic, at_source=True), self.ends(topic), self.states(topic)
            behind = [p for p, end in wanted.items() if states[p] is not PartitionState.FAILED and reached[p] != end]
            return not behind

        self.wait_for(
            level,
            lambda: f"level or FAILED: {self.ends(topic, at_source=True)}, {self.ends(topic)}, {self.states(topic)}",
            timeout_s,
        )
        report = compare(self.source, self.destination, topic)
        silent = report.differing - set(self.failed(topic))
        assert not silent, f"partitions {sorted(silent)} differ and are not FAILED: {report}"
        return report

    def leaders(self, topic: str) -> dict[int, int]:
        """The broker that leads each partition at the destination, as the cluster says now; -1 for none."""
        told = self.run(self.clusters[1].topics([topic]))[topic]
        return {number: partition.leader for number, partition in told.partitions.items()}

    def _keep_evidence(self) -> None:
        """Copy what tells how it came about: workers' and brokers' logs, and the topics' own logs on both sides."""
        folder = Path(tempfile.mkdtemp(prefix="twinlog-failed-"))
        for worker in self.workers:
            shutil.copy(worker.log_path, folder)
        for side, cluster in (("source", self.source), ("destination", self.destination)):
            (folder / f"{side}.log").write_text(cluster.log_text(), "utf-8")
            for number, topic in ((number, topic) for number in cluster.brokers for topic in self.watched):
                for log in cluster.data_dir(number).glob(f"{topic}-*"):
                    with contextlib.suppress(OSError, shutil.Error):  # a segment may be deleted meanwhile
                        shutil.copytree(log, folder / f"{side}-{number}" / log.name)
        print(f"logs of workers and brokers, and the topics' own, are kept in {folder}")


def freeze(worker: Worker) -> None:
    """SIGSTOP."""
    worker.send(signal.SIGSTOP)


def thaw(worker: Worker) -> None:
    """SIGCONT."""
    worker.send(signal.SIGCONT)


class Ends(Repeated):
    """Samples the ends of a topic's partitions at the destination in the background, to see which stood still."""

    def __init__(self, mirror: Mirror, topic: str, *, every_s: float = 0.1) -> None:
        super().__init__(self._sample, every_s=every_s)
        self._mirror, self._topic = mirror, topic
        self.samples: list[tuple[float, dict[int, int]]] = []

    def _sample(self) -> None:
        with contextlib.suppress(Exception):  # a broker that is away: there is no sample then
            self.samples.append((time.monotonic(), self._mirror.ends(self._topic)))

    def longest_pause_s(self, partition: int, *, since: float, until: float | None = None) -> float:
        """The longest time, from `since` to `until` (now), in which the partition's end did not move."""
        last_move, end, longest = since, None, 0.0
        for at, ends in list(self.samples):
            if at < since or (until is not None and at > until):
                continue
            if ends.get(partition) != end:
                end = ends.get(partition)
                longest, last_move = max(longest, at - last_move), at
        return max(longest, (until or time.monotonic()) - last_move)

    def moved_after_s(self, partitions: Sequence[int], since: float) -> dict[int, float | None]:
        """For each partition, how long after `since` its end moved for the first time (None: not yet)."""
        found: dict[int, float | None] = dict.fromkeys(partitions)
        before: dict[int, int] = {}
        for at, ends in list(self.samples):
            for p in partitions:
                if at < since:
                    before[p] = ends[p]
                elif found[p] is None and p in before and ends[p] > before[p]:
                    found[p] = at - since
                else:
                    before.setdefault(p, ends[p])
        return found


def until(condition: Callable[[], bool], *, timeout_s: float, what: str) -> float:
    """Wait until `condition` is true and return after how many seconds; raises AssertionError with `what`."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < timeout_s, f"not within {timeout_s:.0f} s: {what}"
        time.sleep(0.05)
    return time.monotonic() - began


class Ticker(Repeated):
    """Writes one small record to every partition, ten times a second, so that a pause of any partition shows."""

    def __init__(self, cluster: LocalKafka, topic: str, partitions: int, *, every_s: float = 0.1) -> None:
        self._producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "acks": "all"})
        super().__init__(self._tick, every_s=every_s)
        self._topic, self._partitions = topic, partitions
        self._numbers = count(1)

    def __exit__(self, *problem: object) -> None:
        super().__exit__(*problem)
        assert self._producer.flush(30) == 0

    def _tick(self) -> None:
        number = next(self._numbers)
        for partition in range(self._partitions):
            self._producer.produce(self._topic, b"tick %d" % number, partition=partition)
        self._producer.poll(0)


def wait_progress(mirror: Mirror, topic: str, *, timeout_s: float = CAUGHT_UP_S) -> None:
    """Wait until the end of every partition at the destination has moved; something must be written to each."""
    before = mirror.ends(topic)
    mirror.wait_for(
        lambda: all(end > before[p] for p, end in mirror.ends(topic).items()),
        lambda: f"every partition of {topic} moves: {before} became {mirror.ends(topic)}, {mirror.states(topic)}",
        timeout_s,
    )


def kill_workers(mirror: Mirror, topic: str, rng: random.Random, *, times: int, longest_wait_s: float = 4.0) -> int:
    """SIGKILL one of the workers so many times, and start a fresh one each time.

    Every other time by chance all partitions are moving again before the wait for the next kill begins; else it may
    come in the middle of a takeover. Returns how many kills met moving partitions.
    """
    while_moving = 0
    for _ in range(times):
        if rng.random() < 0.5:
            wait_progress(mirror, topic)
            while_moving += 1
        time.sleep(rng.uniform(0.0, longest_wait_s))
        rng.choice([worker for worker in mirror.workers if worker.alive]).kill()
        mirror.start_worker()
    return while_moving


def disturb(proxy: BrokerProxy, rng: random.Random) -> None:
    """One fault of the network, at any byte, for up to some seconds."""
    direction = rng.choice([Direction.REQUESTS, Direction.RESPONSES, Direction.BOTH])
    after = rng.choice([0, rng.randrange(1, 5_000), rng.randrange(1, 200_000)])
    match rng.choice(["cut", "cut", "stall", "slow", "refuse"]):
        case "cut":
            proxy.cut(direction, after_bytes=after)
        case "stall":
            proxy.stall(direction, after_bytes=after)
        case "slow":
            proxy.slow(rng.choice([2_000, 20_000]), direction, after_bytes=after)
        case "refuse":
            proxy.refuse()
    time.sleep(rng.uniform(0.2, 3.0))
    proxy.resume()


def elect_leaders(cluster: LocalKafka) -> None:
    """Let every partition's preferred replica lead again, so that leaders move."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    with contextlib.suppress(KafkaException):  # a broker that is not back in sync yet: it keeps what it has
        admin.elect_leaders(ElectionType.PREFERRED).result(20)


def write_with_blanks(cluster: LocalKafka, topic: str, records: int, *, partitions: int = 2, seed: int = 1) -> None:
    """So many records in each partition, and blanks behind them."""
    load = Load(cluster, topic, random.Random(seed))
    for partition in range(partitions):
        load.plain(records, partition=partition)
        load.transaction(3, commit=False, partition=partition)
    load.close()


def with_changed_disk(cluster: LocalKafka, change: Callable[[Path], object]) -> None:
    """Kill the only broker, let `change` work on its data folder, and start it again."""
    cluster[1].kill()
    change(cluster.data_dir(1))
    cluster[1].start()
    cluster.wait_ready()
