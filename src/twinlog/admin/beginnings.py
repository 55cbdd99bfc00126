"""Where the first copy of a topic begins: what a start asks for, as offsets of the source's partitions."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from twinlog.config.kinds import START_OFFSET, StartOffset
from twinlog.config.mirror import MirrorConfig
from twinlog.control.commands import FoundTopic
from twinlog.errors import ConcurrentChange, InvalidRequest, RetryLater
from twinlog.names import TopicPartition
from twinlog.wire import codes
from twinlog.wire.cluster import Cluster, TopicInfo
from twinlog.wire.ops import LATEST, list_offsets

EARLIEST = "earliest"
SHOWN = 10


def parse(text: str) -> StartOffset:
    """Read `--start-at`: earliest, latest, milliseconds since 1970, or an ISO 8601 time. Raises InvalidRequest."""
    try:
        return START_OFFSET.parse(text.strip())
    except ValueError:
        raise InvalidRequest(f"--start-at is '{text}', but must be {START_OFFSET.allowed}.") from None


async def chosen(
    source: Cluster,
    found: tuple[FoundTopic, ...],
    theirs: Mapping[str, TopicInfo],
    config: MirrorConfig,
    start_at: str | None,
) -> tuple[FoundTopic, ...]:
    """Give each topic the offsets at which its copy begins, by the source's present state.

    `start_at` None: as `mirror.start.offset.spec` says. It counts only where the destination's log is empty. A time
    without a record at or after it means the end. A topic that is not in `theirs` begins at its beginning. Raises
    RetryLater where a partition's offset cannot be told.
    """
    wanted = config.start_offset_spec if start_at is None else parse(start_at)
    if wanted.at == EARLIEST:
        return found
    topics = [topic for topic in found if topic.name in theirs]
    asked = [TopicPartition(topic.name, number) for topic in topics for number in theirs[topic.name].partitions]
    offsets = await _offsets(source, asked, wanted)
    return tuple(
        replace(
            topic,
            start_at=str(wanted.at),
            start_offsets=tuple(offsets[TopicPartition(topic.name, number)] for number in range(topic.partitions)),
        )
        if topic in topics
        else topic
        for topic in found
    )


def check_still(found: tuple[FoundTopic, ...], later: Collection[str]) -> None:
    """Refuse to begin behind the beginning of a topic that, by what was committed meanwhile, was born later.

    Raises ConcurrentChange: another worker, or a command, has looked for the same patterns at the same time.
    """
    cut = sorted(topic.name for topic in found if topic.name in later and topic.start_offsets)
    if cut:
        raise ConcurrentChange(
            f"Another command or worker looked for topics of the same patterns at the same moment, so where "
            f"{', '.join(cut[:SHOWN])} begins was told by what has changed since. Nothing was started. Run it again."
        )


async def _offsets(source: Cluster, asked: list[TopicPartition], wanted: StartOffset) -> dict[TopicPartition, int]:
    ends = await list_offsets(source, dict.fromkeys(asked, LATEST), read_committed=True)
    at = {} if wanted.timestamp_ms is None else await list_offsets(source, dict.fromkeys(asked, wanted.timestamp_ms))
    for tp, told in (*ends.items(), *at.items()):
        if told.error != codes.NONE:
            raise RetryLater(f"{tp}: the offset to start at cannot be told by the source now. Start the topic again.")
    found = {tp: at[tp].offset if tp in at else -1 for tp in asked}
    return {tp: ends[tp].offset if found[tp] < 0 else min(found[tp], ends[tp].offset) for tp in asked}
