"""How our connection settings read in librdkafka's names."""

import time
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError

from twinlog.config.client import ClientSettings
from twinlog.service.membership import librdkafka_config, sentence


def _config(**properties: str) -> dict[str, object]:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return librdkafka_config(ClientSettings.from_properties(named, bootstrap="a:1,b:2"))


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
