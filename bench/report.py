"""The figures of one run: as a table, as ratios, against what is required, and as JSON."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.latency import Latency
from bench.loads import Load
from bench.meter import MB, Measured

TWINLOG, DEFAULT, TUNED = "twinlog", "MirrorMaker 2, default", "MirrorMaker 2, tuned"
SOURCE = "the source itself"
FETCH, PRODUCE, BOTH = "raw fetch alone", "raw produce alone", "raw fetch and produce at once"

NO_FIGURE: Final = "-"


@dataclass
class Results:
    """What one run has found; rates of the ceiling in 10^6 bytes a second."""

    load: Load
    machine: Mapping[str, Any]
    tools: dict[str, list[Measured]] = field(default_factory=dict)
    ceiling: dict[str, list[float]] = field(default_factory=dict)
    latency: dict[str, Latency] = field(default_factory=dict)

    def rates(self, name: str) -> list[float]:
        """Of a tool or a part of the ceiling, round by round."""
        return [run.mb_per_second for run in self.tools.get(name, [])] or self.ceiling.get(name, [])

    def best(self, tool: str) -> Measured | None:
        """The fastest of a tool's runs: what else the machine does only ever slows one down."""
        return max(self.tools.get(tool, []), key=lambda run: run.mb_per_second, default=None)


@dataclass(frozen=True)
class Target:
    """One requirement, and what was measured for it; None where a run was left out."""

    text: str
    bound: float
    value: float | None
    at_most: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the value is on the right side of the bound."""
        if self.value is None:
            return None
        return self.value <= self.bound if self.at_most else self.value >= self.bound

    def __str__(self) -> str:
        verdict = {None: "not measured", True: "met", False: "MISSED"}[self.met]
        value = NO_FIGURE if self.value is None else f"{self.value:.2f}"
        return f"{self.text}: {value} ({'at most' if self.at_most else 'at least'} {self.bound:g}) {verdict}"


def targets(results: Results) -> list[Target]:
    """What is required of this load on one broker each side."""
    twin, default = results.best(TWINLOG), results.best(DEFAULT)
    late = results.latency.get(TWINLOG)
    other = results.latency.get(DEFAULT)
    cpu = twin.cpu_seconds_per_gb / default.cpu_seconds_per_gb if twin and default else None
    share = late.p99_ms / other.p99_ms if late and other else None
    return [
        Target("throughput, times the default's", 3.0, _times(results, TWINLOG, DEFAULT)),
        Target("throughput, times the tuned one's", 1.5, _times(results, TWINLOG, TUNED)),
        Target("throughput, share of the ceiling", 0.8, _times(results, TWINLOG, BOTH)),
        Target("CPU-s per GB, share of the default's", 0.2, cpu, at_most=True),
        Target("peak RSS, MB", 150, twin.peak_rss_bytes / MB if twin else None, at_most=True),
        Target("p99 latency, ms", 50, late.p99_ms if late else None, at_most=True),
        Target("p99 latency, share of the default's", 1, share, at_most=True),
    ]


def _times(results: Results, one: str, other: str) -> float | None:
    """How many times as fast one was as the other: the median of the rounds, each of which ran under the same load."""
    pairs = list(zip(results.rates(one), results.rates(other), strict=False))
    return median(rate / than for rate, than in pairs) if pairs else None


def table(results: Results) -> str:
    """All figures, a line a contestant."""
    rows = [("", "MB/s", "records/s", "CPU-s/GB", "peak MB", "start s", "p50 ms", "p99 ms", "x default", "x tuned")]
    rows += [_tool_row(results, tool) for tool in (TWINLOG, DEFAULT, TUNED) if results.tools.get(tool)]
    rows += [_ceiling_row(results, name) for name in results.ceiling]
    if SOURCE in results.latency:
        rows.append((SOURCE, *[NO_FIGURE] * 5, *_percentiles(results, SOURCE), *[NO_FIGURE] * 2))
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return "\n".join(_line(row, widths) for row in rows)


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
    return "  ".join([row[0].ljust(widths[0]), *cells])


def _tool_row(results: Results, tool: str) -> tuple[str, ...]:
    run = results.best(tool)
    assert run is not None
    return (
        tool,
        f"{run.mb_per_second:.1f}",
        f"{run.records_per_second:,.0f}",
        f"{run.cpu_seconds_per_gb:.2f}",
        f"{run.peak_rss_bytes / MB:.0f}",
        f"{run.start_seconds:.1f}",
        *_percentiles(results, tool),
        *_ratios(results, tool),
    )


def _ceiling_row(results: Results, name: str) -> tuple[str, ...]:
    rate = max(results.ceiling[name])
    records = rate * MB / results.load.record_bytes
    return (name, f"{rate:.1f}", f"{records:,.0f}", *[NO_FIGURE] * 5, *_ratios(results, name))


def _percentiles(results: Results, name: str) -> tuple[str, str]:
    late = results.latency.get(name)
    return (f"{late.p50_ms:.1f}", f"{late.p99_ms:.1f}") if late else (NO_FIGURE, NO_FIGURE)


def _ratios(results: Results, name: str) -> Iterator[str]:
    for tool in (DEFAULT, TUNED):
        times = _times(results, name, tool)
        yield NO_FIGURE if times is None else f"{times:.2f}"


def written(results: Results, path: Path) -> None:
    """Write everything as JSON."""
    tools = {
        tool: [
            {**asdict(run), "mb_per_second": run.mb_per_second, "cpu_seconds_per_gb": run.cpu_seconds_per_gb}
            for run in runs
        ]
        for tool, runs in results.tools.items()
    }
    content = {
        "machine": dict(results.machine),
        "load": asdict(results.load),
        "tools": tools,
        "ceiling_mb_per_second": results.ceiling,
        "latency": {tool: asdict(late) for tool, late in results.latency.items()},
        "targets": [{**asdict(target), "met": target.met} for target in targets(results)],
    }
    path.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
