"""More than two clusters: a chain, a fan-out of which one then follows the other, and rings, which are refused."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.real.commanding import READY_S, Commands, topic_info
from tests.real.holding import hold_the_first_commit
from tests.real.mirrored_logs import write
from tests.real.mirroring import workers_on
from tests.real.ways import RECORDS, Way, assert_verified, mixed

from twinlog.admin import MirrorAdmin, StartMirrorTopicsResult
from twinlog.config.client import ClientSettings
from twinlog.testing.kafka import LocalKafka


@pytest.fixture(scope="module")
def third(destination: LocalKafka) -> Iterator[LocalKafka]:
    """A third cluster; there is a worker on it and on `destination`."""
    with LocalKafka() as kafka, workers_on(kafka, destination):
        yield kafka


@pytest.fixture
def say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> "Say":
    """Makes a mirror, of a new name, from one cluster to another."""
    return Say(tmp_path, capsys)


class Say:
    """Makes mirrors."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder = folder
        self._capsys = capsys

    def way(self, source: LocalKafka, destination: LocalKafka, **configs: str) -> Way:
        """A new mirror."""
        commands = Commands(destination, source, self._folder, self._capsys)
        return Way(commands, commands.mirror(**configs))


def test_a_chain_of_three_clusters_stays_identical(
    say: Say, source: LocalKafka, destination: LocalKafka, third: LocalKafka, topic: str
) -> None:
    """Transactional data goes from the first to the second and from there to the third."""
    source.create_topic(topic, config={"retention.ms": "-1"})
    mixed(source, topic)
    first, second = say.way(source, destination), say.way(destination, third)
    first.start(topic)
    second.start(topic)
    mixed(source, topic)
    first.wait_level(topic)
    second.wait_level(topic)
    assert_verified(source, third, topic)


def test_one_of_two_destinations_follows_the_other(
    say: Say, source: LocalKafka, destination: LocalKafka, third: LocalKafka, topic: str
) -> None:
    """The source is left; what was written to the promoted one reaches the other, whose topic is not made anew."""
    source.create_topic(topic, config={"retention.ms": "-1"})
    mixed(source, topic)
    one, other = say.way(source, destination), say.way(source, third)
    one.start(topic)
    other.start(topic)
    one.stop(topic)
    other.stop(topic)
    write(destination, topic, RECORDS)
    made = topic_info(third, topic).id
    say.way(destination, third).start(topic)
    assert topic_info(third, topic).id == made
    assert_verified(destination, third, topic)


def test_the_destination_that_is_ahead_is_refused_with_what_it_has_more(
    say: Say, source: LocalKafka, destination: LocalKafka, third: LocalKafka, topic: str
) -> None:
    """One destination was stopped early and written to: what the other mirrored since then, it never saw."""
    source.create_topic(topic, config={"retention.ms": "-1"})
    write(source, topic, RECORDS)
    one, other = say.way(source, destination), say.way(source, third)
    one.start(topic)
    other.start(topic)
    one.stop(topic)
    write(source, topic, RECORDS[:7])
    other.wait_level(topic)
    other.stop(topic)
    write(destination, topic, RECORDS[10:40])
    refused = say.way(destination, third).refused(topic)
    assert f"{topic}-0 offsets 50 to 56 (7 committed records)" in refused


def test_a_ring_of_three_clusters_is_refused(
    say: Say, source: LocalKafka, destination: LocalKafka, third: LocalKafka, topic: str
) -> None:
    """The refusal tells the whole way round; with one mirror of it stopped there is no ring."""
    source.create_topic(topic, config={"retention.ms": "-1"})
    write(source, topic, RECORDS)
    first, second, closing = say.way(source, destination), say.way(destination, third), say.way(third, source)
    first.start(topic)
    second.start(topic)
    refused = closing.refused(topic)
    assert f"Detected mirror loop for mirror: {closing.mirror}" in refused
    for cluster, way, beyond in ((third, second, destination), (destination, first, source)):
        way_there = f"by mirror '{way.mirror}' from cluster {beyond.cluster_id}"
        assert f"Cluster {cluster.cluster_id} mirrors it {way_there}" in refused
    first.stop(topic)
    on_topic = ("--topics", topic, "--mirror", closing.mirror)
    assert "Would start" in closing.commands.done("--start", "--dry-run", *on_topic)


def test_a_ring_that_nobody_can_exclude_is_refused_unless_the_operator_does(
    say: Say, source: LocalKafka, destination: LocalKafka, third: LocalKafka, topic: str, tmp_path: Path
) -> None:
    """One mirror of it needs a secret, so it is not followed; a chain, whose last topic does not exist yet, goes on."""
    (tmp_path / "id.properties").write_text("id=somebody\n")
    source.create_topic(topic, config={"retention.ms": "-1"})
    write(source, topic, RECORDS)
    second = say.way(destination, third, client_id=f"${{file:{tmp_path}/id.properties:id}}")
    first, closing = say.way(source, destination), say.way(third, source)
    first.start(topic)
    second.start(topic)
    refused = closing.refused(topic)
    assert "whether its source has it from here in the end could not be checked" in refused
    assert "Beyond that: its connection needs secrets" in refused
    on_topic = ("--topics", topic, "--mirror", closing.mirror)
    assert "Would start" in closing.commands.done("--start", "--dry-run", "--no-loop-check", *on_topic)


@pytest.mark.usefixtures("third")
def test_of_two_starts_in_opposite_directions_at_once_one_succeeds(
    say: Say, source: LocalKafka, destination: LocalKafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have looked before either was there; who commits later sees the other, and takes its start back."""
    for kafka in (source, destination):
        kafka.create_topic(topic, config={"retention.ms": "-1"})
    there, back = say.way(source, destination), say.way(destination, source)

    async def both() -> tuple[StartMirrorTopicsResult, StartMirrorTopicsResult]:
        held = hold_the_first_commit(monkeypatch)
        async with await admin_of(source) as here, await admin_of(destination) as far:
            later = asyncio.create_task(here.start_mirror_topics(back.mirror, [topic]))
            await asyncio.wait_for(held.reached.wait(), READY_S)
            first = await far.start_mirror_topics(there.mirror, [topic])
            held.go.set()
            return first, await later

    first, later = asyncio.run(both())
    assert (first.started, later.started) == ((topic,), ())
    assert "was started in the other direction at the same moment" in str(later.failed[topic])
    assert [record.desired.name for record in back.commands.state()[1] if record.mirror == back.mirror] == ["STOPPED"]
    write(source, topic, RECORDS)
    there.wait_level(topic)
    assert_verified(source, destination, topic)


async def admin_of(kafka: LocalKafka) -> MirrorAdmin:
    """The mirrors into a cluster."""
    return await MirrorAdmin.connect(ClientSettings.from_properties({}, bootstrap=kafka.bootstrap, origin="test"))
