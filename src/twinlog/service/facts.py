"""What a worker has to know of the destination before it writes to a topic there."""

import logging
import time
from dataclasses import dataclass

from twinlog.errors import AuthorizationFailed, RetryLater
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops import MARKER_RIGHTS, cluster_rights, describe_configs

log = logging.getLogger("twinlog.facts")

REFRESH_S = 30.0
EXPIRATION = "producer.id.expiration.ms"
TIERED = "remote.storage.enable"


@dataclass(frozen=True, slots=True)
class Facts:
    """What holds for one topic.

    `guard_ms`: for how long after a record's timestamp the destination surely remembers its producer (0: unknown).
    `trust_emptiness`: whether an empty answer of the source means that nothing is there (not with tiered storage).
    """

    compacted: bool
    max_message_bytes: int
    may_blank: bool
    guard_ms: int
    trust_emptiness: bool


class FactFinder:
    """Asks the destination, and remembers the answers for a while."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._rights: tuple[float, bool] | None = None
        self._guard: tuple[float, int] | None = None
        self._tiered: dict[tuple[str, str], tuple[float, bool]] = {}
        self._topics: dict[str, tuple[float, bool, int]] = {}

    async def of(self, topic: str, source: Cluster) -> Facts:
        """The facts for one topic.

        Raises RetryLater or AuthorizationFailed where the topic's configs cannot be read.
        """
        compacted, max_bytes = await self._topic(topic)
        tiered = await self._may_be_tiered(topic, source)
        return Facts(compacted, max_bytes, await self._may_blank(), await self._guard_ms(), not tiered)

    async def _may_be_tiered(self, topic: str, source: Cluster) -> bool:
        """Whether the source may answer with nothing although something is there; also where it cannot be told."""
        key = (source.cluster_id, topic)
        known = self._tiered.get(key)
        if known is None or _old(known[0]):
            try:
                entries = (await describe_configs(source, "topic", [topic], keys=[TIERED]))[topic]
                tiered = TIERED in entries and str(entries[TIERED].value) == "true"
            except AuthorizationFailed as error:
                log.warning("%s: %s cannot be read at the source: %s", topic, TIERED, error)
                tiered = True
            known = self._tiered[key] = (time.monotonic(), tiered)
        return known[1]

    async def _topic(self, topic: str) -> tuple[bool, int]:
        known = self._topics.get(topic)
        if known is None or _old(known[0]):
            keys = ["cleanup.policy", "max.message.bytes"]
            entries = (await describe_configs(self._cluster, "topic", [topic], keys=keys))[topic]
            policy, size = (str(entries[key].value) for key in keys)
            known = self._topics[topic] = (time.monotonic(), "compact" in policy, int(size))
        return known[1], known[2]

    async def _may_blank(self) -> bool:
        if self._rights is None or _old(self._rights[0]):
            rights = await cluster_rights(self._cluster)
            allowed = rights is None or bool(rights & MARKER_RIGHTS)
            self._rights = (time.monotonic(), allowed)
        return self._rights[1]

    async def _guard_ms(self) -> int:
        """Half of the brokers' shortest expiration, so that neither their check's period nor a clock's skew matters."""
        if self._guard is None or _old(self._guard[0]):
            guard = 0
            try:
                nodes = [str(node) for node in self._cluster.brokers]
                told = await describe_configs(self._cluster, "broker", nodes, keys=[EXPIRATION])
                values = [int(str(entries[EXPIRATION].value)) for entries in told.values() if EXPIRATION in entries]
                guard = min(values) // 2 if len(values) == len(nodes) else 0
            except (AuthorizationFailed, RetryLater) as error:
                log.warning("%s cannot be read, so batches are sent one by one: %s", EXPIRATION, error)
            self._guard = (time.monotonic(), guard)
        return self._guard[1]


def _old(asked: float) -> bool:
    return time.monotonic() - asked > REFRESH_S
