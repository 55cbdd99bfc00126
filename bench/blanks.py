"""How fast blanks are written: beside as many one-record transactions, in runs by markers, and in very long runs."""

import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from bench.fill import Transactor
from bench.loads import SEED
from bench.meter import watch
from bench.stage import Stage

from bench import twinlog_run
from twinlog.batch.blank import filler_batch
from twinlog.batch.records import encode
from twinlog.batch.section import Record
from twinlog.batch.view import Batch

TOPIC: Final = "blanks"
RECORD_BYTES: Final = 100
RUN: Final = 5_000
LONG_RUN: Final = 4_000_000
FILLER: Final = 1_000_000
TIMEOUT_S: Final = 120.0
WARM_ROUNDS: Final = 3


@dataclass(frozen=True)
class Blanks:
    """One measurement: `write` fills a source topic and says how many blanks it holds."""

    text: str
    partitions: int
    write: Callable[[Transactor, int], Awaitable[int]]
    amount: int


def _record() -> Batch:
    value = random.Random(SEED).randbytes(RECORD_BYTES - 18)
    return encode([Record(0, time.time_ns() // 1_000_000, b"%08d" % 0, value, ())], codec=0)


def _empty(count: int) -> Batch:
    """A batch of filler, to be aborted; the transactor puts its own producer on it."""
    made = filler_batch(
        count, producer_id=0, epoch=0, sequence=0, transactional=True, timestamp_ms=time.time_ns() // 1_000_000
    )
    return Batch(memoryview(made.header + bytes(made.body)))


async def one_record(transactor: Transactor, amount: int) -> int:
    """Transactions of one record in every partition: each leaves one marker."""
    batch, parts = _record(), transactor.partitions
    for _ in range(amount):
        await transactor.write(dict.fromkeys(parts, batch))
        await transactor.end(commit=True)
    return amount * len(parts)


async def runs(transactor: Transactor, amount: int) -> int:
    """Aborted transactions that make runs of `RUN` blanks, each behind one record."""
    return await _aborted(transactor, amount, [RUN - 2])


async def long_runs(transactor: Transactor, amount: int) -> int:
    """Aborted transactions that make runs of `LONG_RUN` blanks."""
    return await _aborted(transactor, amount, [FILLER] * (LONG_RUN // FILLER))


async def _aborted(transactor: Transactor, amount: int, counts: list[int]) -> int:
    record, parts = _record(), transactor.partitions
    for _ in range(amount):
        await transactor.write(dict.fromkeys(parts, record))
        await transactor.end(commit=True)
        for count in counts:
            await transactor.write(dict.fromkeys(parts, _empty(count)))
        await transactor.end(commit=False)
    return amount * (sum(counts) + 2) * len(parts)


def kinds(brokers: int) -> dict[str, Blanks]:
    """What is measured, by name; less of it where three brokers share the machine."""
    scale = 1 if brokers == 1 else 4
    return {
        "one": Blanks("beside one-record transactions, 1 partition", 1, one_record, 8_000 // scale),
        "fifty": Blanks("beside one-record transactions, 50 partitions", 50, one_record, 400 // scale),
        "runs": Blanks(f"runs of {RUN:,}, 1 partition", 1, runs, 40 // scale),
        "long": Blanks(f"runs of {LONG_RUN:,}, 1 partition", 1, long_runs, 2),
    }


async def measure(stage: Stage, wanted: Blanks) -> float:
    """Blanks a second."""
    async with stage.source_topic(TOPIC, wanted.partitions), stage.targets({TOPIC: wanted.partitions}):
        transactor = await Transactor.on(stage.source, TOPIC, range(wanted.partitions))
        blanks = await wanted.write(transactor, wanted.amount)
        await transactor.drain()
        async with twinlog_run.running(stage, [TOPIC]) as process:
            span = await watch(
                stage, TOPIC, wanted.partitions, transactor.offsets, pid=process.pid, timeout_s=TIMEOUT_S
            )
    return blanks * span.offsets / transactor.offsets / span.seconds


async def all_kinds(stage: Stage) -> dict[str, float]:
    """Every measurement, behind some that do not count: brokers are slower at requests that they have not seen yet."""
    found = {}
    for _ in range(WARM_ROUNDS):
        await measure(stage, kinds(stage.brokers)["one"])
    for name, wanted in kinds(stage.brokers).items():
        found[name] = await measure(stage, wanted)
        print(f"  blanks {wanted.text}: {found[name]:,.0f} a second", flush=True)
    return found
