"""Destination topics that a start finds in place: whether they can be the twins, and the partitions that they lack."""

from collections.abc import Collection, Mapping, Sequence

from twinlog.control.commands import FoundTopic
from twinlog.control.image import Image
from twinlog.control.records import NO_TOPIC_ID
from twinlog.errors import InvalidRequest, RetryLater, TwinlogError
from twinlog.names import TopicPartition, ids_differ
from twinlog.sync import topics as sync_topics
from twinlog.sync.topics import Span
from twinlog.wire.cluster import Cluster, TopicInfo

SHOWN = 10


def check_twins(
    recorded_in: tuple[Image, str],
    topics: Sequence[TopicInfo],
    ours: Mapping[str, TopicInfo],
    spans: tuple[Mapping[TopicPartition, Span], Mapping[TopicPartition, Span]],
    known: Collection[str],
) -> dict[str, TwinlogError]:
    """Return why some of the source's `topics` cannot be mirrored into those of `ours`.

    `recorded_in`: the destination's state, and the mirror; `spans`: both sides' logs; `known`: topics that may be given
    the partitions that they lack, since it is recorded that they share something with the source.
    """
    image, mirror = recorded_in
    refused: dict[str, TwinlogError] = {}
    for topic in topics:
        existing = ours.get(topic.name)
        if existing is None:
            continue
        record = image.topic(mirror, topic.name)
        recorded = record is not None and record.destination_topic_id == existing.id
        may_grow = recorded or topic.name in known or sync_topics.is_empty(existing, spans[1])
        try:
            sync_topics.check_twin(topic, existing, *spans, recorded=recorded, may_grow=may_grow)
        except TwinlogError as why:
            refused[topic.name] = why
    return refused


async def grow_twins(
    cluster: Cluster, topics: Sequence[TopicInfo], ours: Mapping[str, TopicInfo], *, dry_run: bool
) -> tuple[list[str], dict[str, TwinlogError]]:
    """Give what grew at the source the partitions that the destination's lacks; returns notes, and what was refused.

    A dry run asks whether that would be done.
    """
    notes: list[str] = []
    refused: dict[str, TwinlogError] = {}
    for topic in topics:
        count, existing = len(topic.partitions), ours.get(topic.name)
        if existing is None or len(existing.partitions) == count:
            continue
        try:
            notes.append(await sync_topics.grow(cluster, existing, count, dry_run=dry_run))
        except TwinlogError as why:
            refused[topic.name] = why
    return notes, refused


def unchecked(topic: str, why: str) -> InvalidRequest:
    """A topic that does not exist here cannot come round from here; of one that does nobody can say."""
    return InvalidRequest(
        f"Topic '{topic}' exists at the destination, and whether its source has it from here in the end could not be "
        f"checked. {why} In a ring, what is written at one cluster would come back to it. Where you know that there is "
        f"none, start it with --no-loop-check."
    )


async def gone_since(destination: Cluster, found: Collection[FoundTopic]) -> dict[str, TwinlogError]:
    """The topics that somebody else, as a second operator, has made anew at the destination meanwhile.

    One that is not there tells nothing: the broker that answers may not have heard yet of what was made just now.
    """
    made = {one.name: one.destination_topic_id for one in found if one.destination_topic_id != NO_TOPIC_ID}
    there, _ = await sync_topics.read_topics(destination, sorted(made))
    return {
        name: RetryLater(f"Topic '{name}' was deleted and made anew at the destination meanwhile. Start it again.")
        for name, topic_id in made.items()
        if name in there and ids_differ(topic_id, there[name].id)
    }


def unread_state(theirs: Image | str, names: Sequence[str]) -> list[str]:
    """Say what follows where the source's state cannot be read (`theirs`: why), for topics that are there already."""
    if not isinstance(theirs, str) or not names:
        return []
    shown = ", ".join(names[:SHOWN])
    note = (
        f"The source's state cannot be read, so it is not known up to where both sides of {shown} are the same. The "
        f"worker compares them; a compacted topic fails where the source has compacted away what the destination "
        f"still has. Grant READ on topic __mirror_state at the source and start it again. ({theirs})"
    )
    return [note]
