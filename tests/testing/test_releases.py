"""Kafka's jars are fetched once, whole or not at all, and a failure says what to do."""

import json
import zipfile
from pathlib import Path

import pytest

from twinlog.testing import releases
from twinlog.testing.errors import BenchFailed
from twinlog.testing.releases import KafkaRelease


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, and a repository that nobody serves."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TWINLOG_MAVEN_REPOSITORY", "http://127.0.0.1:9/maven2")
    monkeypatch.setattr(releases, "RETRY_PAUSE_S", 0.0)
    return tmp_path / "twinlog"


def _jar(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.class", b"x")
    return path


def _list(cache: Path, version: str, sizes: dict[str, int]) -> None:
    (cache / f"kafka-{version}").mkdir(parents=True)
    (cache / f"kafka-{version}" / "classpath.json").write_text(json.dumps(sizes))


def test_the_version_comes_from_argument_then_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """An argument wins over TWINLOG_TEST_KAFKA_VERSION, which wins over the default."""
    monkeypatch.delenv("TWINLOG_TEST_KAFKA_VERSION", raising=False)
    assert KafkaRelease().version == "4.2.0"
    monkeypatch.setenv("TWINLOG_TEST_KAFKA_VERSION", "3.9.1")
    assert KafkaRelease().version == "3.9.1"
    assert KafkaRelease("4.4.0").version == "4.4.0"


@pytest.mark.parametrize(
    ("version", "scala", "zookeeper"),
    [
        ("1.0.2", "2.12", True),
        ("2.3.1", "2.12", True),
        ("2.4.1", "2.13", True),
        ("3.2.3", "2.13", True),
        ("3.3.2", "2.13", False),
        ("4.4.0", "2.13", False),
        ("10.0.0-rc1", "2.13", False),
    ],
)
def test_what_a_release_needs_follows_from_its_number(version: str, scala: str, zookeeper: bool) -> None:  # noqa: FBT001  # parametrized
    """Jars built with Scala 2.13 from 2.4 on, ZooKeeper before 3.3; core and clients always at one version."""
    release = KafkaRelease(version)
    assert release.needs_zookeeper is zookeeper
    core, clients = release._coordinates
    assert core == f"org.apache.kafka:kafka_{scala}:{version}"
    assert clients == f"org.apache.kafka:kafka-clients:{version}"


def test_topic_configs_of_later_releases_are_known() -> None:
    """A broker before 3.6 refuses a topic for a limit on timestamps that came with 3.6."""
    name = "message.timestamp.before.max.ms"
    assert not KafkaRelease("3.5.2").takes_topic_config(name)
    assert KafkaRelease("3.6.0").takes_topic_config(name)
    assert KafkaRelease("1.1.1").takes_topic_config("retention.ms")


def test_a_fetched_release_needs_no_network(cache: Path) -> None:
    """Jars that are listed and have the listed size are used as they are, in the listed order."""
    jars = [_jar(cache / "maven" / "b" / "b.jar"), _jar(cache / "maven" / "a" / "a.jar")]
    _list(cache, "9.9.9", {"b/b.jar": jars[0].stat().st_size, "a/a.jar": jars[1].stat().st_size})
    assert KafkaRelease("9.9.9").jars == tuple(jars)
    assert KafkaRelease("9.9.9").class_path == f"{jars[0]}:{jars[1]}"


def test_a_failed_fetch_tells_what_to_do(cache: Path) -> None:
    """Without network the error names version, repository and the variable that changes it."""
    with pytest.raises(BenchFailed, match=r"9\.9\.9 .*in 3 attempts.*TWINLOG_MAVEN_REPOSITORY.*127\.0\.0\.1:9"):
        _ = KafkaRelease("9.9.9").jars
    assert not (cache / "kafka-9.9.9" / "classpath.json").exists()


def test_an_unfinished_jar_is_fetched_anew(cache: Path) -> None:
    """What was being written when a fetch was killed is dropped before the next attempt; the rest stays."""
    whole = _jar(cache / "maven" / "a" / "a.jar")
    cut = _jar(cache / "maven" / "b" / "b.jar")
    mark = cut.with_name("b.jar.part")
    mark.touch()
    with pytest.raises(BenchFailed):
        _ = KafkaRelease("9.9.9").jars
    assert whole.exists()
    assert not cut.exists()
    assert not mark.exists()


def test_a_jar_of_another_size_is_not_used(cache: Path) -> None:
    """A listed jar that has changed on disk leads to a fetch."""
    _jar(cache / "maven" / "a" / "a.jar")
    _list(cache, "9.9.9", {"a/a.jar": 1})
    with pytest.raises(BenchFailed):
        _ = KafkaRelease("9.9.9").jars
