"""Which topics are copied where, and whether what was recorded of them still holds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from twinlog.errors import BadInput
from twinlog.names import TopicPartition
from twinlog.reo.positions import Place, Position
from twinlog.reo.settings import Partitioning, ReoSettings, Reset
from twinlog.wire.cluster import Cluster, TopicInfo
from twinlog.wire.ops import EARLIEST, LATEST, one_offset

INTERNAL: Final = "__"


@dataclass(frozen=True, slots=True)
class Route:
    """A source topic and the destination topic it is copied to."""

    topic: str
    topic_id: str
    partitions: int
    target: str
    target_id: str
    target_partitions: int


class Beginning(NamedTuple):
    """Where a partition is read from, and the leader epoch of what lies before (-1: not known)."""

    offset: int
    epoch: int


async def routes(settings: ReoSettings, source: Cluster, destination: Cluster) -> list[Route]:
    """The topics that the settings choose; BadInput where one is missing or its destination cannot take it."""
    told = await source.topics(None) if settings.expressions() else {}
    chosen = [name for name in sorted(told) if not name.startswith(INTERNAL) and settings.expressions().matches(name)]
    names = list(dict.fromkeys((*settings.named(), *chosen)))
    if not names:
        raise BadInput(f"No topic of the source matches {settings.source_topic!r}; nothing can be copied.")
    sources = await source.topics(names)
    targets = await destination.topics([settings.target(name) for name in names])
    same = source.cluster_id == destination.cluster_id
    return [_route(settings, name, sources.get(name), targets, same=same) for name in names]


def _route(
    settings: ReoSettings, name: str, info: TopicInfo | None, targets: Mapping[str, TopicInfo], *, same: bool
) -> Route:
    target = settings.target(name)
    if same and target == name:
        raise BadInput(f"{name} would be copied into itself: source and destination are the same cluster.")
    if info is None or info.error or not info.partitions:
        raise BadInput(f"The source has no topic {name} that this client may read. Create it, or grant READ on it.")
    found = targets.get(target)
    count = len(info.partitions)
    if found is None or found.error or not found.partitions:
        raise BadInput(
            f"The destination has no topic {target} that this client may write. "
            f"Create it with at least {count} partitions, or grant WRITE on it."
        )
    if len(found.partitions) < count and settings.partitioning is Partitioning.KEEP:
        raise BadInput(
            f"{target} has {len(found.partitions)} partitions on the destination, but {name} has {count} on the "
            f"source. Add partitions, or set partitioning to key to spread records by their key."
        )
    return Route(name, str(info.id), count, target, str(found.id), len(found.partitions))


async def starts(
    settings: ReoSettings,
    route: Route,
    known: Mapping[Place, Position],
    source: Cluster,
    destination: Cluster,
    *,
    mine: Callable[[TopicPartition], bool],
    begun: Callable[[TopicPartition], bool],
) -> dict[TopicPartition, Beginning]:
    """Where each partition that is `mine` is read on; BadInput where that cannot be told.

    `begun` tells whether the share of a partition has begun before: what it does not know was added since, while
    nobody ran or while the share moved, and is copied from its beginning.
    """
    cluster = source.cluster_id
    everyones = {
        place.partition: position
        for place, position in known.items()
        if (place.application, place.cluster, place.topic) == (settings.application, cluster, route.topic)
        and place.topic_id == route.topic_id
    }
    ours = {number: one for number, one in everyones.items() if mine(TopicPartition(route.topic, number))}
    problem = await _problem(settings, route, ours or everyones, known, destination)
    if problem and settings.start_from is None:
        raise BadInput(f"{problem} Nothing is copied; say with start-from (earliest or latest) where to begin anew.")
    # Another share may still have to begin with a topic that was created again; what is ours may hold all the same.
    ours = {number: one for number, one in ours.items() if one.target_id == route.target_id}
    renewed = _renewed(settings, route, cluster, known) if not ours else frozenset()
    found: dict[TopicPartition, Beginning] = {}
    numbers = [number for number in range(route.partitions) if mine(TopicPartition(route.topic, number))]
    for number in numbers:
        where = TopicPartition(route.topic, number)
        if number in ours:
            first = await one_offset(source, where, EARLIEST) if settings.start_from is Reset.EARLIEST else 0
            known_to, epoch = ours[number].next_offset, ours[number].epoch
            found[where] = Beginning(first, -1) if first > known_to else Beginning(known_to, epoch)
        else:
            added = begun(where) and not problem and number not in renewed
            first = await one_offset(source, where, EARLIEST if added else _reset(settings), read_committed=True)
            found[where] = Beginning(first, -1)
    return found


def _renewed(settings: ReoSettings, route: Route, cluster: str, known: Mapping[Place, Position]) -> frozenset[int]:
    """The partitions that were copied of another topic of that name: of this one they are no addition."""
    before = (place for place in known if (place.application, place.topic) == (settings.application, route.topic))
    return frozenset(one.partition for one in before if (one.cluster, one.topic_id) != (cluster, route.topic_id))


def _reset(settings: ReoSettings) -> int:
    told = settings.start_from or settings.auto_reset
    return LATEST if told is Reset.LATEST else EARLIEST


async def _problem(
    settings: ReoSettings,
    route: Route,
    recorded: Mapping[int, Position],
    known: Mapping[Place, Position],
    destination: Cluster,
) -> str:
    """Why the recorded positions do not tell where to go on; empty where they do."""
    changed = [position for position in recorded.values() if position.target_id != route.target_id]
    if changed:
        return (
            f"The destination topic {route.target} is not the one that {route.topic} was copied to up to now "
            f"({changed[0].target}, id {changed[0].target_id}; now id {route.target_id}): it was created again."
        )
    if recorded:
        return ""
    before = [p for p in known if p.application == settings.application and p.topic == route.topic]
    if before:
        return (
            f"The source topic {route.topic} is not the one that was copied up to now (id {before[0].topic_id}; now id "
            f"{route.topic_id}): it was created again, or the source is another cluster."
        )
    for number in range(route.target_partitions):
        end = await one_offset(destination, TopicPartition(route.target, number), LATEST)
        if end > 0:
            return (
                f"The destination topic {route.target} holds records already (partition {number} ends at {end}), but "
                f"{settings.positions_topic} has no position of {route.topic}: it was lost, or this is the first start."
            )
    return ""
