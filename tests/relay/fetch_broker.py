"""A source broker that knows Fetch only, with the rules of Kafka's own sessions and limits; values, no sockets.

Rules from `FetchSession.scala` (contexts, `CachedPartition`), `ReplicaManager.readFromLog` and `DelayedFetch`.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from uuid import UUID

from kafka.protocol.consumer.fetch import FetchRequest, FetchResponse

from twinlog.errors import ConnectionLost
from twinlog.names import TopicPartition

Key = tuple[Any, int]


@dataclass
class Log:
    """One partition's log; `stable` and `high` follow the end unless a test holds them."""

    topic_id: UUID
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    start: int = 0
    end: int = 0
    held_stable: int | None = None
    error: int = 0
    diverging: int = -1
    preferred: int = -1

    @property
    def stable(self) -> int:
        """The last stable offset."""
        return self.end if self.held_stable is None else self.held_stable

    def read(self, position: int, limit: int, *, at_least_one: bool) -> bytes:
        """Whole batches, and the broker's one exception for a batch that is larger than the limit."""
        out = b""
        for _, following, raw in self.batches:
            if following <= position or following > self.stable:
                continue
            if len(out) + len(raw) > limit and (out or not at_least_one):
                break
            out += raw
        return out


@dataclass
class Cached:
    """What a session remembers of one partition."""

    ask: Any
    high: int = -1
    start: int = -1


class Broker:
    """Answers Fetch requests; `requests` are all that came, `slots` the sessions that it keeps at most.

    `finished` is for a test to say that nothing more will be appended.
    """

    def __init__(self, *, slots: int = 10, version: int = 17) -> None:
        self.logs: dict[TopicPartition, Log] = {}
        self.requests: list[FetchRequest] = []
        self.versions: list[int] = []
        self.slots = slots
        self.version = version
        self.throttled = 0
        self.throttle_ms = 5
        self.receive_buffer = 0
        self.lost = 0
        self.before_answer: Callable[[FetchRequest], None] = lambda _request: None
        self._ids = count(1001)
        self.sessions: dict[int, tuple[int, dict[Key, Cached]]] = {}
        self.finished = False
        self.asked = asyncio.Event()
        self._news = asyncio.Event()

    # What tests do

    def add(self, where: TopicPartition, *, topic_id: UUID | None = None) -> Log:
        """A new empty log."""
        log = self.logs[where] = Log(topic_id or UUID(int=7))
        return log

    def append(self, where: TopicPartition, raw: bytes, records: int) -> None:
        """One batch at the end."""
        log = self.logs[where]
        log.batches.append((log.end, log.end + records, raw))
        log.end += records
        self.wake()

    def wake(self) -> None:
        """Let requests that wait be answered."""
        self._news.set()

    def forget_sessions(self) -> None:
        """As a restart does."""
        self.sessions.clear()

    # As a cluster and a connection

    async def lane(self, node: int, name: str, *, client_id: str) -> "Broker":  # noqa: ARG002  # as the cluster's
        """There is one connection only."""
        return self

    def raise_receive_buffer(self, size: int) -> None:
        """There is no socket."""
        self.receive_buffer = size

    def version_of(self, request: Any, max_version: int) -> int:  # noqa: ARG002  # as the connection's
        """The version that both sides have."""
        return min(self.version, max_version)

    async def request(self, request: FetchRequest, *, timeout_s: float, max_version: int) -> FetchResponse:
        """One request; waits as a broker does when there is nothing to tell."""
        self.requests.append(request)
        self.versions.append(max_version)
        self.asked.set()
        await asyncio.sleep(0.001)
        if self.lost:
            self.lost -= 1
            raise ConnectionLost("cut")
        self.before_answer(request)
        async with asyncio.timeout(timeout_s):
            return await self._answer(request, by_id=max_version >= 13)

    async def _answer(self, request: FetchRequest, *, by_id: bool) -> FetchResponse:
        full = self.version < 7 or request.session_epoch <= 0
        if full:
            asked = self._asked(request, by_id=by_id)
            if request.session_id:
                self.sessions.pop(request.session_id, None)
        else:
            epoch, asked = self.sessions.get(request.session_id, (0, {}))
            if not epoch:
                return _response(error_code=70)
            if epoch != request.session_epoch:
                return _response(error_code=71)
            self._update(asked, request, by_id=by_id)
            self.sessions[request.session_id] = (epoch + 1, asked)
        read = self._read(asked, request)
        if not any(self._is_news(asked[key], data) for key, data in read):
            await self._wait(request.max_wait_ms)
            read = self._read(asked, request)
        if self.throttled:
            self.throttled -= 1
            return _response(throttle_time_ms=self.throttle_ms, session_id=0 if full else request.session_id)
        return self._full(request, asked, read) if full else self._changed(request, asked, read)

    def _is_news(self, cached: Cached, data: Any) -> bool:
        """Whether a delayed fetch would be completed; also by an end in another segment, with nothing before it."""
        redirected = data.preferred_read_replica >= 0
        return bool(data.records or data.error_code or redirected or data.last_stable_offset > cached.ask.fetch_offset)

    def _asked(self, request: FetchRequest, *, by_id: bool) -> dict[Key, Cached]:
        return {
            (topic.topic_id if by_id else topic.topic, part.partition): Cached(part)
            for topic in request.topics
            for part in topic.partitions
        }

    def _update(self, cached: dict[Key, Cached], request: FetchRequest, *, by_id: bool) -> None:
        for key, new in self._asked(request, by_id=by_id).items():
            cached.setdefault(key, new).ask = new.ask
        for topic in request.forgotten_topics_data:
            for part in topic.partitions:
                cached.pop((topic.topic_id if by_id else topic.topic, part), None)

    async def _wait(self, wait_ms: int) -> None:
        self._news.clear()
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._news.wait()
        except TimeoutError:
            return

    def _read(self, asked: dict[Key, Cached], request: FetchRequest) -> list[tuple[Key, Any]]:
        left, at_least_one, out = request.max_bytes, True, []
        for key, cached in asked.items():
            log = self._log(key)
            records = b""
            if log is not None and not log.error and log.preferred < 0:
                limit = min(left, cached.ask.partition_max_bytes)
                records = log.read(cached.ask.fetch_offset, limit, at_least_one=at_least_one)
            if records:
                at_least_one = False
                left = max(0, left - len(records))
            out.append((key, _data(key[1], log, records)))
        return out

    def _log(self, key: Key) -> Log | None:
        return next(
            (log for where, log in self.logs.items() if key in {(where.topic, where[1]), (log.topic_id, where[1])}),
            None,
        )

    def _full(self, request: FetchRequest, asked: dict[Key, Cached], read: list[tuple[Key, Any]]) -> FetchResponse:
        session_id = 0
        if self.version >= 7 and request.session_epoch == 0 and len(self.sessions) < self.slots:
            session_id = next(self._ids)
            for key, data in read:
                asked[key].high, asked[key].start = data.high_watermark, data.log_start_offset
            self.sessions[session_id] = (1, asked)
        return _response(session_id=session_id, responses=_topics(read))

    def _changed(self, request: FetchRequest, asked: dict[Key, Cached], read: list[tuple[Key, Any]]) -> FetchResponse:
        told = []
        for key, data in read:
            cached = asked[key]
            same = (cached.high, cached.start) == (data.high_watermark, data.log_start_offset)
            if same and not data.records and not data.error_code and data.preferred_read_replica < 0:
                continue
            cached.high, cached.start = (-1 if data.error_code else data.high_watermark), data.log_start_offset
            told.append((key, data))
            if data.records:
                asked[key] = asked.pop(key)
        return _response(session_id=request.session_id, responses=_topics(told))


def _data(partition: int, log: Log | None, records: bytes) -> Any:
    kind = FetchResponse.FetchableTopicResponse.PartitionData
    error = 3 if log is None else log.error
    if log is None or error:
        return kind(
            partition_index=partition,
            error_code=error,
            high_watermark=-1,
            last_stable_offset=-1,
            log_start_offset=-1,
            preferred_read_replica=-1,
            aborted_transactions=None,
            records=b"",
        )
    return kind(
        partition_index=partition,
        error_code=0,
        high_watermark=log.end,
        last_stable_offset=log.stable,
        log_start_offset=log.start,
        preferred_read_replica=log.preferred,
        aborted_transactions=None,
        records=records,
    )


def _topics(read: list[tuple[Key, Any]]) -> list[Any]:
    kind = FetchResponse.FetchableTopicResponse
    return [
        kind(topic=key[0] if isinstance(key[0], str) else "", topic_id=_id(key[0]), partitions=[data])
        for key, data in read
    ]


def _id(name: Any) -> UUID:
    return name if isinstance(name, UUID) else UUID(int=0)


def _response(**fields: Any) -> FetchResponse:
    known: dict[str, Any] = {"throttle_time_ms": 0, "error_code": 0, "session_id": 0, "responses": []}
    return FetchResponse(**(known | fields))
