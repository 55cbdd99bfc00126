"""The data lane: one ordered connection to a destination broker, shared by the streams that were given it (`spread`).

A request carries the next batch of every partition that has one; a few requests are under way at once. A partition's
batches never leave their lane, since parallel connections reorder a producer's first batches.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from functools import partial

from kafka.protocol.producer.produce import ProduceRequest

from twinlog.errors import TwinlogError
from twinlog.names import TopicPartition
from twinlog.relay.lease import Lease
from twinlog.relay.progress import Accepted, Answer, Displaced, LeaseLost, Refused, Send, Unknown
from twinlog.relay.quota import Quota
from twinlog.relay.watch import Watch
from twinlog.relay.window import Window
from twinlog.wire import codes
from twinlog.wire.connection import Connection
from twinlog.wire.produce import (
    NEWEST_PRODUCE,
    PRODUCE,
    PartitionBatch,
    ProduceAnswer,
    Produced,
    decode_produce_answer,
    encode_produce,
)
from twinlog.wire.retry import ANSWER_SLACK_S

log = logging.getLogger("twinlog.lanes")

# A broker remembers a producer's last five batches (`ProducerStateEntry.NUM_BATCHES_TO_RETAIN`).
MAX_IN_FLIGHT = 5
# A request is closed once it has grown to this; far below socket.request.max.bytes.
REQUEST_BYTES = 1_048_576
# All in-sync replicas have it, and the high watermark has passed it; or the leader has it.
ACKS_ALL, ACKS_LEADER = -1, 1
# Codes that say that nothing was appended. After any other the log has to be read.
NOT_APPENDED = frozenset(
    {
        codes.CORRUPT_MESSAGE,
        codes.UNKNOWN_TOPIC_OR_PARTITION,
        codes.MESSAGE_TOO_LARGE,
        codes.RECORD_LIST_TOO_LARGE,
        codes.NOT_ENOUGH_REPLICAS,
        codes.TOPIC_AUTHORIZATION_FAILED,
        codes.CLUSTER_AUTHORIZATION_FAILED,
        codes.INVALID_TIMESTAMP,
        codes.OUT_OF_ORDER_SEQUENCE_NUMBER,
        codes.INVALID_PRODUCER_EPOCH,
        codes.INVALID_TXN_STATE,
        codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        codes.INVALID_RECORD,
        codes.PRODUCER_FENCED,
    }
)


class DataLine:
    """One stream's batches on their way into its lane, in order, and what became of them.

    It takes the batches of one plan behind those of another. The first failure ends it: nothing more is sent, and each
    plan that is not answered yet gets that failure once everything under way has its answer.
    """

    __slots__ = (
        "_behind",
        "_marks",
        "answered",
        "failure",
        "given",
        "in_flight",
        "lane",
        "lease",
        "queued",
        "turn",
        "unsent",
        "where",
        "window",
    )

    def __init__(self, where: TopicPartition, lease: Lease, window: Window | None = None) -> None:
        self.where = where
        self.lease = lease
        self.window = window
        self.lane: DataLane | None = None
        self.unsent: deque[Send] = deque()
        self.given = self.answered = self.in_flight = 0
        self._behind = -1
        self.failure: Answer | None = None
        self.queued = False
        # Plans come in the order in which they were made, also where the first has to wait for its lane to open.
        self.turn = asyncio.Lock()
        self._marks: deque[tuple[int, asyncio.Future[Answer]]] = deque()

    def __repr__(self) -> str:
        return f"DataLine({self.where}, {self.in_flight} in flight, {len(self.unsent)} behind them)"

    def add(self, sends: tuple[Send, ...], done: asyncio.Future[Answer]) -> None:
        """Put `sends` behind what is there; `done` gets the answer."""
        self.given += len(sends)
        self.unsent.extend(sends)
        self._behind = sends[-1].batch.last + 1
        self._marks.append((self.given, done))

    def may_send(self) -> bool:
        """Whether the next batch may go out now."""
        if self.failure is not None or not self.unsent:
            return False
        send, window = self.unsent[0], self.window
        if send.barrier and self.in_flight:
            return False
        if window is None:
            return True
        if send.barrier and not window.empty:
            window.block()
            return False
        return window.room_for(send.batch.size)

    def acks(self) -> int:
        """What the next batch's acknowledgement has to mean."""
        return ACKS_ALL if self.window is None or self.unsent[0].acks_all else ACKS_LEADER

    def leaves(self) -> Send:
        """Count the next batch as sent, and return it."""
        send = self.unsent.popleft()
        self.in_flight += 1
        if self.window is not None:
            self.window.sent(send.batch.last + 1, send.batch.size)
        return send

    def moves_to(self, lane: "DataLane") -> None:
        """Note the lane; what is under way on another one, which is closed then, has no answer that counts."""
        if self.lane is not lane and self.in_flight:
            self.fail(Unknown(self._next_first, "its connection is closed"))
        self.lane = lane

    def give_up(self) -> None:
        """Send nothing more, since whoever gave the batches is gone."""
        self.fail(LeaseLost(self._next_first))
        self.settle()

    def lose(self, reason: str) -> None:
        """Send nothing more, since what was sent may not be where it was."""
        self.fail(Unknown(self._next_first, reason))
        self.settle()

    @property
    def _next_first(self) -> int:
        return self.unsent[0].batch.first if self.unsent else self._behind

    def fail(self, answer: Answer) -> None:
        """Keep the gravest failure: a displaced append, then an unknown outcome, then the first refusal."""
        gravity = {LeaseLost: 0, Refused: 1, Unknown: 2, Displaced: 3}
        if self.failure is None or gravity[type(answer)] > gravity[type(self.failure)]:
            self.failure = answer

    def judge(self, send: Send, produced: Produced) -> None:
        """Take the broker's answer for one batch."""
        first = send.batch.first
        if produced.code == codes.NONE:
            if produced.base_offset != first:
                self.fail(Displaced(expected=first, found=produced.base_offset))
            elif send.acks_all and self.window is not None:
                self.window.passed(send.batch.last + 1, by_mark=False)
        elif produced.code in NOT_APPENDED:
            self.fail(Refused(produced.code, first, send.batch.size, produced.message))
        else:
            self.fail(Unknown(first, f"error {produced.code} {produced.message}".rstrip()))

    def settle(self) -> None:
        """Give the answers that are due: those of plans that are accepted whole, or the failure once nothing is out."""
        if self.failure is None:
            while self._marks and self._marks[0][0] <= self.answered:
                _answer(self._marks.popleft()[1], Accepted())
        elif not self.in_flight:
            self.unsent.clear()
            while self._marks:
                _answer(self._marks.popleft()[1], self.failure)


def _answer(done: asyncio.Future[Answer], answer: Answer) -> None:
    if not done.done():
        done.set_result(answer)


Flight = list[tuple[DataLine, Send]]


class DataLane:
    """Sends what the lines give it over one connection, in order within each partition."""

    def __init__(self, connection: Connection, *, timeout_s: float, quota: Quota | None = None) -> None:
        self._connection = connection
        self._timeout_s = timeout_s
        self._quota = quota or lane_quota()
        self._version = connection.version_of(ProduceRequest, NEWEST_PRODUCE)
        self._ready: deque[DataLine] = deque()
        self._in_flight = self._bytes_in_flight = self._held = 0
        self._filling = False
        self._loop = asyncio.get_running_loop()

    def __repr__(self) -> str:
        return f"DataLane({self._connection!r}, {self._in_flight} requests in flight)"

    @property
    def closed(self) -> bool:
        """Whether its connection is gone; a new lane is needed then."""
        return self._connection.closed

    def begin(self, line: DataLine, sends: tuple[Send, ...]) -> asyncio.Future[Answer]:
        """Send `sends` behind what the line has under way, as far as its window has room; `answered` waits for it."""
        line.moves_to(self)
        done: asyncio.Future[Answer] = self._loop.create_future()
        line.add(sends, done)
        window = line.window
        if window is not None:
            window.on_change = partial(self._window_changed, line)
        if window is not None and window.lost is not None:
            line.lose(window.lost)
        line.settle()
        self._offer(line)
        return done

    def _window_changed(self, line: DataLine) -> None:
        window = line.window
        if window is None or window.lost is None:
            self._offer(line)
        elif line.unsent or line.in_flight:
            line.lose(window.lost)

    def _offer(self, line: DataLine) -> None:
        """Queue the line, once, if its next batch may go out."""
        if not line.queued and line.may_send():
            line.queued = True
            self._ready.append(line)
            self._fill_soon()

    def _fill_soon(self) -> None:
        # One turn of the loop later, so that partitions which become ready together share a request.
        if not self._filling:
            self._filling = True
            self._loop.call_soon(self._fill)

    def _fill(self) -> None:
        self._filling = False
        muted_s = self._quota.wait_s(self._loop.time())
        if muted_s and self._ready:
            self._filling = True
            self._loop.call_later(muted_s, self._fill)
            return
        while self._ready and self._has_room():
            flight, acks = self._gather()
            if flight:
                self._send(flight, acks)

    def _has_room(self) -> bool:
        """Under a quota little at a time, and nothing behind a request that waits for replicas.

        A broker handles what comes behind such a request only once that is answered. An owner that dies or freezes
        would leave requests there for up to half a minute, to be carried out behind its successor's back.
        """
        if self._held:
            return False
        if self._in_flight and self._bytes_in_flight >= self._quota.most_bytes:
            return False
        return self._in_flight < MAX_IN_FLIGHT

    def _gather(self) -> tuple[Flight, int]:
        """The next batch of each ready partition that wants the same `acks`, up to the size of a request."""
        flight: Flight = []
        others: list[DataLine] = []
        size = acks = 0
        most_bytes = min(REQUEST_BYTES, self._quota.most_bytes)
        for _ in range(len(self._ready)):
            line = self._ready.popleft()
            if not line.may_send() or not line.lease.valid():
                self._put_aside(line)
                continue
            wanted, next_size = line.acks(), line.unsent[0].batch.size
            if flight and wanted != acks:
                others.append(line)
                continue
            if flight and size + next_size > most_bytes:
                self._ready.appendleft(line)
                break
            line.queued = False
            flight.append((line, line.leaves()))
            acks = wanted
            size += next_size
        self._ready.extendleft(reversed(others))
        return flight, acks

    def _put_aside(self, line: DataLine) -> None:
        line.queued = False
        if line.failure is None and not line.lease.valid():
            line.give_up()
            return
        line.settle()

    def _send(self, flight: Flight, acks: int) -> None:
        for line, _ in flight:
            self._offer(line)
        chunks = encode_produce(self._version, _by_topic(flight), acks=acks, timeout_ms=int(self._timeout_s * 1000))
        try:
            answer = self._connection.submit_frame(
                PRODUCE, self._version, chunks, partial(decode_produce_answer, self._version)
            )
        except TwinlogError as error:
            self._answered_unknown(flight, str(error))
            return
        waits_for_replicas = acks == ACKS_ALL and any(line.window is not None for line, _ in flight)
        self._in_flight += 1
        self._held += waits_for_replicas
        self._bytes_in_flight += _size(flight)
        # The broker itself answers within timeout_ms; only a dead or frozen one does not.
        watch = Watch(self._timeout_s + ANSWER_SLACK_S, self._quota, self._connection.reset)
        answer.add_done_callback(partial(self._done, flight, watch, waits_for_replicas))

    def _done(self, flight: Flight, watch: Watch, held: bool, answer: asyncio.Future[ProduceAnswer]) -> None:  # noqa: FBT001  # bound by partial
        watch.end()
        under_way = self._bytes_in_flight
        self._in_flight -= 1
        self._held -= held
        self._bytes_in_flight -= _size(flight)
        if answer.cancelled():
            self._answered_unknown(flight, "the request was cancelled")
        elif (error := answer.exception()) is not None:
            self._answered_unknown(flight, str(error))
        else:
            told = answer.result()
            self._quota.answered(told.throttle_ms, self._loop.time(), size=under_way)
            pause_s = self._quota.to_tell_s(self._loop.time())
            if pause_s:
                log.warning("%s throttles the writing of data for %.1f s", self._connection.peer, pause_s)
            self._answered(flight, told.partitions)
        self._fill_soon()

    def _answered(self, flight: Flight, produced: dict[tuple[str, int], Produced]) -> None:
        for line, send in flight:
            found = produced.get(line.where)
            if found is None:
                line.fail(Unknown(send.batch.first, "the broker's answer leaves this partition out"))
            else:
                line.judge(send, found)
            self._landed(line)

    def _answered_unknown(self, flight: Flight, reason: str) -> None:
        for line, send in flight:
            line.fail(Unknown(send.batch.first, reason))
            self._landed(line)

    def _landed(self, line: DataLine) -> None:
        line.in_flight -= 1
        line.answered += 1
        line.settle()
        self._offer(line)


def lane_quota() -> Quota:
    """What a lane learns of its broker's quota."""
    return Quota(MAX_IN_FLIGHT * REQUEST_BYTES)


async def answered(line: DataLine, done: asyncio.Future[Answer]) -> Answer:
    """What became of what `DataLane.begin` was given; cancelled, nothing more of the line is sent."""
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        # What is under way cannot be called back, but nothing more of this line may follow it.
        line.give_up()
        raise


def _size(flight: Flight) -> int:
    return sum(send.batch.size for _, send in flight)


def _by_topic(flight: Iterable[tuple[DataLine, Send]]) -> list[tuple[str, list[PartitionBatch]]]:
    topics: dict[str, list[PartitionBatch]] = {}
    for line, send in flight:
        batch = send.batch
        topics.setdefault(line.where.topic, []).append(PartitionBatch(line.where.partition, batch.header, batch.body))
    return list(topics.items())
