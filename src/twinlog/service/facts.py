"""What a worker has to know of the destination before it writes to a topic there."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from twinlog.errors import AuthorizationFailed, RefreshLeader, RetryLater, TwinlogError
from twinlog.relay.topic_ids import TopicIds
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops import MARKER_RIGHTS, cluster_rights, describe_configs

log = logging.getLogger("twinlog.facts")

K = TypeVar("K")
V = TypeVar("V")

REFRESH_S = 30.0
# Short beside a round trip, long enough for a thousand partitions to have their turn.
GATHER_S = 0.01
# Keeps an answer far below what a connection accepts as a frame.
MOST_A_REQUEST = 200
# For a broker that may be dead.
BROKER_PATIENCE_S = 2.5
EXPIRATION = "producer.id.expiration.ms"
TIERED = "remote.storage.enable"


@dataclass(frozen=True, slots=True)
class Facts:
    """What holds for one topic.

    `max_batch_bytes`: the largest batch that it takes, by max.message.bytes and, in brokers before 4.0, where it may be
    smaller, by segment.bytes (`UnifiedLog.append`). `guard_ms`: for how long after a record's timestamp the destination
    surely remembers its producer (0: unknown). `trust_emptiness`: whether an empty answer of the source means that
    nothing is there (not with tiered storage).
    """

    compacted: bool
    max_batch_bytes: int
    may_blank: bool
    guard_ms: int
    trust_emptiness: bool


class FactFinder:
    """Asks the destination, and remembers the answers for a while."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        # Not kept while it is missing, so that granting it helps at the next try.
        self._rights = Gathered(self._may_blank, keep=bool)
        self._guard = Gathered(self._guard_ms, keep=bool)
        self._topics = Gathered(self._of_topics)
        self._tiered: dict[str, Gathered[str, bool]] = {}
        self._expirations: dict[int, int] = {}

    async def of(self, topic: str, source: Cluster, ids: TopicIds) -> Facts:
        """The facts for one topic.

        Raises PartitionFailed where the topic is gone, RetryLater or AuthorizationFailed where its configs cannot be
        read.
        """
        try:
            return await self._of(topic, source)
        except TwinlogError:
            await ids.judge()
            raise

    def forget(self, topic: str) -> None:
        """Ask for the topic's configs anew next time: somebody may have changed one, and a retry is to know."""
        self._topics.forget(topic)

    async def _of(self, topic: str, source: Cluster) -> Facts:
        tiered = self._tiered.get(source.cluster_id)
        if tiered is None:
            tiered = self._tiered[source.cluster_id] = Gathered(partial(_may_be_tiered, source))
        compacted, max_bytes = await self._topics.get(topic)
        may_blank = await self._rights.get("")
        guard_ms = await self._guard.get("")
        return Facts(compacted, max_bytes, may_blank, guard_ms, not await tiered.get(topic))

    async def _of_topics(self, topics: Collection[str]) -> dict[str, tuple[bool, int]]:
        policy, *sizes = keys = ("cleanup.policy", "max.message.bytes", "segment.bytes")
        told = await describe_configs(self._cluster, "topic", topics, keys=keys)
        return {
            topic: ("compact" in str(entries[policy].value), min(int(str(entries[size].value)) for size in sizes))
            for topic, entries in told.items()
        }

    async def _may_blank(self, keys: Collection[str]) -> dict[str, bool]:
        rights = await cluster_rights(self._cluster)
        return dict.fromkeys(keys, rights is None or bool(rights & MARKER_RIGHTS))

    async def _guard_ms(self, keys: Collection[str]) -> dict[str, int]:
        """Half of the brokers' shortest expiration, so that neither their check's period nor a clock's skew matters.

        0 where a broker's is not known. One that is dead may be named in metadata for long, and would make every
        batch go alone: what it said when it lived still holds, since it can only have changed by a restart.
        """
        nodes = list(self._cluster.brokers)
        told = await asyncio.gather(*map(self._expiration_of, nodes))
        known = [value for value in told if value is not None]
        return dict.fromkeys(keys, min(known) // 2 if known and len(known) == len(nodes) else 0)

    async def _expiration_of(self, node: int) -> int | None:
        """What the broker says; what it said last where it does not answer soon; None for nothing."""
        try:
            told = await describe_configs(
                self._cluster, "broker", [str(node)], keys=[EXPIRATION], timeout_s=BROKER_PATIENCE_S
            )
        except (AuthorizationFailed, RetryLater, RefreshLeader) as error:
            if node not in self._expirations:
                log.warning("%s of broker %d cannot be read, so batches go one by one: %s", EXPIRATION, node, error)
        else:
            entry = told.get(str(node), {}).get(EXPIRATION)
            if entry is not None:
                self._expirations[node] = int(str(entry.value))
        return self._expirations.get(node)


async def _may_be_tiered(source: Cluster, topics: Collection[str]) -> dict[str, bool]:
    """Whether the source may answer with nothing although something is there; also where it cannot be told."""
    try:
        told = await describe_configs(source, "topic", topics, keys=[TIERED])
    except AuthorizationFailed as error:
        if len(topics) > 1:
            raise
        log.warning("%s cannot be read at the source: %s", TIERED, error)
        return dict.fromkeys(topics, True)
    return {topic: TIERED in entries and str(entries[TIERED].value) == "true" for topic, entries in told.items()}


class Gathered(Generic[K, V]):
    """Questions that many ask at the same moment, asked together and once, with the answers kept for a while.

    Not for where a log ends: there only an answer to a question that was asked after this one counts
    (`relay.lookups.Lookups`). `ask` gets all keys of a moment. Where that fails for several, each is asked alone, so
    that one topic's missing right is no other topic's trouble. A failure is told to all who wait for it, and then
    forgotten; so is an answer that `keep` refuses.
    """

    def __init__(
        self, ask: Callable[[Collection[K]], Awaitable[Mapping[K, V]]], *, keep: Callable[[V], bool] = lambda _: True
    ) -> None:
        self._ask = ask
        self._keep = keep
        self._known: dict[K, tuple[float, V]] = {}
        self._asked: dict[K, asyncio.Future[V]] = {}
        self._rounds: set[asyncio.Task[None]] = set()
        self._next: list[K] = []

    async def get(self, key: K) -> V:
        """The answer for `key`, at most `REFRESH_S` old; raises what asking raised."""
        known = self._known.get(key)
        if known is not None and time.monotonic() - known[0] <= REFRESH_S:
            return known[1]
        future = self._asked.get(key)
        if future is None:
            future = self._asked[key] = asyncio.get_running_loop().create_future()
            self._next.append(key)
            if len(self._next) == 1:
                asking = asyncio.create_task(self._round(), name="gathered questions")
                self._rounds.add(asking)
                asking.add_done_callback(self._rounds.discard)
        return await asyncio.shield(future)

    def forget(self, key: K) -> None:
        """Ask for `key` again the next time that somebody wants to know."""
        self._known.pop(key, None)

    async def _round(self) -> None:
        await asyncio.sleep(GATHER_S)
        keys, self._next = self._next, []
        for first in range(0, len(keys), MOST_A_REQUEST):
            await self._portion(keys[first : first + MOST_A_REQUEST])

    async def _portion(self, keys: list[K]) -> None:
        try:
            told = await self._ask(keys)
            answers = {key: told[key] for key in keys}
        except Exception as error:  # noqa: BLE001  # whatever it is, those who wait must hear of it
            if len(keys) == 1 or isinstance(error, RetryLater):
                for key in keys:
                    self._fail(key, error)
                return
            for key in keys:
                await self._portion([key])
            return
        now = time.monotonic()
        for key, answer in answers.items():
            if self._keep(answer):
                self._known[key] = (now, answer)
            self._asked.pop(key).set_result(answer)

    def _fail(self, key: K, error: Exception) -> None:
        future = self._asked.pop(key)
        future.set_exception(error)
        # Whoever asked may have been told to end; then nobody is left to look at the error.
        future.exception()
