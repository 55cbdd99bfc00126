"""Client properties become typed settings; what would go wrong later is refused at once."""

from pathlib import Path

import pytest

from twinlog.config.client import CLIENT_KEYS, ClientSettings, Security, read_client_file
from twinlog.config.properties import parse_properties
from twinlog.errors import BadInput


def settings(text: str, *, bootstrap: str | None = None) -> ClientSettings:
    """Read client properties under the name c.properties."""
    return ClientSettings.from_properties(parse_properties(text, "c.properties"), bootstrap=bootstrap, origin="-")


def test_defaults_are_those_of_kafka() -> None:
    """An address alone is enough."""
    assert settings("bootstrap.servers=a:1,:2") == ClientSettings((("a", 1), ("localhost", 2)), Security())
    assert ClientSettings.from_properties({}, bootstrap=":9094").bootstrap == (("localhost", 9094),)


def test_every_key_is_read() -> None:
    """Times, back-offs and the client id reach their fields."""
    text = """
        request.timeout.ms=1
        socket.connection.setup.timeout.ms=2
        socket.connection.setup.timeout.max.ms=3
        connections.max.idle.ms=-1
        reconnect.backoff.ms=5
        reconnect.backoff.max.ms=6
        retry.backoff.ms=7
        retry.backoff.max.ms=8
        client.id=me
    """
    read = settings(text, bootstrap="h:9")
    assert (read.request_timeout_ms, read.connection_setup_timeout_ms, read.connection_setup_timeout_max_ms) == (
        1,
        2,
        3,
    )
    assert (read.connections_max_idle_ms, read.reconnect_backoff_ms, read.reconnect_backoff_max_ms) == (-1, 5, 6)
    assert (read.retry_backoff_ms, read.retry_backoff_max_ms, read.client_id) == (7, 8, "me")
    assert read.with_client_id("you").client_id == "you"


def test_the_command_line_wins_over_the_file() -> None:
    """An address on the command line is used, and the file's are not even looked at."""
    assert settings("bootstrap.servers=nonsense", bootstrap="h:1").bootstrap == (("h", 1),)


def test_no_address_at_all() -> None:
    """Missing and empty lists are refused."""
    for text in ("", "bootstrap.servers= "):
        with pytest.raises(BadInput, match=r"bootstrap.servers is missing or empty"):
            settings(text)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("bootstrap.servers=localhost", r"bootstrap.servers is 'localhost', but this cannot be used: .* has no port"),
        ("request.timeout.ms=-5", "request.timeout.ms is '-5', but must be a whole number from 1"),
        ("request.timeout.ms=soon", "request.timeout.ms is 'soon', but must be a whole number"),
        ("send.buffer.bytes=-2", "send.buffer.bytes is '-2', but must be a whole number from -1"),
        ("retries=x", "retries is 'x'"),
        ("security.protocol=TLS", "must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
    ],
)
def test_a_bad_value_names_key_value_file_and_line(line: str, complaint: str) -> None:
    """Also the value of a key that has no effect here is checked."""
    with pytest.raises(BadInput, match=rf"^c.properties:2: .*{complaint}"):
        settings(f"#\n{line}", bootstrap=None if line.startswith("bootstrap") else "h:1")


def test_a_wrong_address_on_the_command_line() -> None:
    """The command line's list is refused without a file name."""
    with pytest.raises(BadInput, match=r"^'localhost' has no port"):
        settings("", bootstrap="localhost")


def test_unknown_keys_are_collected() -> None:
    """As Kafka's tools do, a warning is enough for a command's file."""
    assert settings("acks=all\nclient.id=a\nfoo=1", bootstrap=":1").unknown == ("acks", "foo")


def test_a_file_is_read(tmp_path: Path) -> None:
    """A command-config file is read in one step."""
    path = tmp_path / "c.properties"
    path.write_text("client.id=x\n")
    assert read_client_file(str(path), bootstrap=":1").client_id == "x"


def test_every_key_has_a_sentence_a_default_that_parses_and_one_place() -> None:
    """The table can be printed as it is."""
    assert len({key.name for key in CLIENT_KEYS}) == len(CLIENT_KEYS)
    for key in CLIENT_KEYS:
        assert key.doc.endswith(".")
        key.kind.parse(key.default)
