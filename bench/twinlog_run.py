"""twinlog as users run it: a mirror in the state topic, and worker processes."""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

from bench.mm2 import end
from bench.stage import Stage

from twinlog.control.commands import Handled
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState
from twinlog.control.records import Change, MirrorRecord, Tombstone, TopicRecord
from twinlog.state.log import StateLog
from twinlog.state.transact import transact
from twinlog.testing.kafka import LocalKafka
from twinlog.testing.watchdog import Watchdog

MIRROR: Final = "bench"
SETTLED_S: Final = 0.5
PROFILE_VARIABLE: Final = "TWINLOG_BENCH_PROFILE"
"""Names a folder: each worker then runs under `bench.profiled`, and its tables go there."""
LOGS_VARIABLE: Final = "TWINLOG_BENCH_LOGS"
"""Names a folder where the tools' logs are kept."""


async def start_topics(stage: Stage, topics: Sequence[str]) -> StateLog:
    """Write down that `topics` and no others are to be mirrored; both sides have them already."""
    log = await StateLog.open(stage.destination, create=True)
    here, there = await stage.source.topics(topics), await stage.destination.topics(topics)
    bootstrap = stage.kafkas[0].bootstrap
    records: list[Change] = [MirrorRecord(MIRROR, {"bootstrap.servers": bootstrap}, stage.source.cluster_id)]
    records += [
        TopicRecord(
            MIRROR, name, DesiredState.MIRRORING, here[name].id, there[name].id, partitions=len(here[name].partitions)
        )
        for name in topics
    ]

    def started(image: Image) -> Handled[None]:
        left = [record for record in image.topics_of(MIRROR) if record.topic not in topics]
        gone = [Tombstone(part.key) for record in left for part in image.partitions_of(MIRROR, record.topic)]
        return Handled((*records, *gone, *(Tombstone(record.key) for record in left)), None)

    await transact(stage.destination, log, started)
    return log


@asynccontextmanager
async def running(stage: Stage, topics: Sequence[str]) -> AsyncIterator["subprocess.Popen[bytes]"]:
    """Run a worker that mirrors `topics` until the block ends."""
    await start_topics(stage, topics)
    await asyncio.sleep(SETTLED_S)
    with worker(stage.kafkas[1]) as process:
        yield process


@contextmanager
def worker(destination: LocalKafka) -> Iterator["subprocess.Popen[bytes]"]:
    """Run one worker process until the block ends."""
    with tempfile.TemporaryDirectory(prefix="twinlog-bench-") as name:
        Watchdog.shared().watch(Path(name))
        folder = os.environ.get(LOGS_VARIABLE) or name
        process = _started(Path(folder) / f"worker-{time.time_ns() // 1_000_000}.log", destination.bootstrap)
        try:
            yield process
        finally:
            end(process)
            Watchdog.shared().forget(Path(name))


def _started(log_path: Path, bootstrap: str) -> "subprocess.Popen[bytes]":
    with log_path.open("wb") as log:
        process = subprocess.Popen(_command(bootstrap), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    Watchdog.shared().watch(process.pid)
    return process


def _command(bootstrap: str) -> list[str]:
    folder = os.environ.get(PROFILE_VARIABLE)
    path = Path(folder or "") / f"worker-{time.time_ns() // 1_000_000}.txt"
    runner = ["bench.profiled", str(path)] if folder else ["twinlog"]
    return [sys.executable, "-m", *runner, "worker", "--bootstrap-server", bootstrap]
