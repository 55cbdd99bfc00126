"""Recreating a diverged topic: its tail is saved, then it is deleted at the destination, and a start makes it anew.

In an order that may be interrupted anywhere. The file is on disk under its name, and has been compared with the log,
before anything is deleted; a repeated command finds it, compares it again and goes on. Deleted is the topic with the id
that was looked at, never what somebody else may have made under its name meanwhile; a topic that is gone is one that
a start makes. Whatever is written between the last look at the log's ends and the delete, some milliseconds, is lost:
the producers of that topic have to be ended before.
"""

import asyncio
import os
import time
from collections.abc import Mapping
from pathlib import Path

from twinlog.admin import salvage
from twinlog.admin.failback import Diverged
from twinlog.errors import AuthorizationFailed, BadInput, InvalidClusterMirrorState, InvalidRequest, RetryLater
from twinlog.names import TopicPartition
from twinlog.sync.topics import Span, read_topics, spans
from twinlog.wire.cluster import Cluster, TopicInfo
from twinlog.wire.metadata import NO_ID
from twinlog.wire.ops_delete import delete_topic_by_id

GONE_WITHIN_S, LOOK_EVERY_S = 30.0, 0.1


def check_folder(folder: Path) -> None:
    """Refuse a folder that cannot take the files, before anything is done."""
    if not folder.is_dir():
        raise BadInput(f"--salvage-dir {folder} is no folder. Make it first, on a disk that is kept.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise BadInput(f"--salvage-dir {folder} cannot be written to by this user.")


def check_possible(topic: TopicInfo) -> None:
    """Refuse what cannot be deleted safely."""
    if topic.id == NO_ID:
        raise InvalidRequest(
            f"Topic '{topic.name}' has no id at the destination, whose brokers are older than Kafka 2.8, so it cannot "
            f"be told from one that is made under its name meanwhile. Save its tail with twinlog salvage --save, "
            f"delete it by hand, then start it."
        )


async def remove(
    cluster: Cluster, topic: TopicInfo, diverged: Diverged, before: Mapping[TopicPartition, Span], folder: Path
) -> Path:
    """Save what only the destination has, and delete the topic there; returns the file. `before`: its logs as judged.

    Raises BadInput (the file), InvalidClusterMirrorState (somebody writes to the topic), UnknownTopicOrPartition
    (somebody else has deleted it), AuthorizationFailed, RetryLater; the topic is untouched then, unless the message
    says otherwise.
    """
    check_possible(topic)
    path = await salvage.save_once(cluster, topic.name, topic.id, diverged.to_save, folder)
    await _check_unchanged(cluster, topic, before, path)
    try:
        await delete_topic_by_id(cluster, topic.name, topic.id)
    except AuthorizationFailed as missing:
        raise AuthorizationFailed(
            f"{missing} The right needed at the destination is DELETE on topic '{topic.name}'. Its tail is in {path}."
        ) from missing
    await wait_gone(cluster, topic, f"Its tail is in {path}. Run the command again.")
    return path


async def _check_unchanged(
    cluster: Cluster, topic: TopicInfo, before: Mapping[TopicPartition, Span], path: Path
) -> None:
    now = await spans(cluster, [topic])
    moved = [where for where, span in sorted(now.items()) if where not in before or span.end != before[where].end]
    if moved or len(now) != len(topic.partitions):
        raise InvalidClusterMirrorState(
            f"Topic '{topic.name}' was written to, or could not be read, while its tail was saved: "
            f"{', '.join(map(str, moved[:10])) or 'a partition has no leader'}. Nothing was deleted. End its "
            f"producers, move {path} away, and run the command again."
        )


async def wait_gone(cluster: Cluster, topic: TopicInfo, advice: str) -> None:
    """Wait until the brokers no longer know a deleted topic: until then a new one of its name may be refused.

    Raises RetryLater, with `advice`.
    """
    deadline = time.monotonic() + GONE_WITHIN_S
    while True:
        found, _ = await read_topics(cluster, [topic.name])
        if topic.name not in found or found[topic.name].id != topic.id:
            return
        if time.monotonic() > deadline:
            raise RetryLater(
                f"Topic '{topic.name}' was deleted, and brokers still know it after {GONE_WITHIN_S:g} s. {advice}"
            )
        await asyncio.sleep(LOOK_EVERY_S)
