"""The whole comparison of one topic: meets both clusters, shares the partitions among lanes, collects the report."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

from twinlog.config.client import ClientSettings
from twinlog.errors import BadInput, TwinlogError
from twinlog.names import TopicPartition
from twinlog.verify.partition import Comparison, Manner, Meter
from twinlog.verify.plan import Sides, bounds_of, chosen, compared, is_compacted, partitions_of
from twinlog.verify.report import Bounds, PartitionReport, Report
from twinlog.wire.cluster import Cluster
from twinlog.wire.requirements import READING, require

LANES: Final = 3
"""Partitions compared at a time, each over connections of its own: they fetch while one of them is compared."""

CLIENT_ID: Final = "twinlog-verify"

SHOWN: Final = 20
"""Partitions that a warning names at most."""


Starts = Callable[[Cluster, Cluster, str], Awaitable[Mapping[int, int]]]
"""From source, destination and topic to offsets by partition; raises a TwinlogError where that cannot be told."""


@dataclass(frozen=True, slots=True)
class Question:
    """What to compare: a topic, `partitions` of it (None: all), in `sample` windows (None: everything).

    `timeout_s` is how long either cluster may take to be reached, or to answer a request. `starts` tells the offset
    that the mirror was told to begin with, by partition; it is asked only where a log begins later than its source's.
    """

    source: ClientSettings
    destination: ClientSettings
    topic: str
    partitions: frozenset[int] | None = None
    sample: int | None = None
    timeout_s: float = 30.0
    starts: Starts | None = None


async def verify(question: Question, meter: Meter | None = None) -> Report:
    """Compare a topic on two clusters up to the ends seen at the beginning, and report all that differs.

    `meter` is kept up to date meanwhile. What keeps one partition from being compared stands in its report. Raises
    what keeps all from it: Unreachable, AuthenticationFailed, AuthorizationFailed, UnknownTopicOrPartition, BadInput.
    """
    began = time.monotonic()
    meter = meter or Meter()
    async with _meet(question) as sides:
        report, manner = await _planned(sides, question)
        # How much the windows of a sample cover is not known before they are read.
        everything = question.sample is None
        meter.offsets = everything * sum(len(compared(part.source, part.destination)) for part in report.partitions)
        meter.doing = "comparing"
        waiting = deque(sorted((p for p in report.partitions if p.error is None), key=_length, reverse=True))
        async with asyncio.TaskGroup() as lanes:
            lanes.create_task(_lane(question, waiting, sides, manner=manner, meter=meter))
            for _ in range(min(LANES, len(waiting)) - 1):
                lanes.create_task(_further_lane(question, waiting, manner=manner, meter=meter))
    report.seconds = time.monotonic() - began
    return report


@asynccontextmanager
async def _meet(question: Question) -> AsyncIterator[Sides]:
    async with AsyncExitStack() as stack:
        source = await _connect(question.source, "source", question.timeout_s, stack)
        destination = await _connect(question.destination, "destination", question.timeout_s, stack)
        _refuse_same(source, destination)
        yield Sides(source, destination)


def _refuse_same(source: Cluster, destination: Cluster) -> None:
    if source.cluster_id == destination.cluster_id:
        raise BadInput(
            f"--source and --destination lead to the same cluster, {source.cluster_id}. A topic is identical with "
            f"itself; give the addresses of both clusters."
        )


async def _connect(settings: ClientSettings, label: str, timeout_s: float, stack: AsyncExitStack) -> Cluster:
    client_id = settings.client_id or CLIENT_ID
    cluster = await Cluster.connect(settings, client_id=client_id, timeout_s=timeout_s, label=label)
    stack.push_async_callback(cluster.close)
    await require(cluster, READING)
    return cluster


async def _planned(sides: Sides, question: Question) -> tuple[Report, Manner]:
    """Look at both sides; the destination first, so that a mirror that is running never seems to be ahead."""
    topic, timeout_s = question.topic, question.timeout_s
    ours, theirs = await asyncio.gather(partitions_of(sides.source, topic), partitions_of(sides.destination, topic))
    partitions = chosen(ours, theirs, question.partitions)
    wanted = [TopicPartition(topic, number) for number in partitions.numbers]
    copies = await bounds_of(sides.destination, wanted, timeout_s=timeout_s)
    originals = await bounds_of(sides.source, wanted, timeout_s=timeout_s)
    policies = [
        await is_compacted(cluster, topic, timeout_s=timeout_s) for cluster in (sides.source, sides.destination)
    ]
    report = Report(topic, differences=list(partitions.differences), sampled=question.sample)
    report.partitions = [_begun(tp, originals[tp], copies[tp]) for tp in wanted]
    await _set_starts(sides, question, report)
    if None in policies and True not in policies:
        report.notes.append("cleanup.policy could not be read; the topic was compared as one that is not compacted")
    return report, Manner(question.sample, timeout_s, True in policies)


async def _set_starts(sides: Sides, question: Question, report: Report) -> None:
    later = [part for part in report.partitions if part.destination.start > part.source.start >= 0]
    if not later or question.starts is None:
        return
    try:
        starts = await question.starts(sides.source, sides.destination, question.topic)
    except TwinlogError as unread:
        # Not a difference yet: a mirror that was told to begin later looks the same.
        begins = ",".join(f"{part.partition}:{part.destination.start}" for part in later[:SHOWN])
        report.warnings.append(
            f"whether the mirror was told to begin where the destination's logs do is not known, since its state could "
            f"not be read: {unread} Use a client that may read it, or say yourself where the mirror began: "
            f"--from {begins} if that was meant"
        )
        for part in later:
            part.start_in_doubt = True
        return
    for part in later:
        part.chosen_start = starts.get(part.partition, 0)


def _begun(tp: TopicPartition, source: Bounds | str, destination: Bounds | str) -> PartitionReport:
    unknown = Bounds(-1, -1, -1)
    errors = [side for side in (source, destination) if isinstance(side, str)]
    return PartitionReport(
        tp.partition,
        source if isinstance(source, Bounds) else unknown,
        destination if isinstance(destination, Bounds) else unknown,
        error=" ".join(errors) or None,
    )


def _length(part: PartitionReport) -> int:
    return len(compared(part.source, part.destination))


async def _lane(
    question: Question, waiting: deque[PartitionReport], sides: Sides, *, manner: Manner, meter: Meter
) -> None:
    """Compare one partition after another until none is left."""
    while waiting:
        part = waiting.popleft()
        where = TopicPartition(question.topic, part.partition)
        await Comparison(sides, where, part, manner=manner, meter=meter).run()
        meter.doing = "comparing"


async def _further_lane(question: Question, waiting: deque[PartitionReport], *, manner: Manner, meter: Meter) -> None:
    """As `_lane`, over connections of its own; where these are refused, the first lane does without help."""
    with suppress(TwinlogError):
        async with _meet(question) as sides:
            await _lane(question, waiting, sides, manner=manner, meter=meter)
