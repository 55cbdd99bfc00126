"""Reads the source: one connection a (source broker, client id), one request for all partitions that have room.

The pump's first verb is `inbox.get()`; the requests behind it are made here. A fetch is read_committed, so nothing
that is undecided ever arrives (`ReplicaManager.fetchMessages`, isolation level 1).
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kafka.protocol.consumer.fetch import FetchRequest, FetchResponse

from twinlog.batch.scan import Aborted
from twinlog.errors import RetryLater, TwinlogError
from twinlog.names import TopicPartition
from twinlog.relay.decide import DIVERGED
from twinlog.relay.inbox import Budget, Inbox, tail_of
from twinlog.relay.lookups import Lookups
from twinlog.relay.progress import Chunk, FetchRefused, Progress
from twinlog.wire.cluster import Cluster
from twinlog.wire.codes import code_name
from twinlog.wire.connection import Connection

log = logging.getLogger("twinlog.fetch")

PartitionData = FetchResponse.FetchableTopicResponse.PartitionData

# 13 brought topic ids; 18 is for followers only.
FETCH_WITH_IDS, NEWEST_FETCH = 13, 17
# While a partition is left out of a request because it has no room, the others must not hold the connection for long;
# doubled as long as nothing comes.
SHORT_WAIT_MS = 5


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """The mirror's fetch configs; sizes in bytes, times in milliseconds."""

    wait_max_ms: int = 500
    min_bytes: int = 1
    partition_max_bytes: int = 1_048_576
    response_max_bytes: int = 10_485_760
    timeout_ms: int = 30_000
    backoff_ms: int = 1_000


class Fetcher:
    """Keeps asking one source broker for the partitions subscribed to it."""

    def __init__(self, cluster: Cluster, node: int, *, client_id: str, settings: FetchSettings, budget: Budget) -> None:
        self._cluster = cluster
        self._node = node
        self._client_id = client_id
        self._settings = settings
        self._budget = budget
        self._inboxes: dict[TopicPartition, Inbox] = {}
        self._changed = asyncio.Event()
        self._short_wait_ms = SHORT_WAIT_MS

    def __repr__(self) -> str:
        return f"Fetcher(broker {self._node}, {self._client_id}, {len(self._inboxes)} partitions)"

    @property
    def idle(self) -> bool:
        """Whether nothing is subscribed."""
        return not self._inboxes

    def add(self, inbox: Inbox) -> None:
        """Fetch for `inbox` from now on."""
        inbox.on_room = self._changed
        self._inboxes[inbox.where] = inbox
        self._changed.set()

    def remove(self, inbox: Inbox) -> None:
        """Fetch for `inbox` no more; an answer still under way is dropped."""
        if self._inboxes.get(inbox.where) is inbox:
            del self._inboxes[inbox.where]
        inbox.on_room = None

    async def run(self) -> None:
        """Fetch until cancelled.

        Trouble with the broker is handed to every subscribed partition, which asks for its leader.
        """
        while True:
            await self._budget.room()
            wanted = [inbox for inbox in self._inboxes.values() if inbox.has_room]
            if not wanted:
                self._changed.clear()
                await self._changed.wait()
                continue
            try:
                await self._round(wanted)
            except TwinlogError as error:
                self._refuse_all(str(error))
                await asyncio.sleep(self._settings.backoff_ms / 1000)
            except Exception as error:  # a mistake of ours: those who wait must hear of it before this ends
                log.exception("fetching from broker %d", self._node)
                self._refuse_all(f"unexpected error, please report it: {error!r}")
                raise

    async def _round(self, wanted: list[Inbox]) -> None:
        connection = await self._cluster.lane(self._node, self._client_id, client_id=self._client_id)
        # Those that got nothing last time although there is something come first: the first one always gets a batch.
        wanted.sort(key=lambda inbox: not inbox.starved)
        everyone = len(wanted) == len(self._inboxes) and not wanted[0].starved
        asked = {inbox.where: (inbox, inbox.position) for inbox in wanted}
        request, version = self._request(connection, wanted, everyone=everyone)
        answer = await connection.request(request, timeout_s=self._settings.timeout_ms / 1000, max_version=version)
        if answer.error_code:
            raise RetryLater(f"source broker {self._node} refuses to fetch: {code_name(answer.error_code)}")
        first = wanted[0].where
        for where, data in _partitions(answer, wanted):
            inbox, position = asked.get(where, (None, 0))
            if inbox is not None and self._inboxes.get(where) is inbox:
                _deliver(inbox, data, position, first=where == first)
        self._rotate(answer, wanted)

    def _request(self, connection: Connection, wanted: list[Inbox], *, everyone: bool) -> tuple[FetchRequest, int]:
        with_ids = all(inbox.topic_id is not None and inbox.topic_id.int for inbox in wanted)
        version = connection.version_of(FetchRequest, max_version=NEWEST_FETCH if with_ids else FETCH_WITH_IDS - 1)
        settings = self._settings
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=settings.wait_max_ms if everyone else min(self._short_wait_ms, settings.wait_max_ms),
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
            isolation_level=1,
            session_id=0,
            session_epoch=-1,
            topics=list(_topics(wanted, settings.partition_max_bytes)),
            forgotten_topics_data=[],
            rack_id="",
        )
        return request, version

    def _rotate(self, answer: FetchResponse, wanted: list[Inbox]) -> None:
        """Let those that got something go behind the others next time."""
        served = {where for where, data in _partitions(answer, wanted) if data.records}
        # Where those left out stay without room for long (their destination is away), nobody is asked in a frenzy.
        self._short_wait_ms = SHORT_WAIT_MS if served else min(self._short_wait_ms * 2, self._settings.wait_max_ms)
        for where in served:
            inbox = self._inboxes.pop(where, None)
            if inbox is not None:
                self._inboxes[where] = inbox

    def _refuse_all(self, reason: str) -> None:
        for inbox in list(self._inboxes.values()):
            inbox.refuse(FetchRefused(-1, reason))
            self.remove(inbox)


def _topics(wanted: Iterable[Inbox], max_bytes: int) -> Iterator[Any]:
    """Consecutive partitions of one topic under one entry, the order kept: it decides who is served first."""
    entry = None
    for inbox in wanted:
        if entry is None or entry.topic != inbox.where.topic:
            if entry is not None:
                yield entry
            entry = FetchRequest.FetchTopic(
                topic=inbox.where.topic, topic_id=inbox.topic_id or UUID(int=0), partitions=[]
            )
        entry.partitions.append(
            FetchRequest.FetchTopic.FetchPartition(
                partition=inbox.where.partition,
                current_leader_epoch=inbox.leader_epoch,
                fetch_offset=inbox.position,
                last_fetched_epoch=inbox.last_fetched_epoch,
                log_start_offset=-1,
                partition_max_bytes=max_bytes,
            )
        )
    if entry is not None:
        yield entry


def _partitions(answer: FetchResponse, wanted: Iterable[Inbox]) -> Iterator[tuple[TopicPartition, PartitionData]]:
    names = {inbox.topic_id: inbox.where.topic for inbox in wanted}
    for topic in answer.responses:
        name = topic.topic or names.get(topic.topic_id, "")
        for data in topic.partitions:
            yield TopicPartition(name, data.partition_index), data


def _deliver(inbox: Inbox, data: PartitionData, position: int, *, first: bool) -> None:
    if data.error_code:
        inbox.refuse(FetchRefused(data.error_code, code_name(data.error_code)))
        return
    if getattr(data, "preferred_read_replica", -1) >= 0:
        # A selector on the broker sends us to a follower; the answer says nothing about the log (KIP-392).
        return
    diverging = getattr(data, "diverging_epoch", None)
    if diverging is not None and diverging.end_offset >= 0:
        inbox.refuse(FetchRefused(DIVERGED, str(diverging.end_offset)))
        return
    records = memoryview(data.records if data.records is not None else b"")
    # The broker notes its last stable offset before it reads (`Partition.fetchRecords`); a transaction that is decided
    # in between lets it return more than that, with the aborted ones named.
    tail = tail_of(records)
    stable = data.last_stable_offset if tail is None else max(data.last_stable_offset, tail[0])
    inbox.put(
        Chunk(
            position=position,
            records=records,
            aborted=[Aborted(a.producer_id, a.first_offset) for a in data.aborted_transactions or ()],
            high_watermark=max(data.high_watermark, stable),
            last_stable_offset=stable,
            log_start_offset=data.log_start_offset,
            conclusive=first,
            last_epoch=-1 if tail is None else tail[1],
        )
    )


class Source:
    """All fetchers of one mirror in this worker."""

    def __init__(self, cluster: Cluster, *, mirror: str, settings: FetchSettings, budget: Budget) -> None:
        self.cluster = cluster
        self.lookups = Lookups(cluster)
        self.settings = settings
        self._mirror = mirror
        self._budget = budget
        self._fetchers: dict[tuple[int, str], tuple[Fetcher, asyncio.Task[None]]] = {}

    def __repr__(self) -> str:
        return f"Source({self._mirror}, {len(self._fetchers)} fetchers)"

    async def subscribe(self, progress: Progress, *, topic_id: UUID | None, destination_leader: int) -> Inbox:
        """Begin to read where `progress` stands; the inbox fills by itself.

        Raises RefreshLeader where the partition has no leader.
        """
        leader = await self.cluster.find_leader(progress.where, refresh=True)
        inbox = Inbox(progress.where, progress.position, budget=self._budget, topic_id=topic_id)
        inbox.leader_epoch = leader.epoch
        inbox.last_fetched_epoch = min(progress.source_epoch, leader.epoch)
        client_id = f"broker-{destination_leader}-fetcher-0-mirror-{self._mirror}"
        key = (leader.node, client_id)
        if key not in self._fetchers or self._fetchers[key][1].done():
            fetcher = Fetcher(
                self.cluster, leader.node, client_id=client_id, settings=self.settings, budget=self._budget
            )
            self._fetchers[key] = (fetcher, asyncio.create_task(fetcher.run(), name=f"fetch {key}"))
        self._fetchers[key][0].add(inbox)
        return inbox

    def unsubscribe(self, inbox: Inbox) -> None:
        """Stop reading for `inbox` and free what it holds."""
        for fetcher, _ in self._fetchers.values():
            fetcher.remove(inbox)
        inbox.close()

    async def close(self) -> None:
        """End every fetcher and the connections to the source."""
        tasks = [task for _, task in self._fetchers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._fetchers.clear()
        await self.lookups.close()
        await self.cluster.close()
