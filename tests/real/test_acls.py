"""ACLs between two clusters with authorizers: brought over, held back while a topic is mirrored, given at its stop."""

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from tests.real.commanding import Commands, on, produce
from tests.real.hiring import HiredWorker
from tests.real.mirroring import Worker

from twinlog.config.acls import LITERAL, PREFIXED, Acl, denial
from twinlog.config.client import ClientSettings
from twinlog.config.mirror import MirrorConfig
from twinlog.errors import AuthorizationFailed
from twinlog.names import TopicPartition
from twinlog.sync.acl_change import change
from twinlog.sync.acls import Names, Scope, plan, sync
from twinlog.sync.denials import ALL_OF_THEM, PROBE, open_without_acl, trouble
from twinlog.testing.kafka import Listener, LocalKafka
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops import LATEST, list_offsets
from twinlog.wire.ops_acls import create_acls, delete_acls, describe_acls, topic_rights

LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
USERS = ("app", "nobody")
WITHIN_S = 20.0
GIVEN_WITHIN_S = 5.0
"""What is promised from the command on."""
REFRESHES_S = 1.5
SOON = {"mirror_metadata_refresh_interval_ms": "300"}


def guarded(**more: str) -> LocalKafka:
    """A cluster with an authorizer, where whoever does not log in may do everything."""
    users = " ".join(f'user_{name}="secret"' for name in USERS)
    config = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f"{LOGIN} {users};",
        **more,
    }
    return LocalKafka(config=config, listeners=[Listener("SASL", "SASL_PLAINTEXT")])


@pytest.fixture(scope="module")
def there() -> Iterator[LocalKafka]:
    """The source."""
    with guarded() as kafka:
        yield kafka


@pytest.fixture(scope="module")
def here() -> Iterator[LocalKafka]:
    """The destination."""
    with guarded() as kafka:
        yield kafka


@pytest.fixture
def worker(here: LocalKafka) -> Iterator[Worker]:
    """A worker at the destination."""
    one = Worker(here.bootstrap)
    try:
        one.wait_running()
        yield one
    finally:
        one.stop()
        one.log_path.unlink(missing_ok=True)


def acl(name: str, operation: str, *, prefix: bool = False, principal: str = "User:app") -> Acl:
    """An ACL that allows something on topics."""
    return Acl("TOPIC", name, PREFIXED if prefix else LITERAL, principal, "*", operation, "ALLOW")


def make(kafka: LocalKafka, *acls: Acl) -> None:
    """Make ACLs, and wait until the broker knows them."""
    assert on(kafka, lambda cluster: create_acls(cluster, acls)) == {}
    until(lambda: set(acls) <= acls_of(kafka), "the broker knows the ACLs")


def remove(kafka: LocalKafka, acls: Iterable[Acl]) -> None:
    """Delete ACLs."""
    assert on(kafka, lambda cluster: delete_acls(cluster, list(acls))) == {}


def acls_of(kafka: LocalKafka, topic: str = "") -> set[Acl]:
    """All ACLs, or those about one topic."""
    found: set[Acl] = set(on(kafka, describe_acls))
    return {one for one in found if not topic or one.covers("TOPIC", topic)}


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait, within a bound."""
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def refused_to_write(kafka: LocalKafka, topic: str) -> bool:
    """Write one record as `app`; say whether the broker has refused that by its ACLs."""
    errors: list[KafkaError | None] = []
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_of("SASL"),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "app",
            "sasl.password": "secret",
            "message.timeout.ms": 10_000,
        }
    )
    producer.produce(topic, value=b"from app", on_delivery=lambda error, _: errors.append(error))
    producer.flush(15)
    (error,) = errors
    assert error is None or error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED, error
    return error is not None


def end_of(kafka: LocalKafka, topic: str) -> int:
    """Where the topic's only partition ends."""
    where = TopicPartition(topic, 0)
    found = on(kafka, lambda cluster: list_offsets(cluster, {where: LATEST}))
    return int(found[where].offset)


def skipped(commands: Commands, mirror: str) -> dict[str, str]:
    """The ACLs that the last refresh left alone, with the reason."""
    told = json.loads(commands.done("--describe", "--skipped", "--mirror", mirror, "--json"))
    return {one["name"]: one["reason"] for each in told for one in each["skipped"] if one["kind"] == "acl"}


def begin(commands: Commands, *topics: str, **configs: str) -> str:
    """A mirror that copies these topics, each with three records, and that is level."""
    for topic in topics:
        commands.source.create_topic(topic)
        produce(commands.source, topic, 3)
    mirror = commands.mirror(**SOON, **configs)
    commands.done("--start", "--mirror", mirror, "--topics", ",".join(topics))
    until(lambda: commands.done("--describe", "--mirror", mirror, "--json").count('"lag":0') == len(topics), "level")
    return mirror


def end(commands: Commands, mirror: str) -> None:
    """Stop what is left and remove the mirror."""
    commands.done("--stop", "--mirror", mirror, "--topics", ".*")
    commands.done("--delete", "--mirror", mirror)


def test_a_failover_gives_the_rights_to_write_though_the_source_is_down(
    there: LocalKafka, here: LocalKafka, worker: Worker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Readers' rights come over at once; a producer is refused while mirrored, accepted seconds after the stop.

    With two topics under one prefix, of which one is stopped, the other stays closed.
    """
    assert worker.alive
    commands = Commands(here, there, tmp_path, capsys)
    base = f"acl{uuid.uuid4().hex[:8]}"
    one, two = f"{base}.one", f"{base}.two"
    read, wide, every = acl(one, "READ"), acl(base, "WRITE", prefix=True), acl("*", "DESCRIBE", principal="User:all")
    local = acl(one, "DESCRIBE", principal="User:local")
    make(there, read, wide, every)
    make(here, local)
    mirror = begin(commands, one, two)
    until(lambda: read in acls_of(here), "the right to read comes over")
    until(lambda: str(wide) in skipped(commands, mirror), "what is held back is listed")
    assert "Held back" in skipped(commands, mirror)[str(wide)]
    assert "TOPIC;[*];DESCRIBE;ALLOW;User:all" in skipped(commands, mirror)[str(every)]
    assert acls_of(here, one) == {read, local}
    assert refused_to_write(here, one)
    narrow = acl(one, "WRITE")
    planned = commands.done("--stop", "--mirror", mirror, "--topics", one, "--dry-run")
    assert f"Would give: {narrow}" in planned
    there[1].kill()
    try:
        began = time.monotonic()
        commands.done("--stop", "--mirror", mirror, "--topics", one)
        until(lambda: not refused_to_write(here, one), "the producer is accepted")
        assert time.monotonic() - began < GIVEN_WITHIN_S
        assert refused_to_write(here, two)
        assert acls_of(here, one) == {read, local, narrow}
        said = commands("--stop", "--mirror", mirror, "--topics", ".*")
        assert said.code == 0
        until(lambda: not refused_to_write(here, two), "the other one is accepted, too")
        assert wide in acls_of(here)
        # Given once: what somebody takes away later stays away.
        until(lambda: str(wide) not in skipped(commands, mirror), "the list knows it is given")
        remove(here, [wide])
        time.sleep(REFRESHES_S)
        assert wide not in acls_of(here)
    finally:
        there.restart(1)
    end(commands, mirror)
    remove(there, [read, wide, every])


def test_a_stop_without_a_worker_gives_the_rights_by_itself(
    there: LocalKafka, here: LocalKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is held back is in the state, and the operator may make ACLs."""
    commands = Commands(here, there, tmp_path, capsys)
    topic, wild = f"acl{uuid.uuid4().hex[:8]}", acl("*", "WRITE", principal="User:nobody")
    write = acl(topic, "WRITE")
    make(there, write, wild)
    one = Worker(here.bootstrap)
    try:
        rules = f"TOPIC;{topic},TOPIC;[*];WRITE"
        mirror = begin(commands, topic, mirror_acls_include=rules)
        until(lambda: {str(write), str(wild)} <= set(skipped(commands, mirror)), "both are held back")
    finally:
        one.stop()
        one.log_path.unlink(missing_ok=True)
    assert refused_to_write(here, topic)
    said = commands("--stop", "--mirror", mirror, "--topics", topic)
    assert said.code == 0
    assert "Gave 2 ACL(s)" in said.err
    assert "no worker is running" in said.err
    until(lambda: not refused_to_write(here, topic), "the producer is accepted")
    assert {write, wild} <= acls_of(here)
    assert skipped(commands, mirror) == {}
    remove(there, [write, wild])
    remove(here, [write, wild])


def test_the_exact_mode_deletes_what_the_source_lacks_and_nothing_else(
    there: LocalKafka, here: LocalKafka, worker: Worker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A right taken away at the source goes at the destination; ACLs about other topics stay."""
    assert worker.alive
    commands = Commands(here, there, tmp_path, capsys)
    topic = f"acl{uuid.uuid4().hex[:8]}"
    read, describe = acl(topic, "READ"), acl(topic, "DESCRIBE")
    local, other = acl(topic, "DESCRIBE_CONFIGS", principal="User:local"), acl(f"{topic}-other", "READ")
    make(there, read, describe)
    make(here, local, other)
    mirror = begin(commands, topic)
    until(lambda: acls_of(here, topic) == {read, describe, local}, "made, and the local one is left alone")
    remove(there, [describe])
    time.sleep(REFRESHES_S)
    assert acls_of(here, topic) == {read, describe, local}
    commands.done("--alter", "--mirror", mirror, "--config", "mirror.acls.sync.mode=exact")
    until(lambda: acls_of(here, topic) == {read}, "what the source lacks is deleted")
    assert other in acls_of(here)
    end(commands, mirror)
    remove(there, [read])


def test_a_source_without_an_authorizer_is_said_once(
    source: LocalKafka, here: LocalKafka, worker: Worker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is no error: the other syncs go on, and the log has one line of it, however many refreshes pass."""
    commands = Commands(here, source, tmp_path, capsys)
    assert on(source, describe_acls) is None
    mirror = begin(commands, f"acl{uuid.uuid4().hex[:8]}")
    until(lambda: "SECURITY_DISABLED" in skipped(commands, mirror).get("all", ""), "it is listed")
    time.sleep(REFRESHES_S)
    assert worker.log_text().count(f"mirror {mirror}: ACL sync") == 1
    end(commands, mirror)


def test_whoever_may_write_is_denied_it_while_mirrored_and_not_after_the_stop(
    there: LocalKafka, here: LocalKafka, worker: Worker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The mirror goes on meanwhile; the config is followed, and somebody else's DENY stays."""
    assert worker.alive
    commands = Commands(here, there, tmp_path, capsys)
    base = f"acl{uuid.uuid4().hex[:8]}"
    one, two = f"{base}.one", f"{base}.two"
    wide, theirs = acl(base, "WRITE", prefix=True), denial(two)
    make(here, wide, theirs)
    mirror = begin(commands, one, two, mirror_acls_deny_writes="true")
    until(lambda: denial(one) in acls_of(here), "others are denied to write")
    assert refused_to_write(here, one)
    until(lambda: str(wide) not in skipped(commands, mirror), "nothing is open any more")
    assert skipped(commands, mirror) == {}
    produce(there, one, 3)
    until(lambda: end_of(here, one) == 6, "twinlog itself still writes")
    commands.done("--alter", "--mirror", mirror, "--config", "mirror.acls.deny.writes=false")
    until(lambda: denial(one) not in acls_of(here), "it is not asked for any more")
    commands.done("--alter", "--mirror", mirror, "--config", "mirror.acls.deny.writes=true")
    until(lambda: denial(one) in acls_of(here), "it is asked for again")
    assert refused_to_write(here, one)
    began = time.monotonic()
    commands.done("--stop", "--mirror", mirror, "--topics", one)
    until(lambda: not refused_to_write(here, one), "the producer is accepted")
    assert time.monotonic() - began < GIVEN_WITHIN_S
    commands.done("--stop", "--mirror", mirror, "--topics", two)
    time.sleep(REFRESHES_S)
    assert {acl for acl in acls_of(here) if not acl.allows} == {theirs}
    commands.done("--delete", "--mirror", mirror)
    remove(here, [wide, theirs])


def test_a_stop_without_a_worker_takes_away_what_others_are_denied(
    there: LocalKafka, here: LocalKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is in the state, and the operator may change ACLs."""
    commands = Commands(here, there, tmp_path, capsys)
    topic = f"acl{uuid.uuid4().hex[:8]}"
    write = acl(topic, "WRITE")
    make(here, write)
    one = Worker(here.bootstrap)
    try:
        mirror = begin(commands, topic, mirror_acls_deny_writes="true")
        until(lambda: denial(topic) in acls_of(here), "others are denied to write")
    finally:
        one.stop()
        one.log_path.unlink(missing_ok=True)
    assert refused_to_write(here, topic)
    began = time.monotonic()
    commands.done("--stop", "--mirror", mirror, "--topics", topic)
    until(lambda: not refused_to_write(here, topic), "the producer is accepted")
    assert time.monotonic() - began < GIVEN_WITHIN_S
    assert acls_of(here, topic) == {write}
    remove(here, [write])


def test_a_worker_that_is_no_super_user_denies_nothing_and_says_why(
    there: LocalKafka, here: LocalKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would be the first to feel it; the mirror goes on."""
    commands = Commands(here, there, tmp_path, capsys)
    kinds = {"TOPIC": "*", "GROUP": "*", "TRANSACTIONAL_ID": "*", "CLUSTER": "kafka-cluster"}
    granted = [Acl(kind, name, LITERAL, "User:nobody", "*", "ALL", "ALLOW") for kind, name in kinds.items()]
    make(here, *granted)
    topic = f"acl{uuid.uuid4().hex[:8]}"
    login = f'{LOGIN} username="nobody" password="secret";'
    file = commands.file(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={login}\n")
    with HiredWorker(here.bootstrap_of("SASL"), tmp_path / "log", "--command-config", file) as one:
        mirror = begin(commands, topic, mirror_acls_deny_writes="true")
        until(lambda: "super user" in skipped(commands, mirror).get(ALL_OF_THEM, ""), "the reason is listed")
        until(lambda: denial(PROBE) not in acls_of(here), "what was tried is taken back")
        assert denial(topic) not in acls_of(here)
        produce(there, topic, 3)
        until(lambda: end_of(here, topic) == 6, "it is mirrored")
        assert one.log.count("denying others to write") == 1
        end(commands, mirror)
    remove(here, granted)


async def test_the_documented_rights_are_enough_and_each_that_is_missing_is_named(
    there: LocalKafka, here: LocalKafka
) -> None:
    """DESCRIBE on CLUSTER at the source, ALTER on CLUSTER at the destination, nothing on the topic."""
    topic = f"acl{uuid.uuid4().hex[:8]}"
    read = acl(topic, "READ")
    scope = Scope(
        config=MirrorConfig.from_properties({"bootstrap.servers": "a:1"}, "test"),
        mirrored=Names([topic]),
        closed=Names([topic]),
    )
    async with as_user(there, "source") as source, as_user(here, "destination") as destination:
        async with super_user(there) as admin:
            await create_acls(admin, [read])
        for kafka, right, words in (
            (there, "DESCRIBE", "The ACLs of the source.*Grant DESCRIBE on CLUSTER"),
            (here, "DESCRIBE", "The ACLs of the destination.*Grant DESCRIBE on CLUSTER"),
            (here, "ALTER", "made on the destination.*Grant ALTER on CLUSTER"),
        ):
            with pytest.raises(AuthorizationFailed, match=words):
                await sync(source, destination, scope)
            granted = Acl("CLUSTER", "kafka-cluster", LITERAL, "User:nobody", "*", right, "ALLOW")
            async with super_user(kafka) as admin:
                await create_acls(admin, [granted])
                if right == "ALTER":  # which includes DESCRIBE
                    await delete_acls(admin, [replace(granted, operation="DESCRIBE")])
            await known(kafka, granted)
        done = await sync(source, destination, scope)
        assert (done.created, done.errors) == ((read,), 0)
    for kafka in (there, here):
        async with super_user(kafka) as admin:
            of_ours = [one for one in await describe_acls(admin) or () if one.principal == "User:nobody"]
            assert await delete_acls(admin, of_ours) == {}


async def known(kafka: LocalKafka, wanted: Acl, *, gone: bool = False) -> None:
    """Wait until the broker goes by an ACL, or no longer does."""
    async with super_user(kafka) as admin:
        deadline = time.monotonic() + WITHIN_S
        while (wanted in (await describe_acls(admin) or ())) is gone:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)


@asynccontextmanager
async def as_user(kafka: LocalKafka, label: str) -> AsyncIterator[Cluster]:
    """A client that logs in as `nobody`."""
    login = f'{LOGIN} username="nobody" password="secret";'
    props = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": login}
    settings = ClientSettings.from_properties(props, bootstrap=kafka.bootstrap_of("SASL"), origin="test")
    cluster = await Cluster.connect(settings, client_id="test", label=label)
    try:
        yield cluster
    finally:
        await cluster.close()


@asynccontextmanager
async def super_user(kafka: LocalKafka) -> AsyncIterator[Cluster]:
    """A client that may do everything."""
    settings = ClientSettings.from_properties({}, bootstrap=kafka.bootstrap, origin="test")
    cluster = await Cluster.connect(settings, client_id="test")
    try:
        yield cluster
    finally:
        await cluster.close()


async def test_what_would_take_twinlogs_own_rights_is_taken_back_and_not_tried_again() -> None:
    """Everybody may do what no ACL is about, so the first ACL about a topic would end twinlog's work on it."""
    with guarded(**{"allow.everyone.if.no.acl.found": "true"}) as kafka:
        async with as_user(kafka, "destination") as twinlog:
            topic = f"acl{uuid.uuid4().hex[:8]}"
            kafka.create_topic(topic)
            read = acl(topic, "READ")
            assert "WRITE" in (await topic_rights(twinlog, [topic]))[topic]
            changed = await change(twinlog, [read], [], [topic])
            assert changed.undone == {read}
            assert f"WRITE on topic {topic}" in changed.lost
            assert "WRITE" in (await topic_rights(twinlog, [topic]))[topic]
            scope = Scope(
                config=MirrorConfig.from_properties({"bootstrap.servers": "a:1"}, "test"),
                mirrored=Names([topic]),
                closed=Names([topic]),
                cutting=frozenset({str(read)}),
            )
            assert plan([read], await describe_acls(twinlog) or (), scope).create == ()
            own = acl(topic, "ALL", principal="User:nobody")
            assert (await change(twinlog, [own], [], [topic])).undone == frozenset()
            assert plan([read], await describe_acls(twinlog) or (), scope).create == (read,)
            assert (await change(twinlog, [read], [], [topic])).undone == frozenset()
            assert (await change(twinlog, [], [own], [topic])).undone == {own}
            assert own in (await describe_acls(twinlog) or ())
            assert await open_without_acl(twinlog)
            assert "super user" in await trouble(twinlog)
            await known(kafka, denial(PROBE), gone=True)


async def test_what_became_of_each_entry_is_told(here: LocalKafka) -> None:
    """One that a broker refuses does not keep the others from being made; deleting what is gone is fine."""
    good = acl(f"acl{uuid.uuid4().hex[:8]}", "READ")
    bad = acl("x", "READ", principal="no kind")
    async with super_user(here) as cluster:
        failed = await create_acls(cluster, [good, bad])
        assert list(failed) == [bad]
        assert "INVALID_REQUEST" in str(failed[bad])
        await known(here, good)
        assert await delete_acls(cluster, [good]) == {}
        assert await delete_acls(cluster, [good]) == {}
