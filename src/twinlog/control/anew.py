"""A topic whose destination is deleted and made anew by the workers, since its source has lost what was mirrored.

The steps, each of which may be the last that a worker carries out; whoever is the mirror's coordinator then goes on:

1. The topic's record says so (`TopicRecord.anew`) and desires PAUSED, so that every partition ends in order, wherever
   it is: nothing is under way to the old topic any more, and nothing is sent to a new one of its name.
2. The record says that the old topic is being deleted (`Anew.deleting`); then it is, by its id, and is gone.
3. A new one is created, with the same number of partitions, replicas and configs. One that is there already and holds
   nothing is taken for it: a worker may have died behind this step.
4. One transaction puts the new ids into the topic's record, desires MIRRORING and removes the partitions' states.

An operator who pauses, stops or resumes the topic meanwhile, excludes it, or takes it out of what the mirror follows,
takes it back: a step is done, and the last one committed, only while the record is the one of step 1. From step 2 on an
exclude is refused, and while the old topic is still there the others, too: applications would write to a topic that
goes a moment later, with the request to delete it on the wire.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from twinlog.config.mirror import MirrorConfig
from twinlog.control.commands import FoundTopic, Handled
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import NEVER_RETRY, PartitionRecord, TopicRecord, topic_id_text
from twinlog.errors import InvalidClusterMirrorState
from twinlog.names import ids_differ

SHOWN = 10


@dataclass(frozen=True, slots=True)
class Anew:
    """What the new topic is to have: `configs` are those that the old one set for itself.

    `deleting`: the old one may be deleted at any moment.
    """

    replication_factor: int
    configs: Mapping[str, str]
    deleting: bool = False

    @property
    def text(self) -> str:
        """As it stands in the topic's record."""
        told = {
            "replication_factor": self.replication_factor,
            "configs": dict(self.configs),
            "deleting": self.deleting,
        }
        return json.dumps(told, sort_keys=True)

    @classmethod
    def read(cls, text: str) -> "Anew":
        """What `text` says; of what a newer twinlog wrote, as much as is understood here."""
        told = json.loads(text)
        configs = {str(name): str(value) for name, value in told["configs"].items()}
        return cls(int(told["replication_factor"]), configs, told.get("deleting", False) is True)


def under_way(record: TopicRecord) -> bool:
    """Whether a topic's destination is being made anew, and nobody has taken that back."""
    return bool(record.anew) and record.desired is DesiredState.PAUSED


def is_deleting(record: TopicRecord) -> bool:
    """Whether the old topic may be deleted at any moment, or is, and there is no new one yet."""
    return under_way(record) and Anew.read(record.anew).deleting


def check_not_deleting(record: TopicRecord, topic_id: UUID | None) -> None:
    """Refuse a command while the old topic, which is still there under `topic_id`, is being deleted."""
    if is_deleting(record) and topic_id == record.destination_topic_id:
        raise InvalidClusterMirrorState(
            f"Topic '{record.topic}' of mirror '{record.mirror}' is being deleted and made anew at the destination "
            f"(mirror.support.unclean.leader.election). Do this once it is gone, or MIRRORING again, some seconds from "
            f"now, as --describe shows. Nothing may write to it meanwhile."
        )


def check_not_renewed(record: TopicRecord) -> None:
    """Refuse an exclude from the moment on in which the old topic may be deleted, until there is a new one."""
    if is_deleting(record):
        raise InvalidClusterMirrorState(
            f"Topic '{record.topic}' of mirror '{record.mirror}' would match an exclude, and is being deleted and made "
            f"anew at the destination (mirror.support.unclean.leader.election). Nothing was changed. Do this once it "
            f"is MIRRORING again, some seconds from now, as --describe shows; where it stays PAUSED, stop it first, "
            f"with --stop."
        )


def states(image: Image, record: TopicRecord) -> list[PartitionRecord]:
    """What is stored of the topic's partitions, as far as it is about the topics that the record means."""
    return [one for one in image.partitions_of(record.mirror, record.topic) if one.ids == record.ids]


def truncated(image: Image, record: TopicRecord, reason: str) -> list[PartitionRecord]:
    """The partitions that have failed for good since their source was truncated: `reason` is in their error."""
    failed = [one for one in states(image, record) if one.state is PartitionState.FAILED]
    return [one for one in failed if one.retry_attempt == NEVER_RETRY and reason in one.error]


def unrested(image: Image, record: TopicRecord) -> list[int]:
    """The partitions that have not come to rest."""
    rested = {one.partition for one in states(image, record) if one.state is PartitionState.PAUSED}
    return [number for number in range(record.partitions) if number not in rested]


def check_ready(image: Image, record: TopicRecord | None, found: FoundTopic) -> TopicRecord:
    """Return the record that the last step replaces; InvalidClusterMirrorState where it must not be done (any more)."""
    if record is None or not under_way(record):
        raise InvalidClusterMirrorState(
            f"Topic '{found.name}' is not to be made anew any more: an operator has paused, resumed or stopped it. "
            f"Nothing more is done to it; where it is gone at the destination, stop it, then start it again."
        )
    if record.destination_topic_id == found.destination_topic_id:
        raise InvalidClusterMirrorState(
            f"Topic '{found.name}' is still the old one at the destination. It is tried again."
        )
    if ids_differ(record.source_topic_id, found.source_topic_id):
        raise InvalidClusterMirrorState(
            f"Topic '{found.name}' was recreated at the source: its id is {topic_id_text(found.source_topic_id)} and "
            f"was {topic_id_text(record.source_topic_id)}. Stop the topic, delete it at the destination where it "
            f"exists, then start it again."
        )
    moving = unrested(image, record)
    if moving:
        raise InvalidClusterMirrorState(
            f"Partitions {moving[:SHOWN]} of topic '{found.name}' have not ended yet. It is tried again."
        )
    return record


def begin(image: Image, seen: TopicRecord, anew: Anew) -> Handled[TopicRecord | None]:
    """Let every partition end, so that the destination can be made anew.

    Returns the record by then; None where it is no more as it was, or the mirror no longer says so.
    """
    if image.topic(seen.mirror, seen.topic) != seen or not _follows(image, seen):
        return Handled((), reply=None)
    begun = replace(seen, desired=DesiredState.PAUSED, anew=anew.text)
    return Handled((begun,), reply=begun)


def delete(image: Image, seen: TopicRecord) -> Handled[TopicRecord | None]:
    """Announce that the old topic is deleted now; it may be announced already.

    Returns the record by then; None where it is no more as it was, or the mirror no longer says so.
    """
    if image.topic(seen.mirror, seen.topic) != seen or unrested(image, seen):
        return Handled((), reply=None)
    former = Anew.read(seen.anew)
    if former.deleting:
        return Handled((), reply=seen)
    if not _follows(image, seen):
        return Handled((), reply=None)
    told = replace(seen, anew=replace(former, deleting=True).text)
    return Handled((told,), reply=told)


def _follows(image: Image, record: TopicRecord) -> bool:
    configs = image.mirrors[record.mirror].configs
    config = MirrorConfig.from_properties(configs, f"the configs of mirror {record.mirror}")
    return config.follows_truncated(record.topic)


def withdraw(image: Image, seen: TopicRecord) -> Handled[bool]:
    """Go on with the old topic, which could not be deleted; unless the record is no more as it was."""
    if image.topic(seen.mirror, seen.topic) != seen:
        return Handled((), reply=False)
    return Handled((replace(seen, desired=DesiredState.MIRRORING, anew=""),), reply=True)
