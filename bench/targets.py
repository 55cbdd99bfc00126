"""What is required, what was measured for it, and whether it is met."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from bench.loads import LOADS
from bench.names import BOTH, DEFAULT, TUNED, TWINLOG
from bench.report import MB, NO_FIGURE, Figures, best, times

BLANKS: Final = {
    "blanks": (("one", 1_500), ("fifty", 4_000), ("runs", 10_000), ("long", 1_000_000)),
    "blanks-rf3": (("one", 400), ("fifty", 700), ("runs", 10_000), ("long", 1_000_000)),
}
BLANK_TEXTS: Final = {
    "one": "beside one-record transactions, 1 partition",
    "fifty": "beside one-record transactions, 50 partitions",
    "runs": "runs by markers",
    "long": "very long runs",
}
# Loads with requirements of their own; on every other one the tuned MirrorMaker 2 is not to be faster.
REQUIRED_LOADS: Final = ("standard", "rf3-4", "rf3-64")
EXEMPT_LOADS: Final = ("txn1",)


@dataclass(frozen=True)
class Target:
    """One requirement, and what was measured for it; None where that was left out of the run."""

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
        value = NO_FIGURE if self.value is None else number(self.value)
        return f"{self.text}: {value} ({'at most' if self.at_most else 'at least'} {number(self.bound)}) {verdict}"

    def figures(self) -> dict[str, Any]:
        """As JSON takes it."""
        return {**asdict(self), "met": self.met}


def number(value: float) -> str:
    """A figure with about three digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def targets(figures: Figures) -> list[Target]:
    """Every requirement, also where nothing was measured for it."""
    return [*_standard(figures), *_replicated(figures), *_idle(figures), *_blanks(figures), *_others(figures)]


def _load(figures: Figures, name: str) -> Figures | None:
    found: Figures | None = figures.get("loads", {}).get(name)
    return found


def _times(figures: Figures, name: str, other: str) -> float | None:
    load = _load(figures, name)
    return times(load, TWINLOG, other) if load else None


def _standard(figures: Figures) -> Iterator[Target]:
    load = _load(figures, "standard")
    twin = best(load, TWINLOG) if load else None
    default = best(load, DEFAULT) if load else None
    late = load["latency"].get(TWINLOG) if load else None
    other = load["latency"].get(DEFAULT) if load else None
    cpu = twin["cpu_seconds_per_gb"] / default["cpu_seconds_per_gb"] if twin and default else None
    p99 = late["p99_ms"] if late else None
    yield Target("standard: times the default's throughput", 3.0, _times(figures, "standard", DEFAULT))
    yield Target("standard: times the tuned one's throughput", 1.5, _times(figures, "standard", TUNED))
    yield Target("standard: share of the ceiling", 0.8, _times(figures, "standard", BOTH))
    yield Target("standard: CPU-s per GB, share of the default's", 0.2, cpu, at_most=True)
    yield Target("standard: p99 latency, ms", 50, p99, at_most=True)
    share = p99 / other["p99_ms"] if p99 is not None and other else None
    yield Target("standard: p99 latency, share of the default's", 1, share, at_most=True)


def _replicated(figures: Figures) -> Iterator[Target]:
    for name, default, tuned in (("rf3-4", 4.0, 1.7), ("rf3-64", 6.0, 3.5)):
        yield Target(f"{name}: times the default's throughput", default, _times(figures, name, DEFAULT))
        yield Target(f"{name}: times the tuned one's throughput", tuned, _times(figures, name, TUNED))


def _idle(figures: Figures) -> Iterator[Target]:
    told = figures.get("idle", {})
    peaks = [
        run["peak_rss_bytes"] / MB
        for load in figures.get("loads", {}).values()
        if load["load"]["partitions"] <= 4
        for run in load["tools"].get(TWINLOG, [])
    ]
    peaks += [told["few"]["peak_rss_mb"]] if told else []
    many = told["many"] if told else None
    yield Target("peak RSS with 4 partitions, any load, MB", 150, max(peaks, default=None), at_most=True)
    yield Target("peak RSS with 1,000 partitions, MB", 400, many["peak_rss_mb"] if many else None, at_most=True)
    share = 100 * many["idle_cpu_share"] if many else None
    yield Target("idle with 1,000 partitions, % of a core", 2, share, at_most=True)


def _blanks(figures: Figures) -> Iterator[Target]:
    for part, bounds in BLANKS.items():
        told = figures.get("blanks", {}).get(part, {})
        replicas = "1 replica" if part == "blanks" else "3 replicas"
        for name, bound in bounds:
            yield Target(f"blanks a second, {BLANK_TEXTS[name]}, {replicas}", bound, told.get(name))


def _others(figures: Figures) -> Iterator[Target]:
    for name in LOADS:
        if name not in (*REQUIRED_LOADS, *EXEMPT_LOADS):
            yield Target(f"{name}: times the tuned one's throughput", 1.0, _times(figures, name, TUNED))
    seconds = figures.get("workers", {}).get("seconds", {})
    yield Target("a worker joins and has its share, s", 15, seconds.get("join"), at_most=True)
    yield Target("others' longest pause meanwhile, s", 1, seconds.get("join_others_pause"), at_most=True)
