"""Ends brokers and removes their data when the process that started them is gone, however it ended.

One small process beside each user of the bench. It reads lines from a pipe whose other end only that user holds:
`+pid`, `-pid`, `+/folder`, `-/folder`. The end of the pipe means that the user is dead; then every pid still listed
is killed and every folder removed. A parent-death signal (PR_SET_PDEATHSIG) would not do: it fires when the *thread*
that started the broker ends, and tests start brokers from short-lived threads.
"""

import atexit
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO


class Watchdog:
    """The user's end; `shared()` gives the one of this process."""

    _shared: "Watchdog | None" = None
    _guard = threading.Lock()

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._write_guard = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__],
            stdin=subprocess.PIPE,
            cwd="/",
            start_new_session=True,  # not reached by the terminal's Ctrl-C
        )
        atexit.register(self.close)

    @classmethod
    def shared(cls) -> "Watchdog":
        """The watchdog of this process, started at the first call; a forked child gets its own."""
        with cls._guard:
            if cls._shared is None or cls._shared.owner != os.getpid():
                cls._shared = Watchdog()
            return cls._shared

    @property
    def pid(self) -> int:
        """The watchdog's own process."""
        return self._process.pid

    def watch(self, what: int | Path) -> None:
        """End this process, or remove this folder, if we die."""
        self._tell(f"+{what}\n")

    def forget(self, what: int | Path) -> None:
        """It is gone already; a pid may be another process by now."""
        self._tell(f"-{what}\n")

    def close(self) -> None:
        """End what is left and wait for the watchdog's own end, at most 10 s; does nothing in a forked child."""
        pipe = self._process.stdin
        if pipe is None or pipe.closed or self.owner != os.getpid():
            return
        pipe.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _tell(self, line: str) -> None:
        pipe = self._process.stdin
        if pipe is None or pipe.closed:
            return
        with self._write_guard:
            pipe.write(line.encode())
            pipe.flush()


def _guard_until_the_end(lines: IO[str]) -> None:
    listed: dict[str, None] = {}
    for line in lines:
        sign, what = line[0], line[1:].rstrip("\n")
        if sign == "+":
            listed[what] = None
        else:
            listed.pop(what, None)
    for what in listed:
        if what.isdigit():
            _kill(int(what))
    for what in listed:
        if not what.isdigit():
            shutil.rmtree(what, ignore_errors=True)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)  # ends a stopped process, too
    except ProcessLookupError:
        return


if __name__ == "__main__":
    _guard_until_the_end(sys.stdin)
