"""The figures of exactly-once copying as a table, and what is required of them."""

from collections.abc import Iterator
from typing import Final

from bench.names import MM2_AT_LEAST_ONCE, MM2_EXACTLY_ONCE, REO_DIRECT, REO_PROXY
from bench.report import MB, NO_FIGURE, Figures, best, times
from bench.targets import Target, number

TOOLS: Final = (REO_DIRECT, REO_PROXY, MM2_AT_LEAST_ONCE, MM2_EXACTLY_ONCE)
HEAD: Final = (
    "",
    "MB/s",
    "x at least once",
    "x exactly once",
    "CPU-s/GB",
    "peak MB",
    "start s",
    "restart s",
    "p50 ms",
    "p99 ms",
)
KAFKA_REO_CPU: Final = 108.0
"""CPU seconds a GB that kafka-reo took at its best by default, measured once on this load."""
SHARES: Final = {REO_DIRECT: 0.1, REO_PROXY: 0.25}
"""How much of that is allowed."""
RATES: Final = {REO_DIRECT: 60.0, REO_PROXY: 30.0}
RESTART_S: Final = 10.0
P99_MS: Final = 400.0


def rows(told: Figures) -> Iterator[tuple[str, ...]]:
    """A line a tool, under a head; each by its best round, ratios by the median of the rounds."""
    yield HEAD
    for tool in TOOLS:
        run = best(told, tool)
        if run is None:
            continue
        late, restart = told["latency"].get(tool), told["restart_seconds"].get(tool)
        yield (
            tool,
            f"{run['mb_per_second']:.1f}",
            *(_ratio(times(_with_ceiling(told), tool, other)) for other in (MM2_AT_LEAST_ONCE, MM2_EXACTLY_ONCE)),
            f"{run['cpu_seconds_per_gb']:.2f}",
            f"{run['peak_rss_bytes'] / MB:.0f}",
            f"{run['start_seconds']:.1f}",
            NO_FIGURE if restart is None else f"{restart:.1f}",
            *((f"{late['p50_ms']:.0f}", f"{late['p99_ms']:.0f}") if late else (NO_FIGURE, NO_FIGURE)),
        )


def table(told: Figures) -> str:
    """All figures, for the eye."""
    lines = list(rows(told))
    widths = [max(len(line[at]) for line in lines) for at in range(len(HEAD))]
    told_load = told["load"]
    title = f"reo: {told_load['text']}, {told_load['partitions']} partitions, as a read_committed consumer sees them"
    return "\n".join([title, *("  ".join(_cells(line, widths)) for line in lines)])


def _cells(line: tuple[str, ...], widths: list[int]) -> list[str]:
    return [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]


def _ratio(value: float | None) -> str:
    return NO_FIGURE if value is None else number(value)


def _with_ceiling(told: Figures) -> Figures:
    return {**told, "ceiling_mb_per_second": {}}


def targets(figures: Figures) -> list[Target]:
    """Every requirement on copying exactly once, also where nothing was measured for it."""
    return list(_targets(figures.get("reo")))


def _targets(told: Figures | None) -> Iterator[Target]:
    ratio = times(_with_ceiling(told), REO_DIRECT, MM2_AT_LEAST_ONCE) if told else None
    yield Target("reo, direct: times the throughput of MirrorMaker 2, at least once", 2.0, ratio)
    for tool, rate in RATES.items():
        mode = tool.rpartition(" ")[2]
        run = best(told, tool) if told else None
        late = told["latency"].get(tool) if told else None
        restart = told["restart_seconds"].get(tool) if told else None
        cpu = run["cpu_seconds_per_gb"] if run else None
        yield Target(f"reo, {mode}: MB/s", rate, run["mb_per_second"] if run else None)
        yield Target(f"reo, {mode}: CPU-s per GB", KAFKA_REO_CPU * SHARES[tool], cpu, at_most=True)
        yield Target(f"reo, {mode}: first record after a restart, s", RESTART_S, restart, at_most=True)
        yield Target(f"reo, {mode}: p99 latency, ms", P99_MS, late["p99_ms"] if late else None, at_most=True)
