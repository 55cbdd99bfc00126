"""The first copy of a compacted partition with many holes, from the decision to fill them until they are holes again.

Until then the partition streams, and is not called MIRRORING: at the offsets of holes it has filling records, which
readers see. Where anything is in doubt before the first of them is written, holes are written as markers, as ever.

Each filling record stands in one batch with the record that supersedes it, and both in offset order. A cleaner reads
the log in rounds, each from where the last ended, and in each puts the segments in place one by one from the lowest
offset. So a log on which the *last* filling record is gone has none left: the rounds for all before are done. That
holds for one replica; where there are several, each is read through once besides, since a follower that had fallen
behind may have copied the beginning of the log before it was cleaned, and the end after.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from twinlog.batch.fill import last_filling
from twinlog.batch.records import decode
from twinlog.batch.scan import batches
from twinlog.batch.view import Batch
from twinlog.errors import RetryLater, TwinlogError
from twinlog.names import TopicPartition
from twinlog.relay.filling import Filling
from twinlog.relay.progress import Progress
from twinlog.relay.rolling import Rolling, wanted_roll_ms
from twinlog.relay.seam import find_seam
from twinlog.relay.tailcheck import Sides
from twinlog.relay.takeover import LOG_START, Bounds, Copy
from twinlog.wire.cluster import Cluster
from twinlog.wire.metadata import Leader
from twinlog.wire.ops import MAX_TIMESTAMP, list_offsets, read_log

log = logging.getLogger("twinlog.firstcopy")

FIRST_COPY_LANE = "first-copy"
LOOK_EVERY_S, PEERS_EVERY_S, AGAIN_AFTER_S = 2.0, 1.0, 5.0
# A cleaner begins every 15 s by default; one that has not come for so long is switched off, or has much to do.
SAY_AFTER_S = 300.0
PEER_WITHIN_S = 5.0
# Another partition's segment.ms is taken over where it is within this factor of the wanted one.
ALIKE = 10
SEARCH_OFFSETS, SEARCH_BYTES, LOOK_BYTES = 20_000, 1_048_576, 65_536


@dataclass(frozen=True, slots=True)
class Peer:
    """Another partition of the topic: what is left of its first copy, and whether somebody works on it."""

    copy: Copy
    active: bool


class Memory(Protocol):
    """What the first copy asks the state to remember, and what it has to know of the topic's other partitions."""

    async def copying(self, progress: Progress, copy: Copy, note: str = "") -> None:
        """Remember what is left of the first copy; the partition is not MIRRORING."""

    async def mirroring(self, progress: Progress) -> None:
        """Remember that both sides agree, and that no first copy is under way."""

    def peers(self) -> Sequence[Peer]:
        """The topic's other partitions."""


class FirstCopy:
    """One partition's first copy under one owner; `copy` is what is left of it."""

    def __init__(
        self, sides: Sides, where: TopicPartition, memory: Memory, *, copy: Copy, max_batch_bytes: int
    ) -> None:
        self.copy = copy
        self._sides = sides
        self._where = where
        self._memory = memory
        self._max_batch_bytes = max_batch_bytes
        self._filling: Filling | None = None

    @property
    def _destination(self) -> Cluster:
        return self._sides.destination.cluster

    @property
    def _rolling(self) -> Rolling:
        return Rolling(self._destination, self._where.topic)

    async def begin(self, progress: Progress, bounds: Bounds, *, may_fill: bool) -> Filling | None:
        """Begin, or go on; returns how holes are filled, None where they are not. Nothing is written before.

        `may_fill` says that the partition is new and all is as filling needs it, as far as the owner knows.
        """
        if self.copy.over and may_fill and bounds.start == bounds.end:
            self._filling = await self._or_markers(self._begin(progress, bounds))
        elif not self.copy.over:
            await self._memory.copying(progress, self.copy)
            going_on = may_fill and progress.position < self.copy.filled_to
            self._filling = await self._or_markers(self._go_on()) if going_on else None
        return self._filling

    async def _or_markers(self, planning: Awaitable[Filling | None]) -> Filling | None:
        try:
            return await planning
        except TwinlogError as error:
            log.info("%s: holes are written as markers: %s", self._where, error)
            return None

    async def _begin(self, progress: Progress, bounds: Bounds) -> Filling | None:
        where = self._where
        seam = await find_seam(self._sides.source.cluster, where, progress.position, bounds.source_end)
        if seam is None:
            return None
        found = await self._rolling.found()
        roll_ms = min(found.roll_ms, wanted_roll_ms(seam.oldest_ms, _now_ms()))
        before = await self._before() if found.ours else found.text
        if (
            not found.fit
            or not before
            or (found.ours and found.roll_ms * ALIKE < wanted_roll_ms(seam.oldest_ms, _now_ms()))
        ):
            return None
        nodes = await self._replicas()
        copy = Copy(filled_to=seam.at, configs_before=before)
        await self._memory.copying(progress, copy)
        self.copy = copy
        log.info("%s: about %d holes up to offset %d are filled for the cleaner", where, seam.runs, seam.at)
        try:
            await self._rolling.roll_after(roll_ms, nodes)
        except TwinlogError:
            # Nothing was filled; the configs are put back with the rest.
            self.copy = replace(copy, filled_to=-1)
            await self._memory.copying(progress, self.copy)
            raise
        return Filling(seam.at, roll_ms=roll_ms, newest_ms=-1, max_batch_bytes=self._max_batch_bytes)

    async def _before(self) -> str:
        """What was set before another partition's first copy changed it; empty where that is not told in time."""
        deadline = time.monotonic() + PEER_WITHIN_S
        while time.monotonic() < deadline:
            told = [peer.copy.configs_before for peer in self._memory.peers() if peer.copy.configs_before]
            if told:
                return told[0]
            await asyncio.sleep(PEERS_EVERY_S / 5)
        return ""

    async def _go_on(self) -> Filling | None:
        """After a takeover: what is in the log already has to be old enough, too."""
        where = self._where
        found = await self._rolling.found()
        roll_ms = found.roll_ms
        if not found.ours:
            # Stopped meanwhile, and the configs put back.
            roll_ms = min(roll_ms, wanted_roll_ms(await self._oldest_ms(), _now_ms()))
        await self._rolling.roll_after(roll_ms, await self._replicas())
        newest = (await list_offsets(self._destination, {where: MAX_TIMESTAMP}, lane=FIRST_COPY_LANE))[where]
        if newest.error:
            return None
        return Filling(
            self.copy.filled_to,
            roll_ms=roll_ms,
            newest_ms=newest.timestamp,
            max_batch_bytes=self._max_batch_bytes,
            behind_marker=True,
        )

    async def _oldest_ms(self) -> int:
        """The time of the first batch at the destination."""
        where = self._where
        start = await self._sides.destination.offset(where, LOG_START)
        chunk = await read_log(
            self._destination, where, start, max_bytes=LOOK_BYTES, read_committed=False, lane=FIRST_COPY_LANE
        )
        times = (b.max_timestamp for b in batches(chunk.records, where) if isinstance(b, Batch) and not b.control)
        return next(times, -1)

    async def finish(self, now_at: Callable[[], Progress | None]) -> None:
        """Wait until the holes are holes again on every replica, put the configs back, and say MIRRORING.

        `now_at` tells up to where the log is confirmed. Trouble with a cluster is waited out.
        """
        while not self.copy.over:
            try:
                await self._finish(now_at)
            except TwinlogError as error:
                log.warning("%s: the first copy cannot be finished just now: %s", self._where, error)
            except Exception:  # a mistake of ours must not leave the partition unfinished in silence
                log.exception("%s: unexpected error", self._where)
            if not self.copy.over:
                await asyncio.sleep(AGAIN_AFTER_S)

    async def _finish(self, now_at: Callable[[], Progress | None]) -> None:
        if self.copy.filled_to >= 0:
            progress = await _behind(now_at, self.copy.filled_to)
            last = await self._last(progress.position)
            if last >= 0:
                await self._remember(now_at, replace(self.copy, last_filling=last))
                await self._cleaned(now_at, last)
            await self._remember(now_at, Copy(configs_before=self.copy.configs_before))
        # What the state says of others has no event.
        while any(peer.active and peer.copy.filled_to >= 0 for peer in self._memory.peers()):  # noqa: ASYNC110  # above
            await asyncio.sleep(PEERS_EVERY_S)
        # One that failed puts them back itself, once it is through.
        if not any(peer.copy.filled_to >= 0 for peer in self._memory.peers()):
            await self._rolling.restore(self.copy.configs_before)
        progress = await _behind(now_at, -1)
        await self._memory.mirroring(progress)
        self.copy = Copy()
        log.info("%s: the first copy is over", self._where)

    async def _remember(self, now_at: Callable[[], Progress | None], copy: Copy, note: str = "") -> None:
        await self._memory.copying(await _behind(now_at, -1), copy, note)
        self.copy = copy

    async def _cleaned(self, now_at: Callable[[], Progress | None], last: int) -> None:
        began, said = time.monotonic(), False
        await self._rolling.hasten()
        left: dict[int, int] = {}
        while waiting := await self._waiting(left, last):
            if not said and time.monotonic() - began > SAY_AFTER_S:
                said = True
                note = (
                    f"{self._where}: the cleaner of the brokers {waiting} has not yet removed the record at offset "
                    f"{last}, which fills a hole of the source, and the like below. Readers see them until then. Look "
                    f"at log.cleaner.enable and at the log cleaner's own log there; nothing else is needed."
                )
                log.warning("%s", note)
                await self._remember(now_at, self.copy, note)
            await asyncio.sleep(LOOK_EVERY_S)

    async def _waiting(self, left: dict[int, int], last: int) -> list[int]:
        """The brokers that still show filling records; `left` keeps the last one of each, -1 for one without any."""
        nodes = await self._replicas()
        for node in nodes:
            offset = left.setdefault(node, last)
            if offset >= 0 and await self._gone(node, offset):
                left[node] = -1 if len(nodes) == 1 else await self._search(0, last, Leader(node, -1))
        return [node for node in nodes if left[node] >= 0]

    async def _gone(self, node: int, offset: int) -> bool:
        """Whether the broker `node` shows no record at `offset`, but what lies behind it."""
        where, chunk = self._where, None
        with suppress(TwinlogError):
            chunk = await read_log(
                self._destination,
                where,
                offset,
                max_bytes=LOOK_BYTES,
                read_committed=False,
                leader=Leader(node, -1),
                lane=FIRST_COPY_LANE,
            )
        if chunk is None or chunk.error:
            return False
        for batch in batches(chunk.records, where):
            if batch.last_offset >= offset:
                return all(record.offset != offset for record in decode(batch, where=where))
        return False

    async def _replicas(self) -> tuple[int, ...]:
        """The brokers that have the partition; which it is may change at any time."""
        info = (await self._destination.topics([self._where.topic])).get(self._where.topic)
        partition = info.partitions.get(self._where.partition) if info is not None else None
        if partition is None or not partition.replicas:
            raise RetryLater(f"{self._where}: the destination does not say which brokers have it")
        return partition.replicas

    async def _last(self, position: int) -> int:
        """The last offset that was filled; -1 where there is none (any more)."""
        if self.copy.last_filling >= 0:
            return self.copy.last_filling
        known = -1 if self._filling is None else self._filling.last_below(position)
        if known >= 0:
            return known
        end = min(position, self.copy.filled_to)
        while end > 0:
            begin = max(0, end - SEARCH_OFFSETS)
            last = await self._search(begin, end)
            if last >= 0:
                return last
            end = begin
        return -1

    async def _search(self, begin: int, end: int, replica: Leader | None = None) -> int:
        """The last filling record in a part of the leader's log, or of a replica's; -1 for none."""
        where, last = self._where, -1
        at = max(begin, await self._sides.destination.offset(where, LOG_START))
        while at < end:
            chunk = await read_log(
                self._destination,
                where,
                at,
                max_bytes=SEARCH_BYTES,
                read_committed=False,
                leader=replica,
                lane=FIRST_COPY_LANE,
            )
            before = at
            for batch in batches(chunk.records, where, check=False):
                at = batch.next_offset
                last = max(last, last_filling(batch, end))
            if at == before:
                raise RetryLater(f"{where}: the destination's log cannot be read at offset {at}")
        return last


async def _behind(now_at: Callable[[], Progress | None], offset: int) -> Progress:
    """Where the partition stands, once that is known and behind `offset`."""
    while (progress := now_at()) is None or progress.position <= offset:  # noqa: ASYNC110  # seldom; spares the pump
        await asyncio.sleep(LOOK_EVERY_S / 4)
    return progress


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
