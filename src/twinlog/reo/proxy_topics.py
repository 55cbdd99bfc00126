"""The proxy topics: made where they are missing, found by the second stage, read at their end by the first."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from twinlog.batch.records import Record, decode
from twinlog.batch.scan import batches
from twinlog.errors import BadInput, RetryLater
from twinlog.names import TopicPartition
from twinlog.reo.envelope import Envelope, read
from twinlog.reo.positions import ensure_topic
from twinlog.reo.settings import ReoSettings
from twinlog.reo.topics import Route
from twinlog.wire import codes
from twinlog.wire.cluster import Cluster, TopicInfo
from twinlog.wire.ops import EARLIEST, LATEST, create_partitions, one_offset, read_log
from twinlog.wire.retry import Attempts

LARGEST_BYTES: Final = 64 << 20
READ_BYTES: Final = 4_194_304
WIDER: Final = 16
GROWS_WITHIN_S: Final = 30.0
CONFIGS: Final = {
    "cleanup.policy": "delete",
    # What the second stage has committed is deleted by it; what it has not must stay however long it takes.
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "segment.bytes": str(128 << 20),
    # A record holds a whole batch of the source, and so may be as large as the source's largest batch.
    "max.message.bytes": str(LARGEST_BYTES),
    "compression.type": "producer",
    "message.timestamp.type": "CreateTime",
}


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy topic, the source topic whose records it holds, and the destination topic that they go to."""

    name: str
    id: str
    partitions: int
    topic: str
    target: str
    target_id: str
    target_partitions: int


async def prepared(settings: ReoSettings, route: Route, destination: Cluster) -> Proxy:
    """The proxy topic of a route, created at need, with at least as many partitions as the source has."""
    name = settings.proxy(route.topic)
    if name == route.target:
        raise BadInput(f"{name} is both proxy and destination topic; give another topic-proxy.")
    told = await ensure_topic(
        destination,
        name,
        partitions=route.partitions,
        replication_factor=settings.replication_factor,
        configs=CONFIGS,
    )
    if len(told.partitions) < route.partitions:
        with suppress(BadInput):  # another instance may have been first; they have to appear in any case
            await create_partitions(destination, name, route.partitions)
        attempts = Attempts(GROWS_WITHIN_S)
        while len((told := (await destination.topics([name]))[name]).partitions) < route.partitions:
            if not await attempts.again():
                raise RetryLater(f"The new partitions of {name} do not appear on the {destination}.")
    return Proxy(
        name,
        str(told.id),
        len(told.partitions),
        topic=route.topic,
        target=route.target,
        target_id=route.target_id,
        target_partitions=route.target_partitions,
    )


async def existing(settings: ReoSettings, destination: Cluster) -> list[Proxy]:
    """The proxy topics that are there; RetryLater where one is not yet, BadInput where its destination is missing."""
    everything = await destination.topics(None) if settings.expressions() else {}
    chosen = [(topic, name) for name in sorted(everything) if (topic := settings.topic_of_proxy(name)) is not None]
    named = [(topic, settings.proxy(topic)) for topic in settings.named()]
    pairs = list(dict.fromkeys((*named, *chosen)))
    wanted = {name for topic, name in pairs} | {settings.target(topic) for topic, _ in pairs}
    told = await destination.topics(wanted) if wanted else {}
    if not pairs:
        raise RetryLater(
            f"The destination has no proxy topic for {settings.source_topic!r} yet; the first stage creates it."
        )
    # What an expression finds without a destination topic is somebody else's.
    pairs = [(topic, name) for topic, name in pairs if (topic, name) in named or not told[settings.target(topic)].error]
    return [_found(settings, topic, told.get(name), told, destination) for topic, name in pairs]


def _found(
    settings: ReoSettings, topic: str, proxy: TopicInfo | None, told: dict[str, TopicInfo], destination: Cluster
) -> Proxy:
    if proxy is None or proxy.error or not proxy.partitions:
        raise RetryLater(
            f"The {destination} has no proxy topic {settings.proxy(topic)} yet, which the first stage creates, or this "
            f"client may not read it."
        )
    name = settings.target(topic)
    target = told.get(name)
    if target is None or target.error or not target.partitions:
        raise BadInput(
            f"The destination has no topic {name} that this client may write. Create it with at least as many "
            f"partitions as {topic} has on the source, or grant WRITE on it."
        )
    return Proxy(
        proxy.name,
        str(proxy.id),
        len(proxy.partitions),
        topic=topic,
        target=name,
        target_id=str(target.id),
        target_partitions=len(target.partitions),
    )


async def last_of(
    cluster: Cluster, where: TopicPartition, wanted: Callable[[Envelope], bool], *, from_offset: int
) -> tuple[Envelope | None, int]:
    """The last envelope that is `wanted` at or behind `from_offset` in a partition, and the partition's end.

    Looked for from the end on backwards, in steps that grow: mostly the very last one is it.
    """
    end = await one_offset(cluster, where, LATEST)
    start = max(from_offset, await one_offset(cluster, where, EARLIEST))
    width, upper = 1, end
    while upper > start:
        lower = max(start, end - width)
        found = [one for one in await _between(cluster, where, lower, upper) if wanted(one)]
        if found:
            return found[-1], end
        upper, width = lower, width * WIDER
    return None, end


async def first_of(
    cluster: Cluster, where: TopicPartition, wanted: Callable[[Envelope], bool], *, from_offset: int
) -> Envelope | None:
    """The first envelope that is `wanted` at or behind `from_offset`, up to the end that the partition has now."""
    end = await one_offset(cluster, where, LATEST)
    return next((one for one in await _between(cluster, where, from_offset, end) if wanted(one)), None)


async def _between(cluster: Cluster, where: TopicPartition, first: int, end: int) -> list[Envelope]:
    found: list[Envelope] = []
    while first < end:
        chunk = await read_log(cluster, where, first, max_bytes=READ_BYTES, read_committed=False)
        if chunk.error == codes.OFFSET_OUT_OF_RANGE:
            # The second stage has deleted meanwhile what it has committed.
            start = await one_offset(cluster, where, EARLIEST)
            if start > first:
                first = start
                continue
        codes.check(chunk.error, f"{where} could not be read on the {cluster}")
        records = [
            r for batch in batches(chunk.records, where) for r in decode(batch, where=where) if r.offset >= first
        ]
        if not records:
            break
        found += _envelopes(records, where, end)
        first = records[-1].offset + 1
    return found


def _envelopes(records: Iterable[Record], where: TopicPartition, end: int) -> Iterable[Envelope]:
    return [read(record, where) for record in records if record.offset < end]
