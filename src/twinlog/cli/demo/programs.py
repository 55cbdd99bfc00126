"""Runs the programs that a user would type, as processes of their own."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from twinlog.errors import TwinlogError

COMMAND_WITHIN_S: Final = 60.0
WORKER_ENDS_WITHIN_S: Final = 10.0


class DemoFailed(TwinlogError):
    """The demo cannot go on; the text says why, and where to look."""


def program(name: str) -> str:
    """The name under which this shell finds one of our programs: itself where that works, else its path.

    Raises DemoFailed where it is not installed beside this Python.
    """
    installed = Path(sysconfig.get_path("scripts")) / name
    if not installed.exists():
        raise DemoFailed(f"{installed} does not exist: install twinlog into this Python first (pip install .).")
    found = shutil.which(name)
    if found is not None and Path(found).resolve() == installed.resolve():
        return name
    return shown_path(installed)


def shown_path(path: Path) -> str:
    """A path as one would type it here."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def typed(words: Sequence[str]) -> str:
    """A command as it is typed into a shell."""
    return shlex.join(words)


def finish(words: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end and return what it printed. Raises DemoFailed where it does not end in time."""
    try:
        return subprocess.run(  # noqa: S603  # our own programs, with arguments that are ours
            _executable(words), capture_output=True, text=True, timeout=COMMAND_WITHIN_S, check=False
        )
    except subprocess.TimeoutExpired as late:
        raise DemoFailed(f"`{typed(words)}` did not end within {COMMAND_WITHIN_S:.0f} s.") from late


class Background:
    """A command that goes on beside the demo; what it prints goes to `log`."""

    def __init__(self, words: Sequence[str], log: Path) -> None:
        self.words = words
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603  # as above
                _executable(words),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C reaches the demo, which then ends its processes in order
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def check(self) -> None:
        """Raise DemoFailed if it has ended."""
        code = self._process.poll()
        if code is not None:
            raise DemoFailed(f"`{typed(self.words)}` ended with {code}; its last words: {self.last_line()}")

    def last_line(self) -> str:
        """The end of what it printed."""
        lines = self.log.read_text("utf-8", errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "(nothing)")

    def end(self) -> None:
        """SIGTERM, and SIGKILL where that does not end it in time."""
        if self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + WORKER_ENDS_WITHIN_S
        while self._process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def _executable(words: Sequence[str]) -> list[str]:
    installed = str(Path(sysconfig.get_path("scripts")) / Path(words[0]).name)
    return [sys.executable, installed, *words[1:]]
