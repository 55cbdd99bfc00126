"""What the long runs share: their scale, and figures that are printed at the end of the whole run.

`TWINLOG_SOAK_SCALE` (default 1) scales how often things are broken and for how long it goes on: 0.1 tries a run out.
"""

import os
import time
from collections import Counter
from types import TracebackType
from typing import Final, Self

from tests.real.faults import FaultyMirror

SCALE: Final = float(os.environ.get("TWINLOG_SOAK_SCALE", "1"))
FIGURES: Final[list[str]] = []
"""A line for each long test that has passed; `conftest.py` prints them."""


def scaled(count: int, *, least: int = 1) -> int:
    """`count` times the scale."""
    return max(least, round(count * SCALE))


def scaled_s(seconds: float, *, least: float = 20.0) -> float:
    """`seconds` times the scale."""
    return max(least, seconds * SCALE)


class Soak:
    """Counts what was done to one test's mirror, and tells it once the test has passed."""

    def __init__(self, name: str) -> None:
        self.done: Counter[str] = Counter()
        self._name = name
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        minutes = (time.monotonic() - self._began) / 60
        counts = ", ".join(f"{count} {what}" for what, count in self.done.items())
        outcome = "passed" if kind is None else "FAILED"
        FIGURES.append(f"{self._name}: {outcome} in {minutes:.1f} min: {counts}")

    def note(self, what: str, count: int = 1) -> None:
        """Count something; what is noted first is told first."""
        self.done[what] += count

    def assert_twins(self, mirror: FaultyMirror, topic: str) -> int:
        """As the mirror's own method; counts the records, and the offsets at which there is none."""
        records = mirror.assert_twins(topic)
        self.note("records", records)
        # Above the logs' starts, which no long run moves.
        self.note("blanks", sum(mirror.ends(topic, at_source=True).values()) - records)
        return records
