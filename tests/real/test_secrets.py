"""Secrets of every kind, used and misused, and then looked for in everything that twinlog writes."""

import base64
import contextlib
import io
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from tests.real.hiring import HiredWorker, until
from tests.real.mirrored_logs import numbered, write
from tests.real.secured import SECRETS, USER, Secured, login, secured_kafka, text, ways

from twinlog.cli import kafka_mirrors
from twinlog.testing.checker import wait_until_level
from twinlog.testing.data import create_topic
from twinlog.testing.kafka import LocalKafka

STATE = "__mirror_state"
TYPED = {"password": "typed-Password-91", "pass phrase": "typed-Passphrase-92", "client secret": "typed-Client-93"}
PROGRAM = "import sys; from twinlog.cli.kafka_mirrors import main; sys.exit(main(sys.argv[1:]))"
TOOL_S = 40.0


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A cluster that wants to know who asks."""
    with secured_kafka(tmp_path_factory.mktemp("secrets")) as cluster:
        yield cluster


class Said:
    """All that commands have said."""

    def __init__(self, bootstrap: str, *words: str) -> None:
        self.to = ("--bootstrap-server", bootstrap, *words)
        self.all: list[str] = []

    def __call__(self, *words: str, code: int = 0) -> str:
        """Run a command that must end with `code`."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            ended = kafka_mirrors.main([*self.to, *words])
        return self._heard(out.getvalue() + err.getvalue(), ended, code)

    def loudly(self, *words: str, code: int = 0) -> str:
        """The same as a program of its own, with its log."""
        command = [sys.executable, "-c", PROGRAM, *self.to, *words, "--verbose"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_S, check=False)
        return self._heard(done.stdout + done.stderr, done.returncode, code)

    def _heard(self, said: str, ended: int, code: int) -> str:
        self.all.append(said)
        assert ended == code, said
        return said


def secrets_of(secured: Secured) -> dict[str, str]:
    """What must be found nowhere."""
    key = secured.files.issued("client").read_text().splitlines()[1]
    whole = base64.b64encode(f"twin-client:{SECRETS['TWIN_CLIENT']}".encode()).decode()
    token = secured.tokens.token().split(".")[0]
    return {**SECRETS, **TYPED, "private key": key[10:50], "basic authorization": whole, "token": token}


def state_of(kafka: LocalKafka) -> bytes:
    """Every record of the state topic, whatever became of it, and the brokers' files behind it."""
    settings = {"group.id": "look", "isolation.level": "read_uncommitted", "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, **settings})
    numbers = consumer.list_topics(STATE, timeout=TOOL_S).topics[STATE].partitions
    consumer.assign([TopicPartition(STATE, number, OFFSET_BEGINNING) for number in numbers])
    found: list[bytes] = []
    at_end: set[int | None] = set()

    def read() -> bool:
        for message in consumer.consume(1000, timeout=0.2):
            error = message.error()
            if error is None:
                found.extend((bytes(message.key() or b""), bytes(message.value() or b"")))
            elif error.code() == KafkaError._PARTITION_EOF:  # its public name
                at_end.add(message.partition())
        return len(at_end) == len(numbers)

    until(read, lambda: f"the end of all partitions, not only of {at_end}")
    consumer.close()
    files = [path.read_bytes() for path in kafka.data_dir(1).glob(f"{STATE}-*/*.log")]
    assert found
    assert files
    return b"\n".join([*found, *files])


def test_no_secret_is_in_anything_that_is_written(
    secured: Secured, destination: LocalKafka, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logs at DEBUG, output and errors of commands, pages for monitoring, and all of the state topic."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    commands = Said(destination.bootstrap)
    kinds = ("client-pkcs12", "client-texts", "scram-512-tls", "oauth-tls")
    words = ("--http", "127.0.0.1:0", "--log-level", "debug", "--verbose")
    with HiredWorker(destination.bootstrap, tmp_path / "log", *words) as worker:
        for kind in kinds:
            way, name = ways(secured)[kind], f"{topic}-{kind}"
            create_topic(secured.kafka, name)
            write(secured.kafka, name, numbered(5))
            config = _file(tmp_path, text({"bootstrap.servers": secured.at(way.listener), **way.properties}))
            commands("--create", "--mirror", name, "--mirror-config", config)
            commands("--start", "--mirror", name, "--topics", name)
        for kind in kinds:
            wait_until_level(secured.kafka, destination, f"{topic}-{kind}")
        for form in ((), ("--json",)):
            commands.loudly("--list", *form)
            commands.loudly("--describe", *form)
        _misuse(commands, secured, tmp_path, f"{topic}-{kinds[2]}")
        secured.set_password("another", "SCRAM-SHA-512")  # its sessions end soon, and the login is refused then
        worker.wait_said("refused the login by SASL mechanism SCRAM-SHA-512")
        pages = _pages(worker)
        for kind in kinds:
            commands("--stop", "--mirror", f"{topic}-{kind}", "--topics", f"{topic}-{kind}")
            commands("--delete", "--mirror", f"{topic}-{kind}")
    written = {"worker": worker.log.encode(), "commands": "".join(commands.all).encode(), "pages": pages}
    written["state"] = state_of(destination)
    assert b"twinlog" in written["pages"]
    assert topic.encode() in written["state"]
    found = [
        (what, where)
        for what, secret in secrets_of(secured).items()
        for where in written
        if secret.encode() in written[where]
    ]
    assert not found, found


def _file(folder: Path, content: str) -> str:
    path = folder / f"{len(list(folder.iterdir()))}.properties"
    path.write_text(content)
    return str(path)


def _misuse(commands: Said, secured: Secured, folder: Path, mirror: str) -> None:
    """Secrets in clear where none may be, and wrong ones."""
    way = ways(secured)["scram-512-tls"]
    clear = {**way.properties, **login("SCRAM-SHA-512", TYPED["password"], USER)}
    servers = {"bootstrap.servers": secured.at("SAFE")}
    for properties in (clear, {**way.properties, "ssl.key.password": TYPED["pass phrase"]}):
        config = _file(folder, text({**servers, **properties}))
        assert "secret" in commands.loudly("--create", "--mirror", "misused", "--mirror-config", config, code=1)
    commands("--alter", "--mirror", mirror, "--config", f"ssl.key.password={TYPED['pass phrase']}", code=1)
    refused = Said(secured.at("SAFE"), "--command-config", _file(folder, text(clear)), "--timeout", "3")
    oauth = {**ways(secured)["oauth-tls"].properties}
    oauth["sasl.oauthbearer.client.credentials.client.secret"] = TYPED["client secret"]
    unknown = Said(secured.at("SAFE"), "--command-config", _file(folder, text(oauth)), "--timeout", "3")
    for one in (refused, unknown):
        one.loudly("--list", code=1)
        commands.all += one.all


def _pages(worker: HiredWorker) -> bytes:
    found = re.search(r"http://(127\.0\.0\.1:\d+)", worker.log) or re.search(r"(127\.0\.0\.1:\d+)/metrics", worker.log)
    assert found is not None, worker.log[:3000]
    pages = [b""]
    for page in ("metrics", "healthz", "readyz"):
        try:
            with urllib.request.urlopen(f"http://{found.group(1)}/{page}", timeout=TOOL_S) as answer:
                pages.append(answer.read())
        except urllib.error.HTTPError as refused:  # not ready, and the reason is told
            pages.append(refused.read())
    return b"\n".join(pages)
