"""Something that is done again and again in the background while a test goes on."""

import threading
from collections.abc import Callable
from typing import Self


class Repeated:
    """Does `act` every `every_s` seconds, in a thread of its own, within its block."""

    def __init__(self, act: Callable[[], None], *, every_s: float) -> None:
        self._act, self._every_s = act, every_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._stopping.wait(self._every_s):
            self._act()
