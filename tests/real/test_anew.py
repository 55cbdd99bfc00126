"""A source that was truncated, and a mirror that is told to follow it: the destination's topic is made anew."""

import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.real.faults import with_changed_disk, write_with_blanks
from tests.real.mirrored_logs import alter, config_of
from tests.real.mirroring import Mirror

from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import TopicRecord
from twinlog.testing.checker import assert_identical
from twinlog.testing.kafka import LocalKafka
from twinlog.testing.load import Load

TWO = 2
ANEW_WITHIN_S = 60.0
FOLLOWING = {"mirror.metadata.refresh.interval.ms": "500", "mirror.support.unclean.leader.election": "true"}
# In which a topic would be begun to be made anew.
REFRESHES_S = 2.0


@pytest.fixture(scope="module")
def own_source() -> Iterator[LocalKafka]:
    """A source whose disk may be changed."""
    with LocalKafka() as kafka:
        yield kafka


@pytest.fixture
def mirror(own_source: LocalKafka, destination: LocalKafka, topic: str) -> Iterator[Mirror]:
    """A mirror that follows, two workers, and a topic of two partitions with some records in each."""
    with Mirror(own_source, destination, configs=FOLLOWING, workers=2) as mirror:
        mirror.create(topic, partitions=TWO)
        write_with_blanks(mirror.source, topic, 200)
        mirror.start(topic)
        mirror.wait_level(topic)
        yield mirror


def plain(cluster: LocalKafka, topic: str, records: int, *, seed: int) -> None:
    """So many records in partition 0, and nothing behind them."""
    load = Load(cluster, topic, random.Random(seed))
    load.plain(records, partition=0)
    load.close()


def truncate(mirror: Mirror, topic: str, copy: Path) -> None:
    """Let the source lose what it got last and the mirror has, in partition 0 alone."""
    log = f"{topic}-0"
    with_changed_disk(mirror.source, lambda data: shutil.copytree(data / log, copy))
    write_with_blanks(mirror.source, topic, 100, seed=2)
    mirror.wait_level(topic)
    with_changed_disk(mirror.source, lambda data: (shutil.rmtree(data / log), shutil.copytree(copy, data / log)))


def pause(mirror: Mirror, topic: str) -> None:
    """Pause all of the topic, which writes down up to where both sides were found the same."""
    mirror._desire(topic, DesiredState.PAUSED)
    for number in range(len(mirror.ends(topic))):
        mirror.wait_state(topic, PartitionState.PAUSED, number)


def record_of(mirror: Mirror, topic: str) -> TopicRecord:
    """What is stored of the topic."""
    record = mirror._image.topic(mirror.name, topic)
    assert record is not None
    return record


def wait_anew(mirror: Mirror, topic: str, before: TopicRecord) -> None:
    """Wait until the record is about another destination topic, and all partitions are MIRRORING."""
    states = dict.fromkeys(range(TWO), PartitionState.MIRRORING)
    mirror.wait_for(
        lambda: (
            record_of(mirror, topic).destination_topic_id != before.destination_topic_id
            and mirror.states(topic) == states
        ),
        lambda: f"{record_of(mirror, topic)}, {[mirror.partition(topic, number) for number in range(TWO)]}",
        ANEW_WITHIN_S,
    )


def test_the_destination_is_made_anew(mirror: Mirror, topic: str, tmp_path: Path) -> None:
    """With its own configs; the log says what is lost, and the twin is one again, whatever the source gets next."""
    alter(mirror.destination, topic, {"index.interval.bytes": "8192"})
    before, ends = record_of(mirror, topic), mirror.ends(topic)
    truncate(mirror, topic, tmp_path / "copy")
    wait_anew(mirror, topic, before)
    write_with_blanks(mirror.source, topic, 30, seed=3)
    mirror.wait_level(topic)
    assert_identical(mirror.source, mirror.destination, topic)
    after = record_of(mirror, topic)
    assert (after.anew, after.source_topic_id, after.partitions) == ("", before.source_topic_id, TWO)
    assert config_of(mirror.destination, topic)["index.interval.bytes"] == "8192"
    told = "".join(worker.log_text() for worker in mirror.workers)
    (line,) = [line for line in told.splitlines() if " WARNING " in line and "deleted and made anew" in line]
    assert f"{topic}-0: the source was truncated (unclean leader election): it diverges" in line
    assert f"at offset {ends[0]}" in line
    assert f"{topic}-1 offsets 0 to " in line


def test_times_that_the_destination_has_set_are_no_reason(
    own_source: LocalKafka, destination: LocalKafka, topic: str
) -> None:
    """The mirror's own records differ below what was compared before, and all the same the source has lost nothing."""
    with Mirror(own_source, destination, configs={**FOLLOWING, "mirror.configs.sync.enabled": "false"}) as mirror:
        mirror.create(topic)
        mirror.start(topic)
        mirror.wait_state(topic, PartitionState.MIRRORING)
        alter(mirror.destination, topic, {"message.timestamp.type": "LogAppendTime"})
        plain(mirror.source, topic, 50, seed=4)
        mirror.wait_level(topic)
        before, ends = record_of(mirror, topic), mirror.ends(topic)
        pause(mirror, topic)
        mirror.start(topic)
        assert "differs from the source" in mirror.wait_failed(topic)
        time.sleep(REFRESHES_S)
        assert (record_of(mirror, topic), mirror.ends(topic)) == (before, ends)
        mirror.stop(topic)


@pytest.mark.soak
@pytest.mark.timeout(120)
def test_a_source_that_has_grown_again_is_told_by_its_records(mirror: Mirror, topic: str, tmp_path: Path) -> None:
    """While it is paused, so that only the comparison at the takeover sees what the source has lost."""
    copy, log = tmp_path / "copy", f"{topic}-0"
    with_changed_disk(mirror.source, lambda data: shutil.copytree(data / log, copy))
    plain(mirror.source, topic, 100, seed=2)
    mirror.wait_level(topic)
    before = record_of(mirror, topic)
    pause(mirror, topic)
    with_changed_disk(mirror.source, lambda data: (shutil.rmtree(data / log), shutil.copytree(copy, data / log)))
    plain(mirror.source, topic, 300, seed=3)
    mirror.start(topic)
    wait_anew(mirror, topic, before)
    mirror.wait_level(topic)
    assert_identical(mirror.source, mirror.destination, topic)


@pytest.mark.soak
@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", range(4))
def test_it_is_made_anew_whatever_workers_die_meanwhile(mirror: Mirror, topic: str, tmp_path: Path, seed: int) -> None:
    """Each of the two is killed and replaced again and again, before, in and behind each step."""
    rng = random.Random(seed)
    before = record_of(mirror, topic)
    truncate(mirror, topic, tmp_path / "copy")
    for _ in range(6):
        time.sleep(rng.uniform(0.5, 6.0))
        alive = [worker for worker in mirror.workers if worker.alive]
        rng.choice(alive).kill()
        mirror.start_worker()
    wait_anew(mirror, topic, before)
    write_with_blanks(mirror.source, topic, 30, seed=3)
    mirror.wait_level(topic, timeout_s=90)
    assert_identical(mirror.source, mirror.destination, topic)
    assert record_of(mirror, topic).anew == ""
