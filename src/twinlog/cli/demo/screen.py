"""What the demo shows: steps, the commands it runs with what they print, and the mirror's progress, live."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from twinlog.cli.demo.watch import Rows, lag, mirrored

LINE_EVERY_S: Final = 2.0
RATE_OVER_S: Final = 3.0
BAR_WIDTH: Final = 24


class Screen:
    """Writes to stdout; colours and live figures only in a terminal."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)

    @property
    def live(self) -> bool:
        """Whether somebody is looking, so that it makes sense to keep running."""
        return sys.stdout.isatty()  # not rich's idea of it, which FORCE_COLOR can change

    def step(self, text: str) -> None:
        """What happens next."""
        self.console.print()
        self.line(Text(text, style="bold"))

    def line(self, text: str | Text) -> None:
        """One line, however long; a terminal may wrap it, and it can still be copied."""
        self.console.print(text if isinstance(text, Text) else Text(text), soft_wrap=True)

    def command(self, text: str) -> None:
        """A command that is run now."""
        self.line(Text.assemble(("$ ", "dim"), (text, "cyan")))

    def output(self, text: str) -> None:
        """What a command printed."""
        for line in text.splitlines():
            self.line(line)

    def good(self, text: str) -> None:
        """The line that all of it was for."""
        self.line(Text(text, style="bold green"))

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Show that something takes a while, and afterwards how long it took."""
        began = time.monotonic()
        if self.live:
            with self.console.status(text):
                yield
        else:
            self.line(f"{text} ...")
            yield
        self.line(f"{text}: {time.monotonic() - began:.1f} s")

    @contextmanager
    def progress(self) -> Iterator["Progress"]:
        """Show a mirror's progress for as long as the block lasts."""
        if self.live:
            with Live(console=self.console, auto_refresh=False) as display:
                yield Progress(self, display)
        else:
            yield Progress(self, None)


class Progress:
    """The progress of one mirror: a table that changes in a terminal, else a line every two seconds."""

    def __init__(self, screen: Screen, display: Live | None) -> None:
        self._screen = screen
        self._display = display
        self._printed = float("-inf")
        self._history: list[tuple[float, int]] = []

    def show(self, rows: Rows) -> None:
        """Take notice of the newest figures."""
        rate = self._rate(mirrored(rows))
        if self._display is not None:
            self._display.update(_table(rows, rate), refresh=True)
        elif time.monotonic() - self._printed >= LINE_EVERY_S:
            self._printed = time.monotonic()
            self._screen.line(_summary(rows, rate))

    def last(self, rows: Rows) -> None:
        """Show figures once more, whenever the last line was."""
        self._printed = float("-inf")
        self.show(rows)

    def _rate(self, offsets: int) -> float:
        """Offsets a second over the last seconds."""
        now = time.monotonic()
        self._history = [(at, seen) for at, seen in self._history if now - at < RATE_OVER_S] + [(now, offsets)]
        began, first = self._history[0]
        return (offsets - first) / (now - began) if now > began else 0.0


def _summary(rows: Rows, rate: float) -> str:
    behind = lag(rows)
    states = ", ".join(sorted({row.state.name for row in rows})) or "no partitions yet"
    told = "not known yet" if behind < 0 else f"{behind:,}"
    return f"mirrored {mirrored(rows):,} offsets, lag {told}, {rate:,.0f} offsets/s ({states})"


def _table(rows: Rows, rate: float) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("PARTITION")
    for heading in ("SOURCE", "DESTINATION", "LAG"):
        table.add_column(heading, justify="right")
    table.add_column("", width=BAR_WIDTH)
    table.add_column("STATE")
    for row in rows:
        done, total = max(0, row.destination_offset), max(1, row.source_offset)
        table.add_row(
            f"{row.topic}-{row.partition}",
            _number(row.source_offset),
            _number(row.destination_offset),
            _number(row.lag),
            ProgressBar(total=total, completed=done, width=BAR_WIDTH),
            row.state.name,
        )
    table.caption = f"{rate:,.0f} offsets/s"
    table.caption_justify = "left"
    return table


def _number(value: int) -> str:
    return "-" if value < 0 else f"{value:,}"
