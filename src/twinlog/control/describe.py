"""What `--list` and `--describe` answer: read from the image alone, so they work whether or not a worker is up."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from twinlog.control.anew import under_way
from twinlog.control.image import Image, Published
from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import UNKNOWN_OFFSET, Figure, MirrorRecord, PartitionRecord, TopicRecord
from twinlog.errors import UnknownClusterMirror
from twinlog.names import TopicPartition

ACTIVE = frozenset({DesiredState.MIRRORING, DesiredState.PAUSED})
"""The desired states of the topics that a listing names by default (KIP-1279, ListClusterMirrorsOptions)."""

BOOTSTRAP = "bootstrap.servers"

RENEWED = (
    "The source was truncated, so the destination's topic is deleted and made anew "
    "(mirror.support.unclean.leader.election)."
)
"""What `error_message` says of a topic that looks as if somebody had paused it."""

MEASURED = frozenset(
    {PartitionState.LOG_ALIGNMENT, PartitionState.MIRRORING, PartitionState.PAUSING, PartitionState.STOPPING}
)
"""States in which somebody still looks at the source; in any other the lag is not known."""


@dataclass(frozen=True, slots=True)
class List:
    """Which mirrors to list, and topics of which desired states to name; None: no such filter."""

    mirror: str | None = None
    source_cluster_id: str | None = None
    desired: Collection[DesiredState] = ACTIVE


@dataclass(frozen=True, slots=True)
class MirrorListing:
    """One mirror as `--list` shows it; topics by name."""

    mirror: str
    source_bootstrap: str
    source_cluster_id: str
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Describe:
    """Which partitions to describe; None: all. `now_ms` is the asker's wall clock, for the figures' age."""

    now_ms: int
    mirrors: Collection[str] | None = None
    partitions: Collection[TopicPartition] | None = None
    failed: bool = False


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition as `--describe` shows it; -1 where unknown.

    `source_offset` is the source's last stable offset, so `lag` counts what a read_committed reader could still get
    there. `retry_attempt` -1 means that only an operator can help. `last_mirror_epoch` is always -1: the destination
    keeps its own leader epochs. `figures_age_ms` says how old the offsets are (0 when the clocks disagree, -1 when
    there are none). `error_message` also says that the topic is being made anew. `start_at` is where the first copy was
    told to begin, as it was said ("" where nobody did), and `start_offset` what that came to.
    """

    mirror: str
    topic: str
    partition: int
    state: PartitionState
    source_offset: int
    destination_offset: int
    retry_attempt: int
    error_message: str
    source_high_watermark: int
    source_log_start_offset: int
    waiting_for_transaction: bool
    figures_age_ms: int
    worker: str
    last_mirror_epoch: int = -1
    start_at: str = ""
    start_offset: int = UNKNOWN_OFFSET

    @property
    def lag(self) -> int:
        """Records that the source could still give, at most; -1 when an end is unknown, or nobody looks any more."""
        return lag_between(self.source_offset, self.destination_offset) if self.state in MEASURED else UNKNOWN_OFFSET


def lag_between(source_end: int, destination_end: int) -> int:
    """How many offsets the destination still lacks; -1 where an end is unknown."""
    unknown = UNKNOWN_OFFSET in {source_end, destination_end}
    return UNKNOWN_OFFSET if unknown else max(0, source_end - destination_end)


def list_mirrors(image: Image, command: List) -> tuple[MirrorListing, ...]:
    """The mirrors that pass the filters, by name."""
    return tuple(
        _listing(image, record, command.desired)
        for name, record in sorted(image.mirrors.items())
        if command.mirror in {None, name} and command.source_cluster_id in {None, record.source_cluster_id}
    )


def describe(image: Image, command: Describe) -> tuple[PartitionDescription, ...]:
    """The partitions that pass the filters, by mirror, topic and partition.

    Raises UnknownClusterMirror for a mirror that was asked for by name and does not exist.
    """
    for name in sorted(command.mirrors or ()):
        if name not in image.mirrors:
            raise UnknownClusterMirror(f"Mirror '{name}' not found")
    chosen = (row for row in _rows(image, command) if row.state is PartitionState.FAILED or not command.failed)
    return tuple(chosen)


def _listing(image: Image, record: MirrorRecord, desired: Collection[DesiredState]) -> MirrorListing:
    topics = tuple(topic.topic for topic in image.topics_of(record.mirror) if topic.desired in desired)
    return MirrorListing(record.mirror, record.configs.get(BOOTSTRAP, ""), record.source_cluster_id, topics)


def _rows(image: Image, command: Describe) -> Iterator[PartitionDescription]:
    for topic in image.all_topics():
        if command.mirrors is not None and topic.mirror not in command.mirrors:
            continue
        for partition in _numbers(image, topic):
            if command.partitions is None or TopicPartition(topic.topic, partition) in command.partitions:
                yield _row(image, topic, partition, command.now_ms)


def _numbers(image: Image, topic: TopicRecord) -> list[int]:
    """The partitions that the topic should have, and those that a worker has stored beyond them."""
    stored = {record.partition for record in image.partitions_of(topic.mirror, topic.topic)}
    return sorted(stored.union(range(topic.partitions)))


def _row(image: Image, topic: TopicRecord, partition: int, now_ms: int) -> PartitionDescription:
    record = image.partition(topic.mirror, topic.topic, partition)
    record = record or PartitionRecord(topic.mirror, topic.topic, partition, PartitionState.UNKNOWN)
    published = image.published(topic.mirror, topic.topic, partition)
    figure = published.figure if published else None
    return PartitionDescription(
        mirror=topic.mirror,
        topic=topic.topic,
        partition=partition,
        state=record.state,
        source_offset=figure.source_stable_offset if figure else UNKNOWN_OFFSET,
        destination_offset=_end(record, figure),
        retry_attempt=record.retry_attempt,
        error_message=" ".join(filter(None, (_renewal(topic), record.error))),
        source_high_watermark=figure.source_high_watermark if figure else UNKNOWN_OFFSET,
        source_log_start_offset=figure.source_log_start if figure else UNKNOWN_OFFSET,
        waiting_for_transaction=figure is not None and figure.waiting_for_transaction,
        figures_age_ms=_age_ms(published, now_ms),
        worker=published.worker if published else "",
        start_at=topic.start_at,
        start_offset=topic.start_offset(partition),
    )


def _renewal(topic: TopicRecord) -> str:
    return RENEWED if under_way(topic) else ""


def _end(record: PartitionRecord, figure: Figure | None) -> int:
    """A partition at rest has written down where it ended; one that moves publishes where it is."""
    if figure is None or record.state not in MEASURED:
        return record.last_mirrored_offset
    return figure.destination_end


def _age_ms(published: Published | None, now_ms: int) -> int:
    return -1 if published is None else max(0, now_ms - published.at_ms)
