"""A mirror under test: topics on both sides, a worker process, and what the state says of them.

    with Mirror(source, destination) as mirror:
        mirror.create(topic, partitions=3)
        mirror.start(topic)
        mirror.wait_level(topic)

The state is read and written as the commands do it, without the commands. The worker is a process of its own, ended by
its pid. Every method blocks and has a bound; from an async test call them as they are.
"""

import asyncio
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from twinlog.config.client import ClientSettings
from twinlog.control.commands import Handled
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import Change, Figure, MirrorRecord, PartitionRecord, Tombstone, TopicRecord
from twinlog.errors import TwinlogError
from twinlog.names import TopicPartition
from twinlog.state.log import StateLog
from twinlog.state.transact import transact
from twinlog.testing.data import EVERYTHING_ALLOWED
from twinlog.testing.kafka import LocalKafka
from twinlog.testing.watchdog import Watchdog
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops import LATEST, delete_topics, list_offsets

T = TypeVar("T")

FAST_RETRY: Final = {
    "mirror.failed.retry.initial.backoff.ms": "200",
    "mirror.failed.retry.max.backoff.ms": "500",
    "mirror.failed.retry.max.attempts": "1000",
}
"""A FAILED partition whose cause has gone is tried again soon."""

NOT_COPIED: Final = ("compression.type", "message.timestamp.type", "segment.", "min.cleanable.", "min.compaction.")
"""The destination keeps what producers compressed, and its cleaner must not run ahead of the comparison."""

CALL_S, POLL_S, STOP_S = 60.0, 0.1, 15.0
WORKER = """
import sys
from twinlog.config.client import ClientSettings
from twinlog.service.worker import run_worker
sys.exit(run_worker(ClientSettings.from_properties({}, bootstrap=sys.argv[1], origin="test"), verbose=False))
"""


class Worker:
    """A worker process; its output goes to a file of its own."""

    _numbers = itertools.count(1)

    def __init__(self, bootstrap: str) -> None:
        self.log_path = Path(tempfile.gettempdir()) / f"twinlog-worker-{os.getpid()}-{next(self._numbers)}.log"
        Watchdog.shared().watch(self.log_path)
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", WORKER, bootstrap], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        Watchdog.shared().watch(self.pid)

    def wait_running(self, timeout_s: float = STOP_S) -> None:
        """Wait until it has begun to work: before that a SIGTERM ends the interpreter, not the worker."""
        deadline = time.monotonic() + timeout_s
        while " runs on cluster " not in self.log_text(40):
            assert self.alive, self.log_text(40)
            assert time.monotonic() < deadline, f"The worker did not begin.\n{self.log_text(40)}"
            time.sleep(0.05)

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it has not ended, be it frozen."""
        return self._process.poll() is None

    def send(self, number: int) -> None:
        """Send a signal, for example SIGSTOP and SIGCONT."""
        if self.alive:
            os.kill(self.pid, number)

    def stop(self, timeout_s: float = STOP_S) -> int:
        """SIGTERM; returns the exit code. Raises AssertionError where it does not end in time."""
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"The worker did not end within {timeout_s} s.\n{self.log_text(40)}") from None
        Watchdog.shared().forget(self.pid)
        return code

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        self.send(signal.SIGKILL)
        self._process.wait(STOP_S)
        Watchdog.shared().forget(self.pid)

    def log_text(self, last_lines: int | None = None) -> str:
        """What it wrote, or the last lines of it."""
        lines = self.log_path.read_text("utf-8", errors="replace").splitlines(keepends=True)
        return "".join(lines if last_lines is None else lines[-last_lines:])

    def resident_mb(self) -> float:
        """Resident memory in MB."""
        status = Path(f"/proc/{self.pid}/status").read_text("utf-8")
        return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS:"))


class _Loop:
    """An event loop in a thread, so that tests of both colours can call into it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="mirror under test", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float = CALL_S) -> T:
        """The result of `work`, or what it raises."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)

    def close(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_S)
        self._loop.close()


class Mirror:
    """One mirror from `source` to `destination`, and the state of both.

    configs: mirror configs over FAST_RETRY. `workers`: how many worker processes `with` starts; 0 where another
    mirror's worker serves the same destination. `with` ends them and removes the mirror and its topics from the state.
    """

    def __init__(
        self,
        source: LocalKafka,
        destination: LocalKafka,
        *,
        configs: Mapping[str, str] | None = None,
        workers: int = 1,
        name: str = "",
    ) -> None:
        self.name = name or _new_name()
        self._names: list[str] = []
        self.source, self.destination = source, destination
        self.workers: list[Worker] = []
        self._configs = {"bootstrap.servers": source.bootstrap, **FAST_RETRY, **(configs or {})}
        self._to_start = workers
        self._loop = _Loop()
        self._image = Image()
        self._following: asyncio.Task[None] | None = None
        self._clusters: tuple[Cluster, Cluster] | None = None
        self._log: StateLog | None = None

    def __enter__(self) -> Self:
        try:
            for _ in range(self._to_start):
                self.start_worker()
            self._loop.run(self._open())
            self._begin_as(self.name)
        except BaseException:  # whatever happened, nothing may be left running
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the workers in order, remove what was stored, and leave the clusters."""
        try:
            if self.workers:
                self.stop_workers()
            self._loop.run(self._close())
        finally:
            for worker in self.workers:
                worker.kill()
                worker.log_path.unlink(missing_ok=True)
            self._loop.close()

    # Topics

    def create(
        self,
        topic: str,
        *,
        partitions: int = 1,
        config: Mapping[str, str] = EVERYTHING_ALLOWED,
        at_destination: Mapping[str, str] | None = None,
    ) -> None:
        """Create `topic` on both sides, the source's with `config`.

        The destination's has what a mirror needs over that, and `at_destination` between the two.
        """
        self.source.create_topic(topic, partitions, config=config)
        self.create_at_destination(topic, partitions=partitions, config={**config, **(at_destination or {})})

    def create_at_destination(
        self, topic: str, *, partitions: int = 1, config: Mapping[str, str] = EVERYTHING_ALLOWED
    ) -> None:
        """Create the destination's topic alone, with the configs that a mirror needs over `config`."""
        copied = {key: value for key, value in config.items() if not key.startswith(NOT_COPIED)}
        needed = {"compression.type": "producer", "message.timestamp.type": "CreateTime"}
        limits = {key: EVERYTHING_ALLOWED[key] for key in EVERYTHING_ALLOWED if key.startswith("message.timestamp")}
        self.destination.create_topic(topic, partitions, config={**copied, **needed, **limits})

    def delete_at_destination(self, topic: str) -> None:
        """Delete the destination's topic, and wait until it is gone."""
        self.run(delete_topics(self.clusters[1], [topic]))
        gone = {3, 100}
        self.wait_for(lambda: self._error_of(topic) in gone, lambda: f"{topic} is still there", CALL_S)

    def start(self, topic: str, *, start_offsets: tuple[int, ...] = ()) -> None:
        """Let the mirror copy `topic`, which is on both sides; returns once that is stored."""
        self._desire(topic, DesiredState.MIRRORING, start_offsets)

    def stop(self, topic: str) -> None:
        """Let the mirror stop `topic`; returns once that is stored."""
        self._desire(topic, DesiredState.STOPPED)

    def forget(self, topic: str) -> None:
        """Remove everything that the state knows of `topic`; stop it first."""
        self.put(*self._tombstones(self.name, topic))

    def adopt_anew(self, topic: str) -> None:
        """Stop the topic, and start it under a mirror of another name, which compares all of the twin first.

        Whatever this object does from then on, it does under the new name.
        """
        self.stop(topic)
        for partition in self.states(topic):
            self.wait_state(topic, PartitionState.STOPPED, partition)
        self.forget(topic)
        self._begin_as(_new_name())
        self.start(topic)

    def put(self, *changes: Change) -> None:
        """Store `changes` as a command does."""
        self.run(self._put(changes))

    # What is known of it

    def partition(self, topic: str, partition: int = 0) -> PartitionRecord | None:
        """What is stored of one partition."""
        return self._image.partition(self.name, topic, partition)

    def states(self, topic: str) -> dict[int, PartitionState]:
        """Each partition's actual state, as far as one is stored."""
        return {record.partition: record.state for record in self._image.partitions_of(self.name, topic)}

    def figure(self, topic: str, partition: int = 0) -> Figure | None:
        """What was published last of one partition."""
        published = self._image.published(self.name, topic, partition)
        return None if published is None else published.figure

    def ends(self, topic: str, *, at_source: bool = False, stable: bool = False) -> dict[int, int]:
        """Each partition's end at the destination, or at the source; `stable`: the last stable offset."""
        return self.run(self._ends(topic, at_source=at_source, stable=stable))

    # Waiting

    def wait_level(self, topic: str, *, until_stable: bool = False, timeout_s: float = 40.0) -> None:
        """Wait until a quiet topic's ends are the same on both sides, and every transaction is decided.

        `until_stable`: up to the source's last stable offset, whatever is undecided behind it. Raises AssertionError
        with the stored error as soon as a partition has one, and when time is over.
        """
        seen: list[object] = []

        def level() -> bool:
            failed = [record for record in self._image.partitions_of(self.name, topic) if record.error]
            assert not failed, f"{len(failed)} partitions of {topic} are FAILED, the first: {failed[0].error}"
            stable = self.ends(topic, at_source=True, stable=True)
            ends = stable if until_stable else self.ends(topic, at_source=True)
            here = self.ends(topic)
            seen.append((stable, ends, here))
            # A prefix is filled before it is deleted, and only then is the partition mirroring.
            mirroring = all(self.states(topic).get(p) is PartitionState.MIRRORING for p in ends)
            # Seen twice, since a transaction's marker comes a moment after the client is told that it has ended.
            return mirroring and stable == ends == here and seen[-2:-1] == seen[-1:]

        self.wait_for(
            level, lambda: f"source stable, source ends, ends here: {seen[-1]}, {self.states(topic)}", timeout_s
        )

    def wait_failed(self, topic: str, partition: int = 0, *, timeout_s: float = 30.0) -> str:
        """Wait until a partition is FAILED, and return its error."""
        self.wait_state(topic, PartitionState.FAILED, partition, timeout_s=timeout_s)
        record = self.partition(topic, partition)
        assert record is not None
        return record.error

    def wait_state(self, topic: str, state: PartitionState, partition: int = 0, *, timeout_s: float = 30.0) -> None:
        """Wait until a partition is in `state`."""
        self.wait_for(
            lambda: self.states(topic).get(partition) is state,
            lambda: f"{state.name} for partition {partition} of {topic}, which is {self.partition(topic, partition)}",
            timeout_s,
        )

    def wait_figure(
        self, topic: str, what: Callable[[Figure], bool], partition: int = 0, *, timeout_s: float = 10.0
    ) -> Figure:
        """Wait until the published figure of a partition satisfies `what`, and return it."""

        def told() -> bool:
            figure = self.figure(topic, partition)
            return figure is not None and what(figure)

        self.wait_for(told, lambda: f"the last figure was {self.figure(topic, partition)}", timeout_s)
        figure = self.figure(topic, partition)
        assert figure is not None
        return figure

    def wait_for(self, what: Callable[[], bool], described: Callable[[], str], timeout_s: float) -> None:
        """Wait until `what` is true; raises AssertionError with `described` and the workers' last lines."""
        deadline = time.monotonic() + timeout_s
        while not what():
            if time.monotonic() > deadline:
                logs = "\n".join(worker.log_text(30) for worker in self.workers)
                raise AssertionError(f"not within {timeout_s} s: {described()}\n{logs}")
            time.sleep(POLL_S)

    # Workers

    def start_worker(self) -> Worker:
        """Start one more worker on the destination."""
        worker = Worker(self.destination.bootstrap)
        self.workers.append(worker)
        return worker

    def stop_workers(self) -> None:
        """SIGTERM all that live, and wait for them; each must end with 0."""
        alive = [worker for worker in self.workers if worker.alive]
        codes = [worker.stop() for worker in alive]
        assert codes == [0] * len(codes), "\n".join(worker.log_text(40) for worker in alive)

    # For what has no method here

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float = CALL_S) -> T:
        """Run a coroutine on the loop on which `clusters` live."""
        return self._loop.run(work, timeout_s)

    @property
    def clusters(self) -> tuple[Cluster, Cluster]:
        """Our own clients of source and destination, to be used inside `run`."""
        assert self._clusters is not None
        return self._clusters

    def _begin_as(self, name: str) -> None:
        self.name = name
        self._names.append(name)
        self.put(MirrorRecord(name, self._configs, self.clusters[0].cluster_id))

    def _error_of(self, topic: str) -> int:
        info = self.run(self.clusters[1].topics([topic])).get(topic)
        return 3 if info is None else info.error

    # Inside the loop

    async def _open(self) -> None:
        source = await _connect(self.source)
        destination = await _connect(self.destination)
        self._clusters = source, destination
        self._log = await StateLog.open(destination, create=True)
        self._image = await self._log.load()
        self._following = asyncio.create_task(self._log.follow(self._image, lambda _changes: None))

    async def _close(self) -> None:
        if self._log is not None:
            topics = [record for name in self._names for record in self._image.topics_of(name)]
            gone = [tombstone for record in topics for tombstone in self._tombstones(record.mirror, record.topic)]
            await self._put([*gone, *(Tombstone(("mirror", name)) for name in self._names)])
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        for cluster in self._clusters or ():
            await cluster.close()

    async def _put(self, changes: "list[Change] | tuple[Change, ...]") -> None:
        assert self._log is not None
        destination = self.clusters[1]
        await transact(destination, self._log, lambda _image: Handled(tuple(changes), None))

    def _desire(self, topic: str, desired: DesiredState, start_offsets: tuple[int, ...] = ()) -> None:
        self.run(self._desire_topic(topic, desired, start_offsets))

    async def _desire_topic(self, topic: str, desired: DesiredState, start_offsets: tuple[int, ...]) -> None:
        there, here = [(await cluster.topics([topic]))[topic] for cluster in self.clusters]
        count = len(there.partitions)
        record = TopicRecord(self.name, topic, desired, there.id, here.id, count, start_offsets=start_offsets)
        await self._put([record])

    def _tombstones(self, mirror: str, topic: str) -> list[Change]:
        partitions = [record.key for record in self._image.partitions_of(mirror, topic)]
        return [Tombstone(key) for key in (("topic", mirror, topic), *partitions)]

    async def _ends(self, topic: str, *, at_source: bool, stable: bool) -> dict[int, int]:
        cluster = self.clusters[0 if at_source else 1]
        partitions = (await cluster.topics([topic]))[topic].partitions
        asked = {TopicPartition(topic, partition): LATEST for partition in partitions}
        listed = await list_offsets(cluster, asked, read_committed=stable)
        bad = {where: found.error for where, found in listed.items() if found.error}
        if bad:
            raise TwinlogError(f"the ends of {topic} cannot be told: {bad}")
        return {where.partition: found.offset for where, found in listed.items()}


@contextmanager
def workers_on(*clusters: LocalKafka) -> Iterator[list[Worker]]:
    """A running worker on each; all end in order with the block."""
    workers = [Worker(kafka.bootstrap) for kafka in clusters]
    for worker in workers:
        worker.wait_running()
    yield workers
    for worker in workers:
        assert worker.stop() == 0, worker.log_text(40)


async def _connect(kafka: LocalKafka) -> Cluster:
    settings = ClientSettings.from_properties({}, bootstrap=kafka.bootstrap, origin="test")
    return await Cluster.connect(settings, client_id="mirror-under-test")


def _new_name() -> str:
    return f"m-{uuid.uuid4().hex[:8]}"
