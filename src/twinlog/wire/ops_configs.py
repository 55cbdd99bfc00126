"""Configs of topics, brokers and groups: read, and changed one by one."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from kafka.protocol.admin import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

from twinlog.errors import UnknownTopicOrPartition
from twinlog.wire.admin_calls import ADMIN_LANE, PATIENCE_S, ask, ask_controller, check
from twinlog.wire.cluster import Cluster
from twinlog.wire.retry import Attempts

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
_FIRST_WITH_SOURCE: Final = 1
_KNOWN_EVERYWHERE_S: Final = 3.0  # brokers learn of a new topic one after the other, within milliseconds if all is well


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


async def describe_configs(
    cluster: Cluster,
    kind: ConfigKind,
    names: Collection[str],
    *,
    keys: Collection[str] | None = None,
    node: int | None = None,
    timeout_s: float = PATIENCE_S,
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
    timeout_s: float = PATIENCE_S,
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
        response = await ask_controller(cluster, request, timeout_s=timeout_s)
    for told in response.responses:
        check(told.error_code, what, told.error_message, right=_right("ALTER_CONFIGS", kind, name))


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
    response: DescribeConfigsResponse = await ask(
        cluster, request, node=node, timeout_s=timeout_s, min_version=_FIRST_WITH_SOURCE
    )
    for told in response.results:
        what = f"The configs of {kind} {told.resource_name!r} could not be read on the {cluster}"
        right = _right("DESCRIBE_CONFIGS", kind, told.resource_name)
        check(told.error_code, what, told.error_message, right=right)
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


def _right(operation: str, kind: str, name: str) -> str:
    return f"{operation} on {f'TOPIC {name}' if kind == 'topic' else 'CLUSTER'}"
