"""What is mirrored: the loads by name, and the batches that they are made of."""

import random
import time
from dataclasses import dataclass
from typing import Final

from twinlog.batch import layout
from twinlog.batch.records import encode
from twinlog.batch.section import Record

SEED: Final = 4
DISTINCT_BATCHES: Final = 64  # a megabyte of them, so that nothing compares equal by chance
# A vocabulary, so that text made of it compresses as text does: lz4 makes about a half of it.
WORDS: Final = [random.Random(at).randbytes(4 + at % 9) for at in range(200)]
HOT_KEY: Final = b"overwritten"


@dataclass(frozen=True)
class Load:
    """A topic's content: `megabytes` (10^6 bytes) of records in equal batches, spread evenly over the partitions.

    transaction_records: so many records of a partition are one committed transaction; 0 for none.
    keep_one_in: in a compacted topic, one of so many records keeps its key to itself, all others share one.
    brokers: of the destination; with three, topics have three replicas and min.insync.replicas 2.
    """

    name: str
    text: str
    megabytes: int
    partitions: int = 4
    record_bytes: int = 1000
    batch_records: int = 16
    codec: int = layout.NO_CODEC
    transaction_records: int = 0
    keep_one_in: int = 1
    brokers: int = 1

    def __str__(self) -> str:
        replicas = ", 3 replicas at the destination" if self.brokers > 1 else ""
        return f"{self.name}: {self.text}, {self.megabytes} MB in {self.partitions} partitions{replicas}"

    @property
    def compacted(self) -> bool:
        """Whether the topic is compacted."""
        return self.keep_one_in > 1

    @property
    def batches(self) -> int:
        """Batches in each partition."""
        return self.megabytes * 1_000_000 // (self.record_bytes * self.batch_records * self.partitions)

    @property
    def records(self) -> int:
        """Records in the whole topic, before compaction."""
        return self.batches * self.batch_records * self.partitions

    @property
    def topic_configs(self) -> dict[str, str]:
        """Configs of the destination topic."""
        return {"cleanup.policy": "compact"} if self.compacted else {}

    def made(self) -> list[bytes]:
        """The distinct batches, stamped with the present time: what the destination counts as fresh."""
        rng, now_ms = random.Random(SEED), time.time_ns() // 1_000_000
        return [self.batch(now_ms, number, self.values(rng)) for number in range(DISTINCT_BATCHES)]

    def batch(self, now_ms: int, number: int, values: list[bytes]) -> bytes:
        """One batch; its place in the topic's order decides its keys."""
        first = number * self.batch_records
        records = [Record(at, now_ms, self._key(first + at), value, ()) for at, value in enumerate(values)]
        return bytes(encode(records, codec=self.codec).raw)

    def values(self, rng: random.Random) -> list[bytes]:
        """A batch's values."""
        return [self._value(rng) for _ in range(self.batch_records)]

    def _key(self, place: int) -> bytes:
        return b"%08d" % place if place % self.keep_one_in == 0 else HOT_KEY

    def _value(self, rng: random.Random) -> bytes:
        size = self.record_bytes - 18  # key and framing
        if self.codec == layout.NO_CODEC:
            return rng.randbytes(size)
        return b" ".join(rng.choices(WORDS, k=size // 4))[:size]


STANDARD: Final = Load("standard", "1 KB records in 16 KB batches", 300)

LOADS: Final = {
    load.name: load
    for load in (
        STANDARD,
        Load("large", "1 KB records in 256 KB batches", 300, batch_records=256),
        Load("lz4", "1 KB records in 16 KB batches, lz4", 300, codec=layout.LZ4),
        Load("small", "100-byte records in 16 KB batches", 200, record_bytes=100, batch_records=160),
        Load("p64", "1 KB records in 16 KB batches", 300, partitions=64),
        Load("rf3-4", "1 KB records in 16 KB batches", 120, brokers=3),
        Load("rf3-64", "1 KB records in 16 KB batches", 300, partitions=64, brokers=3),
        Load("txn100", "transactions of 100 1 KB records", 200, batch_records=20, transaction_records=100),
        Load("txn1", "transactions of one 1 KB record", 20, batch_records=1, transaction_records=1),
        Load("compacted", "compacted topic, 9 of 10 records gone", 200, keep_one_in=10),
    )
}
