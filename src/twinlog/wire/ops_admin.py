"""Topics and rights: what an administrator asks for, each refusal with the broker's own words."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from kafka.protocol.admin import (
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ACLResourceType,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
)
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from twinlog.errors import (
    UnsupportedVersion,
)
from twinlog.names import TopicPartition
from twinlog.wire import codes
from twinlog.wire.admin_calls import PATIENCE_S, ask, ask_controller, check
from twinlog.wire.cluster import Cluster
from twinlog.wire.metadata import told_id
from twinlog.wire.ops_log import by_topic

MARKER_RIGHTS: Final = frozenset({"ALTER", "CLUSTER_ACTION", "ALL"})
"""Any of these on the cluster lets a client write markers (`KafkaApis.handleWriteTxnMarkersRequest`)."""

BROKER_DEFAULT: Final = -1

OPERATIONS: Final = {
    3: "READ",
    4: "WRITE",
    5: "CREATE",
    6: "DELETE",
    7: "ALTER",
    8: "DESCRIBE",
    9: "CLUSTER_ACTION",
    10: "DESCRIBE_CONFIGS",
    11: "ALTER_CONFIGS",
    12: "IDEMPOTENT_WRITE",
    13: "CREATE_TOKENS",
    14: "DESCRIBE_TOKENS",
    15: "TWO_PHASE_COMMIT",
}
"""What a client may be allowed, by its code in `org.apache.kafka.common.acl.AclOperation`."""
_NEWEST_METADATA_WITH_RIGHTS: Final = 10
_FIRST_METADATA_WITH_RIGHTS: Final = 8
_NEWEST_DELETE_BY_NAME: Final = 5
_FIRST_WITH_DEFAULTS: Final = 4  # KIP-464: -1 for the broker's own numbers


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic as created; `id` is zero, the numbers -1, where the broker is too old to tell."""

    name: str
    id: UUID
    partitions: int
    replication_factor: int


async def create_topic(
    cluster: Cluster,
    name: str,
    *,
    partitions: int = BROKER_DEFAULT,
    replication_factor: int = BROKER_DEFAULT,
    configs: Mapping[str, str] | None = None,
    validate_only: bool = False,
    timeout_s: float = 30.0,
) -> CreatedTopic:
    """Create a topic, or with `validate_only` ask whether it could be created.

    Raises TopicAlreadyExists, InvalidReplicationFactor, InvalidConfig, InvalidRequest (name, counts, the cluster's own
    policy), AuthorizationFailed; BrokerError 7 (REQUEST_TIMED_OUT) when it may appear yet; ConnectionLost.
    """
    (told,) = await _created(
        cluster,
        {name: (partitions, configs or {})},
        replication_factor=replication_factor,
        validate_only=validate_only,
        timeout_s=timeout_s,
    )
    what = f"Topic {name!r} could not be created on the {cluster}"
    check(told.error_code, what, told.error_message, right=f"CREATE on TOPIC {name}, or on CLUSTER")
    return CreatedTopic(name, told_id(told.topic_id), told.num_partitions, told.replication_factor)


async def create_topics(
    cluster: Cluster,
    wanted: Mapping[str, tuple[int, Mapping[str, str]]],
    *,
    replication_factor: int = BROKER_DEFAULT,
    timeout_s: float = 30.0,
) -> dict[str, CreatedTopic]:
    """Create topics, each given by its name, partitions and configs, by one request; returns those that were created.

    A controller takes about as long for many as for one. Why another could not be created is left for `create_topic` to
    tell. Raises as that does where the request as a whole has failed; some may have been created then.
    """
    answers = await _created(cluster, wanted, replication_factor=replication_factor, timeout_s=timeout_s)
    return {
        told.name: CreatedTopic(told.name, told_id(told.topic_id), told.num_partitions, told.replication_factor)
        for told in answers
        if not told.error_code
    }


async def _created(
    cluster: Cluster,
    wanted: Mapping[str, tuple[int, Mapping[str, str]]],
    *,
    replication_factor: int,
    timeout_s: float,
    validate_only: bool = False,
) -> "Sequence[CreateTopicsResponse.CreatableTopicResult]":
    """Ask for topics, each given by its name, partitions and configs, by one request; returns what became of each."""
    kind = CreateTopicsRequest.CreatableTopic
    topics = [
        kind(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            assignments=[],
            configs=[kind.CreatableTopicConfig(name=k, value=v) for k, v in configs.items()],
        )
        for name, (partitions, configs) in wanted.items()
    ]
    request = CreateTopicsRequest(topics=topics, timeout_ms=int(timeout_s * 1000), validate_only=validate_only)
    asks_defaults = BROKER_DEFAULT in (replication_factor, *(partitions for partitions, _ in wanted.values()))
    response: CreateTopicsResponse = await ask_controller(
        cluster, request, timeout_s=timeout_s, min_version=_FIRST_WITH_DEFAULTS if asks_defaults else 0
    )
    return response.topics


async def create_partitions(
    cluster: Cluster, topic: str, count: int, *, validate_only: bool = False, timeout_s: float = 30.0
) -> None:
    """Raise a topic's number of partitions to `count`. Raises as `create_topic` does."""
    entry = CreatePartitionsRequest.CreatePartitionsTopic(name=topic, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=[entry], timeout_ms=int(timeout_s * 1000), validate_only=validate_only)
    response: CreatePartitionsResponse = await ask_controller(cluster, request, timeout_s=timeout_s)
    told = response.results[0]
    what = f"Topic {topic!r} could not be given {count} partitions on the {cluster}"
    check(told.error_code, what, told.error_message, right=f"ALTER on TOPIC {topic}")


async def delete_topics(cluster: Cluster, names: Collection[str], *, timeout_s: float = 30.0) -> None:
    """Delete topics. Raises for the first that could not be deleted: UnknownTopicOrPartition, AuthorizationFailed."""
    request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=int(timeout_s * 1000))
    response: DeleteTopicsResponse = await ask_controller(
        cluster, request, timeout_s=timeout_s, max_version=_NEWEST_DELETE_BY_NAME
    )
    for told in response.responses:
        check(told.error_code, f"Topic {told.name!r} could not be deleted on the {cluster}", told.error_message)


async def elect_leaders(
    cluster: Cluster, partitions: Collection[TopicPartition], *, unclean: bool = False, timeout_s: float = 30.0
) -> dict[TopicPartition, int]:
    """Give partitions their preferred leader (or, `unclean`, any live replica); returns each one's code.

    84 (ELECTION_NOT_NEEDED) means that it leads already.
    """
    topics = [
        ElectLeadersRequest.TopicPartitions(topic=name, partitions=[number for number, _ in numbers])
        for name, numbers in by_topic((tp, None) for tp in partitions)
    ]
    request = ElectLeadersRequest(election_type=int(unclean), topic_partitions=topics, timeout_ms=int(timeout_s * 1000))
    response: ElectLeadersResponse = await ask_controller(cluster, request, timeout_s=timeout_s)
    check(response.error_code, f"No leader could be elected on the {cluster}", None)
    return {
        TopicPartition(topic.topic, part.partition_id): part.error_code
        for topic in response.replica_election_results
        for part in topic.partition_result
    }


async def cluster_rights(cluster: Cluster, *, timeout_s: float = PATIENCE_S) -> frozenset[str] | None:
    """Return the operations that this client may do on the cluster resource, e.g. ALTER, CLUSTER_ACTION.

    Everything, where the broker has no authorizer. None where it does not tell: it is too old (before 2.3), or this
    client lacks DESCRIBE on the cluster (`AuthHelper.computeDescribeClusterResponse` then answers 0).
    """
    try:
        response: DescribeClusterResponse = await ask(
            cluster,
            DescribeClusterRequest(include_cluster_authorized_operations=True),
            node=None,
            timeout_s=timeout_s,
            max_version=0,
        )
        codes.check(response.error_code, f"The {cluster} could not be described", response.error_message)
        return _operations(response.authorized_operations)
    except UnsupportedVersion:
        return await _rights_by_metadata(cluster, timeout_s)


async def has_authorizer(cluster: Cluster, *, timeout_s: float = PATIENCE_S) -> bool:
    """Say whether the brokers check anybody's rights at all (`KafkaApis.handleDescribeAcls` answers 54 if not)."""
    response: DescribeAclsResponse = await ask(
        cluster,
        DescribeAclsRequest(
            resource_type_filter=ACLResourceType.CLUSTER,
            resource_name_filter=None,
            pattern_type_filter=ACLResourcePatternType.ANY,
            principal_filter=None,
            host_filter=None,
            operation=ACLOperation.ANY,
            permission_type=ACLPermissionType.ANY,
        ),
        node=None,
        timeout_s=timeout_s,
    )
    return bool(response.error_code != codes.SECURITY_DISABLED)


async def _rights_by_metadata(cluster: Cluster, timeout_s: float) -> frozenset[str] | None:
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False, include_cluster_authorized_operations=True)
    try:
        response: MetadataResponse = await ask(
            cluster,
            request,
            node=None,
            timeout_s=timeout_s,
            min_version=_FIRST_METADATA_WITH_RIGHTS,
            max_version=_NEWEST_METADATA_WITH_RIGHTS,
        )
    except UnsupportedVersion:
        return None
    return _operations(response.authorized_operations)


def _operations(told: Collection[int]) -> frozenset[str] | None:
    named = frozenset(name for code, name in OPERATIONS.items() if code in told)
    return named or None  # nothing: not allowed to know; bit 31 alone: not told
