"""Runs a twinlog command while a thread looks at what its main thread is doing, weighted by the CPU time that it takes.

python -m bench.profiled FILE worker --bootstrap-server HOST:PORT

`FILE` gets two tables when the command ends: by the function in which the time went, and by all functions that were on
the stack. Idle time weighs nothing. What the event loop does in C (sockets, timers) shows as the runner's own time.
"""

import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Final

from twinlog.cli.twinlog import main

EVERY_S: Final = 0.001
# A running main thread gives the interpreter up after this: else only its system calls would be seen.
SWITCH_S: Final = 0.0002
ROWS: Final = 45


class Sampler(threading.Thread):
    """Samples the thread that made it until `ended` is set."""

    def __init__(self) -> None:
        super().__init__(name="sampler", daemon=True)
        self._thread = threading.get_ident()
        self._clock = time.pthread_getcpuclockid(self._thread)
        self.ended = threading.Event()
        self.own: Counter[str] = Counter()
        self.within: Counter[str] = Counter()
        self.total_ns = 0

    def run(self) -> None:
        """Take samples; each counts for the CPU time since the one before it."""
        before = time.clock_gettime_ns(self._clock)
        while not self.ended.wait(EVERY_S):
            now = time.clock_gettime_ns(self._clock)
            spent, before = now - before, now
            frame = sys._current_frames().get(self._thread)
            if spent and frame is not None:
                self._count(frame, spent)

    def _count(self, frame: FrameType, spent_ns: int) -> None:
        self.total_ns += spent_ns
        self.own[_name(frame)] += spent_ns
        seen: set[str] = set()
        at: FrameType | None = frame
        while at is not None:
            seen.add(_name(at))
            at = at.f_back
        for name in seen:
            self.within[name] += spent_ns

    def table(self) -> str:
        """Both tables."""
        lines = [f"{self.total_ns / 1e9:.2f} s of CPU time in the main thread", "", "own time"]
        lines += self._rows(self.own)
        lines += ["", "with all that it calls"]
        return "\n".join([*lines, *self._rows(self.within)]) + "\n"

    def _rows(self, counted: Counter[str]) -> list[str]:
        total = max(1, self.total_ns)
        return [f"{100 * spent / total:5.1f}%  {name}" for name, spent in counted.most_common(ROWS)]


def _name(frame: FrameType) -> str:
    code = frame.f_code
    parts = Path(code.co_filename).parts[-2:]
    return f"{'/'.join(parts)}:{code.co_qualname}"


def profiled(path: Path, words: list[str]) -> int:
    """Run the command and write the tables; returns its exit code."""
    sys.setswitchinterval(SWITCH_S)
    sampler = Sampler()
    sampler.start()
    try:
        return main(words)
    finally:
        sampler.ended.set()
        sampler.join()
        path.write_text(sampler.table(), "utf-8")


if __name__ == "__main__":
    sys.exit(profiled(Path(sys.argv[1]), sys.argv[2:]))
