"""The rules that commands check, one function a rule (KIP-1279, section 2.3); each raises the error that breaks it."""

from collections.abc import Mapping

from twinlog.control.commands import FoundTopic
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import NEVER_RETRY, NO_TOPIC_ID, MirrorRecord, TopicRecord, topic_id_text
from twinlog.control.selection import Selection
from twinlog.errors import (
    ClusterMirrorError,
    InconsistentTopicId,
    InvalidRequest,
    MirrorTopicNotStopped,
    TopicAlreadyExists,
    TopicAlreadyInClusterMirror,
    TopicNotInClusterMirror,
    UnknownClusterMirror,
    UnknownTopicOrPartition,
)
from twinlog.names import ids_differ

SHOWN = 10
"""Patterns that an error names at most."""

_READY_TO_START = frozenset({PartitionState.STOPPED, PartitionState.UNKNOWN})


def find_mirror(image: Image, name: str, otherwise: str = "not found") -> MirrorRecord:
    """The mirror of that name, or UnknownClusterMirror in the KIP's words."""
    record = image.mirrors.get(name)
    if record is None:
        raise UnknownClusterMirror(f"Mirror '{name}' {otherwise}")
    return record


def check_source(mirror: str, source_cluster_id: str, destination_cluster_id: str) -> None:
    """Refuse a mirror of a cluster into itself: InvalidRequest."""
    if source_cluster_id and source_cluster_id == destination_cluster_id:
        raise InvalidRequest(
            f"{loop_of(mirror)}. Its bootstrap.servers lead to this very cluster, {destination_cluster_id}; "
            f"give the addresses of the source cluster."
        )


def check_selected(mirror: str, topic: str, wanted: Selection) -> None:
    """A topic that is named must match an include and no exclude."""
    if wanted.excludes(topic):
        matching = wanted.excluding(topic)
        kept = [entry for entry in wanted.exclude if entry not in matching]
        rest = f"=[{','.join(kept)}]" if len(kept) <= SHOWN else ""
        raise InvalidRequest(
            f"Topic '{topic}' matches an exclude pattern of mirror '{mirror}' ({', '.join(matching[:SHOWN])}). "
            f"Take that out first, with --alter --config 'mirror.topics.exclude{rest}', or start it without --exclude."
        )
    if not wanted.includes(topic):
        raise InvalidRequest(f"Topic '{topic}' matches none of the patterns ({', '.join(wanted.include)}).")


def check_direction(mirror: str, topic: str, reverse: Mapping[str, str]) -> None:
    """A topic is not mirrored round in a ring, of two clusters or of more; `reverse` tells how it comes round."""
    if topic in reverse:
        raise InvalidRequest(
            f"{loop_of(mirror)}. Topic '{topic}' comes to its source from here. {reverse[topic]} Stop it there first."
        )


def check_ids(image: Image, mirror: str, found: FoundTopic) -> None:
    """The source id is the one given, and belongs to one topic name."""
    if found.expected_id is not None and found.partitions > 0 and found.expected_id != found.source_topic_id:
        raise InconsistentTopicId(
            f"Topic '{found.name}' has id {topic_id_text(found.source_topic_id)} at the source, "
            f"not {topic_id_text(found.expected_id)} as given with --topic-id."
        )
    if found.source_topic_id == NO_TOPIC_ID:
        return
    for record in image.topics_of(mirror):
        if record.topic != found.name and record.source_topic_id == found.source_topic_id:
            raise TopicAlreadyExists(
                f"Source topic id {topic_id_text(found.source_topic_id)} of topic '{found.name}' "
                f"already belongs to topic '{record.topic}' of mirror '{record.mirror}'."
            )


def check_not_elsewhere(image: Image, mirror: str, topic: str) -> None:
    """A topic is active in one mirror at most."""
    active = image.active_in(topic)
    if active is not None and active.mirror != mirror:
        raise TopicAlreadyInClusterMirror(
            f"Topic '{topic}' is active in mirror '{active.mirror}' ({active.desired.name}); stop it there first."
        )


def check_same(record: TopicRecord, found: FoundTopic) -> None:
    """A topic that is MIRRORING must still be about the two topics it was started for."""
    pairs = (
        ("source", record.source_topic_id, found.source_topic_id),
        ("destination", record.destination_topic_id, found.destination_topic_id),
    )
    for side, recorded, now in pairs:
        if ids_differ(recorded, now):
            raise InconsistentTopicId(
                f"Topic '{found.name}' was recreated at the {side}: its id is {topic_id_text(now)}, and mirror "
                f"'{record.mirror}' mirrors {topic_id_text(recorded)}. Stop the topic, delete it at the destination, "
                f"then start it again."
            )


def check_stopped(image: Image, record: TopicRecord) -> None:
    """Only a topic that is stopped in all partitions is started again."""
    if record.desired is not DesiredState.STOPPED:
        raise MirrorTopicNotStopped(
            f"Topic '{record.topic}' of mirror '{record.mirror}' is {record.desired.name}; resume it with --resume."
        )
    for partition in image.partitions_of(record.mirror, record.topic):
        if partition.state not in _READY_TO_START:
            raise MirrorTopicNotStopped(
                f"Topic '{record.topic}' of mirror '{record.mirror}' is still being stopped: partition "
                f"{partition.partition} is {partition.state.name}. Start it again once --describe shows STOPPED "
                f"(that needs a running worker)."
            )


def check_not_failed(image: Image, record: TopicRecord) -> None:
    """A start does not recover what has failed for good; it must not look as if it did."""
    for partition in image.partitions_of(record.mirror, record.topic):
        if partition.state is PartitionState.FAILED and partition.retry_attempt == NEVER_RETRY:
            raise MirrorTopicNotStopped(
                f"Topic '{record.topic}' of mirror '{record.mirror}' has failed: partition {partition.partition} says: "
                f"{partition.error} Stop the topic first, then start it."
            )


def check_source_not_recreated(record: TopicRecord, found: FoundTopic) -> None:
    """A destination that is the twin of a former source topic cannot become the twin of a new one."""
    kept = found.destination_topic_id != NO_TOPIC_ID and not ids_differ(
        record.destination_topic_id, found.destination_topic_id
    )
    if kept and ids_differ(record.source_topic_id, found.source_topic_id):
        raise InconsistentTopicId(
            f"Topic '{found.name}' was recreated at the source: its id is {topic_id_text(found.source_topic_id)}, and "
            f"the destination holds the records of {topic_id_text(record.source_topic_id)}. Delete the topic at the "
            f"destination, then start it again."
        )


def check_adoptable(record: TopicRecord | None, found: FoundTopic) -> None:
    """A destination topic that exists is empty, or known to be the twin."""
    recorded = record is not None and record.destination_topic_id == found.destination_topic_id
    if found.destination_topic_id != NO_TOPIC_ID and not recorded and not found.adoptable:
        raise TopicAlreadyExists(
            f"Topic '{found.name}' exists at the destination, holds records, and was not mirrored from this source. "
            f"Delete it, or leave the topic out."
        )


def not_ours(image: Image, mirror: str, topic: str, *, exists: bool) -> ClusterMirrorError | None:
    """Why a command on this mirror may not touch a topic; None: it may."""
    active = image.active_in(topic)
    holder = active or image.topic(mirror, topic) or next(iter(image.mirrors_of(topic)), None)
    if holder is not None and holder.mirror != mirror:
        return TopicNotInClusterMirror(f"Topic '{topic}' belongs to mirror '{holder.mirror}', not to '{mirror}'.")
    if holder is None and exists:
        return UnknownClusterMirror(f"Topic '{topic}' is in no mirror.")
    if holder is None:
        return UnknownTopicOrPartition(f"Topic '{topic}' does not exist at the destination and is in no mirror.")
    return None


def loop_of(mirror: str) -> str:
    """How the KIP names a mirror that would copy a topic round."""
    return f"Detected mirror loop for mirror: {mirror}"
