"""What there is to compare: the topic's partitions on both sides, where their logs begin and end, which windows."""

import asyncio
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from twinlog.errors import BadInput, TwinlogError, UnknownTopicOrPartition
from twinlog.names import TopicPartition
from twinlog.verify.report import Bounds, Finding
from twinlog.wire import codes
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops import EARLIEST, LATEST, describe_configs, list_offsets

CLEANUP_POLICY = "cleanup.policy"


@dataclass(frozen=True, slots=True)
class Sides:
    """Both clusters."""

    source: Cluster
    destination: Cluster


@dataclass(frozen=True, slots=True)
class Partitions:
    """The partitions to compare, and what is wrong with their numbers."""

    numbers: tuple[int, ...]
    differences: tuple[Finding, ...]


def chosen(source: Collection[int], destination: Collection[int], wanted: Collection[int] | None) -> Partitions:
    """Choose the partitions that both sides have, of `wanted` (None: all). Raises BadInput for one that neither has."""
    everywhere = set(source) & set(destination)
    unknown = sorted(set(wanted or ()) - set(source) - set(destination))
    if unknown:
        raise BadInput(f"The topic has no partition {', '.join(map(str, unknown))} on either side.")
    numbers = tuple(sorted(everywhere if wanted is None else everywhere & set(wanted)))
    if len(source) == len(destination):
        return Partitions(numbers, ())
    text = (
        f"the source has {len(source)} partitions, the destination {len(destination)}; "
        f"only those that both have were compared"
    )
    return Partitions(numbers, (Finding("partitions", text),))


def compared(source: Bounds, destination: Bounds) -> range:
    """Return the offsets that both sides have for a read_committed reader."""
    first = max(source.start, destination.start)
    return range(first, max(first, min(source.stable, destination.stable)))


def bound_findings(
    source: Bounds, destination: Bounds, chosen_start: int = 0, *, start_in_doubt: bool = False
) -> Iterator[Finding]:
    """Name what differs in where the logs begin and end; the mirror was told to begin at `chosen_start`.

    Where that is in doubt, a later start is no difference yet.
    The end is where a read_committed reader stops, since nothing undecided is ever copied: a destination that ends at
    the source's last stable offset is as far as it can be.
    """
    if not start_in_doubt and destination.start != max(source.start, chosen_start):
        told = f", of which offset {chosen_start} was chosen to begin with," if chosen_start > source.start else ""
        text = f"log start differs: {source.start} at the source{told or ','} {destination.start} at the destination"
        yield Finding("start", text)
    ends = f"{source.stable} at the source, {destination.stable} at the destination"
    if destination.stable < source.stable:
        yield Finding("end", f"end differs: {ends}, which lags by {source.stable - destination.stable:,} offsets")
    elif destination.stable > source.stable:
        ahead = destination.stable - source.stable
        yield Finding("end", f"end differs: {ends}, which has {ahead:,} offsets that the source does not have")
    if destination.stable < destination.end != source.end:
        text = (
            f"the destination holds undecided records of a transaction from offset {destination.stable} "
            f"to its end {destination.end}; the source ends at {source.end}"
        )
        yield Finding("end", text)


def windows(span: range, count: int) -> Iterator[int]:
    """Return where `count` evenly spread windows begin, after the first and before the last one; without repeats."""
    return iter(sorted({span.start + (number * len(span)) // (count + 1) for number in range(1, count + 1)}))


async def partitions_of(cluster: Cluster, topic: str) -> frozenset[int]:
    """Return the numbers of a topic's partitions. Raises UnknownTopicOrPartition, AuthorizationFailed and the like."""
    told = (await cluster.topics([topic])).get(topic)
    if told is None or told.error == codes.UNKNOWN_TOPIC_OR_PARTITION:
        raise UnknownTopicOrPartition(f"The {cluster} has no topic {topic!r}, or this client may not see it.")
    codes.check(told.error, f"Topic {topic!r} could not be looked up on the {cluster}")
    return frozenset(told.partitions)


async def is_compacted(cluster: Cluster, topic: str, *, timeout_s: float) -> bool | None:
    """Say whether a topic's cleanup.policy holds `compact`; None when that cannot be learnt, for want of a right."""
    try:
        told = await describe_configs(cluster, "topic", [topic], keys=[CLEANUP_POLICY], timeout_s=timeout_s)
    except TwinlogError:
        return None
    entry = told[topic].get(CLEANUP_POLICY)
    return None if entry is None else "compact" in (entry.value or "")


async def bounds_of(
    cluster: Cluster, wanted: Collection[TopicPartition], *, timeout_s: float
) -> dict[TopicPartition, Bounds | str]:
    """Ask where each log begins and ends; the sentence of what went wrong for one that did not tell."""
    starts, ends, stable = await asyncio.gather(
        list_offsets(cluster, dict.fromkeys(wanted, EARLIEST), timeout_s=timeout_s),
        list_offsets(cluster, dict.fromkeys(wanted, LATEST), timeout_s=timeout_s),
        list_offsets(cluster, dict.fromkeys(wanted, LATEST), read_committed=True, timeout_s=timeout_s),
    )
    found: dict[TopicPartition, Bounds | str] = {}
    for tp in wanted:
        listed = (starts[tp], ends[tp], stable[tp])
        try:
            for one in listed:
                codes.check(one.error, f"The offsets of {tp} could not be listed on the {cluster}")
        except TwinlogError as error:
            found[tp] = str(error)
        else:
            found[tp] = Bounds(*(one.offset for one in listed))
    return found
