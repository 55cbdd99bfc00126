"""Claims the shards that the group gives to this worker, runs their partitions, and hands them over.

The group says who *should* own a shard; the shard's record says who *does*. A claim fences the former owner's lease
unless that gave the shard up in order, waits until the lease has run out, and only then writes itself down: fence,
read to the end, judge, commit, serialised by one transactional id for all claims.
"""

import asyncio
import logging
import random
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from twinlog.control.commands import Handled
from twinlog.control.image import Image
from twinlog.control.lifecycle import SETTLED
from twinlog.control.records import Change, MirrorRecord, ShardRecord, Tombstone, TopicRecord, WorkerRecord
from twinlog.control.sharding import shard_of
from twinlog.errors import GiveWay, RetryLater, TwinlogError
from twinlog.names import TopicPartition
from twinlog.relay.lease import LEASE_S
from twinlog.service.supervisor import Supervisor, Surroundings
from twinlog.state.log import StateLog
from twinlog.state.topic import STATE_TOPIC
from twinlog.state.transact import transact
from twinlog.wire.ops import LATEST, init_producer_id, list_offsets

log = logging.getLogger("twinlog.shards")

CLAIM_ID = "twinlog-shards"
# Between two attempts to claim; at random, since workers that claim at once shut each other out.
RETRY_FROM_S, RETRY_TO_S = 0.2, 1.0
# For ending partitions in order, and for writing that down.
RELEASE_WITHIN_S, SAID_WITHIN_S = 6.0, 3.0
# A worker that died inside a transaction holds up whoever reads the state to its end, until it is fenced.
LOAD_WITHIN_S = 1.5
CATCH_UP_WITHIN_S, CATCH_UP_POLL_S = 10.0, 0.02


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
        """Which of `workers` was heard of least recently, and not for as long as a lease lasts."""
        silent_since = time.monotonic() - LEASE_S
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
        self._owned: dict[int, bool] = {}
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
    def supervisors(self) -> Collection[Supervisor]:
        """Those of all partitions in the owned shards."""
        return self._supervisors.values()

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

    async def release_all(self) -> None:
        """Give everything up in order."""
        self._ending = True
        self._wanted.clear()
        if self._claiming is not None:
            self._claiming.cancel()
            await asyncio.gather(self._claiming, return_exceptions=True)
        await self._release(list(self._owned))

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
                self._look_at(change)
            elif isinstance(change, MirrorRecord):
                self._poke(change.mirror)
            elif isinstance(change, Tombstone) and change.key[0] == "topic":
                self._poke(str(change.key[1]), str(change.key[2]))

    # Partitions

    def _look_at(self, topic: TopicRecord) -> None:
        settled = SETTLED[topic.desired]
        for partition in range(topic.partitions):
            shard = shard_of(topic.mirror, topic.topic, partition, self._state.shards)
            if shard not in self._owned:
                continue
            key = (topic.mirror, topic.topic, partition)
            supervisor = self._supervisors.get(key)
            if supervisor is not None:
                supervisor.poke()
            elif topic.desired.name == "MIRRORING" or self._around.image.state(*key) is not settled:
                self._supervisors[key] = Supervisor(self._around, key, settle=self._owned[shard])

    def _poke(self, mirror: str, topic: str | None = None) -> None:
        for key, supervisor in self._supervisors.items():
            if key[0] == mirror and topic in {None, key[1]}:
                supervisor.poke()

    # Claiming

    async def _claim(self) -> None:
        while todo := sorted(self._wanted - self._owned.keys()):
            try:
                async with self._claim_lock:
                    await self._claim_once(todo)
            except Exception as error:  # whatever it is, unclaimed shards are mirrored by nobody
                log.warning("shards could not be claimed: %s", error, exc_info=not isinstance(error, TwinlogError))
                wait_s = random.uniform(RETRY_FROM_S, RETRY_TO_S)  # noqa: S311  # spreads retries, guards nothing
                await asyncio.sleep(wait_s)

    async def _claim_once(self, shards: Sequence[int]) -> None:
        expected = await self._fence_former(shards)
        former = await transact(
            self._state.cluster,
            self._state,
            lambda image: self._judge(image, shards, expected),
            transactional_id=CLAIM_ID,
        )
        await self._caught_up()
        granted = [shard for shard in shards if shard in self._wanted]
        for shard in granted:
            self._owned[shard] = shard in former
        log.info("owns %d shards, %d of them just claimed", len(self._owned), len(granted))
        refused = [shard for shard in shards if shard not in self._wanted]
        if refused:
            await self._around.keeper.put(*(ShardRecord(shard, self._worker, released=True) for shard in refused))
        for topic in list(self._around.image.all_topics()):
            self._look_at(topic)

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

    async def _caught_up(self) -> None:
        """Wait until the followed image holds all that was committed before our claim."""
        asked = {TopicPartition(STATE_TOPIC, shard): LATEST for shard in range(self._state.shards)}
        ends = await list_offsets(self._state.cluster, asked, read_committed=True)
        positions = self._around.image.positions
        deadline = time.monotonic() + CATCH_UP_WITHIN_S
        while any(positions.get(tp.partition, 0) < listed.offset for tp, listed in ends.items()):
            if time.monotonic() > deadline:
                raise RetryLater(f"the state could not be followed to its end within {CATCH_UP_WITHIN_S:.0f} s")
            await asyncio.sleep(CATCH_UP_POLL_S)

    def _judge(self, image: Image, shards: Sequence[int], expected: dict[int, str]) -> Handled[set[int]]:
        """Write ourselves down where nobody else has come in between; returns the shards that were not given up."""
        holders = _holders(image, shards)
        if holders != expected:
            raise GiveWay("another worker has claimed shards at the same moment")
        records: list[Change] = [ShardRecord(shard, self._worker) for shard in shards]
        left = {r.worker for r in image.shards.values() if r.shard not in shards and not r.released}
        records += [Tombstone(("worker", worker)) for worker in set(holders.values()) - left - {self._worker}]
        return Handled(tuple(records), set(holders))

    # Releasing

    async def _release(self, shards: Sequence[int]) -> None:
        if not shards:
            return
        # First, so that no topic that is started meanwhile gets a supervisor here.
        for shard in shards:
            self._owned.pop(shard, None)
        ending = {
            key: supervisor
            for key, supervisor in self._supervisors.items()
            if shard_of(*key, self._state.shards) in shards
        }
        results = await asyncio.gather(*(s.release(RELEASE_WITHIN_S) for s in ending.values()))
        untidy = {shard_of(*key, self._state.shards) for key, ok in zip(ending, results, strict=True) if not ok}
        for key in ending:
            self._supervisors.pop(key, None)
        tidy = [shard for shard in shards if shard not in untidy]
        if tidy and not self._around.lease.is_fenced:
            await self._say_released(tidy)
        log.info("gave %d shards up, %d of them in order", len(shards), len(tidy))

    async def _say_released(self, shards: Sequence[int]) -> None:
        """Write down that the next owner need not wait; where that takes long, it has to."""
        try:
            async with asyncio.timeout(SAID_WITHIN_S):
                await self._around.keeper.put(*(ShardRecord(shard, self._worker, released=True) for shard in shards))
        except TimeoutError:
            log.warning("it could not be written down that %d shards are given up in order", len(shards))


def _holders(image: Image, shards: Iterable[int]) -> dict[int, str]:
    """The owners of those shards that somebody owns."""
    records = (image.shards.get(shard) for shard in shards)
    return {record.shard: record.worker for record in records if record is not None and not record.released}
