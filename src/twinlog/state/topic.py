"""The topic `__mirror_state` itself: found, or created, and never used when it would lose or hide records."""

from contextlib import suppress

from twinlog.errors import BadInput, RetryLater, TopicAlreadyExists
from twinlog.wire import codes
from twinlog.wire.cluster import Cluster, TopicInfo
from twinlog.wire.ops import create_topic, describe_configs
from twinlog.wire.retry import Attempts

STATE_TOPIC = "__mirror_state"
DEFAULT_PARTITIONS = 50
MOST_REPLICAS = 3

# The active segment is never compacted, so its size bounds what a load reads for nothing; a batch must fit in one.
SEGMENT_BYTES = 4 << 20

_FIXED_CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES), "compression.type": "producer"}


async def ensure_topic(
    cluster: Cluster,
    *,
    create: bool,
    partitions: int = DEFAULT_PARTITIONS,
    replication_factor: int | None = None,
    timeout_s: float = 30.0,
) -> int:
    """Return the number of the topic's partitions, creating the topic if need be.

    Without `create` it is 0 where there is no topic. Two processes may create it at once. `replication_factor` is by
    default 3, or the number of brokers if that is less.

    Raises BadInput (the topic is not purely compacted), InvalidReplicationFactor, AuthorizationFailed, and
    RetryLater when it has not appeared within `timeout_s`.
    """
    found = await _find(cluster)
    if found is None:
        if not create:
            return 0
        await _create(cluster, partitions, replication_factor, timeout_s)
        found = await _appeared(cluster, timeout_s)
    await _check(cluster)
    return len(found.partitions)


async def _find(cluster: Cluster) -> TopicInfo | None:
    info = (await cluster.topics([STATE_TOPIC])).get(STATE_TOPIC)
    if info is None or info.error == codes.UNKNOWN_TOPIC_OR_PARTITION:
        return None
    if info.error not in codes.REFRESH:
        what = f"The topic {STATE_TOPIC} cannot be looked at on the {cluster}"
        codes.check(info.error, what, right=f"DESCRIBE on TOPIC {STATE_TOPIC}")
    return info


async def _create(cluster: Cluster, partitions: int, replication_factor: int | None, timeout_s: float) -> None:
    if partitions < 1:
        raise BadInput(f"The topic {STATE_TOPIC} needs at least one partition, not {partitions}.")
    replicas = min(MOST_REPLICAS, len(cluster.brokers)) if replication_factor is None else replication_factor
    configs = dict(_FIXED_CONFIGS)
    # A commit must not stand on a single broker where there are three; a default above what is there forbids all
    # writes.
    configs["min.insync.replicas"] = "2" if replicas >= MOST_REPLICAS else "1"
    with suppress(TopicAlreadyExists):  # another process was faster
        await create_topic(
            cluster,
            STATE_TOPIC,
            partitions=partitions,
            replication_factor=replicas,
            configs=configs,
            timeout_s=timeout_s,
        )


async def _appeared(cluster: Cluster, timeout_s: float) -> TopicInfo:
    """Wait until a broker knows the new topic with a leader for each partition."""
    attempts = Attempts(timeout_s)
    while True:
        info = await _find(cluster)
        if info is not None and info.partitions and all(part.leader >= 0 for part in info.partitions.values()):
            return info
        if not await attempts.again():
            raise RetryLater(
                f"The topic {STATE_TOPIC} was created on {cluster!r}, but has no leaders after {timeout_s:g} s. "
                f"Look at the brokers' logs, then try again."
            )


async def _check(cluster: Cluster) -> None:
    entries = (await describe_configs(cluster, "topic", [STATE_TOPIC], keys=["cleanup.policy"]))[STATE_TOPIC]
    entry = entries.get("cleanup.policy")
    if entry is not None and entry.value != "compact":
        raise BadInput(
            f"The topic {STATE_TOPIC} on {cluster!r} has cleanup.policy={entry.value}, which would delete mirrors "
            f"after a while. Set cleanup.policy=compact on it, then try again."
        )
