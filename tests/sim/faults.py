"""What goes wrong in a world, and when: drawn from the seed, one fault after another, each undone in time."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from tests.sim.cluster import SimCluster
from tests.sim.connection import SimConnection, SimNetwork
from tests.sim.judge import Truth
from tests.sim.load import Load
from tests.sim.loop import Process, SimLoop
from tests.sim.settings import Settings
from tests.sim.workers import Group, SimWorker

from twinlog.names import TopicPartition
from twinlog.relay.lease import LEASE_S
from twinlog.wire.produce import PRODUCE, WRITE_TXN_MARKERS

# From shorter than a settle wait to longer than a lease and a takeover together.
FREEZES_S = (0.1, 1.0, 2.5, LEASE_S + 0.1, LEASE_S + 2.5, LEASE_S + 6.0)
ISOLATIONS_S = (LEASE_S + 1.0, LEASE_S + 4.0, LEASE_S + 9.0, LEASE_S + 20.0)
RESTART_S = (0.2, 1.5, 4.0)
APPENDS = (PRODUCE, PRODUCE, WRITE_TXN_MARKERS)
# Data is recognised when it comes late; markers are what matters.
MOSTLY_MARKERS = (PRODUCE, WRITE_TXN_MARKERS, WRITE_TXN_MARKERS)
PAUSES_S = (0.3, 1.2, 3.0, 6.0)

Armed = Callable[[SimWorker, SimConnection], None]


class Stage(Protocol):
    """What faults can be done to (`world.World`)."""

    settings: Settings
    loop: SimLoop
    rng: Random
    source: SimCluster
    destination: SimCluster
    network: SimNetwork
    group: Group
    workers: list[SimWorker]
    partitions: list[TopicPartition]
    truths: dict[TopicPartition, Truth]
    load: Load

    def note(self, text: str) -> None:
        """Write a line into the trace."""

    def start_worker(self) -> None:
        """Start one more worker process."""


class Faults:
    """Does one fault after another until it is told to end; then everything is as it should be again."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._undo: dict[asyncio.Task[None], Callable[[], None]] = {}
        self._armed: dict[Process, tuple[SimWorker, int, Armed]] = {}
        self._isolated: dict[Process, dict[SimConnection, None]] = {}
        self.done: dict[str, int] = {}

    async def run(self) -> None:
        """Draw faults for as long as the world's unrest lasts, then undo what has not been undone."""
        stage = self._stage
        settings, rng = stage.settings, stage.rng
        ends = stage.loop.time() + settings.lasts_s
        while stage.loop.time() < ends:
            await asyncio.sleep(rng.uniform(0.2, 1.8) * settings.fault_every_s)
            if settings.faults:
                self._do(rng.choice(settings.faults))
        self._armed.clear()
        while self._undo:
            task, undo = self._undo.popitem()
            task.cancel()
            undo()
        self._mend()

    def _mend(self) -> None:
        """All brokers run, and followers follow."""
        for cluster in (self._stage.source, self._stage.destination):
            for node in cluster.nodes:
                cluster.resume(node)
                cluster.restart(node)
            for where in self._stage.partitions:
                cluster.resume_replication(where)

    def _do(self, kind: str) -> None:
        fault = getattr(self, "_" + kind.replace(" ", "_"))
        if fault():
            self.done[kind] = self.done.get(kind, 0) + 1

    def _later(self, seconds: float, undo: Callable[[], None]) -> None:
        """Undo a fault after a while, or at the end of all faults."""
        task = self._stage.loop.spawn(None, self._wait(seconds, undo), name="undo")
        self._undo[task] = undo
        task.add_done_callback(lambda task: self._undo.pop(task, None))

    async def _wait(self, seconds: float, undo: Callable[[], None]) -> None:
        await asyncio.sleep(seconds)
        undo()

    def _worker(self) -> SimWorker | None:
        running = [worker for worker in self._stage.workers if worker.running]
        return self._stage.rng.choice(running) if running else None

    # Workers

    def _kill_worker(self) -> bool:
        worker = self._worker()
        if worker is not None:
            self._kill(worker)
        return worker is not None

    def _kill(self, worker: SimWorker) -> None:
        stage = self._stage
        if not worker.running:
            return
        stage.note(f"kill {worker.process.name}")
        stage.loop.kill(worker.process)
        stage.network.died(worker.process)
        self._later(stage.rng.uniform(0.5, 6.0), lambda: stage.group.expel(worker.process))
        self._later(stage.rng.choice(RESTART_S), stage.start_worker)

    def _stop_worker(self) -> bool:
        stage, worker = self._stage, self._worker()
        if worker is None:
            return False
        stage.note(f"stop {worker.process.name}")
        worker.stop()
        self._later(stage.rng.choice(RESTART_S), stage.start_worker)
        return True

    def _freeze_worker(self) -> bool:
        worker = self._worker()
        if worker is not None:
            self._freeze(worker, "freeze")
        return worker is not None

    def _freeze(self, worker: SimWorker, how: str) -> None:
        stage = self._stage
        lasts_s = stage.rng.choice(FREEZES_S) * stage.rng.uniform(0.95, 1.3)
        stage.note(f"{how} {worker.process.name} for {lasts_s:.3f} s")
        stage.loop.freeze(worker.process)
        if lasts_s > 1.0:
            self._later(stage.rng.uniform(0.1, lasts_s), lambda: stage.group.expel(worker.process))
        self._later(lasts_s, lambda: self._thaw(worker))

    def _thaw(self, worker: SimWorker) -> None:
        self._stage.note(f"thaw {worker.process.name}")
        self._stage.loop.thaw(worker.process)

    # In the moment in which an append is handed over

    def _freeze_at_send(self) -> bool:
        """The next append of this worker is checked under a valid lease, and leaves when the worker thaws."""
        return self._arm(lambda worker, _connection: self._freeze(worker, "freeze at send"))

    def _cut_at_send(self) -> bool:
        """Its answer is lost, and perhaps the append itself."""
        network = self._stage.network
        return self._arm(lambda _worker, connection: self._in_a_moment("cut", lambda: network.cut(connection)))

    def _kill_at_send(self) -> bool:
        """The worker dies with the append under way."""
        return self._arm(lambda worker, _connection: self._in_a_moment("kill", lambda: self._kill(worker)))

    def _pause_at_send(self) -> bool:
        """The broker stops with the append in hand, or just before, or just behind it."""
        stage = self._stage
        if len(stage.destination.up) < len(stage.destination.nodes):
            return False
        where = stage.rng.choice(stage.partitions)
        return self._arm(
            lambda _worker, _connection: self._in_a_moment(
                "pause", lambda: self._pause_node(stage.destination, stage.destination.leader_of(where))
            )
        )

    def _flap_at_send(self) -> bool:
        """Another broker leads for a moment: some of what is under way is refused, and the rest not."""
        stage = self._stage
        where = stage.rng.choice(stage.partitions)
        cluster = stage.destination
        if stage.rng.random() < 0.5:
            # What the other one does not have is lost when the first one comes back.
            cluster.stall_replication(where)
            self._later(2.0, lambda: cluster.resume_replication(where))

        def flap() -> None:
            home = cluster.leader_of(where)
            others = [node for node in cluster.nodes if node != home]
            if home in cluster.up and cluster.move_leader(where, stage.rng.choice(others)):
                cluster.resume_replication(where)
                back_s = stage.rng.choice((0.01, 0.05, 0.1))
                stage.loop.call_later(back_s, cluster.move_leader, where, home, context=stage.loop.context_of(None))

        return self._arm(lambda _worker, _connection: self._in_a_moment("flap", flap), APPENDS)

    def _arm(self, action: Armed, of: Sequence[int] = MOSTLY_MARKERS) -> bool:
        worker = self._worker()
        if worker is not None:
            wanted = self._stage.rng.choice(of)
            self._armed[worker.process] = worker, wanted, action
        return worker is not None

    def _in_a_moment(self, what: str, action: Callable[[], object]) -> None:
        """Let it happen while the request is on its way, in hand, or answered."""
        stage = self._stage

        def act() -> None:
            stage.note(f"{what} at send")
            action()

        stage.loop.call_later(
            stage.rng.uniform(0.0, 3 * stage.settings.delay_s), act, context=stage.loop.context_of(None)
        )

    def before_append(self, process: Process, connection: SimConnection, api_key: int) -> None:
        """A worker has just handed an append to a connection; nothing of it has left the process yet."""
        armed = self._armed.get(process)
        if armed is not None and armed[1] == api_key:
            del self._armed[process]
            armed[2](armed[0], connection)

    def _isolate_worker(self) -> bool:
        """Its data flows, but it cannot renew its lease, and the group takes it for dead without its knowing."""
        stage, worker = self._stage, self._worker()
        if worker is None or self._isolated:
            return False
        lasts_s = stage.rng.choice(ISOLATIONS_S)
        stage.note(f"isolate {worker.process.name} for {lasts_s:.1f} s")
        held = self._isolated[worker.process] = {}
        members = stage.group.drop(worker.process)

        def end() -> None:
            del self._isolated[worker.process]
            for connection in held:
                stage.network.resume(connection)
            for member, had in members:
                stage.group.tell(member, had)

        self._later(lasts_s, end)
        return True

    def before_renewal(self, process: Process, connection: SimConnection) -> None:
        """A worker hands something for its coordinator to a connection."""
        if process in self._isolated and connection not in self._isolated[process]:
            self._isolated[process][connection] = None
            self._stage.network.stall(connection)

    def _shuffle(self) -> bool:
        self._stage.note("shuffle")
        self._stage.group.shuffle()
        return True

    # Content

    def _compact_source(self) -> bool:
        stage = self._stage
        where = stage.rng.choice(stage.partitions)
        stage.note(f"compact source {where}")
        stage.load.compact(where)
        return True

    def _trim_source(self) -> bool:
        """Retention takes away what has been mirrored for some time; never what has not."""
        stage = self._stage
        where = stage.rng.choice(stage.partitions)
        mirrored = stage.destination.leader_log(where).high_watermark
        start = stage.rng.randint(0, mirrored)
        if start <= stage.truths[where].start:
            return False
        stage.note(f"trim source {where} to {start}")
        stage.load.trim(where, start)
        return True

    # Network

    def _cut_one(self) -> bool:
        return self._cut(1)

    def _cut_all(self) -> bool:
        return self._cut(1_000)

    def _cut(self, most: int) -> bool:
        stage, worker = self._stage, self._worker()
        if worker is None:
            return False
        connections = stage.network.of(worker.process)
        for connection in stage.rng.sample(connections, min(most, len(connections))):
            stage.note(f"cut {connection!r} of {worker.process.name}")
            stage.network.cut(connection)
        return bool(connections)

    def _stall_one(self) -> bool:
        stage, worker = self._stage, self._worker()
        connections = [] if worker is None else stage.network.of(worker.process)
        if not connections:
            return False
        connection = stage.rng.choice(connections)
        lasts_s = stage.rng.choice(PAUSES_S)
        stage.note(f"stall {connection!r} for {lasts_s:.1f} s")
        stage.network.stall(connection)
        self._later(lasts_s, lambda: stage.network.resume(connection))
        return True

    # Brokers

    def _pause_destination(self) -> bool:
        return self._pause(self._stage.destination)

    def _pause_source(self) -> bool:
        return self._pause(self._stage.source)

    def _pause(self, cluster: SimCluster) -> bool:
        stage = self._stage
        up = cluster.up
        if len(up) < len(cluster.nodes):
            return False
        self._pause_node(cluster, stage.rng.choice(up))
        return True

    def _pause_node(self, cluster: SimCluster, node: int) -> None:
        if node not in cluster.up:
            return
        lasts_s = self._stage.rng.choice(PAUSES_S)
        self._stage.note(f"pause {cluster.name} {node} for {lasts_s:.1f} s")
        cluster.pause(node)
        self._later(lasts_s, lambda: cluster.resume(node))

    def _kill_destination(self) -> bool:
        return self._kill_broker(self._stage.destination)

    def _kill_source(self) -> bool:
        return self._kill_broker(self._stage.source)

    def _kill_broker(self, cluster: SimCluster) -> bool:
        stage = self._stage
        up = cluster.up
        if len(up) < len(cluster.nodes):
            return False
        node, lasts_s = stage.rng.choice(up), stage.rng.choice(PAUSES_S)
        stage.note(f"kill {cluster.name} {node} for {lasts_s:.1f} s")
        cluster.kill(node)
        self._later(lasts_s, lambda: cluster.restart(node))
        return True

    def _move_destination_leader(self) -> bool:
        return self._move(self._stage.destination)

    def _move_source_leader(self) -> bool:
        return self._move(self._stage.source)

    def _move(self, cluster: SimCluster) -> bool:
        stage = self._stage
        where = stage.rng.choice(stage.partitions)
        node = stage.rng.choice(cluster.nodes)
        stage.note(f"move {cluster.name} {where} to {node}")
        return cluster.move_leader(where, node)

    def _lose_destination_leader(self) -> bool:
        """The leader dies with followers behind, and comes back later."""
        stage = self._stage
        cluster = stage.destination
        if len(cluster.up) < len(cluster.nodes):
            return False
        where, lasts_s = stage.rng.choice(stage.partitions), stage.rng.choice(PAUSES_S)

        def lose() -> None:
            if len(cluster.up) == len(cluster.nodes):
                node = cluster.lose_leader(where)
                stage.note(f"lose leader {node} of {where} for {lasts_s:.1f} s")
                self._later(lasts_s, lambda: cluster.restart(node))

        stage.note(f"stall replication of {where}")
        cluster.stall_replication(where)
        self._later(stage.rng.uniform(0.05, 0.8), lose)
        return True

    def _stall_replication(self) -> bool:
        stage = self._stage
        where, lasts_s = stage.rng.choice(stage.partitions), stage.rng.choice(PAUSES_S)
        stage.note(f"stall replication of {where} for {lasts_s:.1f} s")
        stage.destination.stall_replication(where)
        self._later(lasts_s, lambda: stage.destination.resume_replication(where))
        return True
