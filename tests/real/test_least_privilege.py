"""Authorizers on both sides: the rights that the documentation lists are enough, and each one that lacks is named."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from tests.real.commanding import Commands, on
from tests.real.guarding import STRANGER, Guarded, Right, guarded_kafka, login_file, login_properties
from tests.real.hiring import HiredWorker, until
from tests.real.mirrored_logs import alter, delete_records, numbered, write, write_transaction

from twinlog.cli import twinlog
from twinlog.state.log import StateLog
from twinlog.testing.checker import assert_identical, wait_until_level
from twinlog.testing.data import create_topic
from twinlog.testing.kafka import LocalKafka

STATE, CLUSTER, WORKERS, OURS = "__mirror_state", "kafka-cluster", "twinlog-workers", "twinlog-*"
QUICK = """
mirror.metadata.refresh.interval.ms=1000
mirror.failed.retry.initial.backoff.ms=200
mirror.failed.retry.max.backoff.ms=500
mirror.failed.retry.max.attempts=1000
mirror.acls.sync.mode=off
"""
GROUP = "readers"
TOLD_S = 30.0


def at_source(topic: str) -> list[Right]:
    """What is listed for the source."""
    operations = ("READ", "DESCRIBE", "DESCRIBE_CONFIGS")
    return [Right(operation, "TOPIC", topic) for operation in operations]


def at_destination(topic: str) -> list[Right]:
    """What is listed for the destination's topics."""
    operations = ("CREATE", "WRITE", "READ", "DESCRIBE", "DELETE", "ALTER", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")
    return [Right(operation, "TOPIC", topic) for operation in operations]


FOR_GROUPS_AT_SOURCE = [Right("DESCRIBE", "GROUP", "*")]
FOR_STATE = [
    *(Right(operation, "TOPIC", STATE) for operation in ("CREATE", "READ", "WRITE", "DESCRIBE", "DESCRIBE_CONFIGS")),
    *(Right(operation, "TRANSACTIONAL_ID", OURS) for operation in ("WRITE", "DESCRIBE")),
]
FOR_WORKERS = [
    Right("READ", "GROUP", WORKERS),
    Right("READ", "GROUP", GROUP),
    Right("ALTER", "CLUSTER", CLUSTER),
    Right("DESCRIBE_CONFIGS", "CLUSTER", CLUSTER),
]


@dataclass
class Sides:
    """Both clusters, and how commands are run as the one principal."""

    source: Guarded
    destination: Guarded
    folder: Path

    @property
    def login(self) -> str:
        """Its client properties."""
        return login_file(self.folder)

    @property
    def to(self) -> tuple[str, ...]:
        """How each command begins."""
        return ("--bootstrap-server", self.destination.bootstrap, "--command-config", self.login, "--timeout", "20")

    def mirror_file(self) -> str:
        """The properties of a mirror."""
        path = self.folder / "mirror.properties"
        secret = self.folder / "secret"
        secret.write_text("secret")
        login = login_properties(f"${{dir:{self.folder}:secret}}")
        path.write_text(f"bootstrap.servers={self.source.bootstrap}\n{login}{QUICK}")
        return str(path)

    def write(self, topic: str, count: int = 5) -> None:
        """Write to the source."""
        write(self.source.kafka, topic, numbered(count))

    def wait_level(self, *topics: str) -> None:
        """Until the destination has what the source has."""
        for topic in topics:
            wait_until_level(self.source.kafka, self.destination.kafka, topic, timeout_s=TOLD_S)

    def commit(self, topic: str) -> None:
        """Let the group have read something."""
        consumer = Consumer({"bootstrap.servers": self.source.kafka.bootstrap, "group.id": GROUP})
        consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
        consumer.close()

    def verify(self, topic: str) -> int:
        """Compare the two, as the same principal."""
        sides = ["--source", self.source.bootstrap, "--source-config", self.login]
        sides += ["--destination", self.destination.bootstrap, "--destination-config", self.login]
        return twinlog.main(["verify", *sides, "--topic", topic])


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    """Two clusters with exactly the listed rights on topics that begin with `own-`, and on `one`."""
    with guarded_kafka() as source, guarded_kafka() as destination:
        for topic in ("own-*", "one"):
            source.grant(*at_source(topic))
            destination.grant(*at_destination(topic))
        source.grant(*FOR_GROUPS_AT_SOURCE)
        destination.grant(*FOR_STATE, *FOR_WORKERS)
        on(destination.kafka, lambda cluster: StateLog.open(cluster, create=True))  # so that no test is the first
        yield Sides(source, destination, tmp_path_factory.mktemp("rights"))


@pytest.fixture
def commands(sides: Sides, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Commands:
    """Commands of the one principal."""
    return Commands(sides.destination.kafka, sides.source.kafka, tmp_path, capsys)


def done(commands: Commands, sides: Sides, *words: str) -> str:
    """Run a command that must succeed."""
    said = commands.bare(*sides.to, *words)
    assert said.code == 0, said
    return said.out


def test_the_listed_rights_are_enough(sides: Sides, commands: Commands, tmp_path: Path) -> None:
    """Everything from the first command to `verify`: copies, blanks, log starts, configs, growth and groups."""
    topic, mirror = "own-all", "all"
    create_topic(sides.source.kafka, topic)
    sides.write(topic, 50)
    write_transaction(sides.source.kafka, topic, numbered(5), commit=False)
    sides.commit(topic)
    done(commands, sides, "--create", "--mirror", mirror, "--mirror-config", sides.mirror_file())
    done(commands, sides, "--start", "--mirror", mirror, "--topics", topic)
    with HiredWorker(sides.destination.bootstrap, tmp_path / "log", "--command-config", sides.login) as worker:
        sides.wait_level(topic)
        alter(sides.source.kafka, topic, {"retention.ms": "987654321"})
        delete_records(sides.source.kafka, topic, {0: 10})
        grow(sides.source.kafka, topic, 2)
        write(sides.source.kafka, topic, numbered(5), partition=1)
        sides.wait_level(topic)
        until(lambda: committed(sides, topic) == 10, lambda: worker.log)  # clamped to the log's start
        done(commands, sides, "--pause", "--mirror", mirror, "--topics", topic)
        done(commands, sides, "--resume", "--mirror", mirror, "--topics", topic)
        done(commands, sides, "--alter", "--mirror", mirror, "--config", "mirror.topics.exclude=no")
        assert " right " not in done(commands, sides, "--describe", "--mirror", mirror, "--skipped")
        assert sides.verify(topic) == 0
        done(commands, sides, "--stop", "--mirror", mirror, "--topics", topic)
        assert "Grant" not in worker.log
    done(commands, sides, "--delete", "--mirror", mirror)
    assert assert_identical(sides.source.kafka, sides.destination.kafka, topic).source_records == 45


def grow(kafka: LocalKafka, topic: str, partitions: int) -> None:
    """Add partitions at the source."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(TOLD_S)


def committed(sides: Sides, topic: str) -> int:
    """Where the group stands at the destination."""
    consumer = Consumer({"bootstrap.servers": sides.destination.kafka.bootstrap, "group.id": GROUP})
    try:
        return int(consumer.committed([TopicPartition(topic, 0)], timeout=TOLD_S)[0].offset)
    finally:
        consumer.close()


COMMANDS = {
    "start: configs at the source": (
        "source",
        "DESCRIBE_CONFIGS TOPIC own-*",
        "--start",
        "DESCRIBE_CONFIGS on TOPIC own-new",
    ),
    "start: create": ("destination", "CREATE TOPIC own-*", "--start", "CREATE on TOPIC own-new"),
    "list": ("destination", f"READ TOPIC {STATE}", "--list", f"READ on TOPIC {STATE}"),
    "describe": ("destination", f"DESCRIBE_CONFIGS TOPIC {STATE}", "--describe", f"DESCRIBE_CONFIGS on TOPIC {STATE}"),
    "create": ("destination", f"WRITE TOPIC {STATE}", "--create", f"WRITE on topic {STATE}"),
    "alter": ("destination", f"WRITE TOPIC {STATE}", "--alter", f"WRITE on topic {STATE}"),
    "delete": ("destination", f"WRITE TOPIC {STATE}", "--delete", f"WRITE on topic {STATE}"),
    "create: transactions": (
        *("destination", f"WRITE TRANSACTIONAL_ID {OURS}", "--create"),
        "(WRITE|DESCRIBE) on TRANSACTIONAL_ID twinlog-admin",
    ),
}


@pytest.mark.parametrize("case", COMMANDS)
def test_a_command_names_the_right_that_it_lacks_and_changes_nothing(
    sides: Sides, commands: Commands, case: str
) -> None:
    """So who may create, alter and delete mirrors is a matter of WRITE on the state topic; READ is enough to look."""
    where, right, action, named = COMMANDS[case]
    mirror = f"m-{case.replace(':', '').replace(' ', '-')}"
    file = sides.mirror_file()
    if "start" in case:
        create_missing(sides.source.kafka, "own-new")
    # The first command of all makes the broker create __transaction_state.
    done(commands, sides, "--create", "--mirror", mirror, "--mirror-config", file)
    if action == "--create":
        done(commands, sides, "--delete", "--mirror", mirror)
    more = {
        "--create": ("--mirror", mirror, "--mirror-config", file),
        "--start": ("--mirror", mirror, "--topics", "own-new"),
        "--alter": ("--mirror", mirror, "--config", "retries=1"),
        "--delete": ("--mirror", mirror),
    }
    guarded = sides.source if where == "source" else sides.destination
    before = commands.state()
    with guarded.without(Right(*right.split(" "))):
        said = commands.bare(*sides.to, action, *more.get(action, ()))
    assert said.code == 1, said
    assert re.search(re.escape(named) if "|" not in named else named, said.err), said.err
    assert "Traceback" not in said.err
    assert commands.state() == before
    if action == "--create":
        assert mirror not in done(commands, sides, "--list")
    else:
        done(commands, sides, "--delete", "--mirror", mirror)


def create_missing(kafka: LocalKafka, topic: str) -> None:
    """Create a topic unless it is there."""
    if topic not in AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=TOLD_S).topics:
        create_topic(kafka, topic)


def test_to_look_at_mirrors_takes_no_right_to_write(sides: Sides, commands: Commands) -> None:
    """A reader of the state topic sees everything."""
    with sides.destination.without(Right("WRITE", "TOPIC", STATE)):
        said = [commands.bare(*sides.to, action) for action in ("--list", "--describe")]
    assert [(one.code, one.err) for one in said] == [(0, ""), (0, "")]


def test_only_the_worker_s_principal_may_write_to_a_mirrored_topic(sides: Sides) -> None:
    """A stock broker keeps a mirror topic read-only by its ACLs."""
    create_missing(sides.destination.kafka, "own-closed")
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.password": "secret"}
    servers = {"bootstrap.servers": sides.destination.bootstrap, "sasl.username": STRANGER}
    refused: list[int] = []

    def told(error: KafkaError | None, _message: Message) -> None:
        refused.append(0 if error is None else error.code())

    producer = Producer({**servers, **login, "message.timeout.ms": 10_000})
    producer.produce("own-closed", b"mine", on_delivery=told)
    assert producer.flush(TOLD_S) == 0
    assert refused == [KafkaError.TOPIC_AUTHORIZATION_FAILED]


WORKERS_CANNOT_BEGIN = {
    f"READ TOPIC {STATE}": f"READ on TOPIC {STATE}",
    f"DESCRIBE_CONFIGS TOPIC {STATE}": f"DESCRIBE_CONFIGS on TOPIC {STATE}",
    f"WRITE TRANSACTIONAL_ID {OURS}": "WRITE on TRANSACTIONAL_ID twinlog-worker-",
}


@pytest.mark.parametrize("right", WORKERS_CANNOT_BEGIN)
def test_a_worker_that_cannot_begin_ends_with_a_sentence(sides: Sides, right: str, tmp_path: Path) -> None:
    """It names the right, and its exit code is no success."""
    with (
        sides.destination.without(Right(*right.split(" "))),
        HiredWorker(sides.destination.bootstrap, tmp_path / "log", "--command-config", sides.login) as worker,
    ):
        assert worker.ended(TOLD_S) == 1
    assert WORKERS_CANNOT_BEGIN[right] in worker.log
    assert "Traceback" not in worker.log


@dataclass(frozen=True)
class Running:
    """A right that a running worker needs for topic `one`: what shows that it is gone, and where that is told."""

    side: str
    right: Right
    act: Callable[[Sides], None]
    told: str
    in_log: bool = False


def _more(sides: Sides) -> None:
    sides.write("one")


def _alter(sides: Sides) -> None:
    alter(sides.source.kafka, "one", {"retention.ms": "87654321"})


def _cut(sides: Sides) -> None:
    delete_records(sides.source.kafka, "one", {0: 7})


def _abort(sides: Sides) -> None:
    write_transaction(sides.source.kafka, "one", numbered(3), commit=False)


def _group(sides: Sides) -> None:
    sides.commit("one")


RUNNING = [
    Running("source", Right("READ", "TOPIC", "one"), _more, "Grant READ on "),
    Running("source", Right("DESCRIBE_CONFIGS", "TOPIC", "one"), _more, "DESCRIBE_CONFIGS on TOPIC one"),
    Running("source", Right("DESCRIBE", "GROUP", "*"), _more, "DESCRIBE on the groups"),
    Running("destination", Right("WRITE", "TOPIC", "one"), _more, "Grant WRITE on topic one"),
    Running("destination", Right("ALTER_CONFIGS", "TOPIC", "one"), _alter, "ALTER_CONFIGS on TOPIC one"),
    Running("destination", Right("READ", "GROUP", GROUP), _group, f"group '{GROUP}'"),
    Running("destination", Right("DELETE", "TOPIC", "one"), _cut, "Grant DELETE on topic one", in_log=True),
    Running("destination", Right("ALTER", "CLUSTER", CLUSTER), _abort, "Grant ALTER or CLUSTER_ACTION on CLUSTER"),
    Running(
        "destination", Right("ALTER", "TOPIC", "one"), lambda s: grow(s.source.kafka, "one", 2), "ALTER on TOPIC one"
    ),
]


def test_a_running_worker_names_the_right_that_it_lacks_and_goes_on(
    sides: Sides, commands: Commands, tmp_path: Path
) -> None:
    """In the partition's reason, among what was left alone, or in the log; another topic's copies go on meanwhile."""
    for topic in ("one", "own-two"):
        create_topic(sides.source.kafka, topic)
        sides.write(topic, 20)
    sides.commit("one")
    done(commands, sides, "--create", "--mirror", "m", "--mirror-config", sides.mirror_file())
    done(commands, sides, "--start", "--mirror", "m", "--topics", "one,own-two")
    with HiredWorker(sides.destination.bootstrap, tmp_path / "log", "--command-config", sides.login) as worker:
        sides.wait_level("one", "own-two")
        for case in RUNNING:
            lacks(sides, commands, worker, case)
        assert worker.alive
        assert "begins anew" not in worker.log
        done(commands, sides, "--stop", "--mirror", "m", "--topics", "one,own-two")
    done(commands, sides, "--delete", "--mirror", "m")
    assert sides.verify("one") == 0


def lacks(sides: Sides, commands: Commands, worker: HiredWorker, case: Running) -> None:
    """Take the right away, see it named, and see the topic go on once it is there again."""
    guarded = sides.source if case.side == "source" else sides.destination
    begins = len(worker.log)

    def told() -> str:
        if case.in_log:
            return worker.log[begins:]
        failed = done(commands, sides, "--describe", "--failed", "--json")
        return failed + done(commands, sides, "--describe", "--skipped", "--json")

    with guarded.without(case.right):
        case.act(sides)
        sides.write("own-two")
        until(lambda: case.told in told(), lambda: f"{case.right}: {told()}\n{worker.log[begins:]}", TOLD_S)
        sides.wait_level("own-two")
    sides.wait_level("one")
    until(lambda: case.in_log or case.told not in told(), lambda: f"{case.right} is granted: {told()}", TOLD_S)
