"""Measures a tool from outside: what has arrived, and what its process has used."""

import asyncio
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
from bench.stage import Stage

from twinlog.errors import TwinlogError
from twinlog.names import TopicPartition
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops import LATEST, list_offsets

EVERY_S: Final = 0.02
MB: Final = 1_000_000


class Usage:
    """CPU time and memory of a process."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._peak_bytes = 0

    def cpu_seconds(self) -> float:
        """User and system time so far, of children that have ended, too."""
        times = self._process.cpu_times()
        return float(sum(times[:4]))

    def resident_bytes(self) -> int:
        """What is resident now."""
        found = int(self._process.memory_info().rss)
        self._peak_bytes = max(self._peak_bytes, found)
        return found

    @property
    def peak_bytes(self) -> int:
        """The most that was resident; by the kernel's own count where it keeps one."""
        status = Path(f"/proc/{self._process.pid}/status")
        if status.exists():
            peaks = [line for line in status.read_text("utf-8").splitlines() if line.startswith("VmHWM:")]
            if peaks:
                return max(self._peak_bytes, int(peaks[0].split()[1]) * 1024)
        return max(self._peak_bytes, self.resident_bytes())


class Machine:
    """CPU time that goes to whatever is no part of the measurement: `ours` are the processes that are."""

    def __init__(self, ours: Iterable[int]) -> None:
        self._ours = [Usage(pid) for pid in (*ours, os.getpid())]

    def others_cpu_seconds(self) -> float:
        """Of everybody else, since the machine was started; only differences mean anything.

        Interrupts are left out: they belong to nobody, and most of them are those of our own traffic.
        """
        times = psutil.cpu_times()
        busy = sum(getattr(times, name, 0.0) for name in ("user", "nice", "system", "steal"))
        return float(busy) - sum(usage.cpu_seconds() for usage in self._ours)


@dataclass(frozen=True)
class Sample:
    """What had arrived at a moment (`time.perf_counter`), and the CPU time that the tool and others had used."""

    at: float
    arrived: int
    cpu_seconds: float
    others_cpu_seconds: float


@dataclass(frozen=True)
class Span:
    """From the first offset seen at the destination to the last."""

    first: Sample
    last: Sample
    peak_bytes: int

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.last.at - self.first.at

    @property
    def offsets(self) -> int:
        """What arrived in that time."""
        return self.last.arrived - self.first.arrived

    @property
    def cpu_seconds(self) -> float:
        """CPU time of the tool in that time."""
        return self.last.cpu_seconds - self.first.cpu_seconds

    @property
    def others_share(self) -> float:
        """How much of the machine's cores was used by what is no part of the measurement."""
        spent = self.last.others_cpu_seconds - self.first.others_cpu_seconds
        return max(0.0, spent) / self.seconds / (os.cpu_count() or 1)


async def arrived(cluster: Cluster, topic: str, partitions: int) -> int:
    """The sum of the partitions' ends at the destination; 0 while there is no such topic."""
    wanted = {TopicPartition(topic, part): LATEST for part in range(partitions)}
    try:
        listed = await list_offsets(cluster, wanted, timeout_s=1.0)
    except TwinlogError:
        return 0
    return sum(max(0, found.offset) for found in listed.values() if not found.error)


async def watch(
    stage: Stage, topic: str, partitions: int, offsets: int, *, pid: int, timeout_s: float, above: int = 0
) -> Span:
    """Follow a run until `offsets` have arrived; it counts from the moment when more than `above` are there.

    Raises TimeoutError, or psutil.NoSuchProcess where the tool's process has ended.
    """
    meter = _Meter(stage.destination, topic, partitions, Usage(pid), Machine([pid, *stage.pids]))
    deadline = time.perf_counter() + timeout_s
    first = await meter.until(above + 1, deadline)
    last = await meter.until(offsets, deadline)
    return Span(first, last, meter.tool.peak_bytes)


@dataclass(frozen=True)
class _Meter:
    cluster: Cluster
    topic: str
    partitions: int
    tool: Usage
    machine: Machine

    async def until(self, offsets: int, deadline: float) -> Sample:
        while True:
            so_far = await arrived(self.cluster, self.topic, self.partitions)
            at = time.perf_counter()
            if so_far >= offsets:
                return Sample(at, so_far, self.tool.cpu_seconds(), self.machine.others_cpu_seconds())
            if at > deadline:
                raise TimeoutError(f"{self.topic}: {so_far} of {offsets} offsets had arrived when the time was over.")
            await asyncio.sleep(EVERY_S)
