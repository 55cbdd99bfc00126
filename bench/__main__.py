"""Mirrors the same data with twinlog and with MirrorMaker 2, on the same two clusters, in one run.

python -m bench [--mb 300] [--only twinlog,default,tuned,ceiling,latency] [--repeat 3] [--json FILE]
"""

import argparse
import asyncio
import os
import platform
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import psutil
import uvloop
from bench import ceiling, latency, mm2, report, twinlog_run
from bench.loads import STANDARD, Load, fill
from bench.meter import MB, watch

from twinlog.config.client import ClientSettings
from twinlog.names import TopicPartition
from twinlog.testing.kafka import LocalKafka
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops import LATEST, delete_topics, list_offsets

PARTS: Final = ("twinlog", "default", "tuned", "ceiling", "latency")
TOOLS: Final = {"twinlog": report.TWINLOG, "default": report.DEFAULT, "tuned": report.TUNED}
SETTINGS: Final = {"default": mm2.DEFAULT, "tuned": mm2.TUNED}
TIMEOUT_S: Final = 180.0
WARM_MB: Final = 500
REST_S: Final = 2.0
LATENCY_RATE: Final = 1000
LOAD_TOPIC, LATENCY_TOPIC, SCRAP_TOPIC = "load", "latency", "scrap"

# Brokers that compile as in production, and that throw deleted data away at once, so that the disk stays out of it.
BROKER: Final = {"log.segment.delete.delay.ms": "500", "log.retention.check.interval.ms": "1000"}
JAVA: Final = ("-XX:TieredStopAtLevel=4", "-Xmx1g")


@dataclass
class Bench:
    """Two clusters, the filled source topic, and what has been found so far."""

    source: Cluster
    destination: Cluster
    kafkas: tuple[LocalKafka, LocalKafka]
    log_bytes: int
    results: report.Results
    options: argparse.Namespace

    @property
    def load(self) -> Load:
        """What is mirrored."""
        return self.results.load

    async def twinlog(self) -> None:
        """One worker process."""
        async with self._topics(LOAD_TOPIC, LATENCY_TOPIC):
            began = time.perf_counter()
            async with twinlog_run.running(
                self.source, self.destination, self.kafkas, [LOAD_TOPIC, LATENCY_TOPIC]
            ) as process:
                await self._measure("twinlog", process.pid, began, prefix="")

    async def mirror_maker(self, name: str) -> None:
        """MirrorMaker 2 with one of its settings."""
        async with self._topics(mm2.PREFIX + LOAD_TOPIC, mm2.PREFIX + LATENCY_TOPIC):
            began = time.perf_counter()
            with mm2.running(*self.kafkas, f"{LOAD_TOPIC},{LATENCY_TOPIC}", SETTINGS[name]) as process:
                await self._measure(name, process.pid, began, prefix=mm2.PREFIX)
        # Else the next one would go on where this one stood.
        names = [name for name in await self.destination.topics(None) if name.startswith(mm2.INTERNAL)]
        await delete_topics(self.destination, names)

    async def _measure(self, name: str, pid: int, began: float, *, prefix: str) -> None:
        found = await watch(
            self.destination,
            prefix + LOAD_TOPIC,
            self.load,
            log_bytes=self.log_bytes,
            pid=pid,
            began=began,
            timeout_s=TIMEOUT_S,
        )
        print(f"  {TOOLS[name]}: {found.mb_per_second:.1f} MB/s, {found.cpu_seconds_per_gb:.2f} CPU-s/GB", flush=True)
        self.results.tools.setdefault(TOOLS[name], []).append(found)
        if "latency" in self.options.only and TOOLS[name] not in self.results.latency:
            await asyncio.sleep(REST_S)
            await self._latency(TOOLS[name], self.kafkas[1], prefix + LATENCY_TOPIC)

    async def source_latency(self) -> None:
        """What a consumer of the source itself sees: no mirror can do better."""
        await self._latency(report.SOURCE, self.kafkas[0], LATENCY_TOPIC)

    async def _latency(self, name: str, read_from: LocalKafka, topic: str) -> None:
        late = await asyncio.to_thread(
            latency.measure,
            self.kafkas[0],
            read_from,
            (LATENCY_TOPIC, topic),
            partitions=self.load.partitions,
            rate=LATENCY_RATE,
            seconds=self.options.latency_seconds,
        )
        print(f"  {name}: p50 {late.p50_ms:.1f} ms, p99 {late.p99_ms:.1f} ms", flush=True)
        self.results.latency[name] = late
        # Else all those single records would be mirrored beside the next one's load.
        await delete_topics(self.source, [LATENCY_TOPIC])
        await asyncio.sleep(REST_S)
        await _created(self.kafkas[0], self.source, LATENCY_TOPIC, self.load.partitions)

    async def ceiling(self) -> None:
        """Raw fetch, raw produce in each pattern, and both at once in the fastest."""
        rates = {report.FETCH: self._rate(await ceiling.fetch_alone(self.source, LOAD_TOPIC, self.load))}
        made = await ceiling.stamped_batches(self.source, self.destination, LOAD_TOPIC, self.load)
        alone: dict[ceiling.Pattern, float] = {}
        for pattern in ceiling.PATTERNS:
            async with self._topics(SCRAP_TOPIC):
                seconds = await ceiling.produce_alone(self.destination, SCRAP_TOPIC, made, pattern)
            alone[pattern] = self._rate(seconds)
        fastest = max(alone, key=lambda pattern: alone[pattern])
        rates[report.PRODUCE] = alone[fastest]
        async with self._topics(SCRAP_TOPIC):
            topics = (LOAD_TOPIC, SCRAP_TOPIC)
            seconds = await ceiling.both(self.source, self.destination, topics, self.load, made, fastest)
        rates[report.BOTH] = self._rate(seconds)
        for name, rate in rates.items():
            print(f"  {name}: {rate:.1f} MB/s ({fastest})", flush=True)
            self.results.ceiling.setdefault(name, []).append(rate)

    async def warm(self) -> None:
        """Let both brokers' compilers see some requests of the kind before anybody is measured."""
        async with self._topics(SCRAP_TOPIC):
            await fill(self.destination, SCRAP_TOPIC, replace(self.load, megabytes=WARM_MB))
        await ceiling.fetch_alone(self.source, LOAD_TOPIC, self.load)

    def _rate(self, seconds: float) -> float:
        return self.log_bytes / MB / seconds

    @asynccontextmanager
    async def _topics(self, *names: str) -> AsyncIterator[None]:
        """Have these topics, empty, at the destination; delete them afterwards and let it come to rest."""
        for name in names:
            await _created(self.kafkas[1], self.destination, name, self.load.partitions)
        try:
            yield
        finally:
            await delete_topics(self.destination, names)
            await asyncio.sleep(REST_S)


async def main(options: argparse.Namespace) -> report.Results:
    """Fill the source once, then measure one contestant after another."""
    load = replace(STANDARD, megabytes=options.mb)
    results = report.Results(load, _machine())
    print(f"{load}; {os.cpu_count()} cores", flush=True)
    mm2.class_path(LocalKafka().release.version)
    with _kafka() as one, _kafka() as two:
        source, destination = await _connected(one), await _connected(two)
        for topic in (LOAD_TOPIC, LATENCY_TOPIC):
            await _created(one, source, topic, load.partitions)
        log_bytes = await fill(source, LOAD_TOPIC, load)
        bench = Bench(source, destination, (one, two), log_bytes, results, options)
        await bench.warm()
        if "latency" in options.only:
            await bench.source_latency()
        for _ in range(options.repeat):
            await _round(bench, options.only)
        await source.close()
        await destination.close()
    return results


async def _round(bench: Bench, parts: list[str]) -> None:
    # First, since it warms both brokers' compilers for the others.
    if "ceiling" in parts:
        await bench.ceiling()
    if "twinlog" in parts:
        await bench.twinlog()
    for name in SETTINGS:
        if name in parts:
            await bench.mirror_maker(name)


def _kafka() -> LocalKafka:
    return LocalKafka(config=BROKER, java_options=JAVA)


async def _created(kafka: LocalKafka, cluster: Cluster, topic: str, partitions: int) -> None:
    await asyncio.to_thread(kafka.create_topic, topic, partitions=partitions)
    # The metadata names a leader a little before it serves.
    await list_offsets(cluster, {TopicPartition(topic, part): LATEST for part in range(partitions)})


async def _connected(kafka: LocalKafka) -> Cluster:
    settings = ClientSettings.from_properties({}, bootstrap=kafka.bootstrap, origin="the bench")
    return await Cluster.connect(settings, client_id="bench")


def _machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": platform.platform(),
        "python": platform.python_version(),
        "kafka": LocalKafka().release.version,
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="twinlog beside MirrorMaker 2.")
    parser.add_argument("--mb", type=int, default=STANDARD.megabytes, help="size of the load in 10^6 bytes")
    parser.add_argument("--only", default=",".join(PARTS), help=f"what to run, of {','.join(PARTS)}")
    parser.add_argument("--repeat", type=int, default=3, help="rounds")
    parser.add_argument("--latency-seconds", type=float, default=10.0)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args()
    options.only = options.only.split(",")
    if unknown := set(options.only) - set(PARTS):
        parser.error(f"--only knows {', '.join(PARTS)}, not {', '.join(sorted(unknown))}")
    return options


if __name__ == "__main__":
    arguments = _arguments()
    found = uvloop.run(main(arguments))
    print("\n" + report.table(found) + "\n")
    for target in report.targets(found):
        print(target)
    if arguments.json:
        report.written(found, arguments.json)
