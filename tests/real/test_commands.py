"""`kafka-mirrors` against two real clusters: what it prints and creates, and that a refusal changes nothing."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.real.commanding import READY_S, Commands, on, produce, rows, topic_configs, topic_info
from tests.real.mirroring import Worker, workers_on

from twinlog.control.records import topic_id_text
from twinlog.names import TopicPartition
from twinlog.state.topic import STATE_TOPIC
from twinlog.testing.kafka import LocalKafka
from twinlog.wire.ops import delete_records

LONG_MAX = str(2**63 - 1)
MAIN = "import sys; sys.argv[0] = 'kafka-mirrors'; from twinlog.cli.kafka_mirrors import main; sys.exit(main())"


@pytest.fixture(scope="module")
def here() -> Iterator[LocalKafka]:
    """The destination of this file's mirrors; nobody else's mirrors are on it."""
    with LocalKafka() as kafka:
        yield kafka


@pytest.fixture
def commands(source: LocalKafka, here: LocalKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Commands:
    """Commands from the shared source to this file's destination."""
    return Commands(here, source, tmp_path, capsys)


@pytest.fixture
def worker(here: LocalKafka) -> Iterator[Worker]:
    """A worker of the destination."""
    with workers_on(here) as (worker,):
        yield worker


def test_the_proposals_own_example_from_create_to_remove(
    commands: Commands, source: LocalKafka, here: LocalKafka, worker: Worker, topic: str
) -> None:
    """Create, add with a topic id, list, describe and remove print what the first revision's page shows."""
    source.create_topic(topic, 2)
    produce(source, topic, 94, partition=1)
    mirror, file = f"m-{uuid.uuid4().hex[:8]}", commands.file(f"bootstrap.servers={source.bootstrap}")
    assert commands.done("--create", "--mirror", mirror, "--mirror-config", file) == f"Created mirror {mirror}\n"

    topic_id = topic_id_text(topic_info(source, topic).id)
    add = ("--add", "--topic", topic, "--mirror", mirror, "--replication-factor", "1")
    out = commands.done(*add, "--remote-bootstrap-server", source.bootstrap, "--topic-id", topic_id)
    assert out == f"Added 1 topic(s) to mirror {mirror}: [{topic}]\n"

    listed = commands.done("--list")
    assert listed.splitlines()[0].split() == ["MIRROR", "TOPICS", "SOURCE-CLUSTER-ID", "SOURCE-BOOTSTRAP"]
    assert [mirror, "1", source.cluster_id, source.bootstrap] in rows(listed)

    deadline = time.monotonic() + READY_S
    while [row[2:] for row in rows(commands.done("--describe", "--mirror", mirror))] != [
        ["0", "0", "0", "0", "MIRRORING"],
        ["1", "94", "94", "0", "MIRRORING"],
    ]:
        assert time.monotonic() < deadline, commands.done("--describe") + worker.log_text(40)
        time.sleep(0.3)
    described = json.loads(commands.done("--describe", "--mirror", mirror, "--json"))
    assert [(p["topic"], p["sourceHighWatermark"], p["lag"]) for p in described] == [(topic, 0, 0), (topic, 94, 0)]

    out = commands.done("--remove", "--topic", topic, "--mirror", mirror)
    assert out.splitlines() == [
        f"Removed 1 topic(s) from mirror {mirror}: [{topic}]",
        f"{topic}-0: nothing mirrored, log end 0",
        f"{topic}-1: last mirrored offset 93, log end 94",
    ]
    produce(here, topic, 1)

    again = commands.failure("--start", "--topics", topic, "--mirror", mirror)
    assert f"which the source never saw: {topic}-0 offsets 0 to 0 (1 committed records)" in again


def test_start_stop_and_start_again_keep_the_destination_topic(
    commands: Commands, source: LocalKafka, here: LocalKafka, worker: Worker, topic: str
) -> None:
    """The late revision's words; a topic stopped and started again is still the same topic."""
    source.create_topic(topic)
    produce(source, topic, 3)
    mirror = commands.mirror()
    start = ("--start", "--topics", topic, "--mirror", mirror)
    assert commands.done(*start) == f"Started 1 mirror topic(s) in mirror {mirror}: [{topic}]\n"
    made = topic_info(here, topic).id
    out = commands.done("--stop", "--topics", topic, "--mirror", mirror)
    assert out.splitlines()[0] == f"Stopped mirroring for topics [{topic}] in mirror {mirror}"
    assert commands.done(*start).startswith("Started 1 mirror topic(s)")
    said = commands(*start)
    assert (said.code, said.out, said.err) == (0, f"Already mirroring in mirror {mirror}: [{topic}]\n", "")
    assert topic_info(here, topic).id == made
    commands.done("--stop", "--topics", ".*", "--mirror", mirror)
    assert worker.alive


def test_patterns_choose_source_topics_and_what_is_not_there_is_remembered(
    commands: Commands, source: LocalKafka, topic: str
) -> None:
    """Names and regexes match whole names, excludes win, internal topics stay out, and a later topic is waited for."""
    for end in ("-a", "-b", "-not"):
        source.create_topic(topic + end)
    mirror = commands.mirror()
    start = ("--start", "--mirror", mirror, "--topics")
    out = commands.done(*start, f"{topic}-.*,__consumer.*", "--exclude", ".*-not")
    assert out == f"Started 2 mirror topic(s) in mirror {mirror}: [{topic}-a, {topic}-b]\n"
    out = commands.done(*start, f"{topic}-later")
    assert out == f"No matching topics found yet. Patterns saved to mirror {mirror} for auto-discovery.\n"
    configs = commands.state()[0][mirror].configs
    assert configs["mirror.topics.include"] == f"{topic}-.*,__consumer.*,{topic}-later"
    assert configs["mirror.topics.exclude"] == "__.*,.*-not"


def test_a_typo_is_told_at_once_shown_with_the_configs_and_taken_back(
    commands: Commands, source: LocalKafka, topic: str
) -> None:
    """A start names what it kept in vain, `--describe --configs` shows it without a worker, and a stop forgets it."""
    source.create_topic(topic)
    mirror, typo = commands.mirror(mirror_failed_retry_max_attempts="3"), f"{topic}-tpyo"
    start = ("--start", "--mirror", mirror, "--topics", f"{topic},{typo},{typo}-.*")
    said = commands(*start)
    assert (said.code, said.out) == (0, f"Started 1 mirror topic(s) in mirror {mirror}: [{topic}]\n")
    assert f"Nothing at the source matches yet: [{typo}, {typo}-.*]" in said.err

    chosen = rows(commands.done("--describe", "--topics", f"{topic}.*,other"))
    assert [row[:3] for row in chosen] == [[mirror, "..." + topic[-37:] if len(topic) > 40 else topic, "0"]]

    configs = ("--describe", "--configs", "--mirror", mirror)
    (told,) = json.loads(commands.done(*configs, "--json"))
    assert (told["mirror"], told["sourceClusterId"]) == (mirror, source.cluster_id)
    values = {config["name"]: (config["value"], config["isDefault"]) for config in told["configs"]}
    assert values["bootstrap.servers"] == (source.bootstrap, False)
    assert values["mirror.failed.retry.max.attempts"] == ("3", False)
    assert values["mirror.acls.sync.mode"] == ("additive", True)
    found = [(p["list"], p["pattern"], p["topics"]) for p in told["patterns"]]
    assert found == [
        ("include", topic, [topic]),
        ("include", typo, []),
        ("include", f"{typo}-.*", []),
        ("exclude", "__.*", []),
    ]
    text = commands.done(*configs)
    assert [mirror, "mirror.failed.retry.max.attempts", "mirror", "3"] in rows(text)
    assert any(row[:5] == [mirror, "include", "mirror", "0", typo] and "waited" in row[5] for row in rows(text))

    stop = ("--stop", "--mirror", mirror, "--topics", f"{typo},{typo}-.*")
    assert commands.done(*stop, "--dry-run").splitlines() == [
        f"Would take back include pattern: {typo}",
        f"Would take back include pattern: {typo}-.*",
    ]
    said = commands(*stop)
    taken = f"Taken back from the include patterns of mirror {mirror}: [{typo}, {typo}-.*]\n"
    assert (said.code, said.out, said.err) == (0, taken, "")
    assert typo not in commands.done(*configs)
    assert commands.failure("--describe", "--configs", "--mirror", "nope") == "Mirror 'nope' not found"


def test_the_destination_topic_gets_the_sources_configs_and_what_a_twin_needs(
    commands: Commands, source: LocalKafka, here: LocalKafka, topic: str
) -> None:
    """Overrides are copied but for the excluded ones; compression, times and sizes never stand in a batch's way."""
    set_there = {
        "retention.ms": "123456789",
        "cleanup.policy": "compact",
        "segment.bytes": "5000000",
        "compression.type": "gzip",
        "message.timestamp.type": "LogAppendTime",
        "max.message.bytes": "2000000",
        "min.insync.replicas": "1",
    }
    source.create_topic(topic, 3, config=set_there)
    source.create_topic(f"{topic}-plain")
    mirror = commands.mirror(mirror_topic_properties_exclude="segment.*")
    commands.done("--start", "--topics", f"{topic}.*", "--mirror", mirror)
    made = topic_configs(here, topic)
    needed = {
        "compression.type": "producer",
        "message.timestamp.type": "CreateTime",
        "message.timestamp.before.max.ms": LONG_MAX,
        "message.timestamp.after.max.ms": LONG_MAX,
    }
    copied = {"retention.ms": "123456789", "cleanup.policy": "compact", "max.message.bytes": "2000000"}
    assert needed.items() | copied.items() <= made.items()
    assert made["segment.bytes"] != "5000000"
    assert len(topic_info(here, topic).partitions) == 3
    plain = topic_configs(here, f"{topic}-plain")
    assert plain["max.message.bytes"] == topic_configs(source, f"{topic}-plain")["max.message.bytes"]


def test_min_insync_replicas_follow_the_factor_and_a_stop_without_a_worker_says_so(
    source: LocalKafka, destination3: LocalKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str], topic: str
) -> None:
    """One replica gets one in-sync replica, with a note; a stop is recorded, and stderr says what is missing."""
    source.create_topic(topic)
    commands = Commands(destination3, source, tmp_path, capsys)
    mirror = commands.mirror()
    said = commands("--start", "--topics", topic, "--mirror", mirror, "--replication-factor", "1")
    assert said.code == 0, said
    assert "min.insync.replicas would be 2 with only 1 replica" in said.err
    assert topic_configs(destination3, topic)["min.insync.replicas"] == "1"
    said = commands("--stop", "--topics", topic, "--mirror", mirror)
    assert (said.code, said.out) == (0, f"Stopped mirroring for topics [{topic}] in mirror {mirror}\n")
    assert "no worker is running" in said.err


def test_looking_creates_nothing(
    without_mirrors: LocalKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a cluster without mirrors, list and describe say so, and the state topic is not made."""
    commands = Commands(without_mirrors, without_mirrors, tmp_path, capsys)
    assert STATE_TOPIC not in commands.state()[2]
    assert commands.done("--list") == "No mirrors found\n"
    assert commands.done("--describe") == "No mirror partitions found\n"
    assert commands.done("--describe", "--json") == "[]"
    assert commands.done("--list", "--json") == "[]"
    assert commands.done("--describe", "--failed") == "No failed partitions found\n"
    assert commands.done("--describe", "--configs") == "No mirrors found\n"
    assert commands.done("--describe", "--configs", "--json") == "[]\n"
    commands.failure("--start", "--mirror", "m", "--topics", "t")
    commands.failure("--stop", "--mirror", "m", "--topics", "t")
    own = commands.file(f"bootstrap.servers={without_mirrors.bootstrap}")
    loop = commands.failure("--create", "--mirror", "m", "--mirror-config", own)
    assert loop.startswith("Detected mirror loop for mirror: m")
    assert STATE_TOPIC not in commands.state()[2]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--list", "--frobnicate"), "Unrecognized arguments: --frobnicate"),
        (("--list", "--describe"), "Command must include exactly one action: --create, --start, --stop, --delete, "),
        (("--create", "--mirror", "m"), "--mirror-config must be specified when creating a mirror"),
        (("--start", "--topics", "t"), "--mirror must be specified"),
        (("--start", "--mirror", "m"), "--topics must be specified when starting mirror topic(s)"),
        (("--stop", "--mirror", "m"), "--topics must be specified when stopping mirror topic(s)"),
        (("--stop", "--mirror", "m", "--topics", "t", "--exclude", "x"), "--exclude is only valid with --start"),
    ],
)
def test_a_wrong_command_line_is_answered_with_a_sentence(
    commands: Commands, words: tuple[str, ...], sentence: str
) -> None:
    """The sentence, then where the flags are told; exit code 1; nothing changed."""
    first, second = commands.refused(*words).splitlines()
    assert first.startswith(sentence)
    assert second.endswith(" --help shows the flags.")


def test_what_is_wrong_in_a_mirrors_creation_is_refused(commands: Commands, source: LocalKafka) -> None:
    """Name, file, keys, values, secrets, and a name that is taken; each names what is wrong and where."""
    mirror, good = commands.mirror(), f"bootstrap.servers={source.bootstrap}\n"

    def refusal(name: str, text: str) -> tuple[str, str]:
        path = commands.file(text)
        return path, commands.failure("--create", "--mirror", name, "--mirror-config", path)

    assert "'not/valid' is not valid" in refusal("not/valid", good)[1]
    assert refusal(mirror, good)[1] == f"Mirror '{mirror}' already exists"
    path, said = refusal("new", good + "no separator here:but\nthis one has none at all\n".replace(":", " "))
    assert f"{path}:3" in said or f"{path}:2" in said
    path, said = refusal("new", good + "mirror.topics.inclde=a\n")
    assert f"{path}:2: mirror.topics.inclde is not a key" in said
    path, said = refusal("new", good + "mirror.topics.include=a[\n")
    assert f"{path}:2: mirror.topics.include" in said
    assert "bootstrap.servers is missing" in refusal("new", "mirror.topics.include=a\n")[1]
    assert "secret in clear" in refusal("new", good + "ssl.key.password=geheim\n")[1]
    assert "does not exist" in commands.failure("--create", "--mirror", "new", "--mirror-config", "nowhere.properties")


def test_a_secret_that_only_the_worker_has_is_no_obstacle(
    commands: Commands, source: LocalKafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Create notes that the source was not asked, and the start that can reach it writes down its cluster's id."""
    monkeypatch.delenv("TWINLOG_TEST_SECRET", raising=False)
    source.create_topic(topic)
    mirror = f"m-{uuid.uuid4().hex[:8]}"
    file = commands.file(f"bootstrap.servers={source.bootstrap}\nssl.key.password=${{env:TWINLOG_TEST_SECRET}}\n")
    said = commands("--create", "--mirror", mirror, "--mirror-config", file)
    assert (said.code, said.out) == (0, f"Created mirror {mirror}\n")
    assert "TWINLOG_TEST_SECRET" in said.err
    start = ("--start", "--mirror", mirror, "--topics", topic)
    assert "TWINLOG_TEST_SECRET" in commands.failure(*start)
    monkeypatch.setenv("TWINLOG_TEST_SECRET", "geheim")
    commands.done(*start)
    assert commands.state()[0][mirror].source_cluster_id == source.cluster_id


def test_unknown_mirrors_and_topics_are_named(commands: Commands) -> None:
    """A mirror or topic that does not exist is an error, not an empty answer."""
    mirror = commands.mirror()
    assert commands.failure("--describe", "--mirror", "nope") == "Mirror 'nope' not found"
    unknown = "Mirror 'nope' not found or has no configuration"
    assert commands.failure("--start", "--mirror", "nope", "--topics", "t") == unknown
    assert commands.failure("--stop", "--mirror", "nope", "--topics", "t") == "Mirror 'nope' not found"
    assert "'t' does not exist" in commands.failure("--stop", "--mirror", mirror, "--topics", "t")
    assert "'t' does not exist" in commands.failure("--add", "--mirror", mirror, "--topic", "t")
    assert "not valid" in commands.failure("--start", "--mirror", mirror, "--topics", "a(")
    assert "not valid" in commands.failure("--start", "--mirror", mirror, "--topics", "a", "--exclude", "a[")
    assert "not valid" in commands.failure("--stop", "--mirror", mirror, "--topics", "*")


def test_topics_that_cannot_become_twins_are_refused(
    commands: Commands, source: LocalKafka, here: LocalKafka, topic: str
) -> None:
    """Other partition count, more records, a later beginning, nothing to compare, another id, an internal topic."""
    mirror = commands.mirror()

    def refusal(name: str, *more: str) -> str:
        return commands.failure("--start", "--mirror", mirror, "--topics", name, *more)

    source.create_topic(f"{topic}-count", 2)
    here.create_topic(f"{topic}-count", 3)
    assert "has 2 partitions at the source and 3 at the destination" in refusal(f"{topic}-count")

    source.create_topic(f"{topic}-ahead")
    here.create_topic(f"{topic}-ahead")
    produce(here, f"{topic}-ahead", 5)
    assert "ends at offset 5 at the destination and at 0 at the source" in refusal(f"{topic}-ahead")

    produce(source, f"{topic}-ahead", 9)
    _delete_before(here, f"{topic}-ahead", 2)
    assert "begins at offset 2 at the destination and at 0 at the source" in refusal(f"{topic}-ahead")

    _delete_before(source, f"{topic}-ahead", 6)
    assert "whether they were the source's cannot be told" in refusal(f"{topic}-ahead")

    wrong = topic_id_text(uuid.uuid4())
    assert f"not {wrong} as given" in refusal(f"{topic}-count", "--topic-id", wrong)
    assert "is not a topic id" in refusal(f"{topic}-count", "--topic-id", "short")
    assert "never mirrored" in refusal("__consumer_offsets")
    assert "never mirrored" in refusal(STATE_TOPIC)

    source.create_topic(f"{topic}-replicas")
    assert "INVALID_REPLICATION_FACTOR" in refusal(f"{topic}-replicas", "--replication-factor", "2")


def _delete_before(kafka: LocalKafka, topic: str, offset: int) -> None:
    deleted = on(kafka, lambda cluster: delete_records(cluster, {TopicPartition(topic, 0): offset}))
    assert deleted[TopicPartition(topic, 0)].error == 0


def test_one_topic_that_is_refused_does_not_stop_another(
    commands: Commands, source: LocalKafka, here: LocalKafka, topic: str
) -> None:
    """The good one is started, the bad one is named with its reason and not remembered, and the exit code is 1."""
    source.create_topic(f"{topic}-good")
    source.create_topic(f"{topic}-bad", 1)
    here.create_topic(f"{topic}-bad", 2)
    mirror = commands.mirror()
    said = commands("--start", "--mirror", mirror, "--topics", f"{topic}-good,{topic}-bad")
    assert (said.code, said.out) == (1, f"Started 1 mirror topic(s) in mirror {mirror}: [{topic}-good]\n")
    assert f"Failed to start topic {topic}-bad: Topic '{topic}-bad' has 1 partitions at the source" in said.err
    assert commands.state()[0][mirror].configs["mirror.topics.include"] == f"{topic}-good"


def test_a_loop_is_refused(
    commands: Commands,
    source: LocalKafka,
    here: LocalKafka,
    destination: LocalKafka,
    tmp_path: Path,
    topic: str,
) -> None:
    """A topic that the source mirrors from here cannot be mirrored back until it is stopped there."""
    forward = Commands(destination, here, tmp_path, commands.capsys)
    here.create_topic(topic)
    there = forward.mirror()
    forward.done("--start", "--mirror", there, "--topics", topic)
    back = Commands(here, destination, tmp_path, commands.capsys)
    mirror = back.mirror()
    assert back.failure("--start", "--mirror", mirror, "--topics", topic).startswith(
        f"Detected mirror loop for mirror: {mirror}"
    )
    forward.done("--stop", "--mirror", there, "--topics", topic)
    back.done("--start", "--mirror", mirror, "--topics", topic)
    assert source.cluster_id != destination.cluster_id


def test_another_cluster_behind_the_addresses_is_refused(
    commands: Commands, destination: LocalKafka, here: LocalKafka
) -> None:
    """The addresses given with a start must lead to the mirror's source."""
    mirror = commands.mirror()
    start = ("--start", "--mirror", mirror, "--topics", "t", "--remote-bootstrap-server")
    said = commands.failure(*start, destination.bootstrap)
    assert f"Behind {destination.bootstrap} is cluster {destination.cluster_id}" in said
    assert commands.failure(*start, here.bootstrap).startswith(f"Behind {here.bootstrap} is cluster")


def test_a_cluster_that_cannot_be_reached_is_named_with_the_time(commands: Commands) -> None:
    """Address and time, for the destination and for the source, within the bound that was given."""
    began = time.monotonic()
    said = commands.bare("--bootstrap-server", ":1", "--list", "--timeout", "1.5")
    assert said.code == 1
    assert re.search(r"No broker at localhost:1 answered in [01]\.\d s", said.err)
    file = commands.file("bootstrap.servers=127.0.0.1:1")
    error = commands.failure("--create", "--mirror", "new", "--mirror-config", file, "--timeout", "1.5")
    assert re.search(r"No broker at 127\.0\.0\.1:1 answered in [01]\.\d s", error)
    assert time.monotonic() - began < 10


def test_ctrl_c_ends_a_command_without_a_traceback() -> None:
    """Exit code 130, as shells expect, and nothing on stderr."""
    words = ["--bootstrap-server", "127.0.0.1:1", "--list"]
    # Whoever runs the tests in the background has its children ignore the signal.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    process = subprocess.Popen(
        [sys.executable, "-c", heard + MAIN, *words], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    # Python may be importing still, and loses it then, as it would lose a user's.
    for _ in range(4):
        time.sleep(1.5)
        os.kill(process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
            break
    out, err = process.communicate(timeout=1)
    assert (process.returncode, out, err) == (130, "", "")
