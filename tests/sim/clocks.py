"""Puts the simulation's time and its seeded chance in place of the real ones, in every module of twinlog.

Some modules call `time.monotonic()`, others have it bound as a default argument; both are found by looking, so that a
module that is added later is not forgotten.
"""

import random
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

from tests.sim.loop import PROCESS, SimLoop

# Any moment will do; record timestamps are relative to it.
WALL_S = 1_750_000_000.0


class SimTime:
    """What twinlog uses of the module `time`, told by a loop; each process has its own monotonic clock."""

    CLOCK_BOOTTIME = 7

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def monotonic(self) -> float:
        """Seconds on the clock of the process that asks."""
        process = PROCESS.get()
        return self._loop.time() + (0.0 if process is None else process.clock_offset_s)

    def clock_gettime(self, _clock: int) -> float:
        """As `monotonic`."""
        return self.monotonic()

    def time(self) -> float:
        """Seconds since 1970, the same everywhere."""
        return WALL_S + self._loop.time()

    def time_ns(self) -> int:
        """Nanoseconds since 1970, the same everywhere."""
        return int(self.time() * 1_000_000_000)


@contextmanager
def simulated(loop: SimLoop, seed: int) -> Iterator[SimTime]:
    """Let all of twinlog live by `loop`'s clock and by chance that `seed` decides, while this lasts."""
    told = SimTime(loop)
    chance = random.Random(seed)
    ids = SimpleNamespace(uuid4=lambda: uuid.UUID(int=chance.getrandbits(128)), UUID=uuid.UUID)
    modules = {time: told, random: chance, uuid: ids}
    bound = {time.monotonic: told.monotonic, random.random: chance.random, time.time_ns: told.time_ns}
    undo: list[tuple[Any, str, Any]] = []
    for module in [module for name, module in list(sys.modules.items()) if name.startswith("twinlog.")]:
        _swap_modules(module, modules, undo)
        for function in _functions(module):
            _swap_defaults(function, bound, undo)
    try:
        yield told
    finally:
        for thing, name, before in reversed(undo):
            setattr(thing, name, before)


def _swap_modules(module: ModuleType, modules: dict[ModuleType, Any], undo: list[tuple[Any, str, Any]]) -> None:
    for name, value in list(vars(module).items()):
        if isinstance(value, ModuleType) and value in modules:
            undo.append((module, name, value))
            setattr(module, name, modules[value])


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    for value in list(vars(module).values()):
        if isinstance(value, FunctionType):
            yield value
        elif isinstance(value, type) and value.__module__ == module.__name__:
            yield from (entry for entry in vars(value).values() if isinstance(entry, FunctionType))


def _swap_defaults(function: FunctionType, bound: dict[Any, Any], undo: list[tuple[Any, str, Any]]) -> None:
    def swapped(value: Any) -> Any:
        return bound.get(value, value) if callable(value) else value

    if function.__kwdefaults__ and any(swapped(value) is not value for value in function.__kwdefaults__.values()):
        undo.append((function, "__kwdefaults__", function.__kwdefaults__))
        function.__kwdefaults__ = {name: swapped(value) for name, value in function.__kwdefaults__.items()}
    if function.__defaults__ and any(swapped(value) is not value for value in function.__defaults__):
        undo.append((function, "__defaults__", function.__defaults__))
        function.__defaults__ = tuple(swapped(value) for value in function.__defaults__)
