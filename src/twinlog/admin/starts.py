"""Where a mirror was told to begin, for `twinlog verify`: what lies before was never to be copied."""

import asyncio
from collections.abc import Mapping
from uuid import UUID

from twinlog.admin import state
from twinlog.control.image import Image
from twinlog.control.records import TopicRecord
from twinlog.errors import Unreachable
from twinlog.names import ids_differ
from twinlog.state.topic import STATE_TOPIC
from twinlog.wire.cluster import Cluster

WITHIN_S = 10.0


async def chosen_starts(source: Cluster, destination: Cluster, topic: str) -> Mapping[int, int]:
    """Return the first offset that was to be mirrored, by partition, as the destination's state has it.

    Empty where nobody chose any, or where the destination has no state. Raises a TwinlogError where it cannot be read.
    """
    try:
        async with asyncio.timeout(WITHIN_S):
            log = await state.open_log(destination, create=False)
            if not log.shards:
                return {}
            image = await state.read(log)
            ids = [await _id(cluster, topic) for cluster in (source, destination)]
    except TimeoutError:
        raise Unreachable(f"Topic {STATE_TOPIC} of the {destination} could not be read in {WITHIN_S:g} s.") from None
    for record in image.mirrors_of(topic):
        if record.start_offsets and _is(image, record, source.cluster_id, ids):
            return dict(enumerate(record.start_offsets))
    return {}


async def _id(cluster: Cluster, topic: str) -> UUID:
    return (await cluster.topics([topic]))[topic].id


def _is(image: Image, record: TopicRecord, source_id: str, ids: list[UUID]) -> bool:
    """Whether a record is about these two topics."""
    mirror = image.mirrors.get(record.mirror)
    recorded = [record.source_topic_id, record.destination_topic_id]
    same = not any(ids_differ(one, now) for one, now in zip(recorded, ids, strict=True))
    return same and mirror is not None and mirror.source_cluster_id in {"", source_id}
