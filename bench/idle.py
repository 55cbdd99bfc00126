"""Memory under a large backlog, with many partitions and with few, and what a thousand quiet partitions cost."""

import asyncio
import time
from dataclasses import dataclass, replace
from typing import Final

from bench.fill import fill
from bench.loads import STANDARD, Load
from bench.meter import MB, Usage, watch
from bench.stage import Stage

from bench import twinlog_run

TOPIC: Final = "backlog"
MANY: Final = replace(STANDARD, name="many", megabytes=400, partitions=1000)
FEW: Final = replace(STANDARD, name="few", megabytes=1200)
TIMEOUT_S: Final = 120.0
REST_S: Final = 8.0
QUIET_S: Final = 20.0


@dataclass(frozen=True)
class Backlog:
    """What one worker needed to catch up, and afterwards, with nothing to do."""

    partitions: int
    megabytes: int
    peak_rss_mb: float
    seconds: float
    idle_cpu_share: float


async def caught_up(stage: Stage, load: Load, *, quiet_s: float) -> Backlog:
    """Let one worker catch up with `load`, then watch it do nothing for `quiet_s`."""
    async with stage.source_topic(TOPIC, load.partitions), stage.targets({TOPIC: load.partitions}):
        filled = await fill(stage.source, TOPIC, load)
        began = time.perf_counter()
        async with twinlog_run.running(stage, [TOPIC]) as process:
            await watch(stage, TOPIC, load.partitions, filled.offsets, pid=process.pid, timeout_s=TIMEOUT_S)
            took_s = time.perf_counter() - began
            usage = Usage(process.pid)
            share = await _idle_share(usage, quiet_s)
            return Backlog(load.partitions, load.megabytes, usage.peak_bytes / MB, took_s, share)


async def _idle_share(usage: Usage, quiet_s: float) -> float:
    """CPU seconds a second while nothing happens."""
    await asyncio.sleep(REST_S)
    used, began = usage.cpu_seconds(), time.perf_counter()
    await asyncio.sleep(quiet_s)
    return (usage.cpu_seconds() - used) / (time.perf_counter() - began)


async def measure(stage: Stage) -> dict[str, Backlog]:
    """With a thousand partitions, and with four."""
    found = {}
    for name, load in (("many", MANY), ("few", FEW)):
        found[name] = backlog = await caught_up(stage, load, quiet_s=QUIET_S)
        print(
            f"  {backlog.partitions} partitions, {backlog.megabytes} MB behind: {backlog.peak_rss_mb:.0f} MB at most; "
            f"then idle at {100 * backlog.idle_cpu_share:.2f}% of a core",
            flush=True,
        )
    return found
