"""Sends the batches of a transaction: pipelined, in order within each partition, one connection a broker."""

import asyncio
from collections import deque
from functools import partial
from typing import Final, NamedTuple

from kafka.protocol.producer.produce import ProduceRequest

from twinlog.batch import layout
from twinlog.batch.edit import next_sequence, stamped
from twinlog.batch.view import Batch
from twinlog.errors import RetryLater, TwinlogError
from twinlog.names import TopicPartition
from twinlog.relay.quota import Quota
from twinlog.relay.watch import Watch
from twinlog.reo.plan import transactional
from twinlog.reo.positions import Place
from twinlog.wire import codes
from twinlog.wire.cluster import Cluster
from twinlog.wire.connection import Connection
from twinlog.wire.ops import Producer
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

MAX_IN_FLIGHT: Final = 5
REQUEST_BYTES: Final = 1_048_576
QUEUED_BYTES: Final = 8_388_608
LANE: Final = "reo-data"


class Mark(NamedTuple):
    """Where a batch comes from: its first record's offset at the source, and where the record that holds it was read.

    The two are the same where the source itself is read. `place` tells whose offset it is.
    """

    reading: int
    offset: int
    place: Place | None = None

    def reaches(self, other: "Mark") -> bool:
        """Whether it is `other`, or comes behind it."""
        return (self.reading, self.offset) >= (other.reading, other.offset)


NOWHERE: Final = Mark(-1, -1)
"""Of what was not read anywhere: positions, and beginnings."""


class Refusal(NamedTuple):
    """The destination refused a batch of `size` bytes, read from partition `source` at `mark`.

    It could be parted into `units` smaller ones: its records, or the batches that it wraps. `target` is the partition
    that it was for.
    """

    code: int
    message: str
    source: TopicPartition | None
    mark: Mark
    size: int
    units: int
    target: TopicPartition | None = None


class NotSent(RetryLater):
    """A batch of the transaction was refused, or its outcome is unknown: the transaction must be aborted."""

    def __init__(self, message: str, refusal: Refusal | None = None) -> None:
        super().__init__(message)
        self.refusal = refusal


class _Queued(NamedTuple):
    where: TopicPartition
    source: TopicPartition | None
    mark: Mark
    header: bytes
    body: memoryview
    units: int
    first: bool

    @property
    def size(self) -> int:
        return len(self.header) + len(self.body)

    def refusal(self, code: int, message: str) -> Refusal:
        """As the broker has answered."""
        return Refusal(code, message, self.source, self.mark, self.size, self.units, self.where)


class Sender:
    """What one producer epoch sends; a new epoch needs a new sender, since sequences begin at 0."""

    def __init__(self, cluster: Cluster, transactional_id: str | None, producer: Producer, *, timeout_s: float) -> None:
        self.producer = producer
        self._cluster = cluster
        self._id = transactional_id
        self._timeout_s = timeout_s
        self._sequences: dict[TopicPartition, int] = {}
        self._queues: dict[int, dict[TopicPartition, deque[_Queued]]] = {}
        self._in_flight: dict[int, int] = {}
        self._bytes_in_flight: dict[int, int] = {}
        self._connections: dict[int, Connection] = {}
        self._quotas: dict[int, Quota] = {}
        # A broker takes any first sequence from a producer that it does not know: without a transaction behind it, a
        # second batch may follow only when the first is in the log.
        self._unproven: set[TopicPartition] = set()
        self._queued_bytes = 0
        self._changed = asyncio.Event()
        self.failure: NotSent | None = None

    async def put(
        self, where: TopicPartition, batch: Batch, *, source: TopicPartition | None, mark: Mark, units: int = 0
    ) -> None:
        """Send `batch` behind what was put for the partition before; waits while much is queued. Raises NotSent.

        `units` is into how many smaller ones it could be parted, where that is not its number of records.
        """
        leader = await self._cluster.find_leader(where)
        if leader.node not in self._connections or self._connections[leader.node].closed:
            self._connections[leader.node] = await self._cluster.lane(leader.node, LANE)
        sequence = self._sequences.get(where, 0)
        id_, epoch = self.producer
        if self._id is not None:
            header = transactional(batch, producer_id=id_, epoch=epoch, sequence=sequence)
        else:
            header = stamped(batch, producer_id=id_, epoch=epoch, sequence=sequence).header
        self._sequences[where] = next_sequence(sequence, batch.count)
        queued = _Queued(
            where, source, mark, header, batch.raw[layout.HEADER_SIZE :], units or batch.count, first=sequence == 0
        )
        self._queues.setdefault(leader.node, {}).setdefault(where, deque()).append(queued)
        self._queued_bytes += queued.size
        self._pump(leader.node)
        while self._queued_bytes > QUEUED_BYTES and self.failure is None:
            await self._change()
        if self.failure is not None:
            raise self.failure

    async def flush(self) -> None:
        """Wait until all that was put is in the destination's logs; NotSent where some of it is not."""
        while any(self._in_flight.values()) or (self._queued_bytes and self.failure is None):
            for node in self._queues:
                self._pump(node)
            await self._change()
        if self.failure is not None:
            raise self.failure

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _pump(self, node: int) -> None:
        quota = self._quotas.setdefault(node, Quota(MAX_IN_FLIGHT * REQUEST_BYTES))
        loop = asyncio.get_running_loop()
        if muted_s := quota.wait_s(loop.time()):
            loop.call_later(muted_s, self._wake, node)
            return
        while self.failure is None and self._in_flight.get(node, 0) < MAX_IN_FLIGHT:
            under_way = self._bytes_in_flight.get(node, 0)
            if under_way and under_way >= quota.most_bytes:
                return
            flight = self._gather(self._queues[node], min(REQUEST_BYTES, quota.most_bytes))
            if not flight:
                return
            self._send(node, flight)

    def _wake(self, node: int) -> None:
        self._pump(node)
        self._changed.set()

    def _gather(self, queues: dict[TopicPartition, deque[_Queued]], most_bytes: int) -> list[_Queued]:
        """The next batch of each partition, up to the size of a request; who is served goes behind the others."""
        flight: list[_Queued] = []
        size = 0
        for where in [where for where in queues if where not in self._unproven]:
            queue = queues[where]
            if flight and size + queue[0].size > most_bytes:
                break
            flight.append(queue.popleft())
            if flight[-1].first and self._id is None:
                self._unproven.add(where)
            size += flight[-1].size
            del queues[where]
            if queue:
                queues[where] = queue
        self._queued_bytes -= size
        return flight

    def _send(self, node: int, flight: list[_Queued]) -> None:
        connection = self._connections[node]
        version = connection.version_of(ProduceRequest, NEWEST_PRODUCE)
        topics: dict[str, list[PartitionBatch]] = {}
        for item in flight:
            topics.setdefault(item.where.topic, []).append(PartitionBatch(item.where.partition, item.header, item.body))
        chunks = encode_produce(
            version,
            list(topics.items()),
            acks=-1,
            timeout_ms=int(self._timeout_s * 1000),
            transactional_id=self._id,
        )
        try:
            answer = connection.submit_frame(PRODUCE, version, chunks, partial(decode_produce_answer, version))
        except TwinlogError as error:
            self._fail(NotSent(str(error)))
            return
        self._in_flight[node] = self._in_flight.get(node, 0) + 1
        self._bytes_in_flight[node] = self._bytes_in_flight.get(node, 0) + _size(flight)
        watch = Watch(self._timeout_s + ANSWER_SLACK_S, self._quotas[node], connection.reset)
        answer.add_done_callback(partial(self._done, node, flight, watch))

    def _done(
        self,
        node: int,
        flight: list[_Queued],
        watch: Watch,
        answer: "asyncio.Future[ProduceAnswer]",
    ) -> None:
        watch.end()
        under_way = self._bytes_in_flight[node]
        self._in_flight[node] -= 1
        self._bytes_in_flight[node] -= _size(flight)
        if answer.cancelled():
            self._fail(NotSent("a produce request was cancelled"))
        elif (error := answer.exception()) is not None:
            self._fail(NotSent(str(error)))
        else:
            told = answer.result()
            self._quotas[node].answered(told.throttle_ms, asyncio.get_running_loop().time(), size=under_way)
            for item in flight:
                self._unproven.discard(item.where)
                self._judge(item, told.partitions.get(item.where))
        self._pump(node)
        self._changed.set()

    def _judge(self, item: _Queued, produced: Produced | None) -> None:
        if produced is None:
            self._fail(NotSent(f"{item.where}: the broker's answer leaves this partition out"))
        elif produced.code:
            self._cluster.distrust(item.where.topic)
            name = codes.code_name(produced.code)
            said = f"{item.where}: the destination answered {name} {produced.message}".rstrip()
            self._fail(NotSent(said, item.refusal(produced.code, produced.message)))

    def _fail(self, failure: NotSent) -> None:
        # What explains most is kept: behind a refused batch the next ones are refused for being out of order.
        if self.failure is None:
            self.failure = failure
        self._changed.set()


def _size(flight: list[_Queued]) -> int:
    return sum(item.size for item in flight)
