"""ACLs as an administrator reads, makes and deletes them; what became of each entry is a value.

All three may be sent again: an ACL that is there is not made twice, one that is gone is not missed.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

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
from twinlog.errors import AuthorizationFailed, BrokerError, TwinlogError
from twinlog.wire import codes
from twinlog.wire.admin_calls import ADMIN_LANE, PATIENCE_S, ask, ask_controller, codes_of
from twinlog.wire.cluster import Cluster
from twinlog.wire.messages import Message
from twinlog.wire.metadata import NO_ID
from twinlog.wire.ops_admin import OPERATIONS

AT_ONCE: Final = 500
"""Entries in one request: a controller writes them in one batch of its own log, which has a limit (10,000 records)."""

_ANY: Final = 1
# `org.apache.kafka.common.resource.ResourceType`, `PatternType`, `acl.AclOperation`, `acl.AclPermissionType`.
_TYPES: Final = {2: "TOPIC", 3: "GROUP", 4: "CLUSTER", 5: "TRANSACTIONAL_ID", 6: "DELEGATION_TOKEN", 7: "USER"}
_PATTERNS: Final = {3: "LITERAL", 4: "PREFIXED"}
_OPERATIONS: Final = {2: "ALL", **OPERATIONS}
_AGAIN: Final = frozenset({codes.NOT_CONTROLLER, codes.REQUEST_TIMED_OUT})
_PERMISSIONS: Final = {2: "DENY", 3: "ALLOW"}


async def describe_acls(
    cluster: Cluster, *, node: int | None = None, timeout_s: float = PATIENCE_S
) -> frozenset[Acl] | None:
    """Return all ACLs of a cluster; None where it has no authorizer, so that nobody's rights are checked.

    `node`: the broker that is asked; each learns of a change by itself. What only a newer Kafka knows is named
    `UNKNOWN_` with its number. Raises AuthorizationFailed without DESCRIBE on CLUSTER, UnsupportedVersion before
    Kafka 2.0.
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
    response: DescribeAclsResponse = await ask(cluster, request, node=node, timeout_s=timeout_s, lane=ADMIN_LANE)
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
    cluster: Cluster, topics: Collection[str], *, node: int | None = None, timeout_s: float = PATIENCE_S
) -> dict[str, frozenset[str]]:
    """Return what this client may do on each topic, e.g. READ, WRITE; nothing for one that it may not describe.

    `node`: the broker that is asked; each goes by its own settings. A topic need not exist. Without a word of those for
    which the brokers do not tell: they are too old (before 2.3).
    """
    asked = MetadataRequest.MetadataRequestTopic
    request = MetadataRequest(
        topics=[asked(topic_id=NO_ID, name=name) for name in sorted(topics)],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    response: MetadataResponse = await ask(cluster, request, node=node, timeout_s=timeout_s, lane=ADMIN_LANE)
    rights = {told.name or "": _operations(told.authorized_operations) for told in response.topics}
    hidden = {told.name for told in response.topics if told.error_code == codes.TOPIC_AUTHORIZATION_FAILED}
    return {name: some for name, some in rights.items() if some or name in hidden}


async def create_acls(
    cluster: Cluster, acls: Collection[Acl], *, timeout_s: float = PATIENCE_S
) -> dict[Acl, TwinlogError]:
    """Make ACLs; returns those that were refused, with the reason.

    Raises AuthorizationFailed without ALTER on CLUSTER, UnsupportedVersion before Kafka 2.0, BrokerError 54
    (SECURITY_DISABLED) where there is no authorizer.
    """
    kind, failed = CreateAclsRequest.AclCreation, dict[Acl, TwinlogError]()
    what = f"ACLs could not be made on the {cluster}"
    for some in _slices(acls):
        request = CreateAclsRequest(creations=[kind(**_fields(acl)) for acl in some])
        response: CreateAclsResponse = await _change(cluster, request, what, timeout_s)
        told = zip(some, response.results, strict=True)
        failed |= _refused(((acl, one.error_code, one.error_message) for acl, one in told), "made", cluster)
    return failed


async def delete_acls(
    cluster: Cluster, acls: Collection[Acl], *, timeout_s: float = PATIENCE_S
) -> dict[Acl, TwinlogError]:
    """Delete exactly these ACLs; returns those that could not be deleted, with the reason. Raises as `create_acls`."""
    kind, failed = DeleteAclsRequest.DeleteAclsFilter, dict[Acl, TwinlogError]()
    what = f"ACLs could not be deleted on the {cluster}"
    for some in _slices(acls):
        request = DeleteAclsRequest(filters=[kind(**_fields(acl, "_filter")) for acl in some])
        response: DeleteAclsResponse = await _change(cluster, request, what, timeout_s)
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


async def _change(cluster: Cluster, request: Message, what: str, timeout_s: float) -> Message:
    """Send to the controller until the answer is final."""
    response = await ask_controller(cluster, request, timeout_s=timeout_s, again=_AGAIN, harmless=True)
    unsettled = codes_of(response) & _AGAIN
    if unsettled:
        name = codes.code_name(code := min(unsettled))
        raise BrokerError(f"{what} within {timeout_s:g} s ({name}).", code=code, name=name)
    return response


def _fields(acl: Acl, suffix: str = "") -> dict[str, Any]:
    """An ACL in the names of an entry, or with `_filter` behind them those of a filter that matches it alone."""
    pattern = f"pattern_type{suffix}" if suffix else "resource_pattern_type"
    return {
        f"resource_type{suffix}": _number(_TYPES, acl.resource_type),
        f"resource_name{suffix}": acl.name,
        pattern: _number(_PATTERNS, acl.pattern),
        f"principal{suffix}": acl.principal,
        f"host{suffix}": acl.host,
        "operation": _number(_OPERATIONS, acl.operation),
        "permission_type": _number(_PERMISSIONS, acl.permission),
    }


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
