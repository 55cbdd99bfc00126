"""Shows on a terminal that a command is waiting, and for how long by now; nothing where stderr is no terminal."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress

# Most commands are over before; a line that flashes up tells nobody anything.
AFTER_S = 1.0


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """Show `text` with the seconds that have passed, once nothing was printed for a second, until the block ends.

    Whatever the block prints meanwhile, on stdout or stderr, takes the line's place.
    """
    if not sys.stderr.isatty():
        yield
        return
    out, err = sys.stdout, sys.stderr
    line = _Line(text, err)
    line.arm()
    sys.stdout, sys.stderr = _Clearing(out, line), _Clearing(err, line)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out, err
        line.end()


class _Line:
    """The line itself: shown by a timer, so that whoever waits need not do anything for it."""

    def __init__(self, text: str, terminal: TextIO) -> None:
        self._text = text
        self._terminal = terminal
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._shown: Progress | None = None
        self._ended = False

    def arm(self) -> None:
        """Show it after AFTER_S."""
        with self._lock:
            if self._ended:
                return
            self._timer = threading.Timer(AFTER_S, self._show)
            self._timer.daemon = True
            self._timer.start()

    def hide(self) -> None:
        """Take it away, at once."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._shown is not None:
                self._shown.stop()
                self._shown = None

    def end(self) -> None:
        """Take it away for good."""
        with self._lock:
            self._ended = True
        self.hide()

    def _show(self) -> None:
        from rich.console import Console  # noqa: PLC0415  # only who waits pays for it
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415  # as above

        with self._lock:
            if self._ended or self._timer is not threading.current_thread():
                return
            self._shown = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False),
                TimeElapsedColumn(),
                console=Console(file=self._terminal, force_terminal=True),
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._shown.add_task(self._text, total=None)
            self._shown.start()


class _Clearing:
    """A stream that takes the line away before anything else is written."""

    def __init__(self, stream: TextIO, line: _Line) -> None:
        self._stream = stream
        self._line = line

    def write(self, text: str) -> int:
        """Write, and let the line come back after a while."""
        self._line.hide()
        written = self._stream.write(text)
        self._line.arm()
        return written

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)
