"""Where share groups begin (KIP-932), as an administrator sees and sets it."""

from collections.abc import Mapping
from typing import Final

from twinlog.names import TopicPartition
from twinlog.wire import codes
from twinlog.wire.cluster import Cluster
from twinlog.wire.messages import Message
from twinlog.wire.ops_groups import PATIENCE_S, ask_coordinator
from twinlog.wire.ops_log import by_topic
from twinlog.wire.share_messages import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)

_DESCRIBE: Final[Message] = DescribeShareGroupOffsetsRequest  # their parts come from the schema at run time
_ALTER: Final[Message] = AlterShareGroupOffsetsRequest
_VERSIONS: Final = (0, 0)


async def share_start_offsets(
    cluster: Cluster, group: str, *, timeout_s: float = PATIENCE_S
) -> dict[TopicPartition, int]:
    """Return the first offset that a share group has not done with, in each partition where it has begun.

    Raises AuthorizationFailed, BrokerError (69, GROUP_ID_NOT_FOUND: there is no share group of that name), and
    UnsupportedVersion where the brokers have no share groups, or not yet in this form (before 4.1).
    """
    what = f"The start offsets of share group {group!r} could not be read on the {cluster}"
    asked = _DESCRIBE.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
    response: DescribeShareGroupOffsetsResponse = await ask_coordinator(
        cluster,
        group,
        _DESCRIBE(groups=[asked]),
        what,
        _described_codes,
        timeout_s=timeout_s,
        versions=_VERSIONS,
    )
    told = response.groups[0]
    codes.check(told.error_code, what, told.error_message)
    return {
        TopicPartition(topic.topic_name, part.partition_index): part.start_offset
        for topic in told.topics
        for part in topic.partitions
        if not part.error_code and part.start_offset >= 0
    }


def _described_codes(response: DescribeShareGroupOffsetsResponse) -> set[int]:
    told: Message = response.groups[0]
    return {told.error_code, *(part.error_code for topic in told.topics for part in topic.partitions)}


async def alter_share_start_offsets(
    cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int], *, timeout_s: float = PATIENCE_S
) -> dict[TopicPartition, int]:
    """Let a share group without members begin at these offsets; returns each partition's code.

    A group that does not exist is created. Where the whole is refused, each partition has that code: 68
    (NON_EMPTY_GROUP) for a group with members, 69 (GROUP_ID_NOT_FOUND) where a group of another kind has the name.
    Raises AuthorizationFailed, UnsupportedVersion, and after `timeout_s` what the last attempt did.
    """
    topic = _ALTER.AlterShareGroupOffsetsRequestTopic
    partition = topic.AlterShareGroupOffsetsRequestPartition
    request = _ALTER(
        group_id=group,
        topics=[
            topic(topic_name=name, partitions=[partition(partition_index=at, start_offset=to) for at, to in parts])
            for name, parts in by_topic(offsets.items())
        ],
    )
    what = f"The start offsets of share group {group!r} could not be set on the {cluster}"
    response: AlterShareGroupOffsetsResponse = await ask_coordinator(
        cluster, group, request, what, _altered_codes, timeout_s=timeout_s, versions=_VERSIONS
    )
    if response.error_code == codes.UNSUPPORTED_VERSION:
        codes.check(response.error_code, what, response.error_message)
    told = {
        TopicPartition(topic.topic_name, part.partition_index): part.error_code
        for topic in response.responses
        for part in topic.partitions
    }
    return dict.fromkeys(offsets, response.error_code) if response.error_code else told


def _altered_codes(response: AlterShareGroupOffsetsResponse) -> set[int]:
    return {response.error_code, *(part.error_code for topic in response.responses for part in topic.partitions)}
