"""Failback: whether a topic that was mirrored the other way, or beside this one, can follow its twin as it is."""

import asyncio
from collections.abc import Collection, Mapping

from twinlog.admin.divergence import Side, Tail, diverged_tails, shared_until
from twinlog.control.image import Image
from twinlog.errors import AuthorizationFailed, BadInput, TopicAlreadyExists, TwinlogError, UnsupportedVersion
from twinlog.names import TopicPartition
from twinlog.state.log import StateLog
from twinlog.sync.topics import Span
from twinlog.wire.cluster import Cluster, TopicInfo

WITHIN_S = 10.0
SHOWN = 20


async def refuse_diverged(
    clusters: tuple[Cluster, Cluster],
    image: Image,
    topics: Collection[tuple[TopicInfo, TopicInfo]],
    spans: Mapping[TopicPartition, Span],
) -> dict[str, TwinlogError]:
    """Return why topics may not be started, whose destination has what the source never saw.

    `clusters` are source and destination, `topics` pairs of the topic on both, `image` the destination's state and
    `spans` its logs. A source whose state does not exist, or may not be read, has nothing to tell: what is judged here
    by what is recorded is compared by the worker anyway, before it writes.
    """
    theirs = await _state_of(clusters[0]) if topics else None
    if theirs is None:
        return {}
    found: dict[str, TwinlogError] = {}
    for there, here in topics:
        source = Side(clusters[0].cluster_id, theirs, there.id)
        destination = Side(clusters[1].cluster_id, image, here.id)
        partitions = [TopicPartition(here.name, number) for number in here.partitions]
        try:
            tails = await diverged_tails(
                clusters, {where: shared_until(source, destination, where) for where in partitions}, spans
            )
        except TwinlogError as problem:
            found[here.name] = problem
            continue
        if tails:
            found[here.name] = _refusal(here.name, tails)
    return found


async def _state_of(source: Cluster) -> Image | None:
    try:
        async with asyncio.timeout(WITHIN_S):
            log = await StateLog.open(source, create=False)
            return await log.load(timeout_s=WITHIN_S)
    except (AuthorizationFailed, UnsupportedVersion, BadInput, TimeoutError):
        return None


def _refusal(topic: str, tails: list[Tail]) -> TopicAlreadyExists:
    shown = "; ".join(map(str, tails[:SHOWN]))
    more = f"; and {len(tails) - SHOWN} more partitions" if len(tails) > SHOWN else ""
    firsts = ",".join(f"{tail.where.partition}:{tail.first}" for tail in tails)
    return TopicAlreadyExists(
        f"Topic '{topic}' has a diverged tail at the destination, which the source never saw: {shown}{more}. A log's "
        f"end cannot be cut. Save the tail (twinlog salvage --save FOLDER --bootstrap-server HOST:PORT --topic {topic} "
        f"--from {firsts}), delete the topic at the destination, then start it again: it is mirrored whole."
    )
