"""Walks both sides of one partition together, from the first offset that both have to the ends seen when it began."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from twinlog.batch.compare import Difference, Pairing, unmatched
from twinlog.batch.records import decode
from twinlog.batch.scan import Data
from twinlog.errors import CorruptBatch, RetryLater, TwinlogError
from twinlog.names import TopicPartition
from twinlog.verify.compaction import MOST_DOUBTS, Doubt, KeyHistory, is_compacted
from twinlog.verify.plan import Sides, bound_findings, bounds_of, compared, windows
from twinlog.verify.reader import Reader, unreadable
from twinlog.verify.report import Bounds, PartitionReport
from twinlog.wire.cluster import Cluster

AT_ONCE_BYTES: Final = 1 << 20
"""Compared at a time: batches that differ are decoded, and their records kept until all of these are compared."""


@dataclass(slots=True)
class Meter:
    """How far a comparison is, for whoever displays it: offsets, the source's bytes, and what is being done."""

    offsets: int = 0
    offsets_done: int = 0
    bytes: int = 0
    doing: str = "looking at both clusters"


@dataclass(frozen=True, slots=True)
class Manner:
    """How to compare: `sample` windows (None: everything), seconds to wait for a cluster, a compacted topic or not."""

    sample: int | None
    timeout_s: float
    compacted: bool


class Comparison:
    """Compares one partition; `run` never raises for what a cluster answers, the report's `error` says it."""

    def __init__(
        self, sides: Sides, where: TopicPartition, report: PartitionReport, *, manner: Manner, meter: Meter
    ) -> None:
        self._sides = sides
        self._where = where
        self._report = report
        self._manner = manner
        self._meter = meter
        self._doubts: list[Doubt] = []

    async def run(self) -> None:
        """Compare, and write into the report all that is found."""
        report = self._report
        span = compared(report.source, report.destination)
        report.start, report.end = span.start, span.stop
        report.lag = max(0, report.source.stable - report.destination.stable)
        report.undecided = report.source.end - report.source.stable
        doubt = report.start_in_doubt
        report.differences.extend(
            bound_findings(report.source, report.destination, report.chosen_start, start_in_doubt=doubt)
        )
        if doubt:
            report.note(
                f"the log starts at {report.source.start} at the source and at {report.destination.start} at the "
                f"destination: rightly, if the mirror was told to begin there; what lies before was not compared"
            )
        if report.source.start < report.chosen_start:
            before = f"{report.source.start} to {report.chosen_start - 1}"
            report.note(f"the mirror was told to begin at {report.chosen_start}: offsets {before} are not compared")
        if report.undecided:
            report.note(f"the source's last {report.undecided:,} offsets belong to open transactions: not compared")
        try:
            await self._sampled(span) if self._manner.sample is not None else await self._walk(span)
            await self._judge_doubts()
        except TwinlogError as error:
            report.error = str(error)

    # Walking

    async def _sampled(self, span: range) -> None:
        """Compare the first window, evenly spread ones, and the last."""
        reached = await self._walk(span, whole=False)
        length = max(1, reached - span.start)
        for start in [*windows(span, self._manner.sample or 0), span.stop - length]:
            last = start == span.stop - length
            if last or start >= reached:
                begin = max(start, reached)
                reached = max(reached, await self._walk(range(begin, span.stop), whole=last))

    async def _walk(self, span: range, *, whole: bool = True) -> int:
        """Compare a span, or (not `whole`) one fetch of it; returns where it ended."""
        position = span.start
        while position < span.stop:
            position, held = await self._stretch(range(position, span.stop), whole=whole)
            if held:
                break
            position = await self._moved_start(position)
        return position

    async def _stretch(self, span: range, *, whole: bool) -> tuple[int, bool]:
        """Compare as far as both logs hold it; returns where that ended, and whether as wanted."""
        pairing = Pairing()
        position = span.start
        async with self._readers(span, ahead=whole) as both:
            while position < span.stop:
                behind = [reader for reader in both if reader.reached <= position]
                if not all(await asyncio.gather(*(reader.advance() for reader in behind))):
                    await self._name(pairing.rest())
                    return position, False
                reached = min(span.stop, *(reader.reached for reader in both))
                while position < reached:
                    last = both[0].cut_at(AT_ONCE_BYTES, reached - 1)
                    await self._compare(both, range(position, last + 1), pairing)
                    position = last + 1
                if not whole:
                    break
        await self._name(pairing.rest())
        return position, True

    @asynccontextmanager
    async def _readers(self, span: range, *, ahead: bool) -> AsyncIterator[tuple[Reader, Reader]]:
        make = partial(Reader, where=self._where, span=span, timeout_s=self._manner.timeout_s, ahead=ahead)
        both = make(self._sides.source), make(self._sides.destination)
        try:
            yield both
        finally:
            await asyncio.gather(*(reader.close() for reader in both))

    async def _moved_start(self, position: int) -> int:
        """Return the offset from which both logs can be read again, after one of them lost what came next."""
        first = position
        for cluster in (self._sides.source, self._sides.destination):
            bounds = await self._bounds(cluster)
            if bounds.stable < min(self._report.end, position + 1):
                raise RetryLater(
                    f"{self._where} ends at {bounds.stable} on the {cluster} now, before offset {self._report.end}, "
                    f"which it had held: its end was cut. Run the comparison again."
                )
            first = max(first, bounds.start)
        if first == position:
            raise RetryLater(f"{self._where} cannot be read at offset {position}, though both logs hold it.")
        self._report.note(f"offsets {position} to {first - 1} were deleted during the comparison: not compared")
        return first

    async def _bounds(self, cluster: Cluster) -> Bounds:
        bounds = (await bounds_of(cluster, [self._where], timeout_s=self._manner.timeout_s))[self._where]
        if isinstance(bounds, str):
            raise RetryLater(bounds)
        return bounds

    # Comparing

    async def _compare(self, both: tuple[Reader, Reader], window: range, pairing: Pairing) -> None:
        last = window.stop - 1
        ours, theirs = (reader.take(last) for reader in both)
        try:
            left = unmatched(ours, theirs, first=window.start, last=last, where=self._where)
        except CorruptBatch as corrupt:
            at_source = any(item.batch.base_offset == corrupt.offset and _is_corrupt(item) for item in ours)
            cluster = self._sides.source if at_source else self._sides.destination
            raise unreadable(self._where, cluster, corrupt) from corrupt
        size = sum(item.batch.size for item in ours)
        self._report.records += left.records
        self._report.bytes += size
        self._meter.bytes += size
        self._meter.offsets_done += len(window)
        if left.source or left.destination:
            await self._name(pairing.add(left))
            await asyncio.sleep(0)  # decoding takes long; let the fetches of other partitions go on

    async def _name(self, differences: Iterable[Difference]) -> None:
        for difference in differences:
            doubt = Doubt.of(difference) if self._manner.compacted else None
            if doubt is None:
                self._report.add(difference)
                continue
            self._doubts.append(doubt)
            if len(self._doubts) >= MOST_DOUBTS:
                await self._judge_doubts()

    # Compacted topics

    async def _judge_doubts(self) -> None:
        """Tell compacted records from missing ones, by reading both logs again for their keys."""
        doubts, self._doubts = self._doubts, []
        if not doubts:
            return
        if self._manner.sample is not None:
            self._report.compacted += len(doubts)
            self._report.note("with --sample it was not checked that compaction explains each record of one side only")
            return
        keys = {doubt.key for doubt in doubts}
        ours = await self._history(self._sides.source, self._report.source, keys)
        theirs = await self._history(self._sides.destination, self._report.destination, keys)
        for doubt in doubts:
            if is_compacted(doubt, ours, theirs):
                self._report.compacted += 1
            else:
                self._report.add(Difference(doubt.kind, doubt.offset))

    async def _history(self, cluster: Cluster, bounds: Bounds, keys: Iterable[bytes]) -> KeyHistory:
        self._meter.doing = f"looking up compacted keys of partition {self._where.partition}"
        history = KeyHistory(keys, self._report.end)
        reader = Reader(cluster, self._where, range(bounds.start, bounds.stable), timeout_s=self._manner.timeout_s)
        try:
            while reader.reached < bounds.stable:
                if not await reader.advance():
                    raise RetryLater(
                        f"{self._where} lost records on the {cluster} meanwhile. Run the comparison again."
                    )
                for item in reader.take(reader.reached - 1):
                    history.feed(decode(item.batch, where=self._where))
                    await asyncio.sleep(0)
        except CorruptBatch as corrupt:
            raise unreadable(self._where, cluster, corrupt) from corrupt
        finally:
            await reader.close()
        return history


def _is_corrupt(item: Data) -> bool:
    try:
        decode(item.batch)
    except CorruptBatch:
        return True
    return False
