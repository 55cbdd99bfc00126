"""Reads the source: one connection a (source broker, client id), one request for all partitions that have room.

The pump's first verb is `inbox.get()`; the requests behind it are made here. A fetch is read_committed, so nothing
that is undecided ever arrives (`ReplicaManager.fetchMessages`, isolation level 1). Requests go in a session
(`fetch_session`), so that what is quiet costs nothing.

What an empty answer means: the broker holds back what does not fit into the response, but not before it has returned
records of one partition (`ReplicaManager.readFromLog`, `minOneMessage`). So nothing is there only where *no* partition
of the answer has records; and for the first partition of a request outside of a session, which the broker reads first.
A partition that is left without its records for long while others get theirs is asked for in such a request.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID
from zlib import crc32

from kafka.protocol.consumer.fetch import FetchRequest, FetchResponse

from twinlog.errors import RetryLater, TwinlogError
from twinlog.names import TopicPartition
from twinlog.relay.budget import Budget, Share
from twinlog.relay.fetch_request import (
    FETCH_WITH_IDS,
    NEWEST_FETCH,
    NEWEST_WITHOUT_REDIRECTS,
    PartitionData,
    chunk_of,
    fetch_request,
    partitions_of,
    records_of,
    redirected,
    refusal_of,
)
from twinlog.relay.fetch_session import FetchPlan, FetchSession, alone
from twinlog.relay.inbox import Inbox, tail_of
from twinlog.relay.lookups import Lookups
from twinlog.relay.pace import Pace
from twinlog.relay.progress import FetchRefused, Progress
from twinlog.relay.quota import Quota
from twinlog.wire import codes
from twinlog.wire.cluster import Cluster
from twinlog.wire.codes import code_name
from twinlog.wire.connection import Connection

log = logging.getLogger("twinlog.fetch")

SESSION_LOST: Final = {
    codes.FETCH_SESSION_ID_NOT_FOUND,
    codes.INVALID_FETCH_SESSION_EPOCH,
    codes.FETCH_SESSION_TOPIC_ID_ERROR,
}
# How long a partition may get nothing while others do, before it is asked for by itself, and how many are at once.
STARVED_S: Final = 0.25
ALONE_AT_ONCE: Final = 20
# From this version on a broker throttles behind its answer, not before it (KIP-219).
FIRST_THROTTLED_BEHIND: Final = 8


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """The mirror's fetch configs; sizes in bytes, times in milliseconds; `fetchers` is a number a source broker."""

    wait_max_ms: int = 500
    min_bytes: int = 1
    partition_max_bytes: int = 1_048_576
    response_max_bytes: int = 10_485_760
    timeout_ms: int = 30_000
    backoff_ms: int = 1_000
    fetchers: int = 1
    receive_buffer_bytes: int = -1


class Fetcher:
    """Keeps asking one source broker for the partitions subscribed to it."""

    def __init__(
        self,
        cluster: Cluster,
        node: int,
        *,
        client_id: str,
        settings: FetchSettings,
        share: Share,
        quota: Quota | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.share = share
        self.quota = quota or Quota(settings.response_max_bytes)
        self.rounds = 0
        self._cluster = cluster
        self._node = node
        self._client_id = client_id
        self._settings = settings
        self._clock = clock
        self._inboxes: dict[TopicPartition, Inbox] = {}
        self._names: dict[UUID, str] = {}
        self._starved_since: dict[TopicPartition, float] = {}
        self._alone_at = float("-inf")
        self._changed = asyncio.Event()
        self._session = FetchSession()
        self._pace = Pace(settings.wait_max_ms)
        self._leader_only = False
        self._connection: Connection | None = None

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
        if inbox.topic_id is not None:
            self._names[inbox.topic_id] = inbox.where.topic
        self.share.at_work = True
        self._pace.joined(self._clock())
        self._changed.set()

    def remove(self, inbox: Inbox) -> None:
        """Fetch for `inbox` no more; an answer still under way is dropped."""
        if self._inboxes.get(inbox.where) is inbox:
            del self._inboxes[inbox.where]
            self._starved_since.pop(inbox.where, None)
        inbox.on_room = None
        self.share.at_work = bool(self._inboxes)

    async def run(self) -> None:
        """Fetch until cancelled.

        Trouble with the broker is handed to every subscribed partition, which asks for its leader.
        """
        while True:
            if not any(inbox.has_room for inbox in self._inboxes.values()):
                self._changed.clear()
                await self._changed.wait()
                continue
            throttled_s = self.quota.wait_s(self._clock())
            if throttled_s:
                # The broker reads nothing more of the connection until then.
                await asyncio.sleep(throttled_s)
                continue
            window = await self.share.room(min(self._settings.response_max_bytes, self.quota.most_bytes))
            try:
                await self._round(window)
            except TwinlogError as error:
                self._session.renew()
                self._refuse_all(str(error))
                await asyncio.sleep(self._settings.backoff_ms / 1000)
            except Exception as error:  # a mistake of ours: those who wait must hear of it before this ends
                log.exception("fetching from broker %d", self._node)
                self._refuse_all(f"unexpected error, please report it: {error!r}")
                raise

    async def _round(self, window_bytes: int) -> None:
        connection = await self._cluster.lane(self._node, self._client_id, client_id=self._client_id)
        if connection is not self._connection:
            self._connection = connection
            connection.raise_receive_buffer(self._settings.receive_buffer_bytes)
        wanted = [inbox for inbox in self._inboxes.values() if inbox.has_room]
        if not wanted:
            return
        plan, version = self._plan(connection, wanted)
        asked = {inbox.where: inbox for inbox in wanted}
        began = self._clock()
        self.rounds += 1
        wait_ms = 0 if plan.alone else self._pace.wait_ms(began, everyone=len(wanted) == len(self._inboxes))
        answer = await self._ask(connection, plan, version, wait_ms=wait_ms, max_bytes=window_bytes)
        if answer is None:
            return
        told = partitions_of(answer, self._names)
        quiet = not any(data.records for _, data in told)
        size = sum(len(data.records or b"") for _, data in told)
        self._note_throttle(answer.throttle_time_ms if version >= FIRST_THROTTLED_BEHIND else 0, size)
        if answer.throttle_time_ms and not told:
            # The broker holds everything back, whatever there is.
            return
        if not plan.full:
            _as_before(wanted)
        self._deliver(told, asked, next(iter(plan.asks), None) if plan.full else None, quiet=quiet)
        if plan.alone:
            return
        took_s = self._clock() - began
        if self._pace.answered(records=not quiet, told=bool(told), took_s=took_s, wait_ms=wait_ms):
            self._session.renew()
        if self._pace.pause_s:
            await asyncio.sleep(self._pace.pause_s)

    def _note_throttle(self, throttle_ms: int, size: int) -> None:
        now = self._clock()
        self.quota.answered(throttle_ms, now, size=size)
        wait_s = self.quota.to_tell_s(now)
        if wait_s:
            log.warning("source broker %d throttles client %s for %.1f s", self._node, self._client_id, wait_s)

    # Asking

    def _plan(self, connection: Connection, wanted: list[Inbox]) -> tuple[FetchPlan, int]:
        by_id = not self._leader_only and all(inbox.topic_id is not None and inbox.topic_id.int for inbox in wanted)
        newest = NEWEST_FETCH if by_id else FETCH_WITH_IDS - 1
        version = connection.version_of(
            FetchRequest, max_version=NEWEST_WITHOUT_REDIRECTS if self._leader_only else newest
        )
        now = self._clock()
        left_out = self._left_out(wanted, now)
        if left_out and self._session.is_open:
            self._alone_at = now
            return alone({inbox.where: inbox.ask for inbox in left_out}), version
        if self._starved_since:
            # Without a session the first one always gets a batch.
            wanted.sort(key=lambda inbox: not inbox.starved)
        asks = {inbox.where: inbox.ask for inbox in wanted}
        return self._session.plan(asks, by_id=version >= FETCH_WITH_IDS, now=now), version

    def _left_out(self, wanted: Sequence[Inbox], now: float) -> list[Inbox]:
        """Those that have got nothing for long although something is there; the longest first."""
        if not self._starved_since or now - self._alone_at < STARVED_S:
            return []
        since = self._starved_since
        left_out = [inbox for inbox in wanted if now - since.get(inbox.where, now) >= STARVED_S]
        return sorted(left_out, key=lambda inbox: since[inbox.where])[:ALONE_AT_ONCE]

    async def _ask(
        self, connection: Connection, plan: FetchPlan, version: int, *, wait_ms: int, max_bytes: int
    ) -> FetchResponse | None:
        """The answer, or None where the session is over: the next request begins another one."""
        settings = self._settings
        request = fetch_request(
            plan,
            wait_ms=wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=max_bytes,
            partition_max_bytes=settings.partition_max_bytes,
        )
        timeout_s = settings.timeout_ms / 1000
        answer: FetchResponse = await connection.request(request, timeout_s=timeout_s, max_version=version)
        if answer.error_code in SESSION_LOST and not plan.full:
            log.debug("broker %d: %s, a new session begins", self._node, code_name(answer.error_code))
            self._session.lost()
            return None
        if answer.error_code:
            raise RetryLater(f"source broker {self._node} refuses to fetch: {code_name(answer.error_code)}")
        if plan.alone or self._session.answered(plan, getattr(answer, "session_id", 0)):
            return answer
        return None

    # Taking in

    def _deliver(
        self,
        told: Sequence[tuple[TopicPartition, PartitionData]],
        asked: Mapping[TopicPartition, Inbox],
        first: TopicPartition | None,
        *,
        quiet: bool,
    ) -> None:
        size = cost = 0
        for where, data in told:
            inbox = asked.get(where)
            if inbox is not None and self._inboxes.get(where) is inbox:
                size += len(data.records or b"")
                cost += self._take(inbox, data, conclusive=quiet or where == first)
        self.share.came(size, cost)

    def _take(self, inbox: Inbox, data: PartitionData, *, conclusive: bool) -> int:
        refused = refusal_of(data)
        if refused is not None:
            inbox.refuse(refused)
            return 0
        if redirected(data):
            self._leader_only = True
            return 0
        records = records_of(data)
        tail = tail_of(records)
        place = None if tail is None else (tail.next_offset, tail.epoch)
        cost = inbox.put(chunk_of(data, records, inbox.position, conclusive=conclusive, tail=place), tail)
        if inbox.starved:
            self._starved_since.setdefault(inbox.where, self._clock())
        else:
            self._starved_since.pop(inbox.where, None)
        if len(records):
            # Those that got something go behind the others, as in a broker's session.
            self._inboxes[inbox.where] = self._inboxes.pop(inbox.where)
        return cost

    def _refuse_all(self, reason: str) -> None:
        for inbox in list(self._inboxes.values()):
            inbox.refuse(FetchRefused(-1, reason))
            self.remove(inbox)


def _as_before(asked: Sequence[Inbox]) -> None:
    """What a session's answer does not name is as it was."""
    now = time.monotonic()
    for inbox in asked:
        inbox.figures.told_at = now


def _spread(where: TopicPartition, fetchers: int) -> int:
    """Which of so many fetchers reads a partition: those of one topic go round, topics begin at different ones."""
    return (crc32(where.topic.encode()) + where.partition) % fetchers


class Source:
    """All fetchers of one mirror in this worker."""

    def __init__(self, cluster: Cluster, *, mirror: str, settings: FetchSettings, budget: Budget) -> None:
        self.cluster = cluster
        self.lookups = Lookups(cluster)
        self.settings = settings
        self._mirror = mirror
        self._budget = budget
        self._fetchers: dict[tuple[int, str], tuple[Fetcher, asyncio.Task[None]]] = {}
        self._quotas: dict[tuple[int, str], Quota] = {}

    def __repr__(self) -> str:
        return f"Source({self._mirror}, {len(self._fetchers)} fetchers)"

    @property
    def rounds(self) -> dict[tuple[int, str], int]:
        """How many requests each fetcher that has partitions has sent so far."""
        return {key: fetcher.rounds for key, (fetcher, _) in self._fetchers.items() if not fetcher.idle}

    @property
    def dead(self) -> int:
        """How many fetchers have ended although they have partitions."""
        return sum(task.done() and not fetcher.idle for fetcher, task in self._fetchers.values())

    @property
    def throttled_ms(self) -> int:
        """For how long the source's brokers have throttled the fetchers so far, in milliseconds, over all of them."""
        return sum(quota.throttled_ms for quota in self._quotas.values())

    async def subscribe(self, progress: Progress, *, topic_id: UUID | None, destination_leader: int) -> Inbox:
        """Begin to read where `progress` stands; the inbox fills by itself.

        Raises RefreshLeader where the partition has no leader.
        """
        leader = await self.cluster.find_leader(progress.where, refresh=True)
        number = _spread(progress.where, self.settings.fetchers)
        fetcher = self._fetcher(leader.node, f"broker-{destination_leader}-fetcher-{number}-mirror-{self._mirror}")
        inbox = Inbox(
            progress.where,
            progress.position,
            budget=fetcher.share,
            topic_id=topic_id,
            leader_epoch=leader.epoch,
            last_fetched_epoch=min(progress.source_epoch, leader.epoch),
        )
        fetcher.add(inbox)
        return inbox

    def _fetcher(self, node: int, client_id: str) -> Fetcher:
        key = (node, client_id)
        fetcher, task = self._fetchers.get(key, (None, None))
        if fetcher is not None and task is not None and not task.done():
            return fetcher
        if fetcher is not None:
            self._budget.close(fetcher.share)
        share = self._budget.share()
        quota = self._quotas.setdefault(key, Quota(self.settings.response_max_bytes))
        fetcher = Fetcher(self.cluster, node, client_id=client_id, settings=self.settings, share=share, quota=quota)
        self._fetchers[key] = (fetcher, asyncio.create_task(fetcher.run(), name=f"fetch {key}"))
        return fetcher

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
        for fetcher, _ in self._fetchers.values():
            self._budget.close(fetcher.share)
        self._fetchers.clear()
        await self.lookups.close()
        await self.cluster.close()
