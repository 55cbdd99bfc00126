"""Commits records to `__mirror_state`, one fenced transaction at a time.

The transactional id is the lock: whoever fences it (`fence`) shuts out its former holder, whose next commit ends with
GiveWay. A commit has three outcomes, and never a guess:

- *committed*: every record stands, in all shards at once;
- *fenced*: GiveWay, this writer's last word is spoken;
- *unknown*: UnknownOutcome, when the end of the transaction was asked for and no answer came.

After an unknown outcome, or any failure on the way there, the writer is unsettled: a late request of it may still be
under way, so nothing more is sent under this epoch. `reestablish` asks for the next epoch with the own id and epoch
(KIP-360), which succeeds only if nobody fenced the id meanwhile, and returns only once the former transaction is
over, one way or the other: reading the log then tells which.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from kafka.protocol.producer import ProduceRequest, ProduceResponse

from twinlog.batch.edit import next_sequence
from twinlog.batch.records import Record as RawRecord
from twinlog.control.records import Change
from twinlog.errors import (
    AuthorizationFailed,
    BadInput,
    BrokerError,
    GiveWay,
    PartitionFailed,
    RetryLater,
    TwinlogError,
    UnknownOutcome,
)
from twinlog.names import TopicPartition
from twinlog.state.batches import by_shard, transactional
from twinlog.state.log import StateLog
from twinlog.state.topic import STATE_TOPIC
from twinlog.wire import codes
from twinlog.wire.cluster import Cluster, Leader
from twinlog.wire.leaders import Answer, ask_leaders
from twinlog.wire.ops import Producer, add_partitions, end_txn, init_producer_id
from twinlog.wire.ops_log import by_topic
from twinlog.wire.retry import Attempts

WRITE_LANE = "state-write"
"""Its own, for all that a commit asks: a lease that waits behind others' questions, or is reset with them, runs out."""

COMMIT_TIMEOUT_S = 10.0

TRANSACTION_TIMEOUT_MS = 15_000
"""A dead writer's transaction holds up every reader for this long; it must outlast one commit."""

_ACKS_ALL = -1
_NEWEST_CLASSIC_PRODUCE = 11
_FENCED = frozenset(
    {
        codes.INVALID_PRODUCER_EPOCH,
        codes.PRODUCER_FENCED,
        codes.INVALID_PRODUCER_ID_MAPPING,
        codes.INVALID_TXN_STATE,  # the coordinator ended our transaction by its timeout
    }
)
_STANDS = frozenset({codes.NONE, codes.DUPLICATE_SEQUENCE_NUMBER})


@dataclass(frozen=True, slots=True)
class Committed:
    """`first_attempt_began`: on the writer's clock, before anything of it was sent; a lease counts from there."""

    first_attempt_began: float


class StateWriter:
    """Writes under one transactional id. Commits are serialised; `fence` comes first.

    `clock` is monotonic seconds, `wall_ms` the records' time stamps. `commit_timeout_s` bounds a commit as a whole,
    `transaction_timeout_ms` is what the coordinator grants it before it aborts it by itself.
    """

    def __init__(
        self,
        cluster: Cluster,
        log: StateLog,
        transactional_id: str,
        *,
        commit_timeout_s: float = COMMIT_TIMEOUT_S,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        clock: Callable[[], float] = time.monotonic,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.transactional_id = transactional_id
        self._cluster = cluster
        self._log = log
        self._commit_timeout_s = commit_timeout_s
        self._transaction_timeout_ms = transaction_timeout_ms
        self._clock = clock
        self._wall_ms = wall_ms
        self._lock = asyncio.Lock()
        self._producer: Producer | None = None
        self._sequences: dict[int, int] = {}
        self._settled = False

    def __repr__(self) -> str:
        state = "settled" if self._settled else "unsettled"
        return f"StateWriter({self.transactional_id!r}, {self._producer}, {state})"

    @property
    def settled(self) -> bool:
        """Whether a commit may be sent: fenced, and nothing of unknown outcome under way."""
        return self._settled

    @property
    def shards(self) -> int:
        """How many shards the state has."""
        return self._log.shards

    async def fence(self, *, timeout_s: float = 30.0) -> Producer:
        """Become the only holder of the transactional id; when this returns, no transaction of a former one is open.

        Raises AuthorizationFailed, and RetryLater when the coordinator does not grant it within `timeout_s`.
        """
        async with self._lock:
            return await self._init(None, timeout_s)

    async def reestablish(self, *, timeout_s: float = 30.0) -> Producer:
        """Settle after an unknown outcome; GiveWay if another writer has fenced this one meanwhile."""
        async with self._lock:
            if self._producer is None:
                raise GiveWay(f"Transactional id {self.transactional_id!r} was never held by this writer; fence first.")
            with _fencing(self.transactional_id):
                return await self._init(self._producer, timeout_s)

    async def commit(self, changes: Sequence[Change]) -> Committed:
        """Write all changes or none, in order within each shard; an empty commit writes nothing.

        Raises GiveWay (fenced), UnknownOutcome (`reestablish`, then read the log), and, before the end was asked for,
        so that nothing stands: BadInput (a record too large), AuthorizationFailed, RetryLater (not done in time).
        After each of them but the first `reestablish` is due.
        """
        async with self._lock:
            began = self._clock()
            if changes:
                async with self._unsettled() as producer:
                    await self._transact(producer, changes)
            return Committed(began)

    # One step each

    async def _init(self, producer: Producer | None, timeout_s: float) -> Producer:
        self._settled = False
        granted = await init_producer_id(
            self._cluster,
            self.transactional_id,
            timeout_ms=self._transaction_timeout_ms,
            producer=producer,
            timeout_s=timeout_s,
            lane=WRITE_LANE,
        )
        self._producer, self._sequences, self._settled = granted, {}, True
        return granted

    @asynccontextmanager
    async def _unsettled(self) -> AsyncIterator[Producer]:
        """Let a transaction run; only its orderly end, never an error or a cancellation, leaves the writer settled."""
        if self._producer is None or not self._settled:
            raise UnknownOutcome(
                f"Transactional id {self.transactional_id!r} has something of unknown outcome under way; "
                f"it must be re-established before the next commit."
            )
        self._settled = False
        with _fencing(self.transactional_id):
            yield self._producer
        self._settled = True

    async def _transact(self, producer: Producer, changes: Sequence[Change]) -> None:
        attempts = Attempts(self._commit_timeout_s)
        runs = by_shard(changes, self._log.shards, timestamp_ms=self._wall_ms())
        await add_partitions(
            self._cluster,
            self.transactional_id,
            producer,
            [TopicPartition(STATE_TOPIC, shard) for shard in runs],
            timeout_s=self._share_s(attempts),
            lane=WRITE_LANE,
        )
        for turn in range(max(map(len, runs.values()))):
            await self._produce(producer, {s: r[turn] for s, r in runs.items() if turn < len(r)}, attempts)
        await self._end(producer, attempts)

    async def _produce(self, producer: Producer, runs: Mapping[int, Sequence[RawRecord]], attempts: Attempts) -> None:
        """Write one batch to each shard; one sent again after a lost answer is recognised by its sequence."""
        pending = {
            TopicPartition(STATE_TOPIC, shard): transactional(
                run, producer_id=producer.id, epoch=producer.epoch, sequence=self._sequences.get(shard, 0)
            )
            for shard, run in runs.items()
        }
        while pending:
            answers = await ask_leaders(self._cluster, pending, self._ask, timeout_s=self._share_s(attempts))
            pending = {tp: batch for tp, batch in pending.items() if not self._stands(tp, answers[tp])}
            if pending and not await attempts.again():
                raise RetryLater(
                    f"{min(pending)} took no write within {self._commit_timeout_s:g} s; nothing was committed."
                )
        for shard, run in runs.items():
            self._sequences[shard] = next_sequence(self._sequences.get(shard, 0), len(run))

    def _stands(self, tp: TopicPartition, answer: Answer[int]) -> bool:
        """Whether a batch is written; False if that is worth another attempt."""
        if answer.error in _STANDS:
            return True
        if codes.retriable(answer.error):
            return False
        what = f"{tp} did not take a write of transactional id {self.transactional_id!r}"
        if answer.error in _FENCED:
            raise GiveWay(f"{what} ({codes.code_name(answer.error)}).")
        if answer.error in {codes.MESSAGE_TOO_LARGE, codes.RECORD_LIST_TOO_LARGE}:
            raise BadInput(
                f"{what}: a record is larger than its max.message.bytes. Raise that config of {STATE_TOPIC}."
            )
        if answer.error in codes.AUTHORIZATION:
            wanted = f"WRITE on TOPIC {STATE_TOPIC}, and on TRANSACTIONAL_ID {self.transactional_id}"
            codes.check(answer.error, what, right=wanted)
        raise RetryLater(f"{what} ({codes.code_name(answer.error)}, error {answer.error}); nothing was committed.")

    async def _ask(
        self, node: int, asked: Mapping[TopicPartition, tuple[Leader, bytes]], timeout_s: float
    ) -> dict[TopicPartition, Answer[int]]:
        topic = ProduceRequest.TopicProduceData
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=_ACKS_ALL,
            timeout_ms=int(timeout_s * 1000),
            topic_data=[
                topic(
                    name=name,
                    partition_data=[
                        topic.PartitionProduceData(index=number, records=batch) for number, (_, batch) in partitions
                    ],
                )
                for name, partitions in by_topic(asked.items())
            ],
        )
        response: ProduceResponse = await self._cluster.call(
            request, node=node, timeout_s=timeout_s, max_version=_NEWEST_CLASSIC_PRODUCE, lane=WRITE_LANE
        )
        return {
            TopicPartition(told.name, part.index): Answer(part.error_code, part.base_offset)
            for told in response.responses
            for part in told.partition_responses
        }

    async def _end(self, producer: Producer, attempts: Attempts) -> None:
        try:
            await end_txn(
                self._cluster,
                self.transactional_id,
                producer,
                commit=True,
                timeout_s=self._share_s(attempts),
                lane=WRITE_LANE,
            )
        except (GiveWay, PartitionFailed, AuthorizationFailed):  # answers; whatever else there is means that none came
            raise
        except TwinlogError as lost:
            if isinstance(lost, BrokerError) and lost.code in _FENCED:
                raise
            raise UnknownOutcome(
                f"No answer to a commit of transactional id {self.transactional_id!r} on {self._cluster!r}: {lost}"
            ) from lost

    def _share_s(self, attempts: Attempts) -> float:
        return attempts.share_s(self._commit_timeout_s)


@contextmanager
def _fencing(transactional_id: str) -> Iterator[None]:
    """Turn every answer that means "no longer yours" into GiveWay."""
    try:
        yield
    except (GiveWay, PartitionFailed, BrokerError) as refused:
        if isinstance(refused, BrokerError) and refused.code not in _FENCED:
            raise
        raise GiveWay(f"Transactional id {transactional_id!r} was taken over or timed out: {refused}") from refused
