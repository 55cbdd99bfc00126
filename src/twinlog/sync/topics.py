"""Topics on both sides: which there are, whether one can become the other's twin, and the making of a new one."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from twinlog.errors import (
    AuthorizationFailed,
    BadInput,
    InvalidConfig,
    TopicAlreadyExists,
    TwinlogError,
    UnknownTopicOrPartition,
)
from twinlog.names import TopicPartition
from twinlog.sync.configs import ConfigPlan, refusals
from twinlog.wire import codes
from twinlog.wire.cluster import Cluster, TopicInfo
from twinlog.wire.metadata import NO_ID
from twinlog.wire.ops import EARLIEST, LATEST, CreatedTopic, create_partitions, create_topic, list_offsets
from twinlog.wire.ops_admin import BROKER_DEFAULT
from twinlog.wire.retry import Attempts

INTERNAL: Final = {
    "__consumer_offsets": "each cluster keeps its own groups' offsets there",
    "__transaction_state": "each cluster keeps its own transactions there",
    "__share_group_state": "each cluster keeps its own share groups' positions there",
    "__cluster_metadata": "it is the cluster's own metadata",
    "__mirror_state": "twinlog's own state of the mirrors into that cluster is there",
}
"""Topics that are never mirrored, with the reason."""

CREATED_TOGETHER, PARTITIONS_TOGETHER = 100, 2_000
"""Topics, and partitions, made by one request: a controller refuses what would be more than 10,000 records at once."""

_APPEARS_WITHIN_S: Final = 15.0
# What metadata may say of a topic that is there all the same; its partitions tell more.
_THERE: Final = frozenset({codes.NONE, codes.LEADER_NOT_AVAILABLE})


@dataclass(frozen=True, slots=True)
class Span:
    """A log from its first offset to its end (the next offset)."""

    start: int
    end: int


def internal_reason(topic: TopicInfo) -> str | None:
    """Why a topic is never mirrored; None: it may be."""
    reason = INTERNAL.get(topic.name, "its brokers say that it is internal" if topic.internal else None)
    return reason and f"Topic '{topic.name}' is never mirrored: {reason}."


async def read_topics(
    cluster: Cluster, names: Collection[str] | None
) -> tuple[dict[str, TopicInfo], dict[str, TwinlogError]]:
    """Return the topics that exist (None: all that may be seen), and the errors of those that cannot be told."""
    told = await cluster.topics(names) if names is None or names else {}
    found: dict[str, TopicInfo] = {}
    failed: dict[str, TwinlogError] = {}
    for name, info in told.items():
        if info.error in _THERE:
            found[name] = info
        elif info.error != codes.UNKNOWN_TOPIC_OR_PARTITION:
            failed[name] = _error_of(cluster, info)
    return found, failed


def _error_of(cluster: Cluster, info: TopicInfo) -> TwinlogError:
    if info.error == codes.INVALID_TOPIC_EXCEPTION:
        return UnknownTopicOrPartition(f"'{info.name}' is not a name that a topic can have.")
    try:
        codes.check(info.error, f"Topic '{info.name}' cannot be looked at on the {cluster}")
    except AuthorizationFailed as missing:
        return AuthorizationFailed(f"{missing} The right needed is DESCRIBE on topic '{info.name}'.")
    except TwinlogError as error:
        return error
    raise AssertionError(f"{info} has no error")


async def spans(cluster: Cluster, topics: Collection[TopicInfo]) -> dict[TopicPartition, Span]:
    """Return where each partition's log begins and ends (the high watermark); one that cannot be read is left out."""
    asked = [TopicPartition(info.name, number) for info in topics for number in info.partitions]
    starts = await list_offsets(cluster, dict.fromkeys(asked, EARLIEST))
    ends = await list_offsets(cluster, dict.fromkeys(asked, LATEST))
    return {tp: Span(starts[tp].offset, ends[tp].offset) for tp in asked if not starts[tp].error and not ends[tp].error}


def check_twin(
    source: TopicInfo,
    destination: TopicInfo,
    source_spans: Mapping[TopicPartition, Span],
    destination_spans: Mapping[TopicPartition, Span],
    *,
    recorded: bool,
    may_grow: bool,
) -> None:
    """Refuse a destination topic that cannot become, or no longer is, the twin: TopicAlreadyExists, with what to do.

    This is the part that costs little; the worker compares the records before it writes. `recorded`: the mirror made
    or took over this very topic before. `may_grow`: it may be given the partitions that it lacks.
    """
    name = source.name
    there, here = len(source.partitions), len(destination.partitions)
    if here > there or (here < there and not may_grow):
        raise TopicAlreadyExists(_other_count(name, there, here))
    for number in sorted(destination.partitions):
        tp = TopicPartition(name, number)
        theirs, ours = source_spans.get(tp), destination_spans.get(tp)
        if theirs is None or ours is None:
            side = "source" if theirs is None else "destination"
            raise TopicAlreadyExists(f"{tp} cannot be read at the {side} now, so the two logs cannot be compared.")
        if ours.end > theirs.end:
            raise TopicAlreadyExists(
                f"{tp} ends at offset {ours.end} at the destination and at {theirs.end} at the source: the destination "
                f"holds {ours.end - theirs.end} offsets that the source does not have, and a log's end cannot be cut. "
                f"Save what is worth keeping, delete the topic at the destination, then start it again."
            )
        if not recorded:
            _check_unknown(tp, theirs, ours)


def _check_unknown(tp: TopicPartition, theirs: Span, ours: Span) -> None:
    """What can be said of a log that is not known to be the twin."""
    if ours.start > theirs.start:
        raise TopicAlreadyExists(
            f"{tp} begins at offset {ours.start} at the destination and at {theirs.start} at the source: what lies "
            f"between cannot be put in front. Delete the topic at the destination, then start it again."
        )
    if ours.start < ours.end <= theirs.start:
        raise TopicAlreadyExists(
            f"{tp} holds offsets {ours.start} to {ours.end - 1} at the destination, and the source begins at "
            f"{theirs.start}: whether they were the source's cannot be told. Delete the topic at the destination, then "
            f"start it again."
        )


def _other_count(name: str, source: int, destination: int) -> str:
    what = f"Topic '{name}' has {source} partitions at the source and {destination} at the destination."
    if destination < source:
        return (
            f"{what} It holds records, and nothing is recorded by which they would be the source's, so it is left as "
            f"it is. If they are, raise it to {source} at the destination (else delete it there), then start it again."
        )
    return f"{what} Delete the topic at the destination, or leave it out."


def is_empty(topic: TopicInfo, spans: Mapping[TopicPartition, Span]) -> bool:
    """Whether a topic is known to hold nothing in any partition."""
    found = [spans.get(TopicPartition(topic.name, number)) for number in topic.partitions]
    return all(span is not None and span.start == span.end for span in found)


async def grow(cluster: Cluster, topic: TopicInfo, partitions: int, *, dry_run: bool) -> str:
    """Give a destination topic the partitions that it lacks, or only ask whether that would be done; returns a note.

    Raises AuthorizationFailed naming the right, and what a broker's policy says against it.
    """
    await create_partitions(cluster, topic.name, partitions, validate_only=dry_run)
    first, one = len(topic.partitions), partitions == len(topic.partitions) + 1
    numbers = f"partition {first}" if one else f"partitions {first} to {partitions - 1}"
    done = "would be" if dry_run else ("was" if one else "were")
    return (
        f"Topic '{topic.name}' has {partitions} partitions at the source and {first} at the destination: {numbers} "
        f"{done} added there, to be mirrored from {'its' if one else 'their'} own beginning."
    )


def portions(topics: Sequence[TopicInfo]) -> Iterator[list[TopicInfo]]:
    """Cut into what one request creates; a topic of very many partitions goes alone."""
    portion: list[TopicInfo] = []
    partitions = 0
    for topic in topics:
        partitions += len(topic.partitions)
        if portion and (len(portion) == CREATED_TOGETHER or partitions > PARTITIONS_TOGETHER):
            yield portion
            portion, partitions = [], len(topic.partitions)
        portion.append(topic)
    if portion:
        yield portion


async def create(
    cluster: Cluster, name: str, *, partitions: int, replication_factor: int | None, planned: ConfigPlan
) -> tuple[CreatedTopic, ConfigPlan]:
    """Create a destination topic; configs that the destination refuses are left out one by one.

    Returns it with its id, and the plan as it was carried out. Raises AuthorizationFailed naming the right,
    TopicAlreadyExists (somebody made it just now), InvalidReplicationFactor, InvalidConfig, InvalidRequest.
    """
    factor = BROKER_DEFAULT if replication_factor is None else replication_factor

    async def attempt(configs: Mapping[str, str], *, validate_only: bool = False) -> CreatedTopic:
        return await create_topic(
            cluster,
            name,
            partitions=partitions,
            replication_factor=factor,
            configs=configs,
            validate_only=validate_only,
        )

    try:
        try:
            made = await attempt(planned.configs)
        except InvalidConfig:
            refused = await refusals(
                planned.optional, lambda key: attempt({key: planned.optional[key]}, validate_only=True)
            )
            if not refused:
                raise
            planned = planned.without(refused)
            made = await attempt(planned.configs)
    except AuthorizationFailed as missing:
        raise AuthorizationFailed(
            f"{missing} The right needed is CREATE on topic '{name}' or on the destination cluster."
        ) from missing
    except TopicAlreadyExists as exists:
        raise TopicAlreadyExists(f"{str(exists).removesuffix(' Nothing was changed.')} Start it again.") from exists
    return await _with_id(cluster, made), planned


async def _with_id(cluster: Cluster, made: CreatedTopic) -> CreatedTopic:
    """Look up the id where the answer to the creation did not have it (brokers before 2.8 have none at all)."""
    if made.id != NO_ID:
        return made
    attempts = Attempts(_APPEARS_WITHIN_S)
    while True:
        info = (await cluster.topics([made.name])).get(made.name)
        if info is not None and info.error in _THERE:
            return CreatedTopic(made.name, info.id, len(info.partitions), made.replication_factor)
        if not await attempts.again():
            raise BadInput(f"Topic '{made.name}' was created, but no broker knows it yet. Start it again.")
