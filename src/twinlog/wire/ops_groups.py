"""Consumer groups and what they have committed, as an administrator sees them."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafka.protocol.admin import ListGroupsRequest, ListGroupsResponse
from kafka.protocol.consumer import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

from twinlog.errors import BrokerError, RetryLater, TwinlogError, UnsupportedVersion
from twinlog.names import TopicPartition
from twinlog.wire import codes
from twinlog.wire.cluster import Cluster
from twinlog.wire.messages import Message
from twinlog.wire.ops_log import by_topic
from twinlog.wire.retry import Attempts

PATIENCE_S: Final = 15.0
GROUPS_AT_ONCE: Final = 50
"""Groups in one request: an answer stays below some megabytes also where each has thousands of partitions."""

_FIRST_WITH_ALL_TOPICS: Final = 2
_FIRST_WITH_GROUPS: Final = 8
_NEWEST_BY_NAME: Final = 9  # later versions name topics by id
_NO_MEMBER: Final = -1
_NOWHERE: Final = -1
_MOVED: Final = frozenset({codes.COORDINATOR_NOT_AVAILABLE, codes.NOT_COORDINATOR})
_AGAIN: Final = _MOVED | {codes.COORDINATOR_LOAD_IN_PROGRESS}


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """One group as a broker lists it; `state` and `type` are empty where the broker is too old to tell.

    `node` is the broker that lists it, its coordinator at that moment.
    """

    id: str
    protocol_type: str
    state: str
    type: str
    node: int = _NOWHERE

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


async def list_groups(
    cluster: Cluster,
    *,
    types: Sequence[str] = (),
    away: dict[int, RetryLater] | None = None,
    timeout_s: float = PATIENCE_S,
) -> dict[str, ListedGroup]:
    """Return all groups of a cluster that may be described, by id; each broker tells of those it coordinates.

    `types` asks for some types only; brokers too old to know of types (before 3.8) list all groups all the same.
    Raises BrokerError, Unreachable or ConnectionLost where a broker cannot be asked; with `away`, such brokers are put
    there with what was raised, unless none can be asked.
    """
    await cluster.topics([], timeout_s=timeout_s)  # which brokers there are now
    request = ListGroupsRequest(states_filter=[], types_filter=list(types))
    nodes = sorted(cluster.brokers)
    lost: dict[int, RetryLater] = {}

    async def listed_by(node: int) -> list[ListedGroup]:
        try:
            response: ListGroupsResponse = await _list_at(cluster, node, request, timeout_s)
        except RetryLater as error:
            lost[node] = error
            return []
        return [
            ListedGroup(told.group_id, told.protocol_type, told.group_state or "", told.group_type or "", node)
            for told in response.groups
        ]

    listed = await asyncio.gather(*map(listed_by, nodes))
    if lost and (away is None or len(lost) == len(nodes)):
        raise lost[min(lost)]
    if away is not None:
        away |= lost
    return {group.id: group for groups in listed for group in groups}


async def _list_at(cluster: Cluster, node: int, request: ListGroupsRequest, timeout_s: float) -> Message:
    attempts = Attempts(timeout_s)
    while True:
        try:
            response = await cluster.call(request, node=node, timeout_s=attempts.share_s(timeout_s))
            codes.check(response.error_code, f"The groups of broker {node} of the {cluster} could not be listed")
            return response
        except RetryLater as lost:
            reason = lost
        if not await attempts.again():
            raise reason


async def committed_at(
    cluster: Cluster, groups: Collection[ListedGroup], *, timeout_s: float = PATIENCE_S
) -> dict[str, dict[TopicPartition, Committed]]:
    """Return what listed groups have committed, asking each coordinator for many of them at once.

    A group is missing from the answer where that did not work, so that `committed_offsets` can tell why: its
    coordinator has moved or cannot be reached, a right is missing, or the broker answers for single groups only.
    """
    found: dict[str, dict[TopicPartition, Committed]] = {}
    for node in sorted({group.node for group in groups} & cluster.brokers.keys()):
        there = sorted(group.id for group in groups if group.node == node)
        for first in range(0, len(there), GROUPS_AT_ONCE):
            try:
                found |= await _committed_at(cluster, node, there[first : first + GROUPS_AT_ONCE], timeout_s)
            except (RetryLater, UnsupportedVersion):
                break  # each group is then asked for by itself, with patience
    return found


async def _committed_at(
    cluster: Cluster, node: int, groups: Sequence[str], timeout_s: float
) -> dict[str, dict[TopicPartition, Committed]]:
    asked = OffsetFetchRequest.OffsetFetchRequestGroup
    response: OffsetFetchResponse = await cluster.call(
        OffsetFetchRequest(groups=[asked(group_id=group, topics=None) for group in groups]),
        node=node,
        timeout_s=timeout_s,
        min_version=_FIRST_WITH_GROUPS,
        max_version=_NEWEST_BY_NAME,
    )
    return {told.group_id: _committed_of(told) for told in response.groups if not told.error_code}


async def committed_offsets(
    cluster: Cluster, group: str, *, timeout_s: float = PATIENCE_S
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
    what = f"The offsets of group {group!r} could not be read on the {cluster}"
    response: OffsetFetchResponse = await ask_coordinator(
        cluster,
        group,
        request,
        what,
        lambda answer: {_told_of_one(answer).error_code},
        timeout_s=timeout_s,
        versions=(_FIRST_WITH_ALL_TOPICS, _NEWEST_BY_NAME),
    )
    told = _told_of_one(response)
    codes.check(told.error_code, what)
    return _committed_of(told)


def _told_of_one(response: OffsetFetchResponse) -> Message:
    return response.groups[0] if response.groups else response


def _committed_of(told: Message) -> dict[TopicPartition, Committed]:
    return {
        TopicPartition(topic.name, part.partition_index): Committed(part.committed_offset, part.metadata or "")
        for topic in told.topics
        for part in topic.partitions
        if not part.error_code and part.committed_offset >= 0
    }


async def commit_offsets(
    cluster: Cluster, group: str, offsets: Mapping[TopicPartition, Committed], *, timeout_s: float = PATIENCE_S
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
    response: OffsetCommitResponse = await ask_coordinator(
        cluster,
        group,
        request,
        f"The offsets of group {group!r} could not be committed on the {cluster}",
        lambda answer: {part.error_code for topic in answer.topics for part in topic.partitions},
        timeout_s=timeout_s,
        versions=(0, _NEWEST_BY_NAME),
    )
    return {
        TopicPartition(told.name, part.partition_index): part.error_code
        for told in response.topics
        for part in told.partitions
    }


async def ask_coordinator(
    cluster: Cluster,
    group: str,
    request: Message,
    what: str,
    codes_of: Callable[[Message], Collection[int]],
    *,
    timeout_s: float,
    versions: tuple[int, int],
) -> Message:
    """Send to the group's coordinator until the answer is final.

    `what` begins the sentence of an error, `codes_of` reads an answer's codes, `versions` are the lowest and highest to
    use. Refused rights raise AuthorizationFailed; other codes are the caller's.
    """
    attempts = Attempts(timeout_s)
    refresh = False
    while True:
        try:
            share_s = attempts.share_s(timeout_s)
            node = await cluster.coordinator(group, "group", refresh=refresh, timeout_s=share_s)
            response = await cluster.call(
                request, node=node, timeout_s=share_s, min_version=versions[0], max_version=versions[1]
            )
            told = set(codes_of(response))
            again = told & _AGAIN
            if not again:
                for code in told & codes.AUTHORIZATION:
                    codes.check(code, what)
                return response
            code = min(again)
            name = codes.code_name(code)
            reason: TwinlogError = BrokerError(f"{what} within {timeout_s:g} s ({name}).", code=code, name=name)
        except RetryLater as lost:
            reason = lost
        refresh = True
        if not await attempts.again():
            raise reason
