"""One Kafka cluster as a client sees it: its brokers, leaders and coordinators, and the connections to them.

Nothing that changes the cluster is ever sent twice from here: only the setting up of connections and the asking for
metadata and coordinators are tried again, each within a bound.
"""

import asyncio
from collections.abc import Awaitable, Collection, Mapping
from typing import Final, Literal

from kafka.protocol.metadata import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)

from twinlog.config.client import ClientSettings
from twinlog.errors import BrokerError, RefreshLeader, RetryLater, TwinlogError, Unreachable, UnsupportedVersion
from twinlog.names import TopicPartition
from twinlog.wire import codes
from twinlog.wire.connection import Connection
from twinlog.wire.dial import Dialler
from twinlog.wire.flights import Flights
from twinlog.wire.lanes import Lanes
from twinlog.wire.messages import Message, api_name
from twinlog.wire.metadata import NO_LEADER, Broker, Leader, Metadata, PartitionInfo, TopicInfo
from twinlog.wire.retry import Attempts

__all__ = ["Broker", "Cluster", "CoordinatorKind", "Leader", "PartitionInfo", "TopicInfo"]

CoordinatorKind = Literal["group", "transaction"]

# Questions that any broker answers quickly go here; what may block the connection has a lane of its own.
CONTROL_LANE: Final = "control"

_RESOURCES: Final = {"group": "GROUP", "transaction": "TRANSACTIONAL_ID"}
_KEY_TYPES: Final = {"group": 0, "transaction": 1}
_NEWEST_FIND_COORDINATOR: Final = 4  # later ones add errors and kinds of the protocols that are not spoken here
_COORDINATOR_PATIENCE_S: Final = 30.0  # a new __transaction_state needs some seconds, a loading one more
_METADATA_PATIENCE_S: Final = 30.0


class Cluster:
    """A client of one cluster. Use `connect`, and `close` at the end."""

    CONTROLLER: Final = -2

    def __init__(self, settings: ClientSettings, *, client_id: str, label: str = "Kafka") -> None:
        self.settings = settings
        self.client_id = client_id
        self.label = label
        self._dialler = Dialler(settings, client_id, label=label)
        self._metadata = Metadata()
        self._lanes = Lanes(self._dialler, lambda: self._metadata.brokers)
        self._flights = Flights("The cluster client was closed.")
        self._coordinators: dict[tuple[CoordinatorKind, str], int] = {}
        self._wanted: set[str] = set()
        self._wanted_round = 0

    @classmethod
    async def connect(
        cls, settings: ClientSettings, *, client_id: str, timeout_s: float = 30.0, label: str = "Kafka"
    ) -> "Cluster":
        """Meet the cluster at its bootstrap addresses; every numeric address of each is tried, with backoff.

        `label` names the cluster in messages ("source", "dr").

        Raises Unreachable (addresses, time, last reason) after `timeout_s`, AuthenticationFailed at once.
        """
        cluster = cls(settings, client_id=client_id, label=label)
        await cluster._bootstrap(timeout_s)
        return cluster

    async def close(self) -> None:
        """Close all connections; requests in flight and later ones end with ConnectionLost."""
        await self._flights.land()
        await self._lanes.close()

    @property
    def cluster_id(self) -> str:
        """The cluster's id, empty where the brokers are too old to have one."""
        return self._metadata.cluster_id

    @property
    def brokers(self) -> Mapping[int, Broker]:
        """The brokers by node id, as last told."""
        return self._metadata.brokers

    def __repr__(self) -> str:
        """For operators: which cluster, and how many brokers it has."""
        return f"<Cluster {self}, {len(self.brokers)} brokers>"

    def __str__(self) -> str:
        """As messages name it: `dr cluster q1Sh-9_ZR_2 (kafka-1:9092)`."""
        names = ", ".join(f"{host}:{port}" for host, port in self.settings.bootstrap)
        return f"{self.label} cluster {self.cluster_id or 'without an id'} ({names})"

    # Connections

    async def lane(self, node: int, name: str, *, client_id: str | None = None) -> Connection:
        """Return the one connection of that name to that broker, opened at need; a closed one is replaced.

        Raises Unreachable when the broker cannot be reached or is not known.
        """
        if node not in self.brokers:
            await self.topics([])
        return await self._lanes.get(node, name, client_id=client_id)

    async def any_connection(self) -> Connection:
        """Return a connection to any broker that can be reached; raises Unreachable when there is none."""
        return await self._within(self.request_timeout_s, self._any(CONTROL_LANE))

    async def call(
        self,
        message: Message,
        *,
        node: int | None = None,
        timeout_s: float | None = None,
        min_version: int = 0,
        max_version: int | None = None,
        lane: str = CONTROL_LANE,
    ) -> Message:
        """Send one request and return its response.

        `node` is a broker's id, `Cluster.CONTROLLER`, or None for any live broker. A request is sent once: when its
        connection breaks, ConnectionLost (or RequestTimedOut) is raised and its outcome is unknown. A request that
        may keep its connection waiting names its own `lane`. `timeout_s` bounds the whole, the opening of a connection
        too. Raises Unreachable when nothing was sent, UnsupportedVersion when the broker speaks only versions below
        `min_version`.
        """
        attempts = Attempts(self.request_timeout_s if timeout_s is None else timeout_s)
        connection = await self._within(attempts.bound_s, self._connection(node, lane))
        version = connection.version_of(type(message), max_version)
        if version < min_version:
            raise UnsupportedVersion(
                f"{connection.peer} offers {api_name(message.API_KEY)} up to version {version}, and version "
                f"{min_version} is needed. Use a newer broker."
            )
        left_s = attempts.share_s(attempts.bound_s)
        return await connection.request(message, timeout_s=left_s, max_version=max_version)

    @property
    def request_timeout_s(self) -> float:
        """How long one request may take where the caller sets no bound."""
        return self.settings.request_timeout_ms / 1000

    async def _connection(self, node: int | None, lane: str) -> Connection:
        if node == self.CONTROLLER:
            if self._metadata.controller not in self.brokers:
                await self.topics([])
            node = self._metadata.controller
            if node == NO_LEADER:
                raise Unreachable(f"The {self} has no controller now.")
        if node is None:
            return await self._any(lane)
        if node not in self.brokers:
            await self.topics([])
        return await self._lanes.get_fresh(node, lane)

    async def _any(self, lane: str, *, avoid: int | None = None) -> Connection:
        try:
            return await self._first_reachable(lane, avoid)
        except Unreachable:
            await self._flights.join("bootstrap", lambda: self._bootstrap(_METADATA_PATIENCE_S))
        return await self._first_reachable(lane, avoid)

    async def _within(self, timeout_s: float, opening: Awaitable[Connection]) -> Connection:
        """Bound the wait for a connection; the opening itself goes on, for whoever comes next."""
        try:
            async with asyncio.timeout(timeout_s):
                return await opening
        except TimeoutError:
            what = f"No connection to the {self} could be opened within {timeout_s:g} s"
            raise Unreachable(f"{what}{self._last_trouble}") from None

    @property
    def _last_trouble(self) -> str:
        """The end of a sentence: why connections fail now, where they do."""
        reason = self._dialler.trouble
        return f"; last reason: {reason}" if reason else "."

    async def _first_reachable(self, lane: str, avoid: int | None) -> Connection:
        """Try each broker once; the one to avoid comes last, since any answer is better than none."""
        reason: Unreachable | None = None
        nodes = self._lanes.by_promise(self.brokers, lane)
        for node in sorted(nodes, key=lambda n: n == avoid):
            try:
                return await self._lanes.get_fresh(node, lane)
            except Unreachable as refused:
                reason = refused
        raise reason or Unreachable(f"the {self} names no broker.")

    async def _bootstrap(self, timeout_s: float) -> None:
        async def introduce(connection: Connection) -> None:
            response: MetadataResponse = await connection.request(
                _metadata_request([]), timeout_s=self.request_timeout_s
            )
            if not response.brokers:
                raise Unreachable("the broker does not know any broker of its cluster yet")
            self._metadata.absorb(response, [])
            await connection.close()

        await self._dialler.bootstrap(introduce, timeout_s=timeout_s)

    # Topics and leaders

    async def topics(
        self,
        names: Collection[str] | None,
        *,
        avoid_node: int | None = None,
        timeout_s: float = _METADATA_PATIENCE_S,
    ) -> dict[str, TopicInfo]:
        """Ask for topics (None: all) and their leaders; each topic carries its own error code, e.g. 3 for unknown.

        Another broker than `avoid_node` is asked where there is one. Never creates a topic. Raises what the last
        attempt raised when nobody answers within `timeout_s`.
        """
        attempts = Attempts(timeout_s)
        while True:
            try:
                connection = await self._within(attempts.share_s(timeout_s), self._any(CONTROL_LANE, avoid=avoid_node))
                response: MetadataResponse = await connection.request(
                    _metadata_request(names), timeout_s=attempts.share_s(self.request_timeout_s)
                )
                if not response.error_code:
                    return self._metadata.absorb(response, names)
                reason: RetryLater = _broker_error(response.error_code, f"Metadata of {connection}")
                await self._flights.join("bootstrap", lambda: self._bootstrap(attempts.left_s))
            except RetryLater as lost:
                reason = lost
            if not await attempts.again():
                raise reason

    def leader(self, tp: TopicPartition) -> Leader | None:
        """Return the partition's leader as last told, None when none is known."""
        return self._metadata.leader(tp)

    def note_leader(self, tp: TopicPartition, leader: Leader) -> None:
        """Take in a leader that another answer named; only a higher epoch changes anything."""
        self._metadata.note_leader(tp, leader)

    def topic(self, name: str) -> TopicInfo | None:
        """Return a topic as last told, None when nothing is known of it."""
        return self._metadata.topic(name)

    def distrust(self, topic: str) -> None:
        """Take a topic's leaders for unknown after an answer that contradicts them; the cluster is asked next time."""
        self._metadata.distrust(topic)

    async def find_leader(self, tp: TopicPartition, *, refresh: bool = False) -> Leader:
        """Return the partition's leader, asking the cluster when none is known (or always, with `refresh`).

        Many callers at once share one request. Raises RefreshLeader when the partition has no leader now or is not
        known, AuthorizationFailed when its topic may not be described.
        """
        known = self.leader(tp)
        if known is not None and not refresh:
            return known
        self._wanted.add(tp.topic)
        told = await self._flights.join(("leaders", self._wanted_round), self._ask_wanted)
        return self._leader_of(tp, told)

    async def _ask_wanted(self) -> dict[str, TopicInfo]:
        await asyncio.sleep(0)  # callers of the same moment still add their topics; later ones start the next round
        wanted, self._wanted = self._wanted, set()
        self._wanted_round += 1
        return await self.topics(wanted)

    def _leader_of(self, tp: TopicPartition, told: Mapping[str, TopicInfo]) -> Leader:
        topic = told.get(tp.topic)
        error = topic.error if topic is not None else codes.UNKNOWN_TOPIC_OR_PARTITION
        part = topic.partitions.get(tp.partition) if topic is not None else None
        if error == codes.TOPIC_AUTHORIZATION_FAILED:
            codes.check(error, f"Metadata of {tp}", right=f"DESCRIBE on TOPIC {tp.topic}")
        if error or part is None:
            why = codes.code_name(error or codes.UNKNOWN_TOPIC_OR_PARTITION)
            raise RefreshLeader(f"{tp} has no known leader on the {self}: {why}.")
        if part.leader == NO_LEADER:
            raise RefreshLeader(f"{tp} has no leader on the {self} now: {codes.code_name(part.error)}.")
        return Leader(part.leader, part.leader_epoch)

    # Coordinators

    async def coordinator(
        self,
        key: str,
        kind: CoordinatorKind,
        *,
        refresh: bool = False,
        timeout_s: float = _COORDINATOR_PATIENCE_S,
    ) -> int:
        """Return the node that coordinates a group or a transactional id; remembered until `refresh`.

        While the coordinator is not available, it is asked for again with backoff. Raises BrokerError, Unreachable
        or ConnectionLost after the bound, AuthorizationFailed at once.
        """
        known = self._coordinators.get((kind, key))
        if known is not None and known in self.brokers and not refresh:
            return known
        try:
            async with asyncio.timeout(timeout_s):
                return await self._flights.join((kind, key), lambda: self._find_coordinator(key, kind))
        except TimeoutError:
            what = f"The {self} named no coordinator of {kind} {key!r} within {timeout_s:g} s"
            raise Unreachable(f"{what}{self._last_trouble}") from None

    async def _find_coordinator(self, key: str, kind: CoordinatorKind) -> int:
        what = f"FindCoordinator of {kind} {key!r}"
        request = FindCoordinatorRequest(key=key, key_type=_KEY_TYPES[kind], coordinator_keys=[key])
        attempts = Attempts(_COORDINATOR_PATIENCE_S)
        while True:
            try:
                response: FindCoordinatorResponse = await self.call(
                    request,
                    timeout_s=attempts.share_s(self.request_timeout_s),
                    max_version=_NEWEST_FIND_COORDINATOR,
                )
                found = response.coordinators[0] if response.coordinators else response
                if not found.error_code:
                    return self._note_coordinator(key, kind, Broker(found.node_id, found.host, found.port))
                reason: TwinlogError = _broker_error(found.error_code, what)
                if found.error_code not in codes.SAME_AGAIN:
                    codes.check(found.error_code, what, right=f"DESCRIBE on {_RESOURCES[kind]} {key}")
            except RetryLater as lost:
                reason = lost
            if not await attempts.again():
                raise reason

    def _note_coordinator(self, key: str, kind: CoordinatorKind, broker: Broker) -> int:
        self._metadata.note_broker(broker)
        self._coordinators[kind, key] = broker.node
        return broker.node


def _metadata_request(names: Collection[str] | None) -> MetadataRequest:
    topic = MetadataRequest.MetadataRequestTopic
    return MetadataRequest(
        topics=None if names is None else [topic(name=name) for name in names], allow_auto_topic_creation=False
    )


def _broker_error(code: int, what: str) -> BrokerError:
    name = codes.code_name(code)
    return BrokerError(f"{what} failed: {name}.", code=code, name=name)
