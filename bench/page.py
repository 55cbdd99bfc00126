"""Brings the picture and the tables of `docs/performance.md` up to date with the figures that are kept beside it.

python -m bench.page
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from bench.loads import LOADS
from bench.names import DEFAULT, SOURCE, TUNED, TWINLOG
from bench.picture import ceilings, picture
from bench.report import MB, NO_FIGURE, TOOLS, Figures, best, rates, times
from bench.targets import number, targets

DOCS: Final = Path(__file__).resolve().parents[1] / "docs"
FIGURES: Final = DOCS / "images" / "bench.json"
PICTURE: Final = DOCS / "images" / "throughput.svg"
PAGE: Final = DOCS / "performance.md"
PART: Final = re.compile(r"(<!-- begin (\w+) -->\n).*?(<!-- end \2 -->)", re.DOTALL)

VERDICTS: Final = {True: "yes", False: "**no**", None: "not measured"}


def renewed(page: str, figures: Figures) -> str:
    """The page, with every generated part written anew from the figures."""
    parts = {
        "machine": _machine(figures),
        "throughput": _table(_throughput(figures)),
        "cost": _table(_cost(figures)),
        "latency": _table(_latency(figures)),
        "blanks": _table(_blanks(figures)),
        "workers": _table(_workers(figures)),
        "targets": _table(_targets(figures)),
    }
    return PART.sub(lambda found: f"{found[1]}{parts[found[2]]}{found[3]}", page)


def _table(rows: Iterable[Sequence[str]]) -> str:
    head, *body = rows
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _machine(figures: Figures) -> str:
    told = figures["machine"]
    memory = told["memory_bytes"] / 2**30
    return f"{told['cores']} cores, {memory:.0f} GiB of memory, Python {told['python']}, Kafka {told['kafka']}.\n"


def _loads(figures: Figures) -> list[Figures]:
    return [figures["loads"][name] for name in LOADS if name in figures["loads"]]


def _title(load: Figures) -> str:
    told = load["load"]
    replicas = ", 3 replicas" if told["brokers"] > 1 else ""
    return f"{told['text']}, {told['partitions']} partitions{replicas}"


def _rate(values: Sequence[float]) -> str:
    return number(median(values)) if values else NO_FIGURE


def _ratio(value: float | None) -> str:
    return NO_FIGURE if value is None else f"{value:.2f}"


def _throughput(figures: Figures) -> Iterator[Sequence[str]]:
    yield "MB/s of the source's log", "twinlog", "MM2 default", "MM2 tuned", "ceiling", "times default", "times tuned"
    for load in _loads(figures):
        ratios = [_ratio(times(load, TWINLOG, other)) for other in (DEFAULT, TUNED)]
        yield _title(load), *(_rate(rates(load, tool)) for tool in TOOLS), _rate(ceilings(load)), *ratios


def _cost(figures: Figures) -> Iterator[Sequence[str]]:
    short = ("twinlog", "MM2 default", "MM2 tuned")
    yield "", *(f"CPU-s/GB {name}" for name in short), *(f"peak MB {name}" for name in short)
    for load in _loads(figures):
        runs = [best(load, tool) for tool in TOOLS]
        yield (
            _title(load),
            *(number(run["cpu_seconds_per_gb"]) if run else NO_FIGURE for run in runs),
            *(f"{run['peak_rss_bytes'] / MB:.0f}" if run else NO_FIGURE for run in runs),
        )


def _latency(figures: Figures) -> Iterator[Sequence[str]]:
    yield "from `produce` to visible, 1,000 records/s", "p50, ms", "p99, ms"
    late = figures["loads"]["standard"]["latency"]
    for name in (SOURCE, *TOOLS):
        if name in late:
            yield name, f"{late[name]['p50_ms']:.1f}", f"{late[name]['p99_ms']:.1f}"


def _blanks(figures: Figures) -> Iterator[Sequence[str]]:
    yield "blanks a second", "1 replica", "3 replicas"
    one, three = (figures.get("blanks", {}).get(part, {}) for part in ("blanks", "blanks-rf3"))
    texts = {
        "one": "beside as many one-record transactions, 1 partition",
        "fifty": "the same over 50 partitions",
        "runs": "runs of 5,000, by markers",
        "long": "runs of 4,000,000, by aborted transactions",
    }
    for name, text in texts.items():
        yield text, *(number(told[name]) if name in told else NO_FIGURE for told in (one, three))


def _workers(figures: Figures) -> Iterator[Sequence[str]]:
    yield "", "measured"
    told = figures.get("workers", {"throughput": {}, "seconds": {}})
    for workers, found in told["throughput"].items():
        yield f"{workers} workers on 64 partitions, MB/s", number(found["mb_per_second"])
    texts = {
        "join": "a worker is started: it has its share after, s",
        "join_moved_pause": "… partitions that move to it pause for at most, s",
        "join_others_pause": "… all others, s",
        "handover_moved_pause": "it ends on SIGTERM: its partitions pause for at most, s",
        "handover_others_pause": "… all others, s",
        "takeover_moved_pause": "it is killed: its partitions pause for at most, s",
        "takeover_others_pause": "… all others, s",
    }
    for name, text in texts.items():
        if name in told["seconds"]:
            yield text, f"{told['seconds'][name]:.2f}"


def _targets(figures: Figures) -> Iterator[Sequence[str]]:
    yield "aim", "bound", "measured", "met"
    for target in targets(figures):
        bound = f"{'≤' if target.at_most else '≥'} {number(target.bound)}"
        value = NO_FIGURE if target.value is None else number(target.value)
        yield target.text, bound, value, VERDICTS[target.met]


if __name__ == "__main__":
    kept = json.loads(FIGURES.read_text("utf-8"))
    PICTURE.write_text(picture(kept), "utf-8")
    PAGE.write_text(renewed(PAGE.read_text("utf-8"), kept), "utf-8")
