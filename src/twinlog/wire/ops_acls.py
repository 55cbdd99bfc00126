"""ACLs as an administrator reads, makes and deletes them; what became of each entry is a value.

All three may be sent again: an ACL that is there is not made twice, one that is gone is not missed.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from kafka.protocol.admin import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from twinlog.config.acls import Acl
from twinlog.errors import AuthorizationFailed, BrokerError, RetryLater, TwinlogError
from twinlog.wire import codes
from twinlog.wire.admin_calls import ADMIN_LANE
from twinlog.wire.cluster import Cluster
from twinlog.wire.messages import Message
from twinlog.wire.metadata import NO_ID
from twinlog.wire.ops_admin import OPERATIONS
from twinlog.wire.retry import ANSWER_SLACK_S, Attempts

AT_ONCE: Final = 500
"""Entries in one request: a controller writes them in one batch of its own log, which has a limit (10,000 records)."""

_PATIENCE_S: Final = 15.0
_ANY: Final = 1
# `org.apache.kafka.common.resource.ResourceType`, `PatternType`, `acl.AclOperation`, `acl.AclPermissionType`.
_TYPES: Final = {2: "TOPIC", 3: "GROUP", 4: "CLUSTER", 5: "TRANSACTIONAL_ID", 6: "DELEGATION_TOKEN", 7: "USER"}
_PATTERNS: Final = {3: "LITERAL", 4: "PREFIXED"}
_OPERATIONS: Final = {2: "ALL", **OPERATIONS}
_AGAIN: Final = frozenset({codes.NOT_CONTROLLER, codes.REQUEST_TIMED_OUT})
_PERMISSIONS: Final = {2: "DENY", 3: "ALLOW"}


async def describe_acls(cluster: Cluster, *, timeout_s: float = _PATIENCE_S) -> frozenset[Acl] | None:
    """Return all ACLs of a cluster; None where it has no authorizer, so that nobody's rights are checked.

    What only a newer Kafka knows is named `UNKNOWN_` with its number. Raises AuthorizationFailed without DESCRIBE on
    CLUSTER, UnsupportedVersion before Kafka 2.0.
    """
    request = DescribeAclsRequest(
        resource_type_filter=_ANY,
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
    )
    what = f"The ACLs of the {cluster} could not be read"
    response: DescribeAclsResponse = await _ask(cluster, request, what, controller=False, timeout_s=timeout_s)
    if response.error_code == codes.SECURITY_DISABLED:
        return None
    _check(response.error_code, what, response.error_message, "DESCRIBE")
    return frozenset(
        Acl(
            _named(_TYPES, resource.resource_type),
            resource.resource_name,
            _named(_PATTERNS, resource.pattern_type),
            acl.principal,
            acl.host,
            _named(_OPERATIONS, acl.operation),
            _named(_PERMISSIONS, acl.permission_type),
        )
        for resource in response.resources
        for acl in resource.acls
    )


async def topic_rights(
    cluster: Cluster, topics: Collection[str], *, timeout_s: float = _PATIENCE_S
) -> dict[str, frozenset[str]]:
    """Return what this client may do on each topic, e.g. READ, WRITE; nothing for one that it may not describe.

    Without a word of those for which the brokers do not tell: they are too old (before 2.3).
    """
    asked = MetadataRequest.MetadataRequestTopic
    request = MetadataRequest(
        topics=[asked(topic_id=NO_ID, name=name) for name in sorted(topics)],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    what = f"The rights on topics of the {cluster} could not be read"
    response: MetadataResponse = await _ask(cluster, request, what, controller=False, timeout_s=timeout_s)
    rights = {told.name or "": _operations(told.authorized_operations) for told in response.topics}
    hidden = {told.name for told in response.topics if told.error_code == codes.TOPIC_AUTHORIZATION_FAILED}
    return {name: some for name, some in rights.items() if some or name in hidden}


async def create_acls(
    cluster: Cluster, acls: Collection[Acl], *, timeout_s: float = _PATIENCE_S
) -> dict[Acl, TwinlogError]:
    """Make ACLs; returns those that were refused, with the reason.

    Raises AuthorizationFailed without ALTER on CLUSTER, UnsupportedVersion before Kafka 2.0, BrokerError 54
    (SECURITY_DISABLED) where there is no authorizer.
    """
    kind, failed = CreateAclsRequest.AclCreation, dict[Acl, TwinlogError]()
    for some in _slices(acls):
        entries = [
            kind(
                resource_type=_number(_TYPES, acl.resource_type),
                resource_name=acl.name,
                resource_pattern_type=_number(_PATTERNS, acl.pattern),
                principal=acl.principal,
                host=acl.host,
                operation=_number(_OPERATIONS, acl.operation),
                permission_type=_number(_PERMISSIONS, acl.permission),
            )
            for acl in some
        ]
        what = f"ACLs could not be made on the {cluster}"
        response: CreateAclsResponse = await _ask(
            cluster, CreateAclsRequest(creations=entries), what, controller=True, timeout_s=timeout_s
        )
        told = zip(some, response.results, strict=True)
        failed |= _refused(((acl, one.error_code, one.error_message) for acl, one in told), "made", cluster)
    return failed


async def delete_acls(
    cluster: Cluster, acls: Collection[Acl], *, timeout_s: float = _PATIENCE_S
) -> dict[Acl, TwinlogError]:
    """Delete exactly these ACLs; returns those that could not be deleted, with the reason. Raises as `create_acls`."""
    kind, failed = DeleteAclsRequest.DeleteAclsFilter, dict[Acl, TwinlogError]()
    for some in _slices(acls):
        filters = [
            kind(
                resource_type_filter=_number(_TYPES, acl.resource_type),
                resource_name_filter=acl.name,
                pattern_type_filter=_number(_PATTERNS, acl.pattern),
                principal_filter=acl.principal,
                host_filter=acl.host,
                operation=_number(_OPERATIONS, acl.operation),
                permission_type=_number(_PERMISSIONS, acl.permission),
            )
            for acl in some
        ]
        what = f"ACLs could not be deleted on the {cluster}"
        response: DeleteAclsResponse = await _ask(
            cluster, DeleteAclsRequest(filters=filters), what, controller=True, timeout_s=timeout_s
        )
        told = ((acl, *_worst(one)) for acl, one in zip(some, response.filter_results, strict=True))
        failed |= _refused(told, "deleted", cluster)
    return failed


def _worst(told: Message) -> tuple[int, str | None]:
    """The filter's own code, or that of the ACL that it matched."""
    for one in (told, *told.matching_acls):
        if one.error_code:
            return one.error_code, one.error_message
    return codes.NONE, None


def _refused(told: Iterable[tuple[Acl, int, str | None]], verb: str, cluster: Cluster) -> dict[Acl, TwinlogError]:
    """The entries that failed; one that all entries share, such as a missing right, is raised."""
    failed: dict[Acl, TwinlogError] = {}
    for acl, code, message in told:
        try:
            _check(code, f"The ACL '{acl}' could not be {verb} on the {cluster}", message, "ALTER")
        except AuthorizationFailed:
            raise
        except TwinlogError as error:
            failed[acl] = error
    return failed


async def _ask(cluster: Cluster, request: Message, what: str, *, controller: bool, timeout_s: float) -> Message:
    """Send until the answer is final; what changes something is for the controller (KRaft: any broker forwards)."""
    attempts = Attempts(timeout_s)
    while True:
        try:
            response = await cluster.call(
                request,
                node=Cluster.CONTROLLER if controller else None,
                timeout_s=attempts.share_s(timeout_s) + ANSWER_SLACK_S,
                lane=ADMIN_LANE,
            )
            again = _codes_of(response) & _AGAIN
            if not again:
                return response
            code = min(again)
            name = codes.code_name(code)
            reason: TwinlogError = BrokerError(f"{what} within {timeout_s:g} s ({name}).", code=code, name=name)
        except RetryLater as lost:
            reason = lost
        if not await attempts.again():
            raise reason
        if controller:
            await cluster.topics([], timeout_s=attempts.share_s(timeout_s))


def _codes_of(response: Message) -> set[int]:
    found = {getattr(response, "error_code", codes.NONE)}
    for name in ("results", "filter_results"):
        found |= {entry.error_code for entry in getattr(response, name, None) or ()}
    return found


def _check(code: int, what: str, detail: str | None, right: str) -> None:
    if code == codes.CLUSTER_AUTHORIZATION_FAILED:
        raise AuthorizationFailed(f"{what} (CLUSTER_AUTHORIZATION_FAILED, error {code}). Grant {right} on CLUSTER.")
    codes.check(code, what, detail)


def _slices(acls: Collection[Acl]) -> Sequence[Sequence[Acl]]:
    ordered = sorted(acls)
    return [ordered[start : start + AT_ONCE] for start in range(0, len(ordered), AT_ONCE)]


def _operations(bits: Collection[int] | None) -> frozenset[str]:
    """None: not told, as of a topic that may not be described."""
    return frozenset(name for code, name in _OPERATIONS.items() if code in (bits or ()))


def _named(names: Mapping[int, str], number: int) -> str:
    return names.get(number, f"UNKNOWN_{number}")


def _number(names: Mapping[int, str], name: str) -> int:
    return next(number for number, known in names.items() if known == name)
