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
