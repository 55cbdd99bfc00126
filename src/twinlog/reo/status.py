"""Where a copy stands, as what is written down tells it: any process may ask, also while none copies."""

from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from typing import Any, Final

from twinlog.errors import BadInput, RetryLater, TwinlogError
from twinlog.names import TopicPartition
from twinlog.reo.first_stage import errors_of_first_stage, proxy_place
from twinlog.reo.positions import Place, Position, Positions
from twinlog.reo.proxy_topics import last_of
from twinlog.reo.run import connected
from twinlog.reo.settings import ReoSettings
from twinlog.reo.stage import Sides
from twinlog.reo.topics import Route, routes
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops import LATEST, list_offsets

SETTLED_WITHIN_S: Final = 3.0


async def status(settings: ReoSettings) -> list[dict[str, Any]]:
    """Where each source partition stands: position, end (read_committed), lag, and what stops it.

    With a proxy topic also `proxied`: up to which source offset that has been written.
    """
    async with AsyncExitStack() as stack:
        sides = await connected(settings, stack)
        if sides.source is None:
            raise BadInput("--status needs the source cluster as well: set kafka.clusters.source.bootstrap-servers.")
        known = await _known(sides)
        rows: list[dict[str, Any]] = []
        for route in await routes(settings, sides.source, sides.destination):
            rows += await _rows(sides, sides.source, route, known)
        return rows


async def _known(sides: Sides) -> dict[Place, Position]:
    """Of all shares that there are, however many the settings say."""
    topic = sides.settings.positions_topic
    told = (await sides.destination.topics([topic])).get(topic)
    found: dict[Place, Position] = {}
    for share in range(0 if told is None else len(told.partitions)):
        positions = sides.of(share).positions()
        await _read(positions)
        found |= positions.known
    return found


async def _read(positions: Positions) -> None:
    """What a copy that has died left open is not waited for."""
    try:
        await positions.refresh(timeout_s=SETTLED_WITHIN_S)
    except RetryLater:
        await positions.refresh(decided_only=True)


async def _rows(sides: Sides, source: Cluster, route: Route, known: Mapping[Place, Position]) -> list[dict[str, Any]]:
    settings = sides.settings
    wheres = [TopicPartition(route.topic, number) for number in range(route.partitions)]
    ends = await list_offsets(source, dict.fromkeys(wheres, LATEST), read_committed=True)
    rows = []
    for where in wheres:
        place = Place(settings.application, source.cluster_id, route.topic, route.topic_id, where.partition)
        one = known.get(place)
        end = ends[where].offset
        row = {
            "topic": where.topic,
            "partition": where.partition,
            "position": None if one is None else one.next_offset,
            "end": end,
            "lag": None if one is None else max(0, end - one.next_offset),
            "error": "" if one is None else one.error,
        }
        if settings.mode == "proxy":
            row |= await _proxied(sides, place, route, known)
        rows.append(row)
    return rows


async def _proxied(sides: Sides, place: Place, route: Route, known: Mapping[Place, Position]) -> dict[str, Any]:
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
    said = dict.fromkeys(known_one.error for known_one in (one, read, first) if known_one is not None)
    return {"proxied": None if reached < 0 else reached, "error": " ".join(filter(None, said))}
