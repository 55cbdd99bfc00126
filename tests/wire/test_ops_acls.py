"""ACLs on the wire: names, slices of many entries, answers that are asked for again; the cluster is played."""

from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.admin import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)

from twinlog.config import acls as config
from twinlog.config.acls import LITERAL, Acl
from twinlog.errors import AuthorizationFailed, BrokerError, Unreachable
from twinlog.wire import codes
from twinlog.wire import ops_acls as module
from twinlog.wire.ops_acls import AT_ONCE, create_acls, delete_acls, describe_acls, topic_rights

READ = Acl("TOPIC", "t", LITERAL, "User:app", "*", "READ", "ALLOW")


class _Cluster:
    """Answers one by one; an exception is raised."""

    request_timeout_s = 30.0

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[Any] = []
        self.looked = 0

    async def call(self, message: Any, **_: Any) -> Any:
        """Give the next answer."""
        self.asked.append(message)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def topics(self, *_: Any, **__: Any) -> None:
        """Metadata is looked up again."""
        self.looked += 1

    def __str__(self) -> str:
        return "destination"


def made(*results: int) -> CreateAclsResponse:
    """What became of each entry."""
    kind = CreateAclsResponse.AclCreationResult
    entries = [kind(error_code=code, error_message=None) for code in results]
    return CreateAclsResponse(throttle_time_ms=0, results=entries)


def test_the_filter_and_the_wire_know_the_same_words() -> None:
    """A rule for a word that is never read would be a rule for nothing."""
    assert set(module._TYPES.values()) == set(config.RESOURCE_TYPES)
    assert set(module._OPERATIONS.values()) == set(config.OPERATIONS)
    assert set(module._PERMISSIONS.values()) == set(config.PERMISSIONS)
    assert set(module._PATTERNS.values()) == {config.LITERAL, config.PREFIXED}


async def test_what_a_newer_kafka_knows_has_its_number_for_a_name() -> None:
    """Nothing is mistaken for something else."""
    kind = DescribeAclsResponse.DescribeAclsResource
    entry = kind.AclDescription(principal="User:app", host="*", operation=99, permission_type=3)
    resource = kind(resource_type=98, resource_name="x", pattern_type=3, acls=[entry])
    told = DescribeAclsResponse(throttle_time_ms=0, error_code=0, error_message=None, resources=[resource])
    cluster: Any = _Cluster(told)
    assert await describe_acls(cluster) == {
        Acl("UNKNOWN_98", "x", LITERAL, "User:app", "*", "UNKNOWN_99", "ALLOW"),
    }
    assert isinstance(cluster.asked[0], DescribeAclsRequest)


async def test_many_are_made_in_several_requests() -> None:
    """A controller's batch has a limit."""
    many = [Acl("TOPIC", f"t{number:04}", LITERAL, "User:app", "*", "READ", "ALLOW") for number in range(AT_ONCE + 1)]
    cluster: Any = _Cluster(made(*[0] * AT_ONCE), made(42))
    failed = await create_acls(cluster, many)
    assert [len(asked.creations) for asked in cluster.asked] == [AT_ONCE, 1]
    assert list(failed) == [many[-1]]
    assert isinstance(cluster.asked[0], CreateAclsRequest)


async def test_a_controller_that_moved_is_looked_up_and_asked_again() -> None:
    """As is one that cannot be reached; both changes may be sent twice."""
    cluster: Any = _Cluster(made(codes.NOT_CONTROLLER), Unreachable("gone"), made(0))
    assert await create_acls(cluster, [READ]) == {}
    assert cluster.looked == 2


async def test_the_last_answer_is_raised_when_time_is_over() -> None:
    """With its name, and what was asked for."""
    cluster: Any = _Cluster(made(codes.NOT_CONTROLLER))
    with pytest.raises(BrokerError, match=r"ACLs could not be made on the destination within 0 s \(NOT_CONTROLLER\)"):
        await create_acls(cluster, [READ], timeout_s=0)


async def test_a_filter_tells_of_what_it_matched() -> None:
    """An ACL that was found and could not be deleted is not deleted; a missing right is raised."""
    kind = DeleteAclsResponse.DeleteAclsFilterResult
    matched = SimpleNamespace(error_code=-1, error_message="disk")
    result = SimpleNamespace(error_code=0, error_message=None, matching_acls=[matched])
    cluster: Any = _Cluster(SimpleNamespace(filter_results=[result]))
    failed = await delete_acls(cluster, [READ])
    assert "disk" in str(failed[READ])
    refused = kind(error_code=codes.CLUSTER_AUTHORIZATION_FAILED, error_message=None, matching_acls=[])
    cluster = _Cluster(DeleteAclsResponse(throttle_time_ms=0, filter_results=[refused]))
    with pytest.raises(AuthorizationFailed, match="Grant ALTER on CLUSTER"):
        await delete_acls(cluster, [READ])


async def test_rights_on_topics_are_told_apart_from_not_being_told() -> None:
    """A topic that may not be described has none; of one that is too old to tell, or unknown, nothing is said."""
    seen = SimpleNamespace(name="seen", error_code=0, authorized_operations={3, 4, 8})
    hidden = SimpleNamespace(name="hidden", error_code=codes.TOPIC_AUTHORIZATION_FAILED, authorized_operations=None)
    unknown = SimpleNamespace(name="unknown", error_code=3, authorized_operations=None)
    cluster: Any = _Cluster(SimpleNamespace(error_code=0, topics=[seen, hidden, unknown]))
    rights = await topic_rights(cluster, ["unknown", "seen", "hidden"])
    assert rights == {"seen": frozenset({"READ", "WRITE", "DESCRIBE"}), "hidden": frozenset()}
    assert [topic.name for topic in cluster.asked[0].topics] == ["hidden", "seen", "unknown"]
