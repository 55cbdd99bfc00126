"""One Kafka process: start, stop, kill, pause, resume, and its log."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from twinlog.testing.errors import BenchFailed
from twinlog.testing.releases import START_FAST, KafkaRelease
from twinlog.testing.watchdog import Watchdog

STOP_TIMEOUT_S = 20.0  # a controlled shutdown takes 1 to 3 s
KILL_TIMEOUT_S = 10.0  # SIGKILL takes effect at once, unless the disk hangs

ZOOKEEPER_SESSION_S = 4.0  # for which ZooKeeper keeps the place of a broker that was killed
ZOOKEEPER_SLACK_S = 1.0  # it looks for expired sessions once a tick

LOGGING = (
    "-Dorg.slf4j.simpleLogger.logFile=System.out",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.levelInBrackets=true",
    "-Dorg.slf4j.simpleLogger.showThreadName=false",
    "-Dlog4j2.disable.jmx=true",
    "-Dzookeeper.jmx.log4j.disable=true",
    # The configuration would be a quarter of the log.
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config.AbstractConfig=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaConfig=warn",
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.metadata=warn",
)


@dataclass
class KafkaNode:
    """One broker, controller, or both, with its data in `folder`; ports and data survive a restart."""

    release: KafkaRelease
    node_id: int
    folder: Path
    heap_mb: int
    ports: Mapping[str, int]  # by listener name
    java_options: Sequence[str] = ()
    _process: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)
    _rejoins_at: float = field(default=0.0, repr=False)  # on the monotonic clock

    main_class: ClassVar[str] = "kafka.Kafka"

    @property
    def log_dir(self) -> Path:
        """Where the partitions' folders are (`log.dirs`)."""
        return self.folder / "data"

    @property
    def log_path(self) -> Path:
        """What the process wrote at INFO since the first start."""
        return self.folder / "server.log"

    @property
    def config_path(self) -> Path:
        """Its server.properties."""
        return self.folder / "server.properties"

    @property
    def pid(self) -> int | None:
        """The process, if it was started and not yet stopped."""
        return self._process.pid if self._process is not None else None

    @property
    def alive(self) -> bool:
        """The process exists, be it paused."""
        return self._process is not None and self._process.poll() is None

    def write_config(self, config: Mapping[str, str], *, cluster_id: str) -> None:
        """Write server.properties and format the data folder as `kafka-storage format` would.

        In ZooKeeper mode nothing is formatted, and the first broker makes up the cluster's id.
        """
        if self.release.needs_zookeeper:
            self.log_dir.mkdir(parents=True)
        else:
            shutil.copytree(self.release.formatted, self.log_dir)
            identity = f"version=1\ncluster.id={cluster_id}\nnode.id={self.node_id}\n"
            (self.log_dir / "meta.properties").write_text(identity, "utf-8")
        lines = [f"{key}={value.replace(chr(92), chr(92) * 2)}" for key, value in config.items()]
        self.config_path.write_text("\n".join(lines) + "\n", "utf-8")

    def start(self) -> None:
        """Start the process; `LocalKafka.wait_ready` tells when it serves."""
        if self.alive:
            raise BenchFailed(f"Kafka node {self.node_id} is running already.")
        time.sleep(max(0.0, self._rejoins_at - time.monotonic()))
        command = self.release.java(self.main_class, [str(self.config_path)], options=self._java_options())
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,  # Ctrl-C reaches the tests, which then end the brokers in order
            )
        Watchdog.shared().watch(self._process.pid)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """SIGTERM, and SIGKILL if that does not end it in time; a paused process is resumed first."""
        if self._process is None:
            return
        self._send(signal.SIGCONT)
        self._send(signal.SIGTERM)
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._send(signal.SIGKILL)
        self._reap()

    def kill(self) -> None:
        """SIGKILL, as a crash; works on a paused process, too.

        In ZooKeeper mode the next `start` waits until ZooKeeper has given it up: a broker whose id is still taken
        does not start.
        """
        self._send(signal.SIGKILL)
        self._reap()
        if self.release.needs_zookeeper:
            self._rejoins_at = time.monotonic() + ZOOKEEPER_SESSION_S + ZOOKEEPER_SLACK_S

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing is answered."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT: go on after `pause`."""
        self._send(signal.SIGCONT)

    def log_text(self, last_lines: int | None = None) -> str:
        """The log, or its last lines."""
        if not self.log_path.exists():
            return ""
        lines = self.log_path.read_text("utf-8", errors="replace").splitlines(keepends=True)
        return "".join(lines if last_lines is None else lines[-last_lines:])

    def resident_mb(self) -> float:
        """Resident memory in MB, where /proc exists."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        return 0.0

    def check_alive(self) -> None:
        """Raise BenchFailed with the end of the log if the process has ended."""
        if not self.alive:
            raise BenchFailed(f"Kafka node {self.node_id} is not running; its log ends:\n{self.log_text(40)}")

    def wait_for_exit(self, timeout_s: float) -> bool:
        """Whether the process ended by itself within the time."""
        deadline = time.monotonic() + timeout_s
        while self.alive and time.monotonic() < deadline:
            time.sleep(0.02)
        return not self.alive

    def _java_options(self) -> Sequence[str]:
        heap = (f"-Xms{min(128, self.heap_mb)}m", f"-Xmx{self.heap_mb}m", "-XX:+UseSerialGC")
        # Native codecs are unpacked there, and performance data written; a killed broker would leave them in /tmp.
        own = (f"-Djava.io.tmpdir={self.config_path.parent}", "-XX:-UsePerfData", "-Djava.awt.headless=true")
        return (*heap, *START_FAST, *LOGGING, *own, *self.java_options)

    def _send(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, number)

    def _reap(self) -> None:
        if self._process is None:
            return
        self._process.wait(KILL_TIMEOUT_S)
        Watchdog.shared().forget(self._process.pid)
        self._process = None


class ZooKeeperNode(KafkaNode):
    """The ZooKeeper of a cluster whose release has no KRaft; it runs from that release's own jars."""

    main_class: ClassVar[str] = "org.apache.zookeeper.server.quorum.QuorumPeerMain"

    def start(self) -> None:
        """Start it; it has no place of its own to wait for."""
        self._rejoins_at = 0.0
        super().start()
