"""Copies the same topic exactly once with twinlog, in both modes, and with MirrorMaker 2, at least and exactly once.

What counts is what a read_committed consumer can see. Each tool also gets a trickle of records, for the latency, and
is then killed in the middle of it and started again.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from bench.contest import LATENCY_TOPIC, LOAD_TOPIC, Measured
from bench.fill import Filled, fill
from bench.latency import Latency, send
from bench.loads import STANDARD, Load
from bench.meter import MB, Machine, Sample, Span, Usage
from bench.names import MM2_AT_LEAST_ONCE, MM2_EXACTLY_ONCE, REO_DIRECT, REO_PROXY
from bench.stage import REST_S, Stage
from confluent_kafka import Consumer, TopicPartition

from bench import latency, mm2
from twinlog.names import TopicPartition as Place
from twinlog.testing.kafka import LocalKafka
from twinlog.testing.watchdog import Watchdog
from twinlog.wire.ops import LATEST, delete_topics, list_offsets

APPLICATION: Final = "bench-reo"
TARGET: Final = "reo.{topic}"
LOAD: Final = STANDARD
EXACTLY_ONCE: Final = {
    **mm2.DEFAULT,
    "target.exactly.once.source.support": "enabled",
    "source.consumer.isolation.level": "read_committed",
}
"""Beside what MirrorMaker 2 does by default; one process needs no more (KIP-618)."""

WITHIN_S: Final = 240.0
RESTARTED_WITHIN_S: Final = 90.0
EVERY_S: Final = 0.02
# So long without anything more: the end has been reached.
QUIET_S: Final = 1.0
RATE: Final = 1000
BEFORE_KILL_S: Final = 1.5

Started = AbstractContextManager["subprocess.Popen[bytes]"]


@dataclass(frozen=True)
class Tool:
    """Who copies: `start` runs it, `target` is what it calls a topic's copy, `once` whether it promises that."""

    name: str
    start: Callable[[Stage], Started]
    target: str
    once: bool


@dataclass
class Copied:
    """The filled source topic, and what has been found so far."""

    stage: Stage
    load: Load
    filled: Filled
    latency_seconds: float
    tools: dict[str, list[Measured]] = field(default_factory=dict)
    latency: dict[str, Latency] = field(default_factory=dict)
    restart_seconds: dict[str, float] = field(default_factory=dict)

    def figures(self) -> dict[str, Any]:
        """As JSON takes it."""
        return {
            "load": {**asdict(self.load), "log_bytes": self.filled.bytes, "log_records": self.filled.records},
            "tools": {tool: [run.figures() for run in runs] for tool, runs in self.tools.items()},
            "latency": {tool: asdict(late) for tool, late in self.latency.items()},
            "restart_seconds": self.restart_seconds,
        }

    async def run(self, tool: Tool, *, warming: bool = False) -> None:
        """One round of one tool; the first one also measures latency and the way back after a kill.

        What is only `warming` the brokers is not counted.
        """
        targets = {tool.target.format(topic=topic): LOAD.partitions for topic in (LOAD_TOPIC, LATENCY_TOPIC)}
        async with self.stage.targets(targets):
            began = time.perf_counter()
            with tool.start(self.stage) as process:
                target = tool.target.format(topic=LOAD_TOPIC)
                span = await watch(self.stage, target, self.filled.records, pid=process.pid)
                first = not warming and tool.name not in self.latency
                if not warming:
                    self._note(tool, span, began)
                if first:
                    await asyncio.sleep(REST_S)
                    await self._latency(tool)
                    await self._killed(process)
            if first:
                await self._again(tool)
            await asyncio.to_thread(self._check, tool)
        await self._swept()
        if first:
            await self._emptied()

    def _note(self, tool: Tool, span: Span, began: float) -> None:
        found = Measured.of(span, self.filled, span.last.arrived, began)
        self.tools.setdefault(tool.name, []).append(found)
        told = found.figures()
        print(
            f"  {tool.name}: {told['mb_per_second']:.1f} MB/s, {told['cpu_seconds_per_gb']:.2f} CPU-s/GB, "
            f"{found.peak_rss_bytes / MB:.0f} MB at most, first record after {found.start_seconds:.1f} s "
            f"({100 * found.others_share:.0f}% of the machine was used by others)",
            flush=True,
        )

    async def _latency(self, tool: Tool) -> None:
        self.latency[tool.name] = late = await asyncio.to_thread(
            latency.measure,
            *self.stage.kafkas,
            (LATENCY_TOPIC, tool.target.format(topic=LATENCY_TOPIC)),
            partitions=LOAD.partitions,
            rate=RATE,
            seconds=self.latency_seconds,
        )
        print(f"  {tool.name}: p50 {late.p50_ms:.1f} ms, p99 {late.p99_ms:.1f} ms, {late.lost} lost", flush=True)

    async def _killed(self, process: "subprocess.Popen[bytes]") -> None:
        """Kill it with a transaction open, and let half a second pass."""
        source = self.stage.kafkas[0].bootstrap
        words = (source, LATENCY_TOPIC, LOAD.partitions, RATE, int(RATE * BEFORE_KILL_S * 2))
        sender = threading.Thread(target=send, args=words, daemon=True)
        sender.start()
        await asyncio.sleep(BEFORE_KILL_S)
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        await asyncio.to_thread(sender.join)

    async def _again(self, tool: Tool) -> None:
        """Start it again; the first record that was not there before tells how long that took."""
        topic = tool.target.format(topic=LATENCY_TOPIC)
        with Tail(self.stage.kafkas[1], topic) as tail:
            began = time.perf_counter()
            with tool.start(self.stage):
                took_s = await asyncio.to_thread(tail.first, began, RESTARTED_WITHIN_S)
        self.restart_seconds[tool.name] = took_s
        print(f"  {tool.name}: killed; first record {took_s:.1f} s after its start", flush=True)

    def _check(self, tool: Tool) -> None:
        """Judge what it has copied; a figure of a tool that loses or doubles would mean nothing."""
        records = counted(self.stage.kafkas[1], tool.target.format(topic=LOAD_TOPIC), self.filled.records)
        if records < self.filled.records or (tool.once and records > self.filled.records):
            raise AssertionError(f"{tool.name} made {records} records of {self.filled.records}.")

    async def _emptied(self) -> None:
        """Make the topic of single records anew: else all of them would be copied beside the next one's load."""
        await delete_topics(self.stage.source, [LATENCY_TOPIC])
        await asyncio.sleep(REST_S)
        await self.stage.create_at_source(LATENCY_TOPIC, LOAD.partitions)

    async def _swept(self) -> None:
        """Delete what tools keep at the destination, so that the next round begins from nothing."""
        names = await self.stage.destination.topics(None)
        await delete_topics(self.stage.destination, [name for name in names if not name.startswith("__")])
        await asyncio.sleep(REST_S)


class Tail:
    """Reads what comes to be visible in a topic from now on."""

    def __init__(self, kafka: LocalKafka, topic: str) -> None:
        self._consumer = Consumer(_reading(kafka, f"{topic}-tail"))
        places = [TopicPartition(topic, part) for part in range(LOAD.partitions)]
        for place in places:
            # With read_committed this is the end of what is decided.
            place.offset = self._consumer.get_watermark_offsets(place, timeout=20)[1]
        self._consumer.assign(places)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def first(self, since: float, within_s: float) -> float:
        """Seconds from `since` to the first record; raises TimeoutError."""
        while time.perf_counter() - since < within_s:
            message = self._consumer.poll(0.05)
            if message is not None and not message.error():
                return time.perf_counter() - since
        raise TimeoutError(f"no record within {within_s:.0f} s of a restart")


def _reading(kafka: LocalKafka, group: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": kafka.bootstrap,
        "group.id": group,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }


def counted(kafka: LocalKafka, topic: str, expected: int) -> int:
    """How many committed records a topic holds."""
    consumer = Consumer(_reading(kafka, f"{topic}-count"))
    consumer.assign([TopicPartition(topic, part, 0) for part in range(LOAD.partitions)])
    found, last = 0, time.monotonic()
    while time.monotonic() - last < (QUIET_S if found >= expected else 10 * QUIET_S):
        messages = [message for message in consumer.consume(10_000, 0.2) if not message.error()]
        if messages:
            found, last = found + len(messages), time.monotonic()
    consumer.close()
    return found


async def visible(stage: Stage, topic: str) -> int:
    """The sum of the offsets up to which the partitions are decided; markers of transactions count."""
    wanted = {Place(topic, part): LATEST for part in range(LOAD.partitions)}
    listed = await list_offsets(stage.destination, wanted, read_committed=True, timeout_s=5.0)
    return sum(max(0, found.offset) for found in listed.values() if not found.error)


async def watch(stage: Stage, topic: str, records: int, *, pid: int) -> Span:
    """Follow a copy from the first thing to be seen to the last: at least `records` offsets, and then nothing more."""
    tool, machine = Usage(pid), Machine([pid, *stage.pids])
    deadline = time.perf_counter() + WITHIN_S
    first: Sample | None = None
    last = Sample(time.perf_counter(), 0, 0.0, 0.0)
    while first is None or last.arrived < records or time.perf_counter() - last.at < QUIET_S:
        seen = await visible(stage, topic)
        if seen > last.arrived:
            last = Sample(time.perf_counter(), seen, tool.cpu_seconds(), machine.others_cpu_seconds())
            first = first or last
        if time.perf_counter() > deadline:
            raise TimeoutError(f"{topic}: {last.arrived} of {records} offsets were visible when the time was over.")
        await asyncio.sleep(EVERY_S)
    return Span(first, last, tool.peak_bytes)


@contextmanager
def reo(mode: str, stage: Stage) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a copy of both topics until the block ends."""
    told = {
        "application-name": APPLICATION,
        "source-bootstrap-server": stage.kafkas[0].bootstrap,
        "source-topic": f"{LOAD_TOPIC},{LATENCY_TOPIC}",
        "destination-bootstrap-server": stage.kafkas[1].bootstrap,
        "destination-topic": TARGET,
        "mode": mode,
    }
    flags = [word for name, value in told.items() for word in (f"--{name}", value)]
    with tempfile.TemporaryDirectory(prefix="twinlog-bench-reo-") as name:
        folder = Path(os.environ.get("TWINLOG_BENCH_LOGS") or name)
        with (folder / f"reo-{mode}-{time.time_ns() // 1_000_000}.log").open("wb") as log:
            words = [sys.executable, "-m", "twinlog", "reo", *flags]
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        Watchdog.shared().watch(process.pid)
        try:
            yield process
        finally:
            mm2.end(process)


def mirror_maker(settings: Mapping[str, str], stage: Stage) -> Started:
    """Run MirrorMaker 2 on both topics until the block ends."""
    return mm2.running(*stage.kafkas, f"{LOAD_TOPIC},{LATENCY_TOPIC}", settings)


TOOLS: Final[Sequence[Tool]] = (
    Tool(REO_DIRECT, partial(reo, "direct"), TARGET, once=True),
    Tool(REO_PROXY, partial(reo, "proxy"), TARGET, once=True),
    Tool(MM2_AT_LEAST_ONCE, partial(mirror_maker, mm2.DEFAULT), mm2.PREFIX + "{topic}", once=False),
    Tool(MM2_EXACTLY_ONCE, partial(mirror_maker, EXACTLY_ONCE), mm2.PREFIX + "{topic}", once=True),
)


async def measure(stage: Stage, *, rounds: int, latency_seconds: float, megabytes: int = 0) -> dict[str, Any]:
    """All tools, in turns; each round begins with another one. `megabytes` makes the load smaller."""
    load = replace(LOAD, megabytes=min(LOAD.megabytes, megabytes or LOAD.megabytes))
    async with stage.source_topic(LOAD_TOPIC, LOAD.partitions), stage.source_topic(LATENCY_TOPIC, LOAD.partitions):
        copied = Copied(stage, load, await fill(stage.source, LOAD_TOPIC, load), latency_seconds)
        # Transactions are new to the brokers' compilers: without this, who comes first is slowest.
        await copied.run(TOOLS[0], warming=True)
        for number in range(rounds):
            at = number % len(TOOLS)
            for tool in (*TOOLS[at:], *TOOLS[:at]):
                await copied.run(tool)
        return copied.figures()
