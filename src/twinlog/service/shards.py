"""Claims the shards that the group gives to this worker, runs their partitions, and hands them over.

The group says who *should* own a shard; the shard's record says who *does*. A claim fences the former owner's lease
unless that gave the shard up, waits until the lease has run out, and only then writes itself down: fence, read to the
end, judge, commit, serialised by one transactional id for all claims.

A shard is given up in one of two ways. In order: every answer is in, and the successor begins at once. Or *unsettled*:
some partition did not end in time and was cut off, or did not know the outcome of something; then the successor settles
first (R3 of the append protocol, `docs/internals.md`), as after a crash. It fences nobody, and need not, although the
former owner goes on under a valid lease with its other shards. For of such a shard that one

- sends nothing more: its partitions' tasks have ended before the record is written, and a lane sends nothing of a job
  whose task was cancelled (`lanes.answered`, `MarkerLane._take`). What it had submitted before that cannot be called
  back, no more than a crashed owner's; it is what R3 and the cases B and C are about. It comes before its connection
  is reset for want of an answer, if ever, and so does not stay under way for good.
- writes nothing more into the state: what its partitions asked the keeper to remember was asked before, and the keeper
  commits in the order in which it was asked. So it stands before the record does, or in the same transaction, and the
  successor, which has read the record, has read that, too.
- has nothing left to say of it: a word about a shard that is still on its way is waited for before the same worker
  claims any again (`_spoken`), since it would then deny a claim that stands.
"""

import asyncio
import logging
import random
import time
from collections.abc import Collection, Container, Iterable, Sequence
from dataclasses import dataclass, field

from twinlog.control.commands import Handled
from twinlog.control.image import Image
from twinlog.control.lifecycle import SETTLED, DesiredState
from twinlog.control.records import (
    Change,
    MirrorRecord,
    PartitionRecord,
    ShardRecord,
    Tombstone,
    TopicRecord,
    WorkerRecord,
)
from twinlog.control.sharding import shard_of
from twinlog.errors import GiveWay, RetryLater, TwinlogError
from twinlog.relay.lease import LEASE_S
from twinlog.relay.waiting import cancelled
from twinlog.service.leftovers import AT_REST
from twinlog.service.supervisor import Supervisor, Surroundings
from twinlog.state.log import StateLog
from twinlog.state.transact import transact
from twinlog.wire.ops import init_producer_id

log = logging.getLogger("twinlog.shards")

CLAIM_ID = "twinlog-shards"
# A worker writes about once a second; one that is only slow begins anew when it is fenced, which is safe.
SILENT_AFTER_S = 3.0
# Between two attempts to claim; at random, since workers that claim at once shut each other out.
RETRY_FROM_S, RETRY_TO_S = 0.2, 1.0
# For ending partitions in order, and for writing that down; both are part of the 10 s in which a worker ends. A
# partition may wait for the high watermark for 3 s of the first.
RELEASE_WITHIN_S, SAID_WITHIN_S = 4.0, 1.5
# A worker that died inside a transaction holds up whoever reads the state to its end, until it is fenced.
LOAD_WITHIN_S = 1.5


def lease_id(worker: str) -> str:
    """The transactional id that a worker's lease consists in."""
    return f"twinlog-worker-{worker}"


@dataclass(slots=True)
class Sightings:
    """When each worker's latest record was first seen here; on this worker's monotonic clock."""

    _seen: dict[str, tuple[int, float]] = field(default_factory=dict)

    def note(self, changes: Iterable[Change]) -> None:
        """Take notice of what came in just now."""
        now = time.monotonic()
        for change in changes:
            if isinstance(change, WorkerRecord):
                self._seen[change.worker] = (change.beat_ms, now)

    def lease_left_s(self, record: WorkerRecord | None) -> float:
        """For how long at most a worker fenced just now may still believe in its lease.

        Its last renewal began before `record` was first seen here.
        """
        if record is None:
            return LEASE_S
        beat_ms, at = self._seen.get(record.worker, (-1, 0.0))
        return max(0.0, at + LEASE_S - time.monotonic()) if beat_ms == record.beat_ms else LEASE_S

    def quietest(self, workers: Collection[str]) -> str | None:
        """Which of `workers` was heard of least recently, and not for some renewals of its lease."""
        silent_since = time.monotonic() - SILENT_AFTER_S
        heard = {worker: self._seen[worker][1] for worker in workers if worker in self._seen}
        silent = [worker for worker, at in heard.items() if at < silent_since]
        return min(silent, key=heard.__getitem__, default=None)


class Shards:
    """The shards of this worker and the supervisors of their partitions."""

    def __init__(self, state: StateLog, around: Surroundings, *, worker: str) -> None:
        self.sightings = Sightings()
        self._state = state
        self._around = around
        self._worker = worker
        self._ending = False
        self._wanted: set[int] = set()
        # For each shard whether something of a former owner's may still be under way.
        self._owned: dict[int, bool] = {}
        self._saying: set[asyncio.Task[None]] = set()
        self._supervisors: dict[tuple[str, str, int], Supervisor] = {}
        self._claiming: asyncio.Task[None] | None = None
        self._claim_lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"Shards({len(self._owned)} owned, {len(self._supervisors)} partitions)"

    @property
    def owned(self) -> Collection[int]:
        """The shards that this worker has claimed."""
        return self._owned.keys()

    @property
    def leased(self) -> bool:
        """Whether what it knows of the state may be acted on: a worker that froze has another one in its place."""
        return self._around.lease.valid()

    @property
    def supervisors(self) -> Collection[Supervisor]:
        """Those of all partitions in the owned shards."""
        return self._supervisors.values()

    @property
    def resting(self) -> list[PartitionRecord]:
        """What is stored of the owned partitions that rest behind a first offset; not all have a supervisor."""
        image = self._around.image
        return [
            record
            for topic in image.all_topics()
            for record in image.partitions_of(topic.mirror, topic.topic)
            if record.first_offset > 0
            and record.state in AT_REST
            and shard_of(record.mirror, record.topic, record.partition, self._state.shards) in self._owned
        ]

    def gained(self, shards: Collection[int]) -> None:
        """The group gives us `shards`: claim them in the background, unless this worker is about to end."""
        if self._ending:
            return
        self._wanted.update(shards)
        if self._claiming is None or self._claiming.done():
            self._claiming = asyncio.create_task(self._claim(), name="claim shards")

    async def taken(self, shards: Collection[int]) -> None:
        """The group takes `shards` away: end their partitions in order and say so in the state."""
        self._wanted.difference_update(shards)
        # A claim under way may be about to write us down as the owner of some of them: it then gives those up itself.
        async with self._claim_lock:
            await self._release([shard for shard in shards if shard in self._owned])
        # Where that took longer than the group waits, it may have given some of them back meanwhile.
        self.gained(())

    async def release_all(self) -> None:
        """Give everything up in order."""
        self._ending = True
        self._wanted.clear()
        await asyncio.gather(self._end_claiming(), self._release(list(self._owned)))

    async def cut_off(self) -> None:
        """End every partition at once: the lease is gone."""
        self._ending = True
        self._wanted.clear()
        if self._claiming is not None:
            self._claiming.cancel()
        await asyncio.gather(*(s.cut_off() for s in self._supervisors.values()), return_exceptions=True)
        self._supervisors.clear()
        self._owned.clear()

    def changed(self, changes: Sequence[Change]) -> None:
        """Something was written to the state: look at the topics it is about."""
        self.sightings.note(changes)
        for change in changes:
            if isinstance(change, TopicRecord):
                self._look_at(change, self._owned)
            elif isinstance(change, MirrorRecord):
                self._poke(change.mirror)
            elif isinstance(change, Tombstone) and change.key[0] == "topic":
                self._poke(str(change.key[1]), str(change.key[2]))

    # Partitions

    def _look_at(self, topic: TopicRecord, among: Container[int]) -> None:
        """Let those of the topic's partitions that are in the shards `among` do what is desired."""
        settled = SETTLED[topic.desired]
        for partition in range(topic.partitions):
            shard = shard_of(topic.mirror, topic.topic, partition, self._state.shards)
            if shard not in among:
                continue
            key = (topic.mirror, topic.topic, partition)
            supervisor = self._supervisors.get(key)
            if supervisor is not None:
                supervisor.poke()
            elif topic.desired is DesiredState.MIRRORING or self._around.image.state(*key) is not settled:
                self._supervisors[key] = Supervisor(self._around, key, settle=self._owned[shard])

    def _poke(self, mirror: str, topic: str | None = None) -> None:
        for key, supervisor in self._supervisors.items():
            if key[0] == mirror and topic in {None, key[1]}:
                supervisor.poke()

    # Claiming

    async def _claim(self) -> None:
        while todo := self._next():
            try:
                async with self._claim_lock:
                    await self._claim_once(todo)
            except Exception as error:  # whatever it is, unclaimed shards are mirrored by nobody
                log.warning("shards could not be claimed: %s", error, exc_info=not isinstance(error, TwinlogError))
                wait_s = random.uniform(RETRY_FROM_S, RETRY_TO_S)  # noqa: S311  # spreads retries, guards nothing
                await asyncio.sleep(wait_s)

    def _next(self) -> list[int]:
        """What to claim next: first what was given up, so that it does not wait for a dead worker's lease to end."""
        todo = self._wanted - self._owned.keys()
        return sorted(todo - _holders(self._around.image, todo).keys() or todo)

    async def _claim_once(self, shards: Sequence[int]) -> None:
        await self._spoken()
        expected = await self._fence_former(shards)
        unsettled = await transact(
            self._state.cluster,
            self._state,
            lambda image: self._judge(image, shards, expected),
            transactional_id=CLAIM_ID,
        )
        try:
            await self._around.caught_up()
        except TwinlogError:
            # The claim stands, and must not name us for ever.
            await self._say_given_up(shards, unsettled)
            raise
        granted = {shard for shard in shards if shard in self._wanted}
        self._owned.update({shard: shard in unsettled for shard in granted})
        log.info("owns %d shards, %d of them just claimed", len(self._owned), len(granted))
        for topic in list(self._around.image.all_topics()):
            self._look_at(topic, granted)
        refused = [shard for shard in shards if shard not in granted]
        if refused:
            await self._say_given_up(refused, unsettled)

    async def _spoken(self) -> None:
        """Wait until all that was said of shards given up stands: said after the next claim, it would deny that."""
        saying = list(self._saying)
        if saying and (await asyncio.wait(saying, timeout=SAID_WITHIN_S))[1]:
            raise RetryLater("what was said of the shards given up last is not known to stand yet")

    async def _end_claiming(self) -> None:
        """Let a claim under way end, since it then gives up by itself what it has claimed; at most for a while."""
        if self._claiming is not None:
            await asyncio.wait({self._claiming}, timeout=RELEASE_WITHIN_S)
            await cancelled({self._claiming})

    async def _fence_former(self, shards: Sequence[int]) -> dict[int, str]:
        """Shut out owners that did not give their shards up; returns who had each of the shards."""
        image = await self._load()
        holders = _holders(image, shards)
        former = set(holders.values()) - {self._worker}
        for worker in sorted(former):
            log.info("fencing worker %s, which did not give its shards up", worker)
            await init_producer_id(self._state.cluster, lease_id(worker))
        if former:
            image = await self._state.load()
            await asyncio.sleep(max(self.sightings.lease_left_s(image.workers.get(worker)) for worker in former))
        return holders

    async def _load(self) -> Image:
        """The state to its end; while something holds that up, workers that are silent are fenced, one after another.

        Whoever died inside a transaction would else hold it up until the transaction times out, for 15 to 25 s.
        """
        others = self._around.image.workers.keys() - {self._worker}
        while True:
            try:
                return await self._state.load(timeout_s=LOAD_WITHIN_S)
            except RetryLater:
                silent = self.sightings.quietest(others)
                if silent is None:
                    raise
            log.info("fencing worker %s, which is silent while something holds up the state", silent)
            await init_producer_id(self._state.cluster, lease_id(silent))
            others -= {silent}

    def _judge(self, image: Image, shards: Sequence[int], expected: dict[int, str]) -> Handled[set[int]]:
        """Write ourselves down where nobody else has come in between; returns the shards that have to be settled."""
        holders = _holders(image, shards)
        if holders != expected:
            raise GiveWay("another worker has claimed shards at the same moment")
        records: list[Change] = [ShardRecord(shard, self._worker) for shard in shards]
        left = {r.worker for r in image.shards.values() if r.shard not in shards and r.held}
        records += [Tombstone(("worker", worker)) for worker in set(holders.values()) - left - {self._worker}]
        given_up = (image.shards.get(shard) for shard in shards)
        unsettled = {record.shard for record in given_up if record is not None and record.unsettled}
        return Handled(tuple(records), unsettled | holders.keys())

    # Releasing

    async def _release(self, shards: Sequence[int]) -> None:
        if not shards:
            return
        # First, so that no topic that is started meanwhile gets a supervisor here.
        for shard in shards:
            self._owned.pop(shard, None)
        given_up = frozenset(shards)
        ending = {
            key: supervisor
            for key, supervisor in self._supervisors.items()
            if shard_of(*key, self._state.shards) in given_up
        }
        results = await asyncio.gather(*(s.release(RELEASE_WITHIN_S) for s in ending.values()))
        unsettled = {shard_of(*key, self._state.shards) for key, ok in zip(ending, results, strict=True) if not ok}
        # Before the word that the shards are given up, which then is the last of this worker about them.
        for key in ending:
            self._supervisors.pop(key, None)
        if not self._around.lease.is_fenced:
            await self._say_given_up(shards, unsettled)
        log.info("gave %d shards up, %d of them in order", len(shards), len(shards) - len(unsettled))

    async def _say_given_up(self, shards: Sequence[int], unsettled: Container[int]) -> None:
        """Write down that the next owner need not fence us; where that takes long, it goes on being tried."""
        records = [
            ShardRecord(shard, self._worker, released=shard not in unsettled, unsettled=shard in unsettled)
            for shard in shards
        ]
        saying = asyncio.create_task(self._around.keeper.put(*records), name="give shards up")
        self._saying.add(saying)
        saying.add_done_callback(self._said)
        if not (await asyncio.wait({saying}, timeout=SAID_WITHIN_S))[0]:
            log.warning("it could not be written down in time that %d shards are given up", len(shards))

    def _said(self, saying: "asyncio.Task[None]") -> None:
        self._saying.discard(saying)
        error = None if saying.cancelled() else saying.exception()
        if error is not None:
            log.info("it could not be written down that shards are given up: %s", error)


def _holders(image: Image, shards: Iterable[int]) -> dict[int, str]:
    """The owners of those shards that somebody owns."""
    records = (image.shards.get(shard) for shard in shards)
    return {record.shard: record.worker for record in records if record is not None and record.held}
