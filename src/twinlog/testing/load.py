"""Real producers (librdkafka, and kafka-python for what that cannot say) of every kind of data in a topic.

`Load` writes one kind at a time, for tests that need to know what is there; `Flow` keeps writing a mixture in the
background until it is stopped, for tests that break something meanwhile.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Final, Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from twinlog.testing.data import Made, Maker, TopicFacts
from twinlog.testing.errors import BenchFailed
from twinlog.testing.reader import Address, address

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
REQUEST_TIMEOUT_S: Final = 60.0
TRANSACTION_TIMEOUT_MS: Final = 120_000  # an open transaction is the test's to end, not the coordinator's
SLOTS: Final = 3  # transactional producers that interleave

silent = logging.getLogger("twinlog.testing.load.producers")
silent.setLevel(logging.CRITICAL)  # refused records and lost brokers are what these producers are for


class Transaction:
    """An open transaction of a producer of its own; `commit`, `abort`, or leave a `with` block (which aborts)."""

    def __init__(self, load: "Load", slot: str) -> None:
        self._load = load
        self._slot = slot
        self._producer = load.transactional(slot)
        self._producer.begin_transaction()
        self._records = 0
        self._open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open:
            self.abort()

    def send(self, records: Iterable[Made], *, partition: int | None = None) -> None:
        """Write records and wait until the log holds them, undecided; to one partition, or to any."""
        for made in records:
            self._load.put(self._producer, made, partition, count=False)
            self._records += 1
        self._load.flush(self._producer)

    def commit(self) -> None:
        """Commit; the records count as acknowledged."""
        self._producer.commit_transaction(REQUEST_TIMEOUT_S)
        self._open = False
        self._load.count(self._records)

    def abort(self) -> None:
        """Abort: the records stay in the log, invisible."""
        self._open = False
        self._producer.abort_transaction(REQUEST_TIMEOUT_S)


class Load:
    """Producers for one topic; each method writes one kind of data and returns when the cluster has it.

    rng: where all chance comes from. codecs: those that the cluster's brokers have. `acknowledged` counts the records
    that a read_committed reader will see. Raises BenchFailed when a record is refused that should not be.
    """

    def __init__(self, cluster: Address, topic: str, rng: random.Random, *, codecs: Sequence[str] = CODECS) -> None:
        self.topic = topic
        self.codecs_of_cluster = tuple(codecs)
        self.facts = TopicFacts.of(cluster, topic)
        self.make = Maker(rng, self.facts)
        self.acknowledged = 0
        self._rng = rng
        self._address = address(cluster)
        self._name = f"load-{topic}-{rng.getrandbits(64):016x}"
        self._producers: dict[str, Producer] = {}
        self._transactional: set[str] = set()
        self._unsettled: set[str] = set()
        self._failures: list[str] = []
        self._opened = 0

    def plain(self, records: int, *, codec: str = "none", partition: int | None = None) -> None:
        """Records of a producer without idempotence."""
        self._write(self._producer(codec), (self.make.record() for _ in range(records)), partition)

    def idempotent(self, records: int, *, codec: str = "none", partition: int | None = None) -> None:
        """Records of an idempotent producer."""
        producer = self._producer(codec, **{"enable.idempotence": True})
        self._write(producer, (self.make.record() for _ in range(records)), partition)

    def codecs(self, records: int) -> None:
        """So many records of each codec."""
        for codec in self.codecs_of_cluster:
            self.plain(records, codec=codec)

    def tiny(self, records: int, *, partition: int | None = None) -> None:
        """Batches of one record each."""
        producer = self._producer("none", **{"linger.ms": 0, "batch.num.messages": 1})
        self._write(producer, (self.make.record() for _ in range(records)), partition)

    def edges(self) -> None:
        """Null and empty keys, values and headers in every combination, and tombstones."""
        tombstones = [self.make.tombstone() for _ in range(10)]
        self._write(self._producer("none"), [*self.make.edges(), *tombstones], None)

    def headers(self, records: int) -> None:
        """Records with all kinds of headers."""
        made = (Made(b"headers", b"value", self.make.headers()) for _ in range(records))
        self._write(self._producer("none"), made, None)

    def timestamps(self, records: int = 50) -> None:
        """No time, far past, far future, out of order within a batch; and 0, which only kafka-python can say."""
        made = (Made(b"time", b"value", [], self.make.timestamp_ms()) for _ in range(records))
        self._write(self._producer("none"), made, None)
        from kafka import KafkaProducer

        with_zero = KafkaProducer(bootstrap_servers=self._address)
        try:
            for partition in range(self.facts.partitions):
                sent = with_zero.send(self.topic, key=b"zero", value=b"value", partition=partition, timestamp_ms=0)
                sent.get(REQUEST_TIMEOUT_S)
                self.count(1)
        finally:
            with_zero.close()

    def large(self) -> None:
        """A batch of exactly the topic's limit, and for each codec one whose records are twice the limit."""
        limits = {"message.max.bytes": 4 * self.facts.max_batch_bytes, "linger.ms": 0}
        self._write(self._producer("none", **limits), [self.make.largest()], None)
        for codec in self.codecs_of_cluster[1:]:
            self._write(self._producer(codec, **limits), [self.make.inflated()], None)

    def transaction(self, records: int, *, commit: bool = True, partition: int | None = None) -> None:
        """One transaction; with 0 records it ends without a marker, since no partition took part."""
        with self.open_transaction(0) as transaction:
            transaction.send((self.make.record() for _ in range(records)), partition=partition)
            if commit:
                transaction.commit()

    def transactions(self, count: int, *, records: int = 1, partition: int | None = None) -> None:
        """Many transactions of one producer, committed or aborted by chance."""
        for _ in range(count):
            self.transaction(records, commit=self._rng.random() < 0.5, partition=partition)

    def aborted_run(self, records: int, *, partition: int | None = None) -> None:
        """One aborted transaction of so many tiny records in one partition: a long run of blanks."""
        where = self._partition(partition)
        with self.open_transaction(0) as transaction:
            transaction.send((Made(b"", b"", []) for _ in range(records)), partition=where)

    def markers_only(self) -> None:
        """A transaction with an abort marker and no data: its only record is refused for its size."""
        slot = f"refused-{self._rng.getrandbits(32):08x}"  # librdkafka's sequences are of no use afterwards
        producer = self.transactional(slot, **{"message.max.bytes": 4 * self.facts.max_batch_bytes})
        producer.begin_transaction()
        self._put(producer, self.make.refused(), self._partition(None), lambda _error, _message: None)
        producer.flush(REQUEST_TIMEOUT_S)
        producer.abort_transaction(REQUEST_TIMEOUT_S)
        del self._producers[slot]

    def interleaved(self, rounds: int, *, partition: int | None = None) -> None:
        """Several producers' transactions and plain records, mixed batch by batch in the same partitions."""
        transactions: dict[int, Transaction] = {}
        for _ in range(rounds):
            slot = self._rng.randrange(SLOTS)
            transaction = transactions.get(slot) or self.open_transaction(slot)
            transactions[slot] = transaction
            transaction.send((self.make.record() for _ in range(self._rng.randint(1, 5))), partition=partition)
            if self._rng.random() < 0.3:
                self.plain(1, partition=partition)
            if self._rng.random() < 0.4:
                self._end(transactions.pop(slot))
        for transaction in transactions.values():
            self._end(transaction)

    def open_transaction(self, slot: int | None = None) -> Transaction:
        """Begin a transaction that stays open until it is ended; by default of a new producer."""
        self._opened += 1
        return Transaction(self, f"open-{self._opened}" if slot is None else f"slot-{slot}")

    def everything(self, records: int = 200) -> None:
        """Every kind once, in an order by chance; `records` scales the ordinary ones."""
        for kind in self._rng.sample(kinds := self._kinds(records), len(kinds)):
            kind()

    def bulk(self, records: int, *, value_bytes: int = 100, codec: str = "none") -> None:
        """Many like records, fast: numbered keys, one random value, partitions in turn."""
        producer = self._producer(codec, **{"linger.ms": 20})
        value = self._rng.randbytes(value_bytes)
        made = (Made(b"%d" % number, value, []) for number in range(records))
        for number, record in enumerate(made):
            self.put(producer, record, number % self.facts.partitions)
        self.flush(producer)

    def close(self) -> None:
        """Drop all producers; what they had open is left to the coordinator's time limit."""
        self._producers.clear()

    def count(self, records: int) -> None:
        """Add to what a read_committed reader will see."""
        self.acknowledged += records

    def put(self, producer: Producer, made: Made, partition: int | None, *, count: bool = True) -> None:
        """Hand one record to a producer; its acknowledgement counts, unless a transaction decides later."""

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                self._failures.append(str(error))
            elif count:
                self.acknowledged += 1

        self._put(producer, made, self._partition(partition), delivered)

    def flush(self, producer: Producer) -> None:
        """Wait for all acknowledgements; raises BenchFailed if a record was refused or is still unacknowledged."""
        left = producer.flush(REQUEST_TIMEOUT_S)
        failures, self._failures = self._failures, []
        if failures or left:
            first = failures[0] if failures else f"no answer in {REQUEST_TIMEOUT_S} s"
            raise BenchFailed(f"{len(failures) + left} records for {self.topic} were not acknowledged: {first}")

    def transactional(self, slot: str, **settings: object) -> Producer:
        """The transactional producer of a slot, made at need."""
        if slot not in self._producers:
            own = {"transactional.id": f"{self._name}-{slot}", "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
            producer = self._new("none", {**own, **settings})
            producer.init_transactions(REQUEST_TIMEOUT_S)
            self._producers[slot] = producer
            self._transactional.add(slot)
            self._unsettled.discard(slot)
        return self._producers[slot]

    def forget(self) -> None:
        """Drop all producers and old failures, after a failure that may have made them useless."""
        self._unsettled |= self._transactional & self._producers.keys()
        self._producers.clear()
        self._failures.clear()

    def settle(self) -> None:
        """End what forgotten producers left open; raises BenchFailed when the cluster does not answer in time."""
        deadline = time.monotonic() + REQUEST_TIMEOUT_S
        while self._unsettled:
            try:
                self.transactional(next(iter(self._unsettled)))
            except KafkaException as error:
                if time.monotonic() > deadline:
                    raise BenchFailed(f"A transaction on {self.topic} could not be ended: {error}") from error

    def _kinds(self, records: int) -> list[Callable[[], None]]:
        return [
            lambda: self.plain(records),
            lambda: self.idempotent(records, codec="lz4"),
            lambda: self.codecs(records),
            lambda: self.tiny(records // 4),
            lambda: self.headers(records // 10),
            lambda: self.transaction(records),
            lambda: self.transaction(records, commit=False),
            lambda: self.transaction(0),
            lambda: self.transactions(10),
            lambda: self.interleaved(records // 5),
            self.edges,
            self.timestamps,
            self.large,
            self.markers_only,
        ]

    def _end(self, transaction: Transaction) -> None:
        if self._rng.random() < 0.5:
            transaction.commit()
        else:
            transaction.abort()

    def _partition(self, partition: int | None) -> int:
        return self._rng.randrange(self.facts.partitions) if partition is None else partition

    def _write(self, producer: Producer, records: Iterable[Made], partition: int | None) -> None:
        for made in records:
            self.put(producer, made, partition)
        self.flush(producer)

    def _put(
        self,
        producer: Producer,
        made: Made,
        partition: int,
        delivered: Callable[[KafkaError | None, Message], None],
    ) -> None:
        while True:
            try:
                producer.produce(
                    self.topic,
                    made.value,
                    made.key,
                    partition,
                    on_delivery=delivered,
                    timestamp=made.timestamp_ms,
                    headers=list(made.headers),
                )
            except BufferError:  # the producer's queue is full: let it send
                producer.poll(0.1)
            else:
                producer.poll(0)
                return

    def _producer(self, codec: str, **settings: object) -> Producer:
        name = f"{codec} {sorted(settings.items())}"
        if name not in self._producers:
            self._producers[name] = self._new(codec, settings)
        return self._producers[name]

    def _new(self, codec: str, settings: dict[str, object]) -> Producer:
        common = {"bootstrap.servers": self._address, "compression.type": codec, "batch.size": 500_000, "linger.ms": 2}
        return Producer({**common, **settings}, logger=silent)


class Flow:
    """Writes a mixture of all kinds to a topic in the background, from `with` to its end, or `start` to `stop`.

    seed: where all chance comes from. records_per_second: about so many. transactions: whether there are any.
    aborted_run: now and then a single aborted transaction of so many records, beside the short ones.
    A broker that fails meanwhile is waited out; what it made unknown is not counted as acknowledged.
    """

    def __init__(
        self,
        cluster: Address,
        topic: str,
        *,
        seed: int,
        records_per_second: int = 1000,
        transactions: bool = True,
        aborted_run: int = 0,
    ) -> None:
        self._load = Load(cluster, topic, random.Random(seed))
        self._aborted_run = aborted_run
        self._rng = random.Random(seed + 1)
        self._rate = records_per_second
        self._transactions = transactions
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"flow-{topic}", daemon=True)
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def acknowledged(self) -> int:
        """Records so far that a read_committed reader sees, or will."""
        return self._load.acknowledged

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> int:
        """End every transaction, wait for what is under way, and return `acknowledged`; may be called twice."""
        self._stopping.set()
        self._thread.join(2 * REQUEST_TIMEOUT_S)
        if self._thread.is_alive():
            raise BenchFailed(f"The load on {self._load.topic} did not end in {2 * REQUEST_TIMEOUT_S} s.")
        if self._error is not None:
            raise BenchFailed(f"The load on {self._load.topic} failed: {self._error!r}") from self._error
        return self.acknowledged

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._step()
            self._load.settle()
        except BaseException as error:  # noqa: BLE001 - whatever ended the thread is raised by stop()
            self._error = error
        finally:
            self._load.close()

    def _step(self) -> None:
        before, began = self.acknowledged, time.monotonic()
        try:
            self._rng.choice(self._kinds())()
        except (KafkaException, BenchFailed):  # a broker failed; new producers find out what became of the old ones'
            self._load.forget()
        due_s = (self.acknowledged - before) / self._rate - (time.monotonic() - began)
        self._stopping.wait(max(0.0, due_s))

    def _kinds(self) -> list[Callable[[], None]]:
        load, rng = self._load, self._rng
        kinds: list[Callable[[], None]] = [
            lambda: load.plain(rng.randint(1, 200), codec=rng.choice(CODECS)),
            lambda: load.idempotent(rng.randint(1, 200), codec=rng.choice(CODECS)),
            lambda: load.tiny(rng.randint(1, 20)),
            lambda: load.headers(rng.randint(1, 10)),
            load.edges,
        ]
        if self._transactions:
            kinds += [
                lambda: load.transaction(rng.randint(1, 100)),
                lambda: load.transaction(rng.randint(1, 100), commit=False),
                lambda: load.transactions(rng.randint(1, 10)),
                lambda: load.interleaved(rng.randint(1, 20)),
            ]
        if self._aborted_run:
            kinds.append(lambda: load.aborted_run(self._aborted_run))
        return kinds
