"""The comparison as a picture: for each load, throughput of the contestants and of the ceiling, on a scale of its own.

python -m bench.picture figures.json picture.svg
"""

import json
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from statistics import median
from typing import Final

from bench.loads import LOADS
from bench.names import BOTH, DEFAULT, TUNED, TWINLOG
from bench.report import Figures, rates

WIDTH: Final = 860
LEFT, RIGHT, TOP = 330, 90, 76
BAR, GAP, BETWEEN = 15, 3, 18
# Distinguishable for colour-blind readers, and on light and dark grounds.
COLOURS: Final = {TWINLOG: "#0072b2", DEFAULT: "#999999", TUNED: "#e69f00"}
CEILING_COLOUR: Final = "#d55e00"
STYLE: Final = (
    "text{font:13px system-ui,sans-serif;fill:#222}.small{font-size:11px;fill:#555}.title{font-size:17px}"
    "rect.ground{fill:#fff}line.axis{stroke:#ccc}"
)


def ceilings(load: Figures) -> list[float]:
    """Both raw requests at once; into several brokers there is one a kind of acknowledgement, the best counts."""
    found = [median(values) for name, values in load["ceiling_mb_per_second"].items() if name.startswith(BOTH)]
    return [max(found)] if found else []


def picture(figures: Figures) -> str:
    """The whole SVG."""
    loads = [figures["loads"][name] for name in LOADS if name in figures["loads"]]
    body: list[str] = []
    y = TOP
    for load in loads:
        lines, y = _group(load, y, (WIDTH - LEFT - RIGHT) / _most(load))
        body += lines
    height = y + 30
    machine = figures.get("machine", {})
    foot = f"{machine.get('cores', '?')} cores for brokers, tool and measurement; Kafka {machine.get('kafka', '?')}"
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="Throughput by load">',
        f"<style>{STYLE}</style>",
        f'<rect class="ground" width="{WIDTH}" height="{height}"/>',
        _text(20, 28, "Throughput in MB/s; each load has a scale of its own", "title"),
        *_legend(),
    ]
    return "\n".join([*head, *body, _text(20, height - 12, foot, "small"), "</svg>"]) + "\n"


def _most(load: Figures) -> float:
    own = [median(rates(load, tool)) for tool in COLOURS if rates(load, tool)]
    return max([*own, *ceilings(load)], default=1.0)


def _legend() -> Iterator[str]:
    x = 20
    for name, colour in COLOURS.items():
        yield f'<rect x="{x}" y="44" width="13" height="13" fill="{colour}"/>'
        yield _text(x + 19, 55, name)
        x += 40 + 7 * len(name)
    yield f'<line x1="{x + 6}" y1="42" x2="{x + 6}" y2="59" stroke="{CEILING_COLOUR}" stroke-width="3"/>'
    yield _text(x + 16, 55, "raw fetch and produce at once")


def _group(load: Figures, y: int, scale: float) -> tuple[list[str], int]:
    """The bars of one load from `y` on, and where the next begins."""
    told = load["load"]
    lines: list[str] = []
    begin = y
    for tool, colour in COLOURS.items():
        if not rates(load, tool):
            continue
        rate = median(rates(load, tool))
        wide = max(1.0, rate * scale)
        lines.append(f'<rect x="{LEFT}" y="{y}" width="{wide:.1f}" height="{BAR}" fill="{colour}"/>')
        lines.append(_text(LEFT + wide + 6, y + 12, f"{rate:.0f}" if rate >= 10 else f"{rate:.1f}", "small"))
        y += BAR + GAP
    for rate in ceilings(load):
        x = LEFT + rate * scale
        lines.append(
            f'<line x1="{x:.1f}" y1="{begin - 3}" x2="{x:.1f}" y2="{y}" stroke="{CEILING_COLOUR}" stroke-width="3"/>'
        )
        lines.append(_text(x + 6, begin + 12 + BAR + GAP, f"{rate:.0f}", "small"))
    replicas = ", 3 replicas" if told["brokers"] > 1 else ""
    lines.append(_text(20, begin + 12, told["text"]))
    lines.append(_text(20, begin + 28, f"{told['partitions']} partitions{replicas}", "small"))
    lines.append(f'<line class="axis" x1="{LEFT}" y1="{begin - 4}" x2="{LEFT}" y2="{y + 1}"/>')
    return lines, max(y, begin + 34) + BETWEEN


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    of = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y}"{of}>{escape(text)}</text>'


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(picture(json.loads(Path(sys.argv[1]).read_text("utf-8"))), "utf-8")
