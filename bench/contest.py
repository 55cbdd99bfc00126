"""One load, and everybody who mirrors it: twinlog, MirrorMaker 2 in two settings, and the ceiling."""

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Final

from bench.fill import COMPACTING, Filled, compaction, fill
from bench.latency import Latency
from bench.loads import Load
from bench.meter import MB, Span, watch
from bench.names import BOTH, DEFAULT, FETCH, PRODUCE, SOURCE, TUNED, TWINLOG
from bench.stage import REST_S, SCRAP, Stage

from bench import ceiling, latency, mm2, twinlog_run
from twinlog.batch.scan import batches
from twinlog.batch.view import Batch
from twinlog.wire.ops import delete_topics

CONTESTANTS: Final = ("twinlog", "default", "tuned", "ceiling", "latency")
SETTINGS: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "default": (DEFAULT, mm2.DEFAULT),
    "tuned": (TUNED, mm2.TUNED),
}
TIMEOUT_S: Final = 180.0
# Rounds that do not count, at most; fewer once no tool beats its best by so much.
WARM_ROUNDS: Final = 5
WARM_GAIN: Final = 1.1
# Raw rounds before those, at most: three brokers see a third of a round each, and take ten to reach their speed.
RAW_WARM_ROUNDS: Final = 12
RAW_SETTLED: Final = 3
LATENCY_RATE: Final = 1000
TRIED_PART: Final = 3
LOAD_TOPIC, LATENCY_TOPIC = "load", "latency"
ACKS: Final = {1: {"": -1}, 3: {", acks=1": 1, ", acks=all": -1}}
"""Of raw produce, by the brokers of the destination: with one replica they make no difference."""
WARM_PATTERN: Final = (ceiling.Pattern(2), -1)


@dataclass(frozen=True)
class Measured:
    """One tool's run: what arrived from the first moment to the last, and what it took."""

    seconds: float
    start_seconds: float
    bytes: float
    records: float
    cpu_seconds: float
    cpu_seconds_whole: float
    peak_rss_bytes: int
    others_share: float

    @classmethod
    def of(cls, span: Span, filled: Filled, expected: int, began: float) -> "Measured":
        """What `span` says of a log of which `expected` offsets were to arrive."""
        share = span.offsets / expected
        return cls(
            seconds=span.seconds,
            start_seconds=span.first.at - began,
            bytes=filled.bytes * share,
            records=filled.records * share,
            cpu_seconds=span.cpu_seconds,
            cpu_seconds_whole=span.last.cpu_seconds,
            peak_rss_bytes=span.peak_bytes,
            others_share=span.others_share,
        )

    def figures(self) -> dict[str, float]:
        """All figures, rates among them; `mb` is 10^6 bytes of the source's log."""
        return {
            **asdict(self),
            "mb_per_second": self.bytes / MB / self.seconds,
            "records_per_second": self.records / self.seconds,
            "cpu_seconds_per_gb": self.cpu_seconds / (self.bytes / 1000 / MB),
        }


@dataclass
class Contest:
    """The filled source topic, and what has been found so far."""

    stage: Stage
    load: Load
    filled: Filled
    options: argparse.Namespace
    tools: dict[str, list[Measured]] = field(default_factory=dict)
    raw: dict[str, list[float]] = field(default_factory=dict)
    latency: dict[str, list[Latency]] = field(default_factory=dict)
    _counts: bool = False
    _patterns: dict[str, ceiling.Pattern] = field(default_factory=dict)

    @property
    def _with_latency(self) -> bool:
        return "latency" in self.options.only and self.load.name in self.options.latency_loads

    @property
    def _plain(self) -> bool:
        """Whether it can be written raw as it is: no transactions, no holes."""
        return not self.load.transaction_records and not self.load.compacted

    @property
    def _topics(self) -> list[str]:
        return [LOAD_TOPIC, LATENCY_TOPIC] if self._with_latency else [LOAD_TOPIC]

    def figures(self) -> dict[str, Any]:
        """Everything that was found, as JSON takes it."""
        return {
            "load": {**asdict(self.load), "log_bytes": self.filled.bytes, "log_records": self.filled.records},
            "tools": {tool: [run.figures() for run in runs] for tool, runs in self.tools.items()},
            "ceiling_mb_per_second": self.raw,
            "latency": {tool: asdict(_middle(found)) for tool, found in self.latency.items()},
        }

    async def run(self) -> None:
        """All rounds, behind some that do not count; each begins with another contestant.

        The brokers' compilers favour who comes late, the more so the less they have seen of what comes.
        """
        turns = [turn for name, turn in self._turns() if name in self.options.only]
        await self._warm(turns)
        for number in range(self.options.repeat):
            at = number % max(1, len(turns))
            for turn in (*turns[at:], *turns[:at]):
                await turn()
        if self._with_latency:
            await self._latency(SOURCE, at_source=True, topic=LATENCY_TOPIC)

    async def _warm(self, turns: Sequence[Callable[[], Awaitable[None]]]) -> None:
        """Rounds that do not count, until nobody gets much faster."""
        print("  first what does not count:", flush=True)
        if self._plain:
            await self._warm_brokers()
        for _ in range(WARM_ROUNDS):
            for turn in turns:
                await turn()
            if all(_settled(runs) for runs in self.tools.values()):
                break
        print("  now it counts:", flush=True)
        for found in (self.tools, self.raw, self.latency, self._patterns):
            found.clear()
        self._counts = True

    async def _warm_brokers(self) -> None:
        """Raw rounds until the brokers get no faster: they take less time for it than those of a tool do."""
        rates: list[float] = []
        for _ in range(RAW_WARM_ROUNDS):
            rates.append(self.filled.bytes / MB / await self._raw_round(*WARM_PATTERN))
            if len(rates) > RAW_SETTLED and max(rates[-RAW_SETTLED:]) < WARM_GAIN * max(rates[:-RAW_SETTLED]):
                break
        print("  raw, MB/s:", " ".join(f"{rate:.0f}" for rate in rates), flush=True)

    def _turns(self) -> Iterator[tuple[str, Callable[[], Awaitable[None]]]]:
        if self._plain:
            yield "ceiling", self._ceiling
        yield "twinlog", self._twinlog
        for name in SETTINGS:
            yield name, partial(self._mirror_maker, name)

    async def _twinlog(self) -> None:
        topics = dict.fromkeys(self._topics, self.load.partitions)
        async with self.stage.targets(topics, self.load.topic_configs):
            await twinlog_run.start_topics(self.stage, self._topics)
            await asyncio.sleep(twinlog_run.SETTLED_S)
            began = time.perf_counter()
            with twinlog_run.worker(self.stage.kafkas[1]) as process:
                await self._measure(TWINLOG, process.pid, began, prefix="")

    async def _mirror_maker(self, name: str) -> None:
        text, settings = SETTINGS[name]
        topics = {mm2.PREFIX + topic: self.load.partitions for topic in self._topics}
        async with self.stage.targets(topics, self.load.topic_configs):
            began = time.perf_counter()
            with mm2.running(*self.stage.kafkas, ",".join(self._topics), settings) as process:
                await self._measure(text, process.pid, began, prefix=mm2.PREFIX)
        # Else the next one would go on where this one stood.
        await delete_topics(self.stage.destination, await self._mirror_maker_topics())

    async def _mirror_maker_topics(self) -> list[str]:
        return [name for name in await self.stage.destination.topics(None) if name.startswith(mm2.INTERNAL)]

    async def _measure(self, tool: str, pid: int, began: float, *, prefix: str) -> None:
        # MirrorMaker 2 copies records only, so they come to stand at other offsets.
        expected = self.filled.records if prefix else self.filled.offsets
        topic = prefix + LOAD_TOPIC
        span = await watch(self.stage, topic, self.load.partitions, expected, pid=pid, timeout_s=TIMEOUT_S)
        found = Measured.of(span, self.filled, expected, began)
        self.tools.setdefault(tool, []).append(found)
        told = found.figures()
        print(
            f"  {tool}: {told['mb_per_second']:.1f} MB/s, {told['records_per_second']:,.0f} records/s, "
            f"{told['cpu_seconds_per_gb']:.2f} CPU-s/GB, {found.peak_rss_bytes / MB:.0f} MB at most"
            f" ({100 * found.others_share:.0f}% of the machine was used by others)",
            flush=True,
        )
        if self._with_latency and (self._counts or tool not in self.latency):
            await asyncio.sleep(REST_S)
            await self._latency(tool, at_source=False, topic=prefix + LATENCY_TOPIC)

    async def _latency(self, tool: str, *, at_source: bool, topic: str) -> None:
        late = await asyncio.to_thread(
            latency.measure,
            self.stage.kafkas[0],
            self.stage.kafkas[0 if at_source else 1],
            (LATENCY_TOPIC, topic),
            partitions=self.load.partitions,
            rate=LATENCY_RATE,
            seconds=self.options.latency_seconds,
        )
        print(f"  {tool}: p50 {late.p50_ms:.1f} ms, p99 {late.p99_ms:.1f} ms", flush=True)
        self.latency.setdefault(tool, []).append(late)
        # Else all those single records would be mirrored beside the next one's load.
        await delete_topics(self.stage.source, [LATENCY_TOPIC])
        await asyncio.sleep(REST_S)
        await self.stage.create_at_source(LATENCY_TOPIC, self.load.partitions)

    async def _ceiling(self) -> None:
        self._note(FETCH, await ceiling.fetch_alone(self.stage.source, LOAD_TOPIC))
        for text, acks in ACKS[self.stage.brokers].items():
            pattern = self._patterns.get(text) or await self._fastest(text, acks)
            for name in (PRODUCE + text, BOTH + text):
                alone = name.startswith(PRODUCE)
                self._note(name, await self._raw_round(pattern, acks, alone=alone))

    async def _raw_round(self, pattern: ceiling.Pattern, acks: int, *, alone: bool = False) -> float:
        """How many seconds raw produce takes, `alone` or beside raw fetch."""
        source, destination = self.stage.source, self.stage.destination
        made = await ceiling.stamped_batches(source, destination, LOAD_TOPIC)
        async with self.stage.targets({SCRAP: self.load.partitions}):
            if alone:
                return await ceiling.produce_alone(destination, SCRAP, made, pattern, acks=acks)
            return await ceiling.both(source, destination, (LOAD_TOPIC, SCRAP), made, pattern, acks=acks)

    async def _fastest(self, text: str, acks: int) -> ceiling.Pattern:
        """The best pattern of requests for raw produce, tried once with a part of the load."""
        seconds: dict[ceiling.Pattern, float] = {}
        made = await ceiling.stamped_batches(self.stage.source, self.stage.destination, LOAD_TOPIC)
        some = {part: sent[: max(1, len(sent) // TRIED_PART)] for part, sent in made.items()}
        for pattern in ceiling.PATTERNS:
            async with self.stage.targets({SCRAP: self.load.partitions}):
                seconds[pattern] = await ceiling.produce_alone(self.stage.destination, SCRAP, some, pattern, acks=acks)
        self._patterns[text] = min(seconds, key=lambda pattern: seconds[pattern])
        return self._patterns[text]

    def _note(self, name: str, seconds: float) -> None:
        rate = self.filled.bytes / MB / seconds
        print(f"  {name}: {rate:.1f} MB/s", flush=True)
        self.raw.setdefault(name, []).append(rate)


def _settled(runs: Sequence[Measured]) -> bool:
    """Whether the last run was hardly faster than the best before it."""
    *before, last = [run.figures()["mb_per_second"] for run in runs]
    return bool(before) and last < WARM_GAIN * max(before)


def _middle(found: Sequence[Latency]) -> Latency:
    """The median by p99: a moment in which the machine did something else must not decide."""
    return sorted(found, key=lambda late: late.p99_ms)[len(found) // 2]


async def compete(stage: Stage, load: Load, options: argparse.Namespace) -> dict[str, Any]:
    """Fill the source with `load` and let everybody mirror it; returns the figures."""
    print(load, flush=True)
    configs = COMPACTING if load.compacted else {}
    async with (
        stage.source_topic(LOAD_TOPIC, load.partitions, configs),
        stage.source_topic(LATENCY_TOPIC, load.partitions),
    ):
        filled = await fill(stage.source, LOAD_TOPIC, load)
        if load.compacted:
            await compaction(stage.kafkas[0].data_dir(1), LOAD_TOPIC, filled, load)
            filled = await _surveyed(stage, filled)
        contest = Contest(stage, load, filled, options)
        await contest.run()
        return contest.figures()


async def _surveyed(stage: Stage, filled: Filled) -> Filled:
    """What compaction has left."""
    reader = ceiling.Reader(stage.source, LOAD_TOPIC)
    reader.kept = {}
    await reader.run()
    left = [batch for pieces in reader.kept.values() for piece in pieces for batch in batches(piece)]
    return Filled(
        sum(batch.size for batch in left),
        sum(batch.count for batch in left if isinstance(batch, Batch)),
        filled.offsets,
    )
