"""Fixtures of real Kafka clusters, started once a session and shared by all tests of this folder.

`source` and `destination` have one broker each, `destination3` has three (replication factor 3, min ISR 2), and on
`without_mirrors` nobody makes a mirror. Tests leave them running and in working order, and use topic names of their own
(fixture `topic`); a test that breaks a broker for good starts its own `LocalKafka`.
"""

import re
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path

import psutil
import pytest
from tests.real.commanding import Commands
from tests.real.mirroring import Worker, workers_on
from tests.real.ways import Way

from twinlog.testing.kafka import LocalKafka

HERE = Path(__file__).parent
TEST_TIMEOUT_S = 120
LOG_LINES = 60

_running: dict[str, LocalKafka] = {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder as `real` and give it a bound in time."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.real)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the end of the brokers' logs to a failed test's report."""
    report = yield
    if report.failed and HERE in item.path.parents:
        for name, kafka in _running.items():
            report.sections.append((f"Kafka log of {name}", kafka.log_text(LOG_LINES)))
    return report


def _shared(name: str, kafka: LocalKafka) -> Iterator[LocalKafka]:
    with kafka:
        _running[name] = kafka
        try:
            yield kafka
        finally:
            del _running[name]


@pytest.fixture(scope="session")
def source() -> Iterator[LocalKafka]:
    """A cluster of one broker; `.bootstrap` is its address."""
    yield from _shared("source", LocalKafka())


@pytest.fixture(scope="session")
def destination() -> Iterator[LocalKafka]:
    """Another cluster of one broker."""
    yield from _shared("destination", LocalKafka())


@pytest.fixture(scope="session")
def destination3() -> Iterator[LocalKafka]:
    """A cluster of three brokers, replication factor 3, min ISR 2."""
    yield from _shared("destination3", LocalKafka(3))


@pytest.fixture(scope="session")
def without_mirrors() -> Iterator[LocalKafka]:
    """A cluster of one broker on which no test makes a mirror, so that it has no state topic."""
    yield from _shared("without mirrors", LocalKafka())


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test has; it begins with the test's name. The topic does not exist yet."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", request.node.name).strip("-")[:60]
    return f"{readable}-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def workers(source: LocalKafka, destination: LocalKafka) -> Iterator[list[Worker]]:
    """A worker on either cluster."""
    with workers_on(source, destination) as workers:
        yield workers


@pytest.fixture
def ways(
    workers: list[Worker],
    source: LocalKafka,
    destination: LocalKafka,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> tuple[Way, Way]:
    """Mirrors both ways, of names of their own."""
    assert all(worker.alive for worker in workers)
    there = Commands(destination, source, tmp_path, capsys)
    back = Commands(source, destination, tmp_path, capsys)
    return Way(there, there.mirror()), Way(back, back.mirror())


@pytest.fixture(scope="session", autouse=True)
def _no_java_left() -> Iterator[None]:
    """Fail the session if a broker outlives it."""
    yield
    if not _running:
        left = [child for child in psutil.Process().children(recursive=True) if child.name() == "java"]
        assert not left, f"brokers were left running: {left}"
