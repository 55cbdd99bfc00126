"""TLS and SASL on real brokers: every way of proving oneself on both sides, every way of failing, and renewal."""

import asyncio
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from tests.real.commanding import Commands, Said
from tests.real.hiring import HiredWorker, image_of, until
from tests.real.mirrored_logs import numbered, write
from tests.real.secured import SECRETS, Files, Properties, Secured, login, secured_kafka, text, ways

from twinlog.cli import twinlog
from twinlog.config.client import read_client_file
from twinlog.service.membership import SESSION_TIMEOUT_MS, Membership
from twinlog.testing.checker import assert_identical, wait_until_level
from twinlog.testing.data import create_topic
from twinlog.testing.kafka import LocalKafka

REFUSED_S = "3"
ONLY_READ = (
    "tls",
    "wrong-name",
    "scram-256",
)  # a worker's start takes a second; the other ways have all that is in these
VERIFIED = ("client-pkcs12", "oauth-tls")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """The cluster that wants to know who asks."""
    with secured_kafka(tmp_path_factory.mktemp("secured")) as cluster:
        yield cluster


@pytest.fixture
def commands(
    secured: Secured,
    destination: LocalKafka,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Commands:
    """Commands for mirrors from the secured cluster; the secrets are in the environment, also of workers."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    return Commands(destination, secured.kafka, tmp_path, capsys)


def test_a_mirror_reads_through_every_kind_of_connection(
    secured: Secured, destination: LocalKafka, commands: Commands, topic: str, tmp_path: Path
) -> None:
    """One mirror a way, each identical, as `twinlog verify` finds through such connections, too."""
    topics = {name: f"{topic}-{name}" for name in ways(secured)}
    with HiredWorker(destination.bootstrap, tmp_path / "log"):
        for name, way in ways(secured).items():
            create_topic(secured.kafka, topics[name])
            write(secured.kafka, topics[name], numbered(40))
            config = commands.file(text({"bootstrap.servers": secured.at(way.listener), **way.properties}))
            commands.done("--create", "--mirror", topics[name], "--mirror-config", config)
            commands.done("--start", "--mirror", topics[name], "--topics", topics[name])
        for name, way in ways(secured).items():
            wait_until_level(secured.kafka, destination, topics[name])
            assert assert_identical(secured.kafka, destination, topics[name]).source_records == 40
            words = ["--source", secured.at(way.listener), "--source-config", commands.file(text(way.properties))]
            words += ["--destination", destination.bootstrap, "--topic", topics[name]]
            assert name not in VERIFIED or twinlog.main(["verify", *words]) == 0
        for name in topics.values():
            commands.done("--stop", "--mirror", name, "--topics", name)
            commands.done("--delete", "--mirror", name)


def test_workers_and_commands_write_through_every_kind_of_connection(
    secured: Secured, source: LocalKafka, commands: Commands, topic: str, tmp_path: Path
) -> None:
    """One worker a way, all in one group: each mirrors some of the partitions, and all of them are identical."""
    create_topic(source, topic, partitions=50)
    for partition in range(50):
        write(source, topic, numbered(10), partition=partition)
    config = commands.file(f"bootstrap.servers={source.bootstrap}\n")
    by_way: tuple[str, ...] = ()
    writing = {name: way for name, way in ways(secured).items() if name not in ONLY_READ}
    with ExitStack() as workers:
        for name, way in writing.items():
            login_file = commands.file(text(way.properties))
            by_way = ("--bootstrap-server", secured.at(way.listener), "--command-config", login_file)
            assert commands.bare(*by_way, "--create", "--mirror", f"m-{name}", "--mirror-config", config).code == 0
            workers.enter_context(HiredWorker(by_way[1], tmp_path / name, *by_way[2:]))
        assert commands.bare(*by_way, "--start", "--mirror", "m-plain", "--topics", topic).code == 0
        wait_until_level(source, secured.kafka, topic)

        def at_work() -> int:
            image = image_of(secured.kafka)
            told = (image.published("m-plain", topic, partition) for partition in range(50))
            return len({one.worker for one in told if one is not None})

        until(lambda: at_work() == len(writing), lambda: f"{at_work()} workers have partitions")
        assert assert_identical(source, secured.kafka, topic).source_records == 500
        assert commands.bare(*by_way, "--stop", "--mirror", "m-plain", "--topics", topic).code == 0


def _jks(secured: Secured) -> Properties:
    return {"ssl.truststore.location": str(secured.files.java_trust("JKS"))}


MISTAKES = {
    "wrong name in the certificate": ("NAMED", "SSL", {}, r"certificate is not valid for '127\.0\.0\.1'"),
    "expired certificate": ("EXPIRED", "SSL", {}, r"certificate has expired"),
    "unknown authority": ("TLS", "SSL", {"ssl.truststore.location": "{other}"}, r"unable to get local issuer"),
    "no client certificate": ("MTLS", "SSL", {}, r"CERTIFICATE_REQUIRED.*ssl\.keystore"),
    "client of an unknown authority": ("MTLS", "SSL", {"ssl.keystore.location": "{stranger}"}, r"no TLS connection"),
    "JKS store": ("TLS", "SSL", {"ssl.truststore.location": "{jks}"}, r"keytool -importkeystore .*PKCS12"),
    "JKS store under another name": ("TLS", "SSL", {"ssl.truststore.location": "{disguised}"}, r"keytool"),
    "wrong password of a store": (
        *("TLS", "SSL", {"ssl.truststore.location": "{p12}", "ssl.truststore.password": "no"}),
        r"ssl\.truststore\.location \(.*p12\) cannot be used",
    ),
    "no such file": ("TLS", "SSL", {"ssl.truststore.location": "/nowhere.pem"}, r"/nowhere\.pem.*No such file"),
    "wrong password": ("LOGIN", "SASL_PLAINTEXT", login("PLAIN", "no"), r"PLAIN .*Invalid username or password"),
    "wrong SCRAM password": ("SAFE", "SASL_SSL", login("SCRAM-SHA-512", "no"), r"SCRAM-SHA-512 .*invalid credentials"),
    "wrong client secret": (
        *("LOGIN", "SASL_PLAINTEXT", {"sasl.mechanism": "OAUTHBEARER", "oauth": "no"}),
        r"token endpoint http.* refused client twin-client .*HTTP 401",
    ),
    "no token server": (
        *("LOGIN", "SASL_PLAINTEXT", {"sasl.mechanism": "OAUTHBEARER", "oauth": "gone"}),
        r"token endpoint http://127\.0\.0\.1:1/token cannot be reached",
    ),
    "Kerberos": ("LOGIN", "SASL_PLAINTEXT", {"sasl.mechanism": "GSSAPI"}, r"Kerberos is not supported here"),
    "no TLS where it is needed": ("TLS", "PLAINTEXT", {}, r"expects security\.protocol SSL or SASL_SSL"),
    "no login where it is needed": ("SAFE", "SSL", {}, r"Metadata was under way.* security\.protocol of this listener"),
    "TLS where there is none": ("LOGIN", "SASL_SSL", login("PLAIN"), r"security\.protocol of this listener"),
}


@pytest.fixture(scope="module")
def broken_files(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Files that lead nowhere, by the placeholders of MISTAKES."""
    other = Files(tmp_path_factory.mktemp("other"))
    disguised = other.folder / "store.pem"
    disguised.write_bytes(secured.files.java_trust("JKS").read_bytes())
    return {
        "{other}": str(other.trust),
        "{stranger}": str(other.issued("stranger")),
        "{jks}": str(secured.files.java_trust("JKS")),
        "{disguised}": str(disguised),
        "{p12}": str(secured.files.java_trust("PKCS12")),
    }


def mistaken(secured: Secured, files: Mapping[str, str], protocol: str, given: Properties) -> dict[str, str]:
    """The properties of a mistake."""
    found = {"security.protocol": protocol} | (secured.trusting if protocol.endswith("SSL") else {})
    found |= {key: files.get(value, value) for key, value in given.items()}
    oauth = found.pop("oauth", "")
    if oauth:
        url = "http://127.0.0.1:1/token" if oauth == "gone" else secured.tokens.url
        found["sasl.oauthbearer.token.endpoint.url"] = url
        found["sasl.oauthbearer.client.credentials.client.id"] = "twin-client"
        found["sasl.oauthbearer.client.credentials.client.secret"] = oauth
    return found


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_in_one_sentence(
    secured: Secured, broken_files: dict[str, str], commands: Commands, mistake: str
) -> None:
    """No traceback, no hang, exit code 1, and the sentence says what is wrong."""
    listener, protocol, given, sentence = MISTAKES[mistake]
    file = commands.file(text(mistaken(secured, broken_files, protocol, given)))
    words = ("--bootstrap-server", secured.at(listener), "--command-config", file, "--timeout", REFUSED_S)
    said = commands.bare(*words, "--list")
    assert one_sentence(said), said
    assert re.search(sentence, said.err), said.err


def one_sentence(said: Said) -> bool:
    """Whether a command failed with nothing but a sentence."""
    lines = said.err.strip().splitlines()
    return said.code == 1 and said.out == "" and len(lines) == 1 and lines[0].endswith(".")


FAST_RETRY = {"mirror.failed.retry.initial.backoff.ms": "200", "mirror.failed.retry.max.backoff.ms": "500"}


class Renewed:
    """Credentials of one user in files that are replaced while they are used: a trust store and a password."""

    def __init__(self, secured: Secured, folder: Path) -> None:
        self._secured = secured
        self._user = f"user-{folder.name}"
        self._trust, self._password = folder / "trust.pem", folder / "password.properties"
        self.mend_trust()
        self.change_at_the_brokers("first")
        self.change_in_the_file("first")

    @property
    def properties(self) -> Properties:
        """Of a connection whose sessions end every few seconds."""
        secret = f"${{file:{self._password}:it}}"
        own = {"security.protocol": "SASL_SSL", "ssl.truststore.location": str(self._trust)}
        return own | login("SCRAM-SHA-256", secret, self._user)

    def break_trust(self) -> None:
        """Leave half a certificate, as a writer that is interrupted does."""
        self._trust.write_text(self._secured.files.trust.read_text()[:200])

    def mend_trust(self) -> None:
        """Write it whole."""
        self._trust.write_text(self._secured.files.trust.read_text())

    def change_at_the_brokers(self, password: str) -> None:
        """The old one is refused from then on."""
        self._secured.set_password(password, user=self._user)

    def change_in_the_file(self, password: str) -> None:
        """What twinlog reads."""
        self._password.write_text(f"it={password}\n")


def lives_through_renewal(worker: HiredWorker, renewed: Renewed, goes_on: Callable[[], None], side: str) -> None:
    """Break and mend a store, then change the password: each is named in the log, and then goes on by itself."""
    goes_on()
    said = len(worker.log)
    renewed.break_trust()
    worker.wait_said(f"the credentials for the {side} cannot be read now: ssl.truststore.location", after=said)
    renewed.mend_trust()
    goes_on()
    said = len(worker.log)
    renewed.change_at_the_brokers("second")
    worker.wait_said("refused the login by SASL mechanism SCRAM-SHA-256", after=said)
    renewed.change_in_the_file("second")
    goes_on()
    assert worker.alive
    assert "Traceback" not in worker.log
    assert not any(password in worker.log for password in ("first", "second"))


def test_a_source_s_credentials_may_be_renewed_at_any_time(
    secured: Secured, destination: LocalKafka, commands: Commands, topic: str, tmp_path: Path
) -> None:
    """The mirror stands still while they are wrong, says why, and goes on by itself."""
    renewed = Renewed(secured, tmp_path)
    create_topic(secured.kafka, topic)
    own = {"bootstrap.servers": secured.at("SAFE"), **FAST_RETRY, "mirror.failed.retry.max.attempts": "1000"}
    commands.done("--create", "--mirror", topic, "--mirror-config", commands.file(text(own | dict(renewed.properties))))
    commands.done("--start", "--mirror", topic, "--topics", topic)

    def goes_on() -> None:
        write(secured.kafka, topic, numbered(10))
        wait_until_level(secured.kafka, destination, topic)

    with HiredWorker(destination.bootstrap, tmp_path / "log") as worker:
        lives_through_renewal(worker, renewed, goes_on, "source")
        assert assert_identical(secured.kafka, destination, topic).source_records == 30
        commands.done("--stop", "--mirror", topic, "--topics", topic)
    commands.done("--delete", "--mirror", topic)


@pytest.mark.soak
async def test_a_worker_stays_in_its_group_with_another_password(secured: Secured, topic: str, tmp_path: Path) -> None:
    """The member itself takes it over; else it would be out of the group for good once its login is refused."""
    renewed = Renewed(secured, tmp_path)
    create_topic(secured.kafka, topic, partitions=2)
    file = tmp_path / "client.properties"
    file.write_text(text(renewed.properties))
    gained: set[int] = set()

    async def taken(shards: Collection[int]) -> None:
        gained.difference_update(shards)

    settings = read_client_file(str(file), bootstrap=secured.at("SAFE"))
    own = {"client_id": topic, "group": topic, "topic": topic}
    member = Membership(settings, on_gained=gained.update, on_taken=taken, **own)
    member.start()
    try:
        await _sometime(lambda: gained == {0, 1})
        renewed.change_at_the_brokers("second")
        await _sometime(lambda: "Authentication failed" in member.trouble)
        renewed.change_in_the_file("second")
        await asyncio.sleep(SESSION_TIMEOUT_MS / 1000 + 2.0)
        await _sometime(lambda: gained == {0, 1})
        admin = AdminClient({"bootstrap.servers": secured.kafka.bootstrap})
        told = await asyncio.to_thread(lambda: admin.describe_consumer_groups([topic])[topic].result(30))
        assert [one.client_id for one in told.members] == [topic]
        assert "first" not in member.trouble
    finally:
        await member.leave()


async def _sometime(there: Callable[[], bool]) -> None:
    async with asyncio.timeout(40.0):
        while not there():  # noqa: ASYNC110  # librdkafka's thread tells nobody
            await asyncio.sleep(0.1)


@pytest.mark.soak
def test_a_destination_s_credentials_may_be_renewed_at_any_time(
    secured: Secured, source: LocalKafka, commands: Commands, topic: str, tmp_path: Path
) -> None:
    """The worker begins anew until it is let in again; it never ends."""
    renewed = Renewed(secured, tmp_path)
    create_topic(source, topic)
    by_way = ("--bootstrap-server", secured.at("SAFE"), "--command-config", commands.file(text(renewed.properties)))
    config = commands.file(f"bootstrap.servers={source.bootstrap}\n")
    assert commands.bare(*by_way, "--create", "--mirror", topic, "--mirror-config", config).code == 0
    assert commands.bare(*by_way, "--start", "--mirror", topic, "--topics", topic).code == 0

    def goes_on() -> None:
        write(source, topic, numbered(10))
        wait_until_level(source, secured.kafka, topic)

    with HiredWorker(by_way[1], tmp_path / "log", *by_way[2:]) as worker:
        lives_through_renewal(worker, renewed, goes_on, "destination")
    assert assert_identical(source, secured.kafka, topic).source_records == 30
