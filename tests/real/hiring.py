"""Workers started by the program `twinlog worker`, with credentials and flags of their own."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self, cast

from tests.real.commanding import on

from twinlog.control.image import Image
from twinlog.state.log import StateLog
from twinlog.testing.kafka import LocalKafka
from twinlog.testing.watchdog import Watchdog
from twinlog.wire.cluster import Cluster

STOP_S: Final = 15.0
POLL_S: Final = 0.2
WORKS_S: Final = 60.0


class HiredWorker:
    """A worker process; `with` ends it in order. Its environment is that of this process at the start."""

    def __init__(self, bootstrap: str, log: Path, *words: str) -> None:
        self.log_path = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "twinlog", "worker", "--bootstrap-server", bootstrap, *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        Watchdog.shared().watch(self._process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    @property
    def log(self) -> str:
        """All that it has said so far."""
        return self.log_path.read_text("utf-8", errors="replace")

    def wait_said(self, text: str, *, after: int = 0, timeout_s: float = WORKS_S) -> None:
        """Wait until its log, from a position on, holds `text`."""
        until(lambda: text in self.log[after:], lambda: f"'{text}' in:\n{self.log[-6000:]}", timeout_s)

    def ended(self, timeout_s: float = STOP_S) -> int:
        """Wait until it has ended by itself; its exit code."""
        return self._process.wait(timeout_s)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL where that does not help in time."""
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_S)
        Watchdog.shared().forget(self._process.pid)


def until(condition: Callable[[], bool], described: Callable[[], object], timeout_s: float = WORKS_S) -> None:
    """Wait, within a bound."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {described()}"
        time.sleep(POLL_S)


def image_of(kafka: LocalKafka) -> Image:
    """What the state of a destination says."""
    return cast("Image", on(kafka, _image))


async def _image(cluster: Cluster) -> Image:
    return await (await StateLog.open(cluster, create=False)).load()
