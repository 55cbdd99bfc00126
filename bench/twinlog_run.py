"""twinlog as users run it: a mirror in the state topic, and one worker process."""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from bench.mm2 import end

from twinlog.control.commands import Handled
from twinlog.control.lifecycle import DesiredState
from twinlog.control.records import Change, MirrorRecord, TopicRecord
from twinlog.state.log import StateLog
from twinlog.state.transact import transact
from twinlog.testing.kafka import LocalKafka
from twinlog.testing.watchdog import Watchdog
from twinlog.wire.cluster import Cluster

MIRROR: Final = "bench"
SETTLED_S: Final = 0.5
WORKER: Final = (sys.executable, "-m", "twinlog", "worker", "--bootstrap-server")


async def start_topics(source: Cluster, destination: Cluster, bootstrap: str, topics: Sequence[str]) -> None:
    """Write down that `topics` are to be mirrored; both sides have them already."""
    log = await StateLog.open(destination, create=True)
    here, there = await source.topics(topics), await destination.topics(topics)
    records: list[Change] = [MirrorRecord(MIRROR, {"bootstrap.servers": bootstrap}, source.cluster_id)]
    records += [
        TopicRecord(
            MIRROR, name, DesiredState.MIRRORING, here[name].id, there[name].id, partitions=len(here[name].partitions)
        )
        for name in topics
    ]
    await transact(destination, log, lambda _image: Handled(tuple(records), None))


@asynccontextmanager
async def running(
    source: Cluster, destination: Cluster, kafkas: tuple[LocalKafka, LocalKafka], topics: Sequence[str]
) -> AsyncIterator["subprocess.Popen[bytes]"]:
    """Run a worker that mirrors `topics` until the block ends."""
    await start_topics(source, destination, kafkas[0].bootstrap, topics)
    await asyncio.sleep(SETTLED_S)
    with tempfile.TemporaryDirectory(prefix="twinlog-bench-") as name:
        Watchdog.shared().watch(Path(name))
        folder = os.environ.get("TWINLOG_BENCH_LOGS") or name
        process = _started(Path(folder) / "worker.log", kafkas[1].bootstrap)
        try:
            yield process
        finally:
            await asyncio.to_thread(end, process)
            Watchdog.shared().forget(Path(name))


def _started(log_path: Path, bootstrap: str) -> "subprocess.Popen[bytes]":
    with log_path.open("wb") as log:
        process = subprocess.Popen([*WORKER, bootstrap], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    Watchdog.shared().watch(process.pid)
    return process
