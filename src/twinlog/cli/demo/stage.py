"""What the demo happens on: two clusters, a topic full of data of every kind, and a producer that goes on."""

import random
import shutil
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from twinlog.cli.demo.programs import Background, DemoFailed
from twinlog.testing.data import EVERYTHING_ALLOWED
from twinlog.testing.kafka import LocalKafka
from twinlog.testing.load import CODECS, Flow, Load
from twinlog.testing.releases import KafkaRelease, cache_folder
from twinlog.testing.watchdog import Watchdog

TOPIC: Final = "orders"
PARTITIONS: Final = 3
BULK_RECORDS: Final = 50_000
"""Of each codec; all in all a backlog that takes some seconds to mirror."""
EVERY_KIND: Final = 100
"""Scales the mixture: transactions, empty and null keys and values, headers, odd timestamps, batches at the limit."""
TRANSACTIONS: Final = 50
RECORDS_PER_SECOND: Final = 500
SEED: Final = 1279
LOG_FOLDER: Final = "demo-logs"
PRODUCER_ENDS_WITHIN_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Stage:
    """Both clusters, and a folder for files that are gone when the demo ends."""

    source: LocalKafka
    destination: LocalKafka
    folder: Path

    @property
    def worker_log(self) -> Path:
        """Where the worker's log goes."""
        return self.folder / "worker.log"

    def keep_logs(self) -> Path:
        """Copy all logs to where they outlive the demo, and return that folder."""
        folder = _log_folder()
        for name, kafka in (("source", self.source), ("destination", self.destination)):
            (folder / f"{name}.log").write_text(kafka.log_text(), "utf-8")
        if self.worker_log.exists():
            shutil.copy(self.worker_log, folder)
        return folder


def kept(text: str) -> Path:
    """Write down what is known of a failed start, and return the file."""
    path = _log_folder() / "start.log"
    path.write_text(text, "utf-8")
    return path


def _log_folder() -> Path:
    """The folder for logs, empty."""
    folder = cache_folder() / LOG_FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def fetched() -> KafkaRelease | None:
    """The release to run, if it is on this machine already."""
    release = KafkaRelease()
    return release if (release.folder / "formatted").exists() else None


def fetch() -> KafkaRelease:
    """Get the release from a Maven repository into the cache. Raises BenchFailed; DemoFailed without the extra."""
    release = KafkaRelease()
    try:
        _ = release.formatted
    except ImportError as missing:
        raise DemoFailed(f"{missing}. Real Kafka comes with an extra: pip install '.[testing]'.") from missing
    return release


@contextmanager
def set_up() -> Iterator[Stage]:
    """Start both clusters; at the end nothing of them is left, neither a process nor a file."""
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="twinlog-demo-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        watchdog = Watchdog.shared()
        watchdog.watch(folder)
        stack.callback(watchdog.forget, folder)
        clusters = LocalKafka(), LocalKafka()
        for kafka in clusters:
            stack.callback(kafka.stop)
        _start(clusters)
        yield Stage(*clusters, folder)


def _start(clusters: Sequence[LocalKafka]) -> None:
    """Start clusters side by side; Ctrl-C ends the waiting for them at once."""
    with ThreadPoolExecutor(len(clusters)) as pool:
        starting = [pool.submit(kafka.start) for kafka in clusters]
        try:
            for started in starting:
                started.result()
        except BaseException:  # Ctrl-C, too: the threads wait for clusters that nobody wants any more
            for kafka in clusters:
                kafka.stop()
            raise


def fill(stage: Stage) -> int:
    """Create the source topic and fill it; returns how many records a read_committed reader is to see."""
    stage.source.create_topic(TOPIC, PARTITIONS, config=EVERYTHING_ALLOWED)
    load = Load(stage.source, TOPIC, random.Random(SEED))  # noqa: S311  # made-up data, the same each time
    load.everything(EVERY_KIND)
    for codec in CODECS:
        load.bulk(BULK_RECORDS, value_bytes=200, codec=codec)
    load.transactions(TRANSACTIONS, records=5)
    load.close()
    return load.acknowledged


class Producing:
    """A producer of data of every kind, running until `stop`."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self._flow = Flow(stage.source, TOPIC, seed=seed, records_per_second=RECORDS_PER_SECOND)
        self._flow.start()

    def stop(self) -> int:
        """End its transactions, wait for what is under way, and return how many visible records it wrote."""
        return self._flow.stop()

    def abandon(self) -> None:
        """End it without insisting: brokers may have failed, and it would wait for them for long."""
        ending = threading.Thread(target=self._quietly, daemon=True)
        ending.start()
        ending.join(PRODUCER_ENDS_WITHIN_S)

    def _quietly(self) -> None:
        try:
            self._flow.stop()
        except Exception:  # noqa: BLE001  # the demo is ending, and has its own error to tell if there is one
            return


@contextmanager
def running(words: list[str], log: Path) -> Iterator[Background]:
    """A background command that does not outlive the demo, however that ends."""
    process = Background(words, log)
    Watchdog.shared().watch(process.pid)
    try:
        yield process
    finally:
        process.end()
        Watchdog.shared().forget(process.pid)
