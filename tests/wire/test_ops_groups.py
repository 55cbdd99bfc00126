"""What is asked of the coordinators of groups, and what their answers mean; the answers are made up here."""

from collections.abc import Callable
from typing import Any

import pytest
from kafka.protocol.admin import ListGroupsResponse
from kafka.protocol.consumer import OffsetFetchResponse

from twinlog.errors import AuthorizationFailed, BrokerError, RetryLater, Unreachable, UnsupportedVersion
from twinlog.names import TopicPartition
from twinlog.wire import codes
from twinlog.wire.messages import Message, api_name, decoder, is_flexible, versions
from twinlog.wire.ops_groups import GROUPS_AT_ONCE, Committed, ListedGroup, committed_at, list_groups
from twinlog.wire.ops_share import alter_share_start_offsets, share_start_offsets
from twinlog.wire.share_messages import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)

TP = TopicPartition("t", 3)
ALTERED: Any = AlterShareGroupOffsetsResponse
DESCRIBED: Any = DescribeShareGroupOffsetsResponse
NO_ID = "00000000-0000-0000-0000-000000000000"
SOON_S = 2.0


class Stub:
    """A cluster of two brokers, of which every question is answered by a function."""

    def __init__(self, answer: Callable[[Message, int], Message]) -> None:
        self.brokers = {1: None, 2: None}
        self.asked: list[tuple[int, Message]] = []
        self._answer = answer

    async def coordinator(self, _key: str, _kind: str, *, refresh: bool, timeout_s: float) -> int:
        """The second broker, once it is asked for again."""
        assert timeout_s > 0
        return 2 if refresh else 1

    async def topics(self, names: list[str], *, timeout_s: float) -> None:
        """Asked for none, only the brokers are told."""
        assert (names, timeout_s > 0) == ([], True)

    async def call(self, message: Message, *, node: int, **_bounds: object) -> Message:
        """Ask."""
        self.asked.append((node, message))
        return self._answer(message, node)

    def __str__(self) -> str:
        """As messages name it."""
        return "test cluster"


def described(start: int = 7, *, code: int = 0, part_code: int = 0) -> Message:
    """A share group that begins at `start` in one partition, and in another nowhere yet."""
    topic = DESCRIBED.DescribeShareGroupOffsetsResponseGroup.DescribeShareGroupOffsetsResponseTopic
    partition = topic.DescribeShareGroupOffsetsResponsePartition
    common = {"leader_epoch": 0, "error_message": None}
    parts = [
        partition(partition_index=3, start_offset=start, error_code=part_code, **common),
        partition(partition_index=4, start_offset=-1, error_code=0, **common),
    ]
    topics = [] if code else [topic(topic_name="t", topic_id=NO_ID, partitions=parts)]
    group = DESCRIBED.DescribeShareGroupOffsetsResponseGroup
    return DESCRIBED(
        throttle_time_ms=0, groups=[group(group_id="g", topics=topics, error_code=code, error_message="said")]
    )


def altered(code: int = 0, part_code: int = 0) -> Message:
    """An answer to a change: of the whole, or of one partition."""
    topic = ALTERED.AlterShareGroupOffsetsResponseTopic
    parts = [topic.AlterShareGroupOffsetsResponsePartition(partition_index=3, error_code=part_code, error_message=None)]
    return ALTERED(
        throttle_time_ms=0,
        error_code=code,
        error_message="said",
        responses=[] if code else [topic(topic_name="t", topic_id=NO_ID, partitions=parts)],
    )


@pytest.mark.parametrize(
    ("request_class", "answer", "key"),
    [(DescribeShareGroupOffsetsRequest, described(), 90), (AlterShareGroupOffsetsRequest, altered(), 91)],
)
def test_the_requests_for_share_groups_are_known_and_decoded_exactly(
    request_class: Any, answer: Message, key: int
) -> None:
    """Key, name, version and flexible header are Kafka's; an answer that is cut is refused."""
    assert (request_class.API_KEY, api_name(key) + "Request") == (key, request_class.__name__)
    assert versions(request_class) == (0, 0)
    assert is_flexible(key, 0)
    body = bytes(answer.encode(version=0))
    told = repr(decoder(request_class, 0)(memoryview(body)))
    assert all(field in told for field in ("partition_index=3", "error_message='said'", "='t'"))
    with pytest.raises(Exception, match=r"."):
        decoder(request_class, 0)(memoryview(body[:-1]))


async def test_a_share_group_is_told_where_it_begins_and_where_it_has_begun() -> None:
    """A coordinator that has moved is looked for again; partitions where nothing has begun are left out."""
    stub: Any = Stub(lambda _, node: described(part_code=0 if node == 2 else codes.NOT_COORDINATOR))
    assert await share_start_offsets(stub, "g", timeout_s=SOON_S) == {TP: 7}
    assert [node for node, _ in stub.asked] == [1, 2]
    stub = Stub(lambda _, node: altered(0 if node == 2 else codes.COORDINATOR_NOT_AVAILABLE))
    assert await alter_share_start_offsets(stub, "g", {TP: 9}, timeout_s=SOON_S) == {TP: 0}
    (_, sent) = stub.asked[-1]
    assert [(t.topic_name, [(p.partition_index, p.start_offset) for p in t.partitions]) for t in sent.topics] == [
        ("t", [(3, 9)])
    ]


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        (codes.GROUP_ID_NOT_FOUND, BrokerError),
        (codes.GROUP_AUTHORIZATION_FAILED, AuthorizationFailed),
        (codes.UNSUPPORTED_VERSION, UnsupportedVersion),
        (codes.COORDINATOR_LOAD_IN_PROGRESS, BrokerError),
    ],
)
async def test_what_a_share_groups_coordinator_refuses_is_raised(code: int, raised: type[Exception]) -> None:
    """By what the caller does next; one that does not come to an end within the bound, too."""
    stub: Any = Stub(lambda *_: described(code=code))
    with pytest.raises(raised, match="The start offsets of share group 'g' could not be read on the test cluster"):
        await share_start_offsets(stub, "g", timeout_s=0.2)


async def test_a_change_that_is_refused_as_a_whole_is_refused_for_each_partition() -> None:
    """But for what the caller treats in another way: a missing right, and brokers without share groups."""
    for code in (codes.NON_EMPTY_GROUP, codes.GROUP_ID_NOT_FOUND):
        stub: Any = Stub(lambda *_, code=code: altered(code))
        assert await alter_share_start_offsets(stub, "g", {TP: 9}) == {TP: code}
    stub = Stub(lambda *_: altered(codes.UNSUPPORTED_VERSION))
    with pytest.raises(UnsupportedVersion, match="could not be set on the test cluster"):
        await alter_share_start_offsets(stub, "g", {TP: 9})
    stub = Stub(lambda *_: altered(part_code=codes.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(AuthorizationFailed, match="right on the topic"):
        await alter_share_start_offsets(stub, "g", {TP: 9})


def _offsets(message: Message, node: int) -> Message:
    """Each group has committed its coordinator's number; a group named so has moved to another one."""
    kind = OffsetFetchResponse.OffsetFetchResponseGroup
    topic = kind.OffsetFetchResponseTopics
    part = topic.OffsetFetchResponsePartitions
    told = [part(partition_index=3, committed_offset=node, metadata="n", error_code=0)]
    return OffsetFetchResponse(
        groups=[
            kind(
                group_id=asked.group_id,
                topics=[topic(name="t", partitions=told)],
                error_code=codes.NOT_COORDINATOR if asked.group_id == "moved" else 0,
            )
            for asked in message.groups
        ]
    )


async def test_many_groups_are_asked_for_at_once_at_their_own_coordinators() -> None:
    """In bounded requests; those that cannot be told this way are missing, also all of a broker that is away."""
    listed = [ListedGroup(f"g{n:03}", "consumer", "Empty", "classic", 1 + n % 2) for n in range(3 * GROUPS_AT_ONCE)]
    listed += [ListedGroup("moved", "consumer", "Empty", "classic", 1), ListedGroup("lost", "consumer", "", "", 9)]
    stub: Any = Stub(_offsets)
    told = await committed_at(stub, listed)
    assert told.keys() == {one.id for one in listed} - {"moved", "lost"}
    assert all(told[one.id] == {TP: Committed(one.node, "n")} for one in listed if one.id in told)
    assert max(len(message.groups) for _, message in stub.asked) == GROUPS_AT_ONCE

    def half(message: Message, node: int) -> Message:
        if node == 1:
            raise Unreachable("The broker is away.")
        return _offsets(message, node)

    told = await committed_at(Stub(half), listed)  # type: ignore[arg-type]  # it has what is used of a cluster
    assert {one.node for one in listed if one.id in told} == {2}


async def test_each_broker_lists_its_groups_and_one_that_is_away_may_be_left_out() -> None:
    """Where the caller takes it so; not where it does not, nor where none can be asked."""
    gone = {1}

    def answer(message: Message, node: int) -> Message:
        if node in gone:
            raise Unreachable(f"Broker {node} is away.")
        told = ListGroupsResponse.ListedGroup(
            group_id=f"g{node}", protocol_type="consumer", group_state=None, group_type=",".join(message.types_filter)
        )
        return ListGroupsResponse(error_code=0, groups=[told])

    stub: Any = Stub(answer)
    away: dict[int, RetryLater] = {}
    listed = await list_groups(stub, types=["share"], away=away, timeout_s=0.2)
    assert listed == {"g2": ListedGroup("g2", "consumer", "", "share", 2)}
    assert [(node, str(error)) for node, error in away.items()] == [(1, "Broker 1 is away.")]
    with pytest.raises(Unreachable, match="Broker 1"):
        await list_groups(stub, timeout_s=0.2)
    gone.add(2)
    with pytest.raises(Unreachable, match="Broker 1"):
        await list_groups(stub, away={}, timeout_s=0.2)
    gone.clear()
    assert (await list_groups(stub, timeout_s=0.2)).keys() == {"g1", "g2"}
