"""The figures of a run as tables, as ratios, and as JSON; figures are what `contest` and its neighbours return."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.names import DEFAULT, SOURCE, TUNED, TWINLOG

MB: Final = 1_000_000
NO_FIGURE: Final = "-"
TOOLS: Final = (TWINLOG, DEFAULT, TUNED)
HEAD: Final[tuple[str, ...]] = (
    "",
    "MB/s",
    "records/s",
    "CPU-s/GB",
    "peak MB",
    "start s",
    "p50 ms",
    "p99 ms",
    "x default",
    "x tuned",
)

Figures = Mapping[str, Any]
"""As in the JSON file: `machine`, `loads` by name, then `blanks`, `idle` and `workers` where they were measured."""


def rates(load: Figures, name: str) -> list[float]:
    """MB/s of a tool or a part of the ceiling, round by round."""
    runs = load["tools"].get(name)
    if runs is not None:
        return [run["mb_per_second"] for run in runs]
    found: list[float] = load["ceiling_mb_per_second"].get(name, [])
    return found


def best(load: Figures, tool: str) -> Figures | None:
    """The fastest of a tool's runs: what else the machine does only ever slows one down."""
    found: Figures | None = max(load["tools"].get(tool, []), key=lambda run: run["mb_per_second"], default=None)
    return found


def times(load: Figures, one: str, other: str) -> float | None:
    """How many times as fast one was as the other: the median of the rounds, each of which ran under the same load."""
    pairs = list(zip(rates(load, one), rates(load, other), strict=False))
    return median(rate / than for rate, than in pairs) if pairs else None


def table(load: Figures) -> str:
    """All figures of one load, a line a contestant."""
    rows = [HEAD]
    rows += [_tool_row(load, tool, run) for tool in TOOLS if (run := best(load, tool))]
    rows += [_ceiling_row(load, name) for name in load["ceiling_mb_per_second"]]
    if SOURCE in load["latency"]:
        rows.append((SOURCE, *[NO_FIGURE] * 5, *_percentiles(load, SOURCE), *[NO_FIGURE] * 2))
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEAD))]
    told = load["load"]
    title = f"{told['name']}: {told['text']}, {told['partitions']} partitions"
    return "\n".join([title, *(_line(row, widths) for row in rows)])


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
    return "  ".join([row[0].ljust(widths[0]), *cells])


def _tool_row(load: Figures, tool: str, run: Figures) -> tuple[str, ...]:
    return (
        tool,
        f"{run['mb_per_second']:.1f}",
        f"{run['records_per_second']:,.0f}",
        f"{run['cpu_seconds_per_gb']:.2f}",
        f"{run['peak_rss_bytes'] / MB:.0f}",
        f"{run['start_seconds']:.1f}",
        *_percentiles(load, tool),
        *_ratios(load, tool),
    )


def _ceiling_row(load: Figures, name: str) -> tuple[str, ...]:
    rate = max(rates(load, name))
    records = rate * MB * load["load"]["log_records"] / load["load"]["log_bytes"]
    return (name, f"{rate:.1f}", f"{records:,.0f}", *[NO_FIGURE] * 5, *_ratios(load, name))


def _percentiles(load: Figures, name: str) -> tuple[str, str]:
    late = load["latency"].get(name)
    return (f"{late['p50_ms']:.1f}", f"{late['p99_ms']:.1f}") if late else (NO_FIGURE, NO_FIGURE)


def _ratios(load: Figures, name: str) -> Iterator[str]:
    for tool in (DEFAULT, TUNED):
        ratio = times(load, name, tool)
        yield NO_FIGURE if ratio is None else f"{ratio:.2f}"


def merged(figures: Figures, path: Path) -> dict[str, Any]:
    """What was found now, over what the file held of other loads and measurements."""
    known: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    whole = {**known, **figures}
    for name in ("loads", "blanks", "seconds"):
        whole[name] = {**known.get(name, {}), **figures.get(name, {})}
    return whole


def written(figures: Figures, path: Path) -> None:
    """Write the figures as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")
