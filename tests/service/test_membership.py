"""How our connection settings read in librdkafka's names."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from twinlog.config.client import ClientSettings
from twinlog.service import membership as module
from twinlog.service.membership import Membership, librdkafka_config, sentence


def _config(**properties: str) -> dict[str, object]:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return librdkafka_config(ClientSettings.from_properties(named, bootstrap="a:1,b:2"))


class _Consumer:
    """Takes what librdkafka's does."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.logins: list[tuple[str, str]] = []

    def set_sasl_credentials(self, user: str, password: str) -> None:
        """Keep them."""
        self.logins.append((user, password))


class _Renewed:
    """A member whose credentials the test renews."""

    def __init__(self, folder: Path) -> None:
        self.trust = folder / "ca.pem"
        self.trust.write_text("first")
        self.password = "one"
        settings = replace(self._settings(), renewed=lambda: self._settings().security)
        nobody: Any = None
        self.member = Membership(settings, on_gained=nobody, on_taken=nobody, client_id="c")
        self.consumer: Any = self.member._consumer(self.member._connecting)

    def _settings(self) -> ClientSettings:
        login = (
            f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{self.password}";'
        )
        named = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": login}
        return ClientSettings.from_properties(named | {"ssl.truststore.location": str(self.trust)}, bootstrap="a:1")

    def looks(self) -> Any:
        """Look once; the consumer that is to take over, if any."""
        return self.member._renewed(self.consumer)

    def fails(self) -> None:
        """Let a connection fail."""
        self.member._connection_failed(KafkaError(KafkaError._AUTHENTICATION))


@pytest.fixture
async def renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Renewed:
    """A member that connects nowhere."""
    monkeypatch.setattr(module, "Consumer", _Consumer)
    return _Renewed(tmp_path)


async def test_another_password_is_handed_to_the_consumer(renewed: _Renewed) -> None:
    """Once, and no other consumer is needed for that, also where the old one was refused meanwhile."""
    assert renewed.looks() is None
    assert renewed.consumer.logins == []
    renewed.password = "two"
    renewed.fails()
    assert renewed.looks() is renewed.looks() is None
    assert renewed.consumer.logins == [("u", "two")]
    assert "_AUTHENTICATION" in renewed.member.trouble


async def test_another_certificate_takes_another_consumer_once_a_connection_has_failed(renewed: _Renewed) -> None:
    """Not before, since that hands the shards over; and a failure without another certificate changes nothing."""
    renewed.fails()
    assert renewed.looks() is None
    renewed.trust.write_text("second one")
    assert renewed.looks() is None
    renewed.fails()
    successor = renewed.looks()
    assert successor is not None
    assert successor.config["group.id"] == "twinlog-workers"
    renewed.fails()
    assert renewed.looks() is None


async def test_credentials_that_cannot_be_used_yet_change_nothing(
    renewed: _Renewed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is half written is whole soon, and the member goes on as it is until then."""

    def refuse(_config: object) -> None:
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG))

    renewed.trust.write_text("second one")
    renewed.fails()
    monkeypatch.setattr(module, "Consumer", refuse)
    assert renewed.looks() is None
    monkeypatch.setattr(module, "Consumer", _Consumer)
    renewed.fails()
    assert renewed.looks() is not None


def test_plain_connection() -> None:
    """Addresses and protocol, nothing else."""
    assert _config() == {"bootstrap.servers": "a:1,b:2", "security.protocol": "PLAINTEXT"}


def test_scram_over_tls() -> None:
    """User, password, mechanism; the host name is checked unless switched off."""
    config = _config(
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_jaas_config=(
            'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p";'
        ),
        ssl_truststore_location="/etc/ca.pem",
    )
    assert config["sasl.mechanism"] == "SCRAM-SHA-512"
    assert (config["sasl.username"], config["sasl.password"]) == ("u", "p")
    assert config["ssl.ca.location"] == "/etc/ca.pem"
    assert config["ssl.endpoint.identification.algorithm"] == "https"


def test_host_name_check_can_be_switched_off() -> None:
    """As in Kafka's clients: an empty algorithm."""
    config = _config(security_protocol="SSL", ssl_endpoint_identification_algorithm="")
    assert config["ssl.endpoint.identification.algorithm"] == "none"


def test_tokens_come_from_our_own_provider(tmp_path: Path) -> None:
    """OAUTHBEARER: librdkafka asks us, so that a renewed token file is found."""
    file = tmp_path / "token"
    file.write_text("abc")
    config = _config(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_jaas_config="org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
        sasl_oauthbearer_token_endpoint_url=f"file://{file}",
    )
    callback: Any = config["oauth_cb"]
    token, until, _principal, _extensions = callback("")
    assert token == "abc"
    assert until > time.time()
    file.write_text("def")
    assert callback("")[0] == "def"


def test_a_missing_right_on_the_group_is_named() -> None:
    """What librdkafka says of it names neither group nor operation."""
    refused = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)
    assert "Grant READ on GROUP twinlog-workers" in sentence(refused)
    assert "Grant" not in sentence(KafkaError(KafkaError.NETWORK_EXCEPTION))
