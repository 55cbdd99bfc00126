"""MirrorMaker 2 in its dedicated mode, from the jars that Kafka publishes, at the brokers' own version.

The heap and garbage collector are those of Kafka's `connect-mirror-maker.sh`.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from twinlog.testing.kafka import LocalKafka
from twinlog.testing.releases import KafkaRelease, cache_folder, java_executable
from twinlog.testing.watchdog import Watchdog

MAIN_CLASS: Final = "org.apache.kafka.connect.mirror.MirrorMaker"
JAVA_OPTIONS: Final = (
    "-Xms256M",
    "-Xmx2G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.logFile=System.out",
)
STOP_WITHIN_S: Final = 15.0

PREFIX: Final = "source."
"""What its default replication policy puts before a topic's name: `source.load`."""

INTERNAL: Final = "mm2-"
"""How the topics at the destination are called in which it keeps its place."""

DEFAULT: Final[Mapping[str, str]] = {}
TUNED: Final[Mapping[str, str]] = {
    "target.producer.batch.size": str(512 * 1024),
    "target.producer.linger.ms": "50",
    "source.consumer.max.poll.records": "10000",
    "source.consumer.max.partition.fetch.bytes": str(10 * 1024 * 1024),
    "tasks.max": "4",
}


def class_path(version: str) -> str:
    """Every jar that MirrorMaker 2 needs; fetched by jgo at the first use, kept in the user's cache folder."""
    known = cache_folder() / f"kafka-{version}" / "mirror-maker-classpath.json"
    if known.exists():
        jars = [Path(jar) for jar in json.loads(known.read_text("utf-8"))]
        if all(jar.exists() for jar in jars):
            return os.pathsep.join(map(str, jars))
    jars = _fetched(version)
    known.parent.mkdir(parents=True, exist_ok=True)
    known.write_text(json.dumps([str(jar) for jar in jars], indent=1), "utf-8")
    return os.pathsep.join(map(str, jars))


def _fetched(version: str) -> list[Path]:
    from jgo.constants import MAVEN_CENTRAL_URL  # noqa: PLC0415  # comes with the extra `testing`
    from jgo.maven import MavenContext, PythonResolver  # noqa: PLC0415  # comes with the extra `testing`
    from jgo.parse import Coordinate  # noqa: PLC0415  # as above

    context = MavenContext(
        resolver=PythonResolver(),
        repo_cache=cache_folder() / "maven",
        local_repos=[],
        remote_repos={"central": os.environ.get("TWINLOG_MAVEN_REPOSITORY", "") or MAVEN_CENTRAL_URL},
        timeout=30,
    )
    names = ("connect-mirror", "connect-mirror-client", "connect-runtime", "connect-json", "kafka-clients")
    wanted = [
        context.create_dependency(replace(Coordinate.parse(f"org.apache.kafka:{name}:{version}"), scope="compile"))
        for name in names
    ]
    given, transitive = context.resolver.resolve(wanted)
    found = [*given, *(dep for dep in transitive if dep.scope in {"compile", "runtime"})]
    artifacts = {dep.artifact.key: dep.artifact for dep in found}
    with ThreadPoolExecutor(4) as pool:
        jars = set(pool.map(lambda artifact: Path(artifact.resolve()), artifacts.values()))
    broker = KafkaRelease(version).jars
    # The brokers' binding of the logging interface serves here too; Kafka's metadata names none.
    jars.update(jar for jar in broker if jar.name.startswith(("slf4j-simple", "log4j-")))
    return sorted(jars)


def properties(source: LocalKafka, destination: LocalKafka, topic: str, settings: Mapping[str, str]) -> str:
    """Its settings file: one flow from source to target, and nothing beside the records."""
    config = {
        "clusters": "source, target",
        "source.bootstrap.servers": source.bootstrap,
        "target.bootstrap.servers": destination.bootstrap,
        "source->target.enabled": "true",
        "source->target.topics": topic,
        "target->source.enabled": "false",
        "emit.heartbeats.enabled": "false",
        "emit.checkpoints.enabled": "false",
        "emit.offset-syncs.enabled": "false",
        "sync.topic.acls.enabled": "false",
        "refresh.topics.interval.seconds": "5",
        **{
            f"{name}.replication.factor": "1"
            for name in ("offset.storage", "status.storage", "config.storage", "heartbeats.topic", "checkpoints.topic")
        },
        "replication.factor": "1",
        **settings,
    }
    return "".join(f"{key} = {value}\n" for key, value in config.items())


@contextmanager
def running(
    source: LocalKafka, destination: LocalKafka, topic: str, settings: Mapping[str, str]
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run it until the block ends; its folder with settings and log is removed."""
    version = source.release.version
    with tempfile.TemporaryDirectory(prefix="twinlog-bench-mm2-") as name:
        folder = Path(name)
        Watchdog.shared().watch(folder)
        (folder / "mm2.properties").write_text(properties(source, destination, topic, settings), "utf-8")
        command = [str(java_executable()), *JAVA_OPTIONS, "-cp", class_path(version), MAIN_CLASS]
        keep = os.environ.get("TWINLOG_BENCH_LOGS")
        log_path = Path(keep) / f"mm2-{os.getpid()}-{len(settings)}.log" if keep else folder / "log"
        with log_path.open("wb") as log:
            process = subprocess.Popen(
                [*command, str(folder / "mm2.properties")],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        Watchdog.shared().watch(process.pid)
        try:
            yield process
        finally:
            end(process)
            Watchdog.shared().forget(folder)


def end(process: "subprocess.Popen[bytes]") -> None:
    """End a process in order, or at once where that takes too long."""
    process.terminate()
    try:
        process.wait(STOP_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    Watchdog.shared().forget(process.pid)
