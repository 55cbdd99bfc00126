"""A world: two simulated clusters, real workers between them, a load, faults, and a judge; all told by one seed."""

import asyncio
import hashlib
import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from kafka.protocol.producer import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest
from tests.sim.attribution import Late, Submissions
from tests.sim.broker.settings import Settings as BrokerSettings
from tests.sim.broker.settings import Span
from tests.sim.clocks import simulated
from tests.sim.cluster import SimCluster
from tests.sim.connection import SimConnection, SimNetwork
from tests.sim.faults import Faults
from tests.sim.judge import Anomaly, Judge, Truth, describe
from tests.sim.load import Load
from tests.sim.loop import FIRST_S, Process, SimLoop
from tests.sim.settings import Settings
from tests.sim.workers import Group, Member, SimWorker, WorkerProcess

from twinlog.batch.records import Record, encode
from twinlog.batch.view import Batch
from twinlog.config.client import ClientSettings
from twinlog.control import codec
from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import MirrorRecord, PartitionRecord, TopicRecord
from twinlog.names import TopicPartition
from twinlog.relay import destination as destination_module
from twinlog.relay import longrun
from twinlog.service import worker as worker_module
from twinlog.state.log import StateLog
from twinlog.state.topic import STATE_TOPIC
from twinlog.state.writer import StateWriter
from twinlog.wire import dial
from twinlog.wire.cluster import Cluster
from twinlog.wire.produce import PRODUCE, WRITE_TXN_MARKERS

MIRROR, TOPIC = "m", "twin"
SHARDS = 2
# What a mirror's destination topic always has (`sync.configs`), so that old and stamped records pass.
TWIN_CONFIGS = {"message.timestamp.before.max.ms": str(2**63 - 1), "message.timestamp.after.max.ms": str(2**63 - 1)}
# A long run is one of a few dozen blanks here, so that it costs as little as any other content.
LONG_RUN, SLACK = 60, 24
# How long the world may take to come to rest once all faults are over: leases, restarts and settle waits in a row.
QUIET_WITHIN_S = 180.0
# Time for the sweep to look at what is idle, and for a takeover and its tail check if it found something.
LOOK_S = 6.0
TRACE_LINES = 600
FOR_COORDINATORS = frozenset(kind.API_KEY for kind in (InitProducerIdRequest, AddPartitionsToTxnRequest, EndTxnRequest))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a world."""

    settings: Settings
    anomalies: tuple[Anomaly, ...]
    unexcused: tuple[Anomaly, ...]
    failed: dict[TopicPartition, str]
    caught_up: bool
    wrong: tuple[str, ...]
    late: tuple[Late, ...]
    appends: int
    foreign_offset: int
    behind_foreign: int
    faults: dict[str, int]
    digest: str
    trace: tuple[str, ...]

    @property
    def identical(self) -> bool:
        """Whether every partition is its source's twin, and nothing was ever wrong on the way."""
        return not (self.anomalies or self.failed or self.wrong) and self.caught_up

    @property
    def residual(self) -> bool:
        """Whether only that went wrong which the protocol is known not to exclude, and it did not stay unnoticed."""
        wronged = {anomaly.where for anomaly in self.anomalies}
        alarmed = self.failed.keys() - wronged
        return (
            self.caught_up
            and bool(self.failed)
            and not (self.unexcused or self.wrong)
            and wronged <= self.failed.keys()
            and alarmed <= {late.where for late in self.late}
        )

    def __str__(self) -> str:
        lines = [f"seed {self.settings.seed}: {self.settings}", f"faults: {self.faults}, {self.appends} appends"]
        lines += [f"ANOMALY {anomaly}" for anomaly in self.anomalies[:5]]
        lines += [f"FAILED {where}: {reason}" for where, reason in self.failed.items()]
        lines += [f"WRONG {wrong}" for wrong in self.wrong[:5]]
        lines += [f"LATE {late}" for late in self.late[-5:]]
        return "\n".join([*lines, "caught up" if self.caught_up else "NOT caught up", "trace:", *self.trace])


class Trace:
    """The last lines of what happened, and a digest of all of it."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._lines: deque[str] = deque(maxlen=TRACE_LINES)
        self._digest = hashlib.sha256()

    def note(self, text: str) -> None:
        """Add a line."""
        line = f"{self._loop.time() - FIRST_S:9.4f} {text}"
        self._lines.append(line)
        self._digest.update(line.encode())

    def remark(self, text: str) -> None:
        """Add a line that is no part of the digest."""
        self._lines.append(f"{self._loop.time() - FIRST_S:9.4f}   {text}")

    @property
    def digest(self) -> str:
        """Tells whether two runs were the same."""
        return self._digest.hexdigest()[:16]

    @property
    def tail(self) -> tuple[str, ...]:
        """The last lines."""
        return tuple(self._lines)


class _Logged(logging.Handler):
    """What twinlog logs becomes part of the trace."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        task = asyncio.current_task()
        self._trace.remark(f"[{task.get_name() if task else '-'}] {record.levelname} {record.getMessage()}")
        if record.exc_info and record.exc_info[1] is not None:
            self._trace.remark(f"    {record.exc_info[1]!r}")


class World:
    """Everything of one run."""

    def __init__(self, settings: Settings, loop: SimLoop) -> None:
        self.settings = settings
        self.loop = loop
        self.rng = Random(f"world {settings.seed}")
        self.trace = Trace(loop)
        self.partitions = [TopicPartition(TOPIC, number) for number in range(settings.partitions)]
        self.network = SimNetwork(loop, Random(f"network {settings.seed}"))
        self.network.delay = Span(settings.delay_s / 10, settings.delay_s)
        self.source = self._cluster("source", settings.source_nodes)
        self.destination = self._cluster("destination", settings.destination_nodes)
        self.group = Group(loop, self.rng, SHARDS)
        self.workers: list[SimWorker] = []
        self.truths = {where: Truth() for where in self.partitions}
        self.judges = {where: Judge(where, self.truths[where]) for where in self.partitions}
        self.faults = Faults(self)
        self.load = Load(self)
        self.states = {TopicPartition(STATE_TOPIC, shard): Truth() for shard in range(SHARDS)}
        self.submissions = Submissions()
        self.unexcused: list[Anomaly] = []
        self.foreign_offset = -1
        self._behind_foreign: set[tuple[int, int, int]] = set()
        self.wrong: list[str] = []

    def note(self, text: str) -> None:
        """Write a line into the trace."""
        self.trace.note(text)

    # The stage

    async def run(self) -> Outcome:
        """Let it all happen, and say what became of it."""
        self._watch()
        await self._set_up()
        for _ in range(self.settings.workers):
            self.start_worker()
        loading = self.loop.spawn(None, self.load.run(), name="load")
        if self.settings.foreign_at_s is not None:
            self.loop.spawn(None, self._write_foreign(self.settings.foreign_at_s), name="foreign writer")
        await self.faults.run()
        self.note("quiet")
        await loading
        caught_up = await self._rest()
        return self._outcome(caught_up=caught_up)

    async def _set_up(self) -> None:
        """Both topics and the state topic exist, and the mirror is created and started."""
        replicas = min(3, self.settings.destination_nodes)
        policy = {"cleanup.policy": "compact" if self.settings.compacted else "delete"}
        min_isr = {"min.insync.replicas": "2" if replicas == 3 else "1"}
        twin = {**TWIN_CONFIGS, **policy, **min_isr}
        self.source.create_topic(TOPIC, self.settings.partitions, replicas=self.settings.source_nodes, configs=policy)
        self.destination.create_topic(TOPIC, self.settings.partitions, replicas=replicas, configs=twin)
        self.destination.create_topic(
            STATE_TOPIC, SHARDS, replicas=replicas, configs={"cleanup.policy": "compact", **min_isr}
        )
        await asyncio.sleep(1.0)
        admin = await Cluster.connect(self._settings_of(self.destination), client_id="admin", label="destination")
        state = await StateLog.open(admin, create=False)
        writer = StateWriter(admin, state, "twinlog-admin")
        await writer.fence()
        configs = {"bootstrap.servers": self.source.bootstrap}
        ids = (self.source.topic_id(TOPIC), self.destination.topic_id(TOPIC))
        await writer.commit(
            [
                MirrorRecord(MIRROR, configs, ""),
                TopicRecord(MIRROR, TOPIC, DesiredState.MIRRORING, *ids, self.settings.partitions),
            ]
        )
        await admin.close()

    def start_worker(self) -> None:
        """Start one more worker process."""
        process = WorkerProcess(
            f"w{len(self.workers)}", self.group, clock_offset_s=self.rng.uniform(-1_000.0, 100_000.0)
        )
        self.note(f"start {process.name}")
        self.workers.append(SimWorker(self.loop, process, self._settings_of(self.destination)))

    def _settings_of(self, cluster: SimCluster) -> ClientSettings:
        return ClientSettings.from_properties({}, bootstrap=cluster.bootstrap, origin="the simulation")

    def _cluster(self, name: str, nodes: int) -> SimCluster:
        return SimCluster(
            name,
            nodes=nodes,
            loop=self.loop,
            rng=Random(f"{name} {self.settings.seed}"),
            network=self.network,
            settings=BrokerSettings(
                producer_expiration_ms=self.settings.expiration_ms,
                expiration_check_s=0.5,
                handling=Span(self.settings.delay_s / 20, self.settings.delay_s / 2),
                session_timeout_s=1.5,
                marker_surplus=0.05,
            ),
        )

    def _watch(self) -> None:
        """Hear of every append and of every request that may become one."""
        self.source.on_append = self.source_appended
        self.source.on_truncate = self.source_truncated
        self.destination.on_append = self.destination_appended
        self.destination.on_truncate = self.destination_led
        self.network.before_send = self.before_send

    # What happens at the clusters

    def source_appended(self, where: TopicPartition, batch: Batch) -> None:
        """The source's leader has one more batch."""
        if where in self.truths:
            self.truths[where].appended(batch)

    def source_truncated(self, where: TopicPartition) -> None:
        """The source has another leader, which lacks some of what nobody could read yet."""
        if where in self.truths:
            self.truths[where].rebuild(self.source.leader_log(where).batches)

    def destination_appended(self, where: TopicPartition, batch: Batch) -> None:
        """The destination's leader has one more batch: judge it."""
        if where in self.states:
            self.states[where].high_watermark = batch.next_offset
            self.states[where].appended(batch)
        judge = self.judges.get(where)
        if judge is None:
            return
        self._look_at_source(where)
        known, now_s = len(judge.anomalies), self.loop.time() - FIRST_S
        owner = self.submissions.appended(where, batch, now_s)
        judge.appended(batch, now_s)
        self.note(f"append {where} {describe(batch)} by {owner}")
        if where == self.partitions[0] and 0 <= self.foreign_offset < batch.base_offset:
            self._behind_foreign.add((batch.producer_id, batch.producer_epoch, batch.base_sequence))
        for anomaly in judge.anomalies[known:]:
            self.note(f"ANOMALY {anomaly}")
        if not known and judge.anomalies and not self.submissions.excuses(where, now_s):
            self.unexcused.append(judge.anomalies[0])

    def destination_led(self, where: TopicPartition) -> None:
        """The destination has another leader: it may lack something, and may have what it took as a deposed one."""
        judge = self.judges.get(where)
        if judge is None:
            return
        log = self.destination.leader_log(where)
        self.note(f"{where} is led anew, its end is {log.end} (was {judge.end})")
        new = [batch for batch in log.batches if batch.base_offset >= judge.end]
        judge.end = log.end
        for batch in new:
            self.destination_appended(where, batch)

    def _look_at_source(self, where: TopicPartition) -> None:
        truth = self.truths[where]
        truth.high_watermark = max(truth.high_watermark, self.source.leader_log(where).high_watermark)

    def before_send(self, process: Process | None, connection: SimConnection, api_key: int, message: Any) -> None:
        """A process hands a request to a connection, in the same step in which it looked at its lease."""
        if not isinstance(process, WorkerProcess):
            return
        if api_key in FOR_COORDINATORS:
            self.faults.before_renewal(process, connection)
        if api_key not in {PRODUCE, WRITE_TXN_MARKERS}:
            return
        touched = self.submissions.submitted(process.name, api_key, message, self.loop.time() - FIRST_S)
        if touched & self.judges.keys():
            self.faults.before_append(process, connection, api_key)

    async def _write_foreign(self, after_s: float) -> None:
        """Somebody else writes one record to the first partition."""
        await asyncio.sleep(after_s)
        where = self.partitions[0]
        self.foreign_offset = self.destination.leader_log(where).end
        self.note(f"foreign record at {where} offset {self.foreign_offset}")
        self.destination.append(where, encode([Record(0, 0, b"k", b"foreign", ())], codec=0))

    # The end

    def _states(self) -> dict[TopicPartition, PartitionRecord]:
        """What is committed to `__mirror_state` about each partition, read from the log itself."""
        found: dict[TopicPartition, PartitionRecord] = {}
        for truth in self.states.values():
            for _, record in sorted(truth.records.items()):
                change = codec.decode(record.key, record.value)
                if isinstance(change, PartitionRecord):
                    found[TopicPartition(change.topic, change.partition)] = change
        return found

    async def _rest(self) -> bool:
        """Wait until all partitions have either failed or reached their source's end; whether they have."""
        if not any(worker.running for worker in self.workers):
            self.start_worker()
        ends = self.loop.time() + QUIET_WITHIN_S
        while self.loop.time() < ends:
            await asyncio.sleep(0.5)
            if self._all_at_rest():
                await asyncio.sleep(LOOK_S)
                if self._all_at_rest():
                    return True
        return False

    def _all_at_rest(self) -> bool:
        records = self._states()
        return all(self._at_rest(where, records.get(where)) for where in self.partitions)

    def _at_rest(self, where: TopicPartition, record: PartitionRecord | None) -> bool:
        if record is not None and record.state is PartitionState.FAILED:
            return True
        source, destination = self.source.leader_log(where), self.destination.leader_log(where)
        return destination.end == destination.high_watermark == source.last_stable_offset

    def _outcome(self, *, caught_up: bool) -> Outcome:
        """Look at all of both logs once more, and put together what there is to say."""
        anomalies = [anomaly for judge in self.judges.values() for anomaly in judge.anomalies]
        failed = {
            where: record.error for where, record in self._states().items() if record.state is PartitionState.FAILED
        }
        wrong = [*self.wrong, *self.loop.mistakes]
        now_s = self.loop.time() - FIRST_S
        for where, judge in self.judges.items():
            self._look_at_source(where)
            log = self.destination.leader_log(where)
            if where not in failed:
                wrong += [f"at the end: {anomaly}" for anomaly in judge.compare(log.batches, now_s)]
        return Outcome(
            settings=self.settings,
            anomalies=tuple(anomalies),
            unexcused=tuple(self.unexcused),
            failed=failed,
            caught_up=caught_up,
            wrong=tuple(wrong),
            late=tuple(self.submissions.late),
            foreign_offset=self.foreign_offset,
            behind_foreign=len(self._behind_foreign),
            appends=sum(judge.appends for judge in self.judges.values()),
            faults=self.faults.done,
            digest=self.trace.digest,
            trace=self.trace.tail,
        )


async def _no_authorizer(_cluster: Cluster) -> bool:
    return True


@contextmanager
def _real_code_in_a_simulated_world(loop: SimLoop, trace: Trace, seed: int) -> Iterator[None]:
    """Put the simulation under twinlog: time and chance, connections, membership; and smaller long runs."""
    logger = logging.getLogger("twinlog")
    handler, level = _Logged(trace), logger.level
    with pytest.MonkeyPatch.context() as patch, simulated(loop, seed):
        patch.setattr(dial, "Connection", SimConnection)
        patch.setattr(worker_module, "Membership", Member)
        patch.setattr(worker_module, "has_authorizer", _no_authorizer)
        patch.setattr(destination_module, "LONG_RUN", LONG_RUN)
        patch.setattr(longrun, "SLACK", SLACK)
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)


def run_world(settings: Settings) -> Outcome:
    """Run the world that `settings` describe, from its beginning to its end."""
    loop = SimLoop()
    world = World(settings, loop)
    try:
        with _real_code_in_a_simulated_world(loop, world.trace, settings.seed):
            return loop.run(world.run())
    finally:
        # What is left over is ended outside of the world: nobody wants to read what it says of that.
        logging.disable()
        loop.dispose()
        world.network.end()
        logging.disable(logging.NOTSET)
