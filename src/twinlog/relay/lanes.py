"""The data lane: one ordered connection to a destination broker, shared by the partitions that hash onto it.

A request carries the next batch of every partition that has one; a few requests are under way at once. A partition's
batches never leave their lane, since parallel connections reorder a producer's first batches.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from kafka.protocol.producer.produce import ProduceRequest

from twinlog.errors import TwinlogError
from twinlog.names import TopicPartition
from twinlog.relay.lease import Lease
from twinlog.relay.progress import Accepted, Answer, Displaced, LeaseLost, Refused, Send, Unknown
from twinlog.relay.window import Window
from twinlog.wire import codes
from twinlog.wire.connection import Connection
from twinlog.wire.produce import (
    NEWEST_PRODUCE,
    PRODUCE,
    PartitionBatch,
    Produced,
    decode_produced,
    encode_produce,
)
from twinlog.wire.retry import ANSWER_SLACK_S

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


class DataJob:
    """The batches of one step for one partition, and what became of them."""

    __slots__ = ("answered", "done", "failure", "in_flight", "lease", "next", "queued", "sends", "where", "window")

    def __init__(
        self,
        where: TopicPartition,
        sends: tuple[Send, ...],
        lease: Lease,
        *,
        window: Window | None,
        done: asyncio.Future[Answer],
    ) -> None:
        self.where = where
        self.sends = sends
        self.lease = lease
        self.window = window
        self.done = done
        self.queued = False
        self.next = 0
        self.answered = 0
        self.in_flight = 0
        self.failure: Answer | None = None

    def may_send(self) -> bool:
        """Whether the next batch may go out now."""
        if self.failure is not None or self.next >= len(self.sends):
            return False
        send, window = self.sends[self.next], self.window
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
        return ACKS_ALL if self.window is None or self.sends[self.next].acks_all else ACKS_LEADER

    def leaves(self) -> None:
        """Count the next batch as sent."""
        batch = self.sends[self.next].batch
        self.next += 1
        self.in_flight += 1
        if self.window is not None:
            self.window.sent(batch.last + 1, batch.size)

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
        """Give the answer once nothing is in flight and nothing more will be sent."""
        if self.in_flight or self.done.done():
            return
        if self.failure is not None:
            self.done.set_result(self.failure)
        elif self.answered == len(self.sends):
            self.done.set_result(Accepted())


Flight = list[tuple[DataJob, Send]]


class DataLane:
    """Sends the jobs given to it over one connection, in order within each partition."""

    def __init__(self, connection: Connection, *, timeout_s: float) -> None:
        self._connection = connection
        self._timeout_s = timeout_s
        self._version = connection.version_of(ProduceRequest, NEWEST_PRODUCE)
        self._ready: deque[DataJob] = deque()
        self._in_flight = 0
        self._filling = False
        self._loop = asyncio.get_running_loop()

    def __repr__(self) -> str:
        return f"DataLane({self._connection!r}, {self._in_flight} requests in flight)"

    @property
    def closed(self) -> bool:
        """Whether its connection is gone; a new lane is needed then."""
        return self._connection.closed

    async def append(
        self, where: TopicPartition, sends: tuple[Send, ...], lease: Lease, window: Window | None = None
    ) -> Answer:
        """Send `sends` in order and await every answer; with a `window`, as far as that has room."""
        job = DataJob(where, sends, lease, window=window, done=self._loop.create_future())
        if window is not None:
            window.on_change = partial(self._window_changed, job)
        self._offer(job)
        if window is not None and window.lost is not None:
            self._window_changed(job)
        try:
            return await asyncio.shield(job.done)
        except asyncio.CancelledError:
            # What is under way cannot be called back, but nothing more of this job may follow it.
            job.fail(LeaseLost(sends[min(job.next, len(sends) - 1)].batch.first))
            raise
        finally:
            if window is not None:
                window.on_change = None

    def _window_changed(self, job: DataJob) -> None:
        window = job.window
        if window is not None and window.lost is not None:
            at = job.sends[min(job.next, len(job.sends) - 1)].batch.first
            job.fail(Unknown(at, window.lost))
            job.settle()
        else:
            self._offer(job)

    def _offer(self, job: DataJob) -> None:
        """Queue the job, once, if its next batch may go out."""
        if not job.queued and job.may_send():
            job.queued = True
            self._ready.append(job)
            self._fill_soon()

    def _fill_soon(self) -> None:
        # One turn of the loop later, so that partitions which become ready together share a request.
        if not self._filling:
            self._filling = True
            self._loop.call_soon(self._fill)

    def _fill(self) -> None:
        self._filling = False
        while self._ready and self._in_flight < MAX_IN_FLIGHT:
            flight, acks = self._gather()
            if flight:
                self._send(flight, acks)

    def _gather(self) -> tuple[Flight, int]:
        """The next batch of each ready partition that wants the same `acks`, up to the size of a request."""
        flight: Flight = []
        others: list[DataJob] = []
        size = acks = 0
        for _ in range(len(self._ready)):
            job = self._ready.popleft()
            if job.failure is None and not job.lease.valid():
                job.fail(LeaseLost(job.sends[job.next].batch.first))
            if job.failure is not None or not job.may_send():
                job.queued = False
                job.settle()
                continue
            send, wanted = job.sends[job.next], job.acks()
            if flight and wanted != acks:
                others.append(job)
                continue
            if flight and size + send.batch.size > REQUEST_BYTES:
                self._ready.appendleft(job)
                break
            job.queued = False
            flight.append((job, send))
            acks = wanted
            size += send.batch.size
        self._ready.extendleft(reversed(others))
        return flight, acks

    def _send(self, flight: Flight, acks: int) -> None:
        for job, _ in flight:
            job.leaves()
            self._offer(job)
        chunks = encode_produce(self._version, _by_topic(flight), acks=acks, timeout_ms=int(self._timeout_s * 1000))
        try:
            answer = self._connection.submit_frame(
                PRODUCE, self._version, chunks, partial(decode_produced, self._version)
            )
        except TwinlogError as error:
            self._answered_unknown(flight, str(error))
            return
        self._in_flight += 1
        # The broker itself answers within timeout_ms; only a dead or frozen one does not.
        timer = self._loop.call_later(self._timeout_s + ANSWER_SLACK_S, self._connection.reset)
        answer.add_done_callback(partial(self._done, flight, timer.cancel))

    def _done(
        self, flight: Flight, cancel_timer: Callable[[], None], answer: asyncio.Future[dict[tuple[str, int], Produced]]
    ) -> None:
        cancel_timer()
        self._in_flight -= 1
        if answer.cancelled():
            self._answered_unknown(flight, "the request was cancelled")
        elif (error := answer.exception()) is not None:
            self._answered_unknown(flight, str(error))
        else:
            self._answered(flight, answer.result())
        self._fill_soon()

    def _answered(self, flight: Flight, produced: dict[tuple[str, int], Produced]) -> None:
        for job, send in flight:
            found = produced.get(job.where)
            if found is None:
                job.fail(Unknown(send.batch.first, "the broker's answer leaves this partition out"))
            else:
                job.judge(send, found)
            self._landed(job)

    def _answered_unknown(self, flight: Flight, reason: str) -> None:
        for job, send in flight:
            job.fail(Unknown(send.batch.first, reason))
            self._landed(job)

    def _landed(self, job: DataJob) -> None:
        job.in_flight -= 1
        job.answered += 1
        job.settle()
        self._offer(job)


def _by_topic(flight: Iterable[tuple[DataJob, Send]]) -> list[tuple[str, list[PartitionBatch]]]:
    topics: dict[str, list[PartitionBatch]] = {}
    for job, send in flight:
        batch = send.batch
        topics.setdefault(job.where.topic, []).append(PartitionBatch(job.where.partition, batch.header, batch.body))
    return list(topics.items())
