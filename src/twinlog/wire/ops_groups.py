"""Consumer groups and what they have committed, as an administrator sees them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kafka.protocol.admin import ListGroupsRequest, ListGroupsResponse
from kafka.protocol.consumer import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

from twinlog.errors import BrokerError, RetryLater, TwinlogError
from twinlog.names import TopicPartition
from twinlog.wire import codes
from twinlog.wire.cluster import Cluster
from twinlog.wire.messages import Message
from twinlog.wire.ops_log import by_topic
from twinlog.wire.retry import Attempts

_PATIENCE_S: Final = 15.0
_FIRST_WITH_ALL_TOPICS: Final = 2
_NEWEST_BY_NAME: Final = 9  # later versions name topics by id
_NO_MEMBER: Final = -1
_MOVED: Final = frozenset({codes.COORDINATOR_NOT_AVAILABLE, codes.NOT_COORDINATOR})
_AGAIN: Final = _MOVED | {codes.COORDINATOR_LOAD_IN_PROGRESS}


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """One group as a broker lists it; `state` and `type` are empty where the broker is too old to tell."""

    id: str
    protocol_type: str
    state: str
    type: str

    @property
    def kind(self) -> str:
        """`consumer` (of either protocol), `share`, `streams`, or what else the group calls itself."""
        kind = self.type.lower()
        return (self.protocol_type or "consumer") if kind in {"", "classic", "consumer"} else kind


@dataclass(frozen=True, slots=True)
class Committed:
    """What a group has committed for one partition: the next offset it reads, and its own note."""

    offset: int
    metadata: str = ""


async def list_groups(cluster: Cluster, *, timeout_s: float = _PATIENCE_S) -> dict[str, ListedGroup]:
    """Return all groups of a cluster that may be described, by id; each broker tells of those it coordinates.

    Raises BrokerError, Unreachable or ConnectionLost where a broker cannot be asked.
    """
    found: dict[str, ListedGroup] = {}
    for node in sorted(cluster.brokers):
        response: ListGroupsResponse = await _list_at(cluster, node, timeout_s)
        for told in response.groups:
            state, kind = told.group_state or "", told.group_type or ""
            found[told.group_id] = ListedGroup(told.group_id, told.protocol_type, state, kind)
    return found


async def _list_at(cluster: Cluster, node: int, timeout_s: float) -> Message:
    attempts = Attempts(timeout_s)
    while True:
        try:
            response = await cluster.call(
                ListGroupsRequest(states_filter=[], types_filter=[]), node=node, timeout_s=attempts.share_s(timeout_s)
            )
            codes.check(response.error_code, f"The groups of broker {node} of the {cluster} could not be listed")
            return response
        except RetryLater as lost:
            reason = lost
        if not await attempts.again():
            raise reason


async def committed_offsets(
    cluster: Cluster, group: str, *, timeout_s: float = _PATIENCE_S
) -> dict[TopicPartition, Committed]:
    """Return all that a group has committed; nothing for a group that does not exist.

    A partition whose offset is about to be decided by a transaction has the one before it. Raises AuthorizationFailed,
    BrokerError (69, GROUP_ID_NOT_FOUND: a share group has that name).
    """
    request = OffsetFetchRequest(
        group_id=group,
        topics=None,
        groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)],
    )
    response: OffsetFetchResponse = await _ask(
        cluster,
        group,
        request,
        f"The offsets of group {group!r} could not be read on the {cluster}",
        timeout_s=timeout_s,
        min_version=_FIRST_WITH_ALL_TOPICS,
    )
    told = response.groups[0] if response.groups else response
    return {
        TopicPartition(topic.name, part.partition_index): Committed(part.committed_offset, part.metadata or "")
        for topic in told.topics
        for part in topic.partitions
        if not part.error_code and part.committed_offset >= 0
    }


async def commit_offsets(
    cluster: Cluster, group: str, offsets: Mapping[TopicPartition, Committed], *, timeout_s: float = _PATIENCE_S
) -> dict[TopicPartition, int]:
    """Commit for a group without members, without a leader epoch; returns each partition's code.

    25 (UNKNOWN_MEMBER_ID) means that the group has members, 69 (GROUP_ID_NOT_FOUND) that a group of another kind has
    the name. A commit twice does no harm. Raises AuthorizationFailed, and after `timeout_s` what the last attempt did.
    """
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=_NO_MEMBER,
        member_id="",
        topics=[
            topic(
                name=name,
                partitions=[
                    topic.OffsetCommitRequestPartition(
                        partition_index=number, committed_offset=one.offset, committed_metadata=one.metadata
                    )
                    for number, one in partitions
                ],
            )
            for name, partitions in by_topic(offsets.items())
        ],
    )
    response: OffsetCommitResponse = await _ask(
        cluster,
        group,
        request,
        f"The offsets of group {group!r} could not be committed on the {cluster}",
        timeout_s=timeout_s,
    )
    return {
        TopicPartition(told.name, part.partition_index): part.error_code
        for told in response.topics
        for part in told.partitions
    }


async def _ask(
    cluster: Cluster, group: str, request: Message, what: str, *, timeout_s: float, min_version: int = 0
) -> Message:
    """Send to the group's coordinator until the answer is final; refused rights raise, other codes are the caller's."""
    attempts = Attempts(timeout_s)
    refresh = False
    while True:
        try:
            share_s = attempts.share_s(timeout_s)
            node = await cluster.coordinator(group, "group", refresh=refresh, timeout_s=share_s)
            response = await cluster.call(
                request, node=node, timeout_s=share_s, min_version=min_version, max_version=_NEWEST_BY_NAME
            )
            told = _codes_of(response)
            again = told & _AGAIN
            if not again:
                for code in told & codes.AUTHORIZATION:
                    codes.check(code, what)
                if isinstance(response, OffsetFetchResponse):
                    codes.check(_group_code(response), what)
                return response
            code = min(again)
            name = codes.code_name(code)
            reason: TwinlogError = BrokerError(f"{what} within {timeout_s:g} s ({name}).", code=code, name=name)
        except RetryLater as lost:
            reason = lost
        refresh = True
        if not await attempts.again():
            raise reason


def _group_code(response: Message) -> int:
    told: int = (response.groups[0] if response.groups else response).error_code
    return told


def _codes_of(response: Message) -> set[int]:
    if isinstance(response, OffsetFetchResponse):
        return {_group_code(response)}
    return {part.error_code for topic in response.topics for part in topic.partitions}
