"""What any broker answers: versions, metadata, coordinators, configs, topics, and the small questions about logs."""

from typing import Any

from kafka.protocol.admin import (
    CreateTopicsResponse,
    DeleteRecordsResponse,
    DeleteTopicsResponse,
    DescribeAclsResponse,
    DescribeClusterResponse,
    DescribeConfigsResponse,
    DescribeProducersResponse,
    ElectLeadersResponse,
    IncrementalAlterConfigsResponse,
)
from kafka.protocol.metadata import ApiVersionsResponse, FindCoordinatorResponse, MetadataResponse
from tests.sim.broker.asks import Ask, request_class
from tests.sim.broker.node import SimBroker
from tests.sim.broker.partition import NO_LEADER
from tests.sim.broker.refusals import Refused

from twinlog.names import TopicPartition
from twinlog.wire import codes
from twinlog.wire.messages import versions

_EVERYTHING = {5, 7, 8, 9, 10, 11, 12}  # `AclOperation` codes that a cluster resource has
_TOPIC, _BROKER = 2, 4
PREFERRED_LEADER_NOT_AVAILABLE = 80
_SET, _DELETE = 0, 1
_DYNAMIC_TOPIC, _DEFAULT, _STATIC_BROKER = 1, 5, 4


def api_versions(broker: SimBroker, ask: Ask) -> None:
    """Answer ApiVersions with what kafka-python can encode, up to the broker's own bounds."""
    kind = ApiVersionsResponse.ApiVersion
    keys = []
    for api_key in broker.cluster.api_keys():
        low, high = versions(request_class(api_key))
        keys.append(kind(api_key=api_key, min_version=low, max_version=high))
    ask.reply(ApiVersionsResponse(error_code=0, api_keys=keys, throttle_time_ms=0))


def metadata(broker: SimBroker, ask: Ask) -> None:
    """Answer Metadata from what this broker knows, which may be old."""
    cluster, asked = broker.cluster, ask.message
    names = cluster.known_topics(broker) if asked.topics is None else [topic.name for topic in asked.topics]
    alive = [node for node in cluster.brokers if node not in cluster.controller.fenced]
    broker_kind = MetadataResponse.MetadataResponseBroker
    ask.reply(
        MetadataResponse(
            throttle_time_ms=0,
            brokers=[broker_kind(node_id=n, host=cluster.host(n), port=cluster.port(n), rack=None) for n in alive],
            cluster_id=cluster.cluster_id,
            controller_id=min(alive, default=-1),
            topics=[_topic(broker, name) for name in names],
            error_code=0,
        )
    )


def _topic(broker: SimBroker, name: str) -> Any:
    kind = MetadataResponse.MetadataResponseTopic
    known = {where.partition: a for where, a in broker.known.items() if where.topic == name}
    if not known:
        return kind(error_code=codes.UNKNOWN_TOPIC_OR_PARTITION, name=name, partitions=[])
    fenced = broker.cluster.controller.fenced
    return kind(
        error_code=0,
        name=name,
        topic_id=broker.cluster.topic_id(name),
        is_internal=name == broker.cluster.TXN_TOPIC,
        partitions=[
            kind.MetadataResponsePartition(
                error_code=codes.LEADER_NOT_AVAILABLE if a.leader == NO_LEADER else 0,
                partition_index=number,
                leader_id=a.leader,
                leader_epoch=a.epoch,
                replica_nodes=list(a.replicas),
                isr_nodes=list(a.isr),
                offline_replicas=[node for node in a.replicas if node in fenced],
            )
            for number, a in sorted(known.items())
        ],
    )


def find_coordinator(broker: SimBroker, ask: Ask) -> None:
    """Answer FindCoordinator for transactional ids."""
    asked = ask.message
    if asked.key_type != 1:
        raise AssertionError("group coordinators are not simulated")
    keys = asked.coordinator_keys if ask.version >= 4 else [asked.key]
    found = [(key, *_coordinator(broker, key)) for key in keys]
    if ask.version >= 4:
        kind = FindCoordinatorResponse.Coordinator
        entries = [
            kind(key=key, node_id=node, host=host, port=port, error_code=code, error_message=None)
            for key, code, node, host, port in found
        ]
        ask.reply(FindCoordinatorResponse(throttle_time_ms=0, coordinators=entries))
        return
    _, code, node, host, port = found[0]
    ask.reply(
        FindCoordinatorResponse(
            throttle_time_ms=0, error_code=code, error_message=None, node_id=node, host=host, port=port
        )
    )


def _coordinator(broker: SimBroker, key: str) -> tuple[int, int, str, int]:
    cluster = broker.cluster
    assigned = broker.known.get(TopicPartition(cluster.TXN_TOPIC, cluster.slot_of(key)))
    if assigned is None or assigned.leader == NO_LEADER:
        return codes.COORDINATOR_NOT_AVAILABLE, -1, "", -1
    return codes.NONE, assigned.leader, cluster.host(assigned.leader), cluster.port(assigned.leader)


def describe_cluster(broker: SimBroker, ask: Ask) -> None:
    """Answer DescribeCluster; there is no authorizer, so everything is allowed."""
    cluster = broker.cluster
    alive = [node for node in cluster.brokers if node not in cluster.controller.fenced]
    kind = DescribeClusterResponse.DescribeClusterBroker
    ask.reply(
        DescribeClusterResponse(
            throttle_time_ms=0,
            error_code=0,
            error_message=None,
            cluster_id=cluster.cluster_id,
            controller_id=min(alive, default=-1),
            brokers=[kind(broker_id=n, host=cluster.host(n), port=cluster.port(n), rack=None) for n in alive],
            authorized_operations=set(_EVERYTHING),
        )
    )


def describe_acls(broker: SimBroker, ask: Ask) -> None:
    """Answer DescribeAcls: without an authorizer that is 54."""
    del broker
    ask.reply(
        DescribeAclsResponse(
            throttle_time_ms=0,
            error_code=codes.SECURITY_DISABLED,
            error_message="No Authorizer is configured.",
            resources=[],
        )
    )


def create_topics(broker: SimBroker, ask: Ask) -> None:
    """Answer CreateTopics."""
    kind = CreateTopicsResponse.CreatableTopicResult
    entries = []
    for topic in ask.message.topics:
        try:
            made = broker.cluster.ask_to_create(
                topic.name,
                topic.num_partitions,
                topic.replication_factor,
                {c.name: c.value for c in topic.configs},
                validate_only=ask.message.validate_only,
            )
        except Refused as refused:
            entries.append(kind(name=topic.name, error_code=refused.code, error_message=refused.why, configs=[]))
            continue
        entries.append(
            kind(
                name=topic.name,
                topic_id=made.id,
                error_code=0,
                error_message=None,
                num_partitions=made.partitions,
                replication_factor=made.replication,
                configs=[],
            )
        )
    ask.reply(CreateTopicsResponse(throttle_time_ms=0, topics=entries))


def elect_leaders(broker: SimBroker, ask: Ask) -> None:
    """Answer ElectLeaders: each partition goes to its first replica, if that one is in sync."""
    if ask.message.election_type:
        raise AssertionError("unclean elections are not simulated")
    kind = ElectLeadersResponse.ReplicaElectionResult
    controller = broker.cluster.controller
    results = []
    for topic in ask.message.topic_partitions:
        parts = []
        for number in topic.partitions:
            where = TopicPartition(topic.topic, number)
            preferred = controller.assigned[where].replicas[0]
            needed = controller.assigned[where].leader != preferred
            done = needed and controller.move(where, preferred)
            code = codes.NONE if done else PREFERRED_LEADER_NOT_AVAILABLE if needed else codes.ELECTION_NOT_NEEDED
            parts.append(kind.PartitionResult(partition_id=number, error_code=code, error_message=None))
        results.append(kind(topic=topic.topic, partition_result=parts))
    ask.reply(ElectLeadersResponse(throttle_time_ms=0, error_code=0, replica_election_results=results))


def delete_topics(broker: SimBroker, ask: Ask) -> None:
    """Answer DeleteTopics by name."""
    kind = DeleteTopicsResponse.DeletableTopicResult
    entries = []
    for name in ask.message.topic_names:
        code = codes.NONE if name in broker.cluster.topics else codes.UNKNOWN_TOPIC_OR_PARTITION
        if not code:
            broker.cluster.delete_topic(name)
        entries.append(kind(name=name, error_code=code, error_message=None))
    ask.reply(DeleteTopicsResponse(throttle_time_ms=0, responses=entries))


def describe_configs(broker: SimBroker, ask: Ask) -> None:
    """Answer DescribeConfigs for topics and brokers."""
    kind = DescribeConfigsResponse.DescribeConfigsResult
    results = []
    for resource in ask.message.resources:
        told = _configs_of(broker, resource.resource_type, resource.resource_name)
        wanted = resource.configuration_keys
        entries = [
            kind.DescribeConfigsResourceResult(
                name=name,
                value=value,
                read_only=False,
                config_source=source,
                is_sensitive=False,
                synonyms=[],
            )
            for name, (value, source) in (told or {}).items()
            if wanted is None or name in wanted
        ]
        results.append(
            kind(
                error_code=codes.UNKNOWN_TOPIC_OR_PARTITION if told is None else 0,
                error_message=None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=entries,
            )
        )
    ask.reply(DescribeConfigsResponse(throttle_time_ms=0, results=results))


def _configs_of(broker: SimBroker, kind: int, name: str) -> dict[str, tuple[str, int]] | None:
    cluster = broker.cluster
    if kind == _BROKER:
        return {key: (value, _STATIC_BROKER) for key, value in cluster.broker_configs().items()}
    if kind != _TOPIC:
        raise AssertionError(f"configs of resource type {kind} are not simulated")
    topic = cluster.topics.get(name)
    if topic is None:
        return None
    told = {key: (value, _DEFAULT) for key, value in cluster.default_configs().items()}
    return told | {key: (value, _DYNAMIC_TOPIC) for key, value in topic.configs.items()}


def alter_configs(broker: SimBroker, ask: Ask) -> None:
    """Answer IncrementalAlterConfigs for topics."""
    kind = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    entries = []
    for resource in ask.message.resources:
        if resource.resource_type != _TOPIC:
            raise AssertionError("only configs of topics can be changed in the simulation")
        code = codes.NONE if resource.resource_name in broker.cluster.topics else codes.UNKNOWN_TOPIC_OR_PARTITION
        if not code and not ask.message.validate_only:
            changes = {c.name: c.value if c.config_operation == _SET else None for c in resource.configs}
            broker.cluster.alter_configs(resource.resource_name, changes)
        entries.append(
            kind(
                error_code=code,
                error_message=None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    ask.reply(IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=entries))


def delete_records(broker: SimBroker, ask: Ask) -> None:
    """Answer DeleteRecords once every live replica's log begins there, or the time is over (`DelayedDeleteRecords`)."""
    kind = DeleteRecordsResponse.DeleteRecordsTopicResult
    codes_of: dict[TopicPartition, int] = {}
    wanted: dict[TopicPartition, int] = {}
    for topic in ask.message.topics:
        for part in topic.partitions:
            where = TopicPartition(topic.name, part.partition_index)
            codes_of[where] = _delete(broker, where, part.offset, wanted)

    def low(where: TopicPartition) -> int:
        return broker.cluster.low_watermark(where)

    def answer() -> None:
        topics: dict[str, list[Any]] = {}
        for where, code in codes_of.items():
            late = not code and low(where) < wanted[where]
            entry = kind.DeleteRecordsPartitionResult(
                partition_index=where.partition,
                low_watermark=-1 if code or late else low(where),
                error_code=codes.REQUEST_TIMED_OUT if late else code,
            )
            topics.setdefault(where.topic, []).append(entry)
        told = [kind(name=name, partitions=parts) for name, parts in topics.items()]
        ask.reply(DeleteRecordsResponse(throttle_time_ms=0, topics=told))

    def attempt() -> bool:
        if any(not code and low(where) < wanted[where] for where, code in codes_of.items()):
            return False
        answer()
        return True

    broker.waiting.wait(codes_of, attempt, answer, most_s=ask.message.timeout_ms / 1000)


def _delete(broker: SimBroker, where: TopicPartition, offset: int, wanted: dict[TopicPartition, int]) -> int:
    try:
        replica = broker.replica(where)
        replica.check()
        if not replica.rules.deletes:
            raise Refused(codes.POLICY_VIOLATION)
        wanted[where] = replica.log.high_watermark if offset == -1 else offset
        if wanted[where] < 0:
            raise Refused(codes.OFFSET_OUT_OF_RANGE)
        replica.log.delete_before(wanted[where])
    except Refused as refused:
        return refused.code
    broker.replication.changed(replica)
    return codes.NONE


def describe_producers(broker: SimBroker, ask: Ask) -> None:
    """Answer DescribeProducers."""
    kind = DescribeProducersResponse.TopicResponse
    topics = [
        kind(
            name=topic.name,
            partitions=[_producers(broker, TopicPartition(topic.name, n)) for n in topic.partition_indexes],
        )
        for topic in ask.message.topics
    ]
    ask.reply(DescribeProducersResponse(throttle_time_ms=0, topics=topics))


def _producers(broker: SimBroker, where: TopicPartition) -> Any:
    kind = DescribeProducersResponse.TopicResponse.PartitionResponse
    try:
        replica = broker.replica(where)
        replica.check()
    except Refused as refused:
        return kind(partition_index=where.partition, error_code=refused.code, active_producers=[])
    return kind(
        partition_index=where.partition,
        error_code=0,
        active_producers=[
            kind.ProducerState(
                producer_id=p.producer_id,
                producer_epoch=p.epoch,
                last_sequence=p.last_sequence,
                last_timestamp=p.last_timestamp,
                coordinator_epoch=p.coordinator_epoch,
                current_txn_start_offset=-1 if p.txn_start is None else p.txn_start,
            )
            for p in replica.log.producers.known.values()
        ],
    )
