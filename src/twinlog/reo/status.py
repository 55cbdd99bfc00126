"""Where a copy stands, as what is written down tells it: any process may ask, also while none copies."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any, Final

from twinlog.errors import BadInput, RetryLater, TwinlogError
from twinlog.names import TopicPartition
from twinlog.reo.first_stage import errors_of_first_stage, proxy_place
from twinlog.reo.positions import Place, Position, Positions, has_begun, share_of
from twinlog.reo.proxy_topics import last_of
from twinlog.reo.replicas import held, what_holds
from twinlog.reo.run import connected
from twinlog.reo.settings import Mode, ReoSettings
from twinlog.reo.stage import Sides
from twinlog.reo.topics import Route, routes, starts
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops import LATEST, list_offsets

SETTLED_WITHIN_S: Final = 3.0


async def status(settings: ReoSettings) -> list[dict[str, Any]]:
    """Where each source partition stands: position, end (read_committed), lag, and what stops it.

    Where nothing was copied yet, `position` is None and `begins` tells at which offset a copy would begin now.
    With a proxy topic also `proxied`: up to which source offset that has been written.
    """
    async with AsyncExitStack() as stack:
        sides = await connected(settings, stack)
        if sides.source is None:
            raise BadInput("--status needs the source cluster as well: set kafka.clusters.source.bootstrap-servers.")
        shares = await _shares(sides)
        recorded = await _recorded(sides, shares)
        holdups = await asyncio.gather(*(_holdup(sides, share) for share in range(shares)))
        rows: list[dict[str, Any]] = []
        for route in await routes(settings, sides.source, sides.destination):
            rows += await _rows(sides, sides.source, route, recorded)
        for row in rows if shares else ():
            share = share_of(row["topic"], row["partition"], shares)
            row["error"] = " ".join(filter(None, (row["error"], holdups[share])))
        return rows


async def _shares(sides: Sides) -> int:
    """How many there are, whatever the settings say; none before the first start."""
    topic = sides.settings.positions_topic
    told = (await sides.destination.topics([topic])).get(topic)
    return 0 if told is None else len(told.partitions)


async def _holdup(sides: Sides, share: int) -> str:
    """What keeps a share's transaction from ending; a copy that is held so cannot write that down itself.

    Every share is asked about, also those that do well: only what is certain is told here.
    """
    transactional_id = sides.settings.transactional_id(share)
    written = [sides.of(share).positions().where]
    with suppress(TwinlogError):
        found = await what_holds(sides.destination, transactional_id, written)
        short = [one for one in found if one.too_few]
        return held(transactional_id, short) if short else ""
    return ""


class Recorded:
    """What the shares have written down: all of it (`known`), and a mapping for each."""

    def __init__(self, by_share: Sequence[Mapping[Place, Position]]) -> None:
        self.by_share = by_share
        self.known = {place: one for share in by_share for place, one in share.items()}

    def begun(self, where: TopicPartition, application: str, cluster: str) -> bool:
        """Whether the share of a source partition has begun."""
        shares = len(self.by_share)
        return shares > 0 and has_begun(
            self.by_share[share_of(where.topic, where.partition, shares)], application, cluster
        )


async def _recorded(sides: Sides, shares: int) -> Recorded:
    found = []
    for share in range(shares):
        positions = sides.of(share).positions()
        await _read(positions)
        found.append(positions.known)
    return Recorded(found)


async def _read(positions: Positions) -> None:
    """What a copy that has died left open is not waited for."""
    try:
        await positions.refresh(timeout_s=SETTLED_WITHIN_S)
    except RetryLater:
        await positions.refresh(decided_only=True)


async def _rows(sides: Sides, source: Cluster, route: Route, recorded: Recorded) -> list[dict[str, Any]]:
    settings, known = sides.settings, recorded.known
    wheres = [TopicPartition(route.topic, number) for number in range(route.partitions)]
    ends = await list_offsets(source, dict.fromkeys(wheres, LATEST), read_committed=True)
    begins, refused = await _begins(sides, source, route, recorded)
    rows = []
    for where in wheres:
        place = Place(settings.application, source.cluster_id, route.topic, route.topic_id, where.partition)
        one = known.get(place)
        end = ends[where].offset
        at = begins.get(where) if one is None else one.next_offset
        row = {
            "topic": where.topic,
            "partition": where.partition,
            "position": None if one is None else one.next_offset,
            "begins": at if one is None else None,
            "end": end,
            "lag": None if at is None else max(0, end - at),
            "error": " ".join(filter(None, (refused, "" if one is None else one.error))),
        }
        if settings.mode is Mode.PROXY:
            row |= await _proxied(sides, place, route, known, refused)
        rows.append(row)
    return rows


async def _begins(
    sides: Sides, source: Cluster, route: Route, recorded: Recorded
) -> tuple[dict[TopicPartition, int], str]:
    """Where a copy that was started now would begin with each partition, or why it would not."""
    try:
        found = await starts(
            sides.settings,
            route,
            recorded.known,
            source,
            sides.destination,
            mine=lambda _: True,
            begun=lambda where: recorded.begun(where, sides.settings.application, source.cluster_id),
        )
    except BadInput as problem:
        return {}, str(problem)
    return {where: begin.offset for where, begin in found.items()}, ""


async def _proxied(
    sides: Sides, place: Place, route: Route, known: Mapping[Place, Position], refused: str
) -> dict[str, Any]:
    """How far the first stage is, and what stops either."""
    settings, one = sides.settings, known.get(place)
    proxy = TopicPartition(settings.proxy(route.topic), place.partition)
    info = (await sides.destination.topics([proxy.topic])).get(proxy.topic)
    if info is None or info.error or proxy.partition not in info.partitions:
        return {"proxied": None}
    read = known.get(proxy_place(settings.application, sides.destination.cluster_id, proxy, str(info.id)))
    reached = -1 if one is None else one.next_offset
    with suppress(TwinlogError):
        told, _ = await last_of(
            sides.destination,
            proxy,
            lambda envelope: envelope.place == place,
            from_offset=0 if read is None else read.next_offset,
        )
        reached = max(reached, -1 if told is None else told.next_offset)
    first = known.get(errors_of_first_stage(place))
    said = dict.fromkeys((refused, *(known_one.error for known_one in (one, read, first) if known_one is not None)))
    return {"proxied": None if reached < 0 else reached, "error": " ".join(filter(None, said))}
