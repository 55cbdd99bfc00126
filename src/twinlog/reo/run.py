"""Runs a copy, or says where it stands."""

import asyncio
import logging
from typing import Any

from twinlog.names import TopicPartition
from twinlog.reo.copier import Copier
from twinlog.reo.positions import Place, Positions
from twinlog.reo.settings import ReoSettings
from twinlog.reo.topics import routes
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops import LATEST, list_offsets

log = logging.getLogger("twinlog.reo")
CONNECT_WITHIN_S = 60.0


async def copy(settings: ReoSettings, stopping: asyncio.Event) -> None:
    """Copy until `stopping` is set; raises what the copier raises, and Unreachable for a cluster that is away."""
    source, destination = await _connected(settings)
    try:
        copier = Copier(settings, source, destination)
        try:
            await copier.run(stopping)
        finally:
            await copier.close()
    finally:
        await destination.close()
        await source.close()


async def status(settings: ReoSettings) -> list[dict[str, Any]]:
    """Where each source partition stands: position, end (read_committed), lag, and what stops it."""
    source, destination = await _connected(settings)
    try:
        found = await routes(settings, source, destination)
        positions = Positions(destination, settings.positions_topic)
        if await positions.exists():
            await positions.refresh()
        rows: list[dict[str, Any]] = []
        for route in found:
            wheres = [TopicPartition(route.topic, number) for number in range(route.partitions)]
            ends = await list_offsets(source, dict.fromkeys(wheres, LATEST), read_committed=True)
            for where in wheres:
                place = Place(settings.application, source.cluster_id, route.topic, route.topic_id, where.partition)
                known = positions.known.get(place)
                end = ends[where].offset
                rows.append(
                    {
                        "topic": where.topic,
                        "partition": where.partition,
                        "position": None if known is None else known.next_offset,
                        "end": end,
                        "lag": None if known is None else max(0, end - known.next_offset),
                        "error": "" if known is None else known.error,
                    }
                )
        return rows
    finally:
        await destination.close()
        await source.close()


async def _connected(settings: ReoSettings) -> tuple[Cluster, Cluster]:
    client_id = f"twinlog-reo-{settings.application}"
    source = await Cluster.connect(settings.source, client_id=client_id, timeout_s=CONNECT_WITHIN_S, label="source")
    try:
        destination = await Cluster.connect(
            settings.destination, client_id=client_id, timeout_s=CONNECT_WITHIN_S, label="destination"
        )
    except BaseException:  # whatever it was, the first connection must not stay open
        await source.close()
        raise
    return source, destination
