"""Pause, resume, recover, alter and delete against real clusters, without a worker and with one."""

import asyncio
import json
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.real.commanding import READY_S, Commands, on, produce, rows
from tests.real.holding import hold_the_first_commit
from tests.real.mirroring import Worker

from twinlog.admin import MirrorAdmin
from twinlog.config.client import ClientSettings
from twinlog.control.commands import Altered
from twinlog.control.records import TopicRecord
from twinlog.errors import ConcurrentChange
from twinlog.names import TopicPartition
from twinlog.testing.kafka import LocalKafka
from twinlog.wire.ops_log import LATEST, one_offset

RETRIES, REFRESH = "mirror.failed.retry.max.attempts", "mirror.metadata.refresh.interval.ms"


@pytest.fixture(scope="module")
def here() -> Iterator[LocalKafka]:
    """The destination of this file's mirrors; nobody else's mirrors are on it."""
    with LocalKafka() as kafka:
        yield kafka


@pytest.fixture
def commands(source: LocalKafka, here: LocalKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Commands:
    """Commands from the shared source to this file's destination."""
    return Commands(here, source, tmp_path, capsys)


def started(commands: Commands, source: LocalKafka, topic: str) -> str:
    """A mirror with one topic of three records, started."""
    source.create_topic(topic)
    produce(source, topic, 3)
    mirror = commands.mirror()
    commands.done("--start", "--topics", topic, "--mirror", mirror)
    return mirror


def test_without_a_worker_commands_are_recorded_and_say_what_is_missing(
    commands: Commands, source: LocalKafka, topic: str
) -> None:
    """Exit code 0 and a warning; what contradicts the state is refused."""
    mirror = started(commands, source, topic)
    on_topic = ("--topics", topic, "--mirror", mirror)
    said = commands("--pause", *on_topic)
    assert (said.code, said.out) == (0, f"Paused mirroring for 1 topic(s) in mirror {mirror}: [{topic}]\n")
    assert "no worker is running, so the pause is only recorded" in said.err
    assert f"{topic}-0" in said.err
    assert "resume it with --resume" in commands.failure("--start", *on_topic)
    still = commands.failure("--delete", "--mirror", mirror)
    assert still == f"Mirror '{mirror}' still has active or paused topic '{topic}'"
    out = commands.done("--resume", *on_topic)
    assert out == f"Resumed mirroring for 1 topic(s) in mirror {mirror}: [{topic}]\n"
    left = f"Left as they are, without a FAILED partition: [{topic}]\n"
    assert commands.done("--recover", *on_topic) == left
    said = commands("--stop", *on_topic)
    assert (said.code, "the stop is only recorded" in said.err) == (0, True)
    assert "STOPPED, not PAUSED; start it with --start" in commands.failure("--resume", *on_topic)
    assert "only what is mirrored can be paused" in commands.failure("--pause", *on_topic)
    assert commands.done("--delete", "--mirror", mirror) == f"Deleted mirror {mirror}\n"
    assert f"Mirror '{mirror}' not found" in commands.failure("--delete", "--mirror", mirror)


def test_configs_are_altered_and_what_is_wrong_is_refused(commands: Commands) -> None:
    """Lists in brackets, removal, and an error that names the key."""
    mirror = commands.mirror()
    alter = ("--alter", "--mirror", mirror)
    assert commands.done(*alter, "--config", f"{RETRIES}=3,mirror.topics.exclude=[a,b]") == f"Altered mirror {mirror}\n"
    configs = commands.state()[0][mirror].configs
    assert (configs[RETRIES], configs["mirror.topics.exclude"]) == ("3", "a,b")
    unchanged = commands.done(*alter, "--config", f"{RETRIES}=3")
    assert unchanged == f"Nothing to alter in mirror {mirror}: its configs are so already\n"
    commands.done(*alter, "--delete-config", RETRIES)
    assert RETRIES not in commands.state()[0][mirror].configs
    assert "no.such.key" in commands.failure(*alter, "--config", "no.such.key=1")
    assert RETRIES in commands.failure(*alter, "--config", f"{RETRIES}=many")


def test_a_dry_run_tells_what_would_be_done_and_changes_nothing(
    commands: Commands, source: LocalKafka, topic: str
) -> None:
    """On every action that changes something, with the exit code that the action would have."""
    mirror = started(commands, source, topic)
    source.create_topic(f"{topic}-new")
    out = commands.done("--stop", "--topics", "nothing-.*", "--mirror", mirror)
    assert out.startswith(f"Saved as exclude pattern(s) of mirror {mirror}, so that no topic that matches is started: ")
    file = commands.file(f"bootstrap.servers={source.bootstrap}")
    on_topic = ("--topics", topic, "--mirror", mirror)
    before = commands.state()
    expected = {
        ("--create", "--mirror", f"{mirror}-2", "--mirror-config", file): f"Would create mirror {mirror}-2 of source "
        f"cluster {source.cluster_id}\n",
        (
            "--start",
            "--topics",
            f"{topic}-new,later",
            "--exclude",
            "no",
            "--mirror",
            mirror,
        ): f"Would start: {topic}-new\nWould save include pattern: {topic}-new\nWould save include pattern: later\n"
        "Would save exclude pattern: no\nWould leave, not at the source: later\n",
        ("--stop", *on_topic): f"Would stop: {topic}\nWould take back include pattern: {topic}\n",
        ("--stop", "--topics", "no.*", "--mirror", mirror): "Would save exclude pattern: no.*\n",
        ("--pause", *on_topic): f"Would pause: {topic}\n",
        ("--resume", *on_topic): f"Would leave, not PAUSED: {topic}\n",
        ("--recover", *on_topic): f"Would leave, without a FAILED partition: {topic}\n",
        ("--alter", "--mirror", mirror, "--config", f"{RETRIES}=3"): f"Would change: {RETRIES}\n",
    }
    for words, out in expected.items():
        said = commands(*words, "--dry-run")
        assert (said.code, said.out) == (0, out), said
    assert "still has active or paused topic" in commands.failure("--delete", "--mirror", mirror, "--dry-run")
    assert commands.state() == before


def test_conflicting_commands_at_once_are_never_mixed(commands: Commands, here: LocalKafka) -> None:
    """Of two that alter the same two keys, one's values stand in both keys; who did not succeed is told so."""
    mirror = commands.mirror()
    settings = ClientSettings.from_properties({}, bootstrap=here.bootstrap, origin="test")

    async def both(first: str, second: str) -> list[Altered | BaseException]:
        async with await MirrorAdmin.connect(settings) as one, await MirrorAdmin.connect(settings) as other:
            return await asyncio.gather(
                one.alter_mirror(mirror, {RETRIES: first, REFRESH: f"{first}000"}),
                other.alter_mirror(mirror, {RETRIES: second, REFRESH: f"{second}000"}),
                return_exceptions=True,
            )

    for number in range(2, 10, 2):
        values = (str(number), str(number + 1))
        outcomes = asyncio.run(both(*values))
        stood = [value for value, outcome in zip(values, outcomes, strict=True) if isinstance(outcome, Altered)]
        assert stood, outcomes
        assert all(isinstance(outcome, Altered | ConcurrentChange) for outcome in outcomes), outcomes
        configs = commands.state()[0][mirror].configs
        assert configs[RETRIES] in stood
        assert configs[REFRESH] == f"{configs[RETRIES]}000"


@pytest.mark.parametrize(
    ("first", "second"),
    [("create", "create"), ("start", "delete"), ("delete", "start"), ("pause", "stop"), ("stop", "pause")],
)
def test_of_two_conflicting_commands_one_succeeds_and_the_other_is_told(
    commands: Commands, here: LocalKafka, topic: str, monkeypatch: pytest.MonkeyPatch, first: str, second: str
) -> None:
    """The first has judged and is about to commit when the second comes and goes: what stands is the second's alone."""
    source = commands.source
    source.create_topic(topic, 1)
    mirror = f"new-{topic}" if first == "create" else commands.mirror()
    if first in {"pause", "stop"}:
        commands.done("--start", "--topics", topic, "--mirror", mirror)
    settings = ClientSettings.from_properties({}, bootstrap=here.bootstrap, origin="test")

    def run(admin: MirrorAdmin, action: str, number: int) -> Coroutine[Any, Any, Any]:
        configs = {"bootstrap.servers": source.bootstrap, RETRIES: str(number), REFRESH: f"{number}000"}
        return {
            "create": lambda: admin.create_mirror(mirror, configs),
            "start": lambda: admin.start_mirror_topics(mirror, [topic]),
            "delete": lambda: admin.delete_mirror(mirror),
            "pause": lambda: admin.pause_mirror_topics(mirror, [topic]),
            "stop": lambda: admin.stop_mirror_topics(mirror, [topic]),
        }[action]()

    async def both() -> None:
        about_to_commit = hold_the_first_commit(monkeypatch)
        async with await MirrorAdmin.connect(settings) as one, await MirrorAdmin.connect(settings) as other:
            held = asyncio.create_task(run(one, first, 1))
            await asyncio.wait_for(about_to_commit.reached.wait(), READY_S)
            await run(other, second, 2)
            about_to_commit.go.set()
            with pytest.raises(ConcurrentChange, match="was withdrawn"):
                await held

    asyncio.run(both())
    mirrors, topics, _ = commands.state()
    desired = [record.desired.name for record in topics if (record.mirror, record.topic) == (mirror, topic)]
    assert (mirror in mirrors, desired) == {
        "create": (True, []),
        "start": (True, ["MIRRORING"]),
        "delete": (False, []),
        "pause": (True, ["PAUSED"]),
        "stop": (True, ["STOPPED"]),
    }[second]
    if second == "create":
        assert (mirrors[mirror].configs[RETRIES], mirrors[mirror].configs[REFRESH]) == ("2", "2000")


def test_a_worker_pauses_resumes_and_stops_and_the_mirror_is_deleted(
    commands: Commands, source: LocalKafka, here: LocalKafka, topic: str
) -> None:
    """After the pause has returned nothing is appended; resumed, it catches up; its topic outlives the mirror."""
    mirror = started(commands, source, topic)
    on_topic = ("--topics", topic, "--mirror", mirror)
    worker = Worker(here.bootstrap)
    try:
        worker.wait_running()
        wait_for(commands, worker, mirror, "MIRRORING", 3)
        said = commands("--pause", *on_topic)
        assert (said.code, said.err) == (0, "")
        produce(source, topic, 2)
        time.sleep(1.5)
        assert on(here, lambda cluster: one_offset(cluster, TopicPartition(topic, 0), LATEST)) == 3
        assert partition(commands, mirror) == ("PAUSED", 3)
        commands.done("--resume", *on_topic)
        wait_for(commands, worker, mirror, "MIRRORING", 5)
        assert "STOPPED" not in commands.done("--describe", "--mirror", mirror)
        assert f"{topic}-0: last mirrored offset 4, log end 5" in commands.done("--stop", *on_topic)
        assert commands.done("--delete", "--mirror", mirror) == f"Deleted mirror {mirror}\n"
        assert mirror not in [row[0] for row in rows(commands.done("--list"))]
        assert topic in commands.state()[2]
        assert worker.alive
    finally:
        worker.stop()


def partition(commands: Commands, mirror: str) -> tuple[str, int]:
    """State and destination offset of the mirror's one partition."""
    (found,) = json.loads(commands.done("--describe", "--mirror", mirror, "--json"))
    return found["state"], found["destinationOffset"]


def wait_for(commands: Commands, worker: Worker, mirror: str, state: str, end: int) -> None:
    """Wait until the mirror's one partition is there."""
    deadline = time.monotonic() + READY_S
    while partition(commands, mirror) != (state, end):
        assert time.monotonic() < deadline, worker.log_text(40)
        time.sleep(0.2)


def test_a_mirror_that_is_created_with_patterns_needs_no_start(
    commands: Commands, source: LocalKafka, here: LocalKafka, topic: str
) -> None:
    """What they match is found and mirrored, what an exclude matches is not, and a stopped topic is not found again."""
    for name in (f"{topic}-1", f"{topic}-2", f"{topic}-left"):
        source.create_topic(name, 1)
        produce(source, name, 3)
    mirror = commands.mirror(
        mirror_topics_include=f"{topic}-.*",
        mirror_topics_exclude=".*-left",
        mirror_metadata_refresh_interval_ms="300",
    )
    worker = Worker(here.bootstrap)

    def described() -> dict[str, tuple[str, int]]:
        found = json.loads(commands.done("--describe", "--mirror", mirror, "--json"))
        return {row["topic"]: (row["state"], row["destinationOffset"]) for row in found}

    try:
        deadline = time.monotonic() + READY_S
        while described() != {f"{topic}-1": ("MIRRORING", 3), f"{topic}-2": ("MIRRORING", 3)}:
            assert time.monotonic() < deadline, (described(), worker.log_text(40))
            time.sleep(0.2)
        commands.done("--stop", "--topics", f"{topic}-1", "--mirror", mirror)
        time.sleep(1.0)  # three refreshes
        assert described()[f"{topic}-1"] == ("STOPPED", 3)
        (listed,) = json.loads(commands.done("--list", "--mirror", mirror, "--states", "STOPPED", "--json"))
        assert (listed["topics"], listed["sourceClusterId"]) == ([f"{topic}-1"], source.cluster_id)
        assert commands.done("--list", "--mirror", mirror, "--source-cluster-id", "other") == "No mirrors found\n"
    finally:
        commands.done("--stop", "--topics", f"{topic}-2", "--mirror", mirror)
        worker.stop()


def test_a_start_says_where_the_copy_begins(commands: Commands, source: LocalKafka, topic: str) -> None:
    """The source's present end, the first record at or after a time, and nothing that cannot be read."""
    mirror = commands.mirror()
    for name in (f"{topic}-end", f"{topic}-time", f"{topic}-whole"):
        source.create_topic(name, 1)
        produce(source, name, 7)

    def start(name: str, *more: str) -> TopicRecord:
        commands.done("--start", "--mirror", mirror, "--topics", name, *more)
        (record,) = (record for record in commands.state()[1] if (record.mirror, record.topic) == (mirror, name))
        return record

    assert start(f"{topic}-end", "--start-at", "latest").start_offsets == (7,)
    early = start(f"{topic}-time", "--start-at", "1")
    assert (early.start_at, early.start_offsets) == ("1", (0,))
    assert start(f"{topic}-whole").start_offsets == ()
    refused = commands.failure("--start", "--mirror", mirror, "--topics", f"{topic}-end", "--start-at", "yesterday")
    assert "--start-at is 'yesterday', but must be earliest, latest" in refused
