"""Topics, configs and rights: what an administrator asks for, each refusal with the broker's own words.

Reads are asked again while their broker cannot be reached; what changes the cluster is sent once, except that a
controller that moved (41) is looked up and asked again: it had done nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal
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
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from twinlog.errors import (
    BadInput,
    InvalidConfig,
    InvalidReplicationFactor,
    InvalidRequest,
    RetryLater,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
    Unreachable,
    UnsupportedVersion,
)
from twinlog.names import TopicPartition
from twinlog.wire import codes
from twinlog.wire.cluster import Cluster
from twinlog.wire.messages import Message
from twinlog.wire.metadata import told_id
from twinlog.wire.ops_log import by_topic
from twinlog.wire.retry import ANSWER_SLACK_S, Attempts

MARKER_RIGHTS: Final = frozenset({"ALTER", "CLUSTER_ACTION", "ALL"})
"""Any of these on the cluster lets a client write markers (`KafkaApis.handleWriteTxnMarkersRequest`)."""

ADMIN_LANE: Final = "admin"  # the controller takes its time, and a lane waits behind each request
BROKER_DEFAULT: Final = -1

ConfigKind = Literal["topic", "broker", "group"]
_RESOURCE_TYPES: Final[dict[ConfigKind, int]] = {"topic": 2, "broker": 4, "group": 32}
_SET, _DELETE = 0, 1
_DYNAMIC_TOPIC: Final = 1
_DEFAULT_SOURCE: Final = 5
_SOURCES: Final = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
# `org.apache.kafka.common.acl.AclOperation`, by the bit of its code.
_OPERATIONS: Final = {
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
_NEWEST_METADATA_WITH_RIGHTS: Final = 10
_FIRST_METADATA_WITH_RIGHTS: Final = 8
_NEWEST_DELETE_BY_NAME: Final = 5
_FIRST_WITH_SOURCE: Final = 1
_FIRST_WITH_DEFAULTS: Final = 4  # KIP-464: -1 for the broker's own numbers
_PATIENCE_S: Final = 15.0
_KNOWN_EVERYWHERE_S: Final = 3.0  # brokers learn of a new topic one after the other, within milliseconds if all is well

# What the user can put right, by Kafka's code; everything else is for `codes.check`.
_INPUT_ERRORS: Final[dict[int, type[BadInput]]] = {
    codes.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopicOrPartition,
    codes.INVALID_TOPIC_EXCEPTION: InvalidRequest,
    codes.TOPIC_ALREADY_EXISTS: TopicAlreadyExists,
    codes.INVALID_PARTITIONS: InvalidRequest,
    codes.INVALID_REPLICATION_FACTOR: InvalidReplicationFactor,
    codes.INVALID_REPLICA_ASSIGNMENT: InvalidRequest,
    codes.INVALID_CONFIG: InvalidConfig,
    codes.INVALID_REQUEST: InvalidRequest,
    codes.POLICY_VIOLATION: InvalidRequest,
}


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic as created; `id` is zero, the numbers -1, where the broker is too old to tell."""

    name: str
    id: UUID
    partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One config as in force; `value` is None for a sensitive one, whose value no broker tells."""

    name: str
    value: str | None
    source: str
    sensitive: bool
    read_only: bool

    @property
    def overridden(self) -> bool:
        """Whether this topic itself sets the config, rather than a broker or Kafka's default."""
        return self.source == _SOURCES[_DYNAMIC_TOPIC]

    @property
    def is_default(self) -> bool:
        """Whether nobody sets the config."""
        return self.source == _SOURCES[_DEFAULT_SOURCE]


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
    _check(told.error_code, f"Topic {name!r} could not be created on the {cluster}", told.error_message)
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
    response: CreateTopicsResponse = await _ask_controller(
        cluster, request, timeout_s=timeout_s, min_version=_FIRST_WITH_DEFAULTS if asks_defaults else 0
    )
    return response.topics


async def create_partitions(
    cluster: Cluster, topic: str, count: int, *, validate_only: bool = False, timeout_s: float = 30.0
) -> None:
    """Raise a topic's number of partitions to `count`. Raises as `create_topic` does."""
    entry = CreatePartitionsRequest.CreatePartitionsTopic(name=topic, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=[entry], timeout_ms=int(timeout_s * 1000), validate_only=validate_only)
    response: CreatePartitionsResponse = await _ask_controller(cluster, request, timeout_s=timeout_s)
    told = response.results[0]
    _check(
        told.error_code, f"Topic {topic!r} could not be given {count} partitions on the {cluster}", told.error_message
    )


async def delete_topics(cluster: Cluster, names: Collection[str], *, timeout_s: float = 30.0) -> None:
    """Delete topics. Raises for the first that could not be deleted: UnknownTopicOrPartition, AuthorizationFailed."""
    request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=int(timeout_s * 1000))
    response: DeleteTopicsResponse = await _ask_controller(
        cluster, request, timeout_s=timeout_s, max_version=_NEWEST_DELETE_BY_NAME
    )
    for told in response.responses:
        _check(told.error_code, f"Topic {told.name!r} could not be deleted on the {cluster}", told.error_message)


async def describe_configs(
    cluster: Cluster,
    kind: ConfigKind,
    names: Collection[str],
    *,
    keys: Collection[str] | None = None,
    node: int | None = None,
    timeout_s: float = _PATIENCE_S,
) -> dict[str, dict[str, ConfigEntry]]:
    """Return the configs (all, or `keys`) of topics, brokers or groups, by name and key.

    A broker answers only for itself, so each is asked in person; for the rest `node` says who is asked (None: any).
    What one broker knows another may not know yet, so a topic counts as unknown only after a few seconds. Raises
    UnknownTopicOrPartition, AuthorizationFailed.
    """
    if kind == "topic":
        return await _describe_topics(cluster, names, node=node, keys=keys, timeout_s=timeout_s)
    if kind != "broker":
        return await _describe_at(cluster, kind, names, node=node, keys=keys, timeout_s=timeout_s)
    found: dict[str, dict[str, ConfigEntry]] = {}
    for name in names:
        found |= await _describe_at(
            cluster, kind, [name], node=int(name) if name else None, keys=keys, timeout_s=timeout_s
        )
    return found


async def alter_configs(
    cluster: Cluster,
    kind: ConfigKind,
    name: str,
    *,
    set_to: Mapping[str, str] | None = None,
    delete: Collection[str] = (),
    validate_only: bool = False,
    timeout_s: float = _PATIENCE_S,
) -> None:
    """Set some configs and drop others, leaving the rest alone (KIP-339); doing so twice does no harm.

    Raises InvalidConfig, InvalidRequest, UnknownTopicOrPartition, AuthorizationFailed.
    """
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    entry = resource.AlterableConfig
    changes = [entry(name=k, config_operation=_SET, value=v) for k, v in (set_to or {}).items()]
    changes += [entry(name=k, config_operation=_DELETE, value=None) for k in delete]
    request = IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=_RESOURCE_TYPES[kind], resource_name=name, configs=changes)],
        validate_only=validate_only,
    )
    what = f"The configs of {kind} {name!r} could not be changed on the {cluster}"
    if kind == "broker" and name:
        response: IncrementalAlterConfigsResponse = await cluster.call(
            request, node=int(name), timeout_s=timeout_s, lane=ADMIN_LANE
        )
    else:
        response = await _ask_controller(cluster, request, timeout_s=timeout_s)
    for told in response.responses:
        _check(told.error_code, what, told.error_message)


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
    response: ElectLeadersResponse = await _ask_controller(cluster, request, timeout_s=timeout_s)
    _check(response.error_code, f"No leader could be elected on the {cluster}", None)
    return {
        TopicPartition(topic.topic, part.partition_id): part.error_code
        for topic in response.replica_election_results
        for part in topic.partition_result
    }


async def cluster_rights(cluster: Cluster, *, timeout_s: float = _PATIENCE_S) -> frozenset[str] | None:
    """Return the operations that this client may do on the cluster resource, e.g. ALTER, CLUSTER_ACTION.

    Everything, where the broker has no authorizer. None where it does not tell: it is too old (before 2.3), or this
    client lacks DESCRIBE on the cluster (`AuthHelper.computeDescribeClusterResponse` then answers 0).
    """
    try:
        response: DescribeClusterResponse = await _read(
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


async def has_authorizer(cluster: Cluster, *, timeout_s: float = _PATIENCE_S) -> bool:
    """Say whether the brokers check anybody's rights at all (`KafkaApis.handleDescribeAcls` answers 54 if not)."""
    response: DescribeAclsResponse = await _read(
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
        response: MetadataResponse = await _read(
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
    named = frozenset(name for code, name in _OPERATIONS.items() if code in told)
    return named or None  # nothing: not allowed to know; bit 31 alone: not told


async def _describe_topics(
    cluster: Cluster, names: Collection[str], *, node: int | None, keys: Collection[str] | None, timeout_s: float
) -> dict[str, dict[str, ConfigEntry]]:
    attempts = Attempts(min(timeout_s, _KNOWN_EVERYWHERE_S))
    while True:
        try:
            return await _describe_at(cluster, "topic", names, node=node, keys=keys, timeout_s=timeout_s)
        except UnknownTopicOrPartition:
            if not await attempts.again():
                raise


async def _describe_at(
    cluster: Cluster,
    kind: ConfigKind,
    names: Collection[str],
    *,
    node: int | None,
    keys: Collection[str] | None,
    timeout_s: float,
) -> dict[str, dict[str, ConfigEntry]]:
    resource = DescribeConfigsRequest.DescribeConfigsResource
    request = DescribeConfigsRequest(
        resources=[
            resource(
                resource_type=_RESOURCE_TYPES[kind],
                resource_name=name,
                configuration_keys=None if keys is None else list(keys),
            )
            for name in names
        ]
    )
    response: DescribeConfigsResponse = await _read(
        cluster, request, node=node, timeout_s=timeout_s, min_version=_FIRST_WITH_SOURCE
    )
    for told in response.results:
        what = f"The configs of {kind} {told.resource_name!r} could not be read on the {cluster}"
        _check(told.error_code, what, told.error_message)
    return {
        told.resource_name: {
            entry.name: ConfigEntry(
                name=entry.name,
                value=entry.value,
                source=_SOURCES.get(entry.config_source, "UNKNOWN"),
                sensitive=entry.is_sensitive,
                read_only=entry.read_only,
            )
            for entry in told.configs
        }
        for told in response.results
    }


async def _read(
    cluster: Cluster,
    request: Message,
    *,
    node: int | None,
    timeout_s: float,
    min_version: int = 0,
    max_version: int | None = None,
) -> Message:
    """Ask a question that changes nothing, again while its broker cannot be reached or does not answer."""
    attempts = Attempts(timeout_s)
    while True:
        try:
            return await cluster.call(
                request,
                node=node,
                timeout_s=attempts.share_s(cluster.request_timeout_s),
                min_version=min_version,
                max_version=max_version,
            )
        except RetryLater as lost:
            reason = lost
        if not await attempts.again():
            raise reason


async def _ask_controller(
    cluster: Cluster, request: Message, *, timeout_s: float, min_version: int = 0, max_version: int | None = None
) -> Message:
    """Send to the controller (any broker forwards to it where there is KRaft), again only when it was not the one."""
    attempts = Attempts(timeout_s)
    while True:
        try:
            response = await cluster.call(
                request,
                node=Cluster.CONTROLLER,
                timeout_s=timeout_s + ANSWER_SLACK_S,
                min_version=min_version,
                max_version=max_version,
                lane=ADMIN_LANE,
            )
        except Unreachable:  # nothing was sent
            if not await attempts.again():
                raise
        else:
            if codes.NOT_CONTROLLER not in _codes_of(response) or not await attempts.again():
                return response
        await cluster.topics([], timeout_s=attempts.share_s(timeout_s))


def _codes_of(response: Message) -> set[int]:
    """Return all codes of an admin response: its own, and those of the entries in its one list."""
    found = {getattr(response, "error_code", codes.NONE)}
    for name in ("topics", "results", "responses"):
        found |= {entry.error_code for entry in getattr(response, name, None) or ()}
    return found


def _check(code: int, what: str, detail: str | None) -> None:
    kind = _INPUT_ERRORS.get(code)
    if kind is None:
        codes.check(code, what, detail)
        return
    said = (detail or "").strip().rstrip(".")
    raise kind(f"{what} ({codes.code_name(code)}){': ' + said if said else ''}. Nothing was changed.")
