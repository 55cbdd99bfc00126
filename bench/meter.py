"""Measures a tool from outside: what has arrived, and what its processes have used."""

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
from bench.loads import Load

from twinlog.errors import TwinlogError
from twinlog.names import TopicPartition
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops import LATEST, list_offsets

EVERY_S: Final = 0.02
MB: Final = 1_000_000


@dataclass(frozen=True)
class Measured:
    """One tool's run. Rates count from the first record seen at the destination to the last."""

    seconds: float
    start_seconds: float
    bytes: int
    records: int
    cpu_seconds: float
    cpu_seconds_whole: float
    peak_rss_bytes: int

    @property
    def mb_per_second(self) -> float:
        """10^6 bytes a second."""
        return self.bytes / MB / self.seconds

    @property
    def records_per_second(self) -> float:
        """Records a second."""
        return self.records / self.seconds

    @property
    def cpu_seconds_per_gb(self) -> float:
        """Of the tool's processes, from the first record to the last, for 10^9 bytes."""
        return self.cpu_seconds / (self.bytes / 1000 / MB)


class Usage:
    """CPU time and memory of a process and its children."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._peak_bytes = 0

    def cpu_seconds(self) -> float:
        """User and system time so far; takes note of the memory, too."""
        total, resident = 0.0, 0
        for process in (self._process, *self._process.children(recursive=True)):
            try:
                times, memory = process.cpu_times(), process.memory_info()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system
            resident += memory.rss
        self._peak_bytes = max(self._peak_bytes, resident)
        return total

    @property
    def peak_bytes(self) -> int:
        """The most that was resident; by the kernel's own count where it keeps one."""
        status = Path(f"/proc/{self._process.pid}/status")
        if status.exists():
            peaks = [line for line in status.read_text("utf-8").splitlines() if line.startswith("VmHWM:")]
            if peaks:
                return max(self._peak_bytes, int(peaks[0].split()[1]) * 1024)
        return self._peak_bytes


async def arrived(cluster: Cluster, topic: str, load: Load) -> int:
    """Records at the destination so far; 0 while there is no such topic."""
    wanted = {TopicPartition(topic, part): LATEST for part in range(load.partitions)}
    try:
        listed = await list_offsets(cluster, wanted, timeout_s=1.0)
    except TwinlogError:
        return 0
    return sum(max(0, found.offset) for found in listed.values() if not found.error)


async def watch(
    cluster: Cluster, topic: str, load: Load, *, log_bytes: int, pid: int, began: float, timeout_s: float
) -> Measured:
    """Follow a run until all of the load has arrived; `began` is when the tool was started (`time.perf_counter`).

    Raises TimeoutError, or RuntimeError where the tool's process has ended.
    """
    usage = Usage(pid)
    deadline = began + timeout_s
    first = await _until(cluster, topic, load, 1, usage, deadline)
    last = await _until(cluster, topic, load, load.records, usage, deadline)
    records = last.arrived - first.arrived
    return Measured(
        seconds=last.at - first.at,
        start_seconds=first.at - began,
        bytes=log_bytes * records // load.records,
        records=records,
        cpu_seconds=last.cpu_seconds - first.cpu_seconds,
        cpu_seconds_whole=last.cpu_seconds,
        peak_rss_bytes=usage.peak_bytes,
    )


@dataclass(frozen=True)
class _Sample:
    at: float
    arrived: int
    cpu_seconds: float


async def _until(cluster: Cluster, topic: str, load: Load, records: int, usage: Usage, deadline: float) -> _Sample:
    while True:
        so_far = await arrived(cluster, topic, load)
        sample = _Sample(time.perf_counter(), so_far, usage.cpu_seconds())
        if so_far >= records:
            return sample
        if sample.at > deadline:
            raise TimeoutError(f"{topic}: {so_far} of {load.records} records had arrived when the time was over.")
        await asyncio.sleep(EVERY_S)
