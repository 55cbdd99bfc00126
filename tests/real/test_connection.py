"""Connections to real brokers: every way to log in, real responses, and the end of a SASL session."""

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.admin.cluster import DescribeClusterRequest
from kafka.protocol.admin.users import AlterUserScramCredentialsRequest
from kafka.protocol.consumer.fetch import FetchRequest
from kafka.protocol.metadata.api_versions import ApiVersionsRequest
from kafka.protocol.metadata.metadata import MetadataRequest

from twinlog.config.security import OAuthSource, Security
from twinlog.errors import AuthenticationFailed, ConnectionLost, ProtocolViolation, Unreachable
from twinlog.testing.kafka import Listener, LocalKafka
from twinlog.wire.connection import Connection

TLS = Path(__file__).parents[1] / "wire" / "tls"
LOGIN = "org.apache.kafka.common.security"
SESSION_MS = 3000


def listener(name: str, settings: dict[str, str]) -> dict[str, str]:
    """Settings of one listener."""
    return {f"listener.name.{name.lower()}.{key}": value for key, value in settings.items()}


@pytest.fixture(scope="module")
def secured() -> Iterator[LocalKafka]:
    """A broker with a listener for every way to log in; `SESSION` ends a login after three seconds."""
    users = 'user_ann="s3cret"'
    plain = {
        "sasl.enabled.mechanisms": "PLAIN",
        "plain.sasl.jaas.config": f"{LOGIN}.plain.PlainLoginModule required {users};",
    }
    tls = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(TLS / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(TLS / "ca.pem"),
    }
    config = {
        **listener(
            "LOGIN",
            plain
            | {
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
                "scram-sha-256.sasl.jaas.config": f"{LOGIN}.scram.ScramLoginModule required;",
                "scram-sha-512.sasl.jaas.config": f"{LOGIN}.scram.ScramLoginModule required;",
                "oauthbearer.sasl.jaas.config": (
                    f'{LOGIN}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
                ),
            },
        ),
        **listener("SESSION", plain | {"plain.connections.max.reauth.ms": str(SESSION_MS)}),
        **listener("TLS", tls | {"ssl.client.auth": "required"}),
        **listener("BOTH", tls | plain),
    }
    listeners = (
        Listener("LOGIN", "SASL_PLAINTEXT"),
        Listener("SESSION", "SASL_PLAINTEXT"),
        Listener("TLS", "SSL"),
        Listener("BOTH", "SASL_SSL"),
    )
    with LocalKafka(config=config, listeners=listeners) as kafka:
        asyncio.run(add_scram_user(kafka))
        yield kafka


async def add_scram_user(kafka: LocalKafka) -> None:
    """Give user ann a SCRAM password of both kinds, through the listener that asks for none."""
    connection = await connect(kafka.bootstrap, Security())
    for mechanism, algorithm in ((1, "sha256"), (2, "sha512")):
        salted = hashlib.pbkdf2_hmac(algorithm, b"s3cret", b"salt", 4096)
        request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[("ann", mechanism, 4096, b"salt", salted)])
        answer = await connection.request(request, timeout_s=20)
        assert [result.error_code for result in answer.results] == [0]
    await connection.close()
    async with asyncio.timeout(20):
        while not await known(kafka, "SCRAM-SHA-512"):  # noqa: ASYNC110  # only asking tells
            await asyncio.sleep(0.1)


async def known(kafka: LocalKafka, mechanism: str) -> bool:
    """Whether the broker has learnt of the user."""
    try:
        await (await connect(kafka.bootstrap_of("LOGIN"), login(mechanism))).close()
    except AuthenticationFailed:
        return False
    return True


async def connect(address: str, security: Security, **options: Any) -> Connection:
    """Open a connection to a broker by its address."""
    host, _, port = address.partition(":")
    bounds = {"client_id": "tester", "timeout_s": 20.0, "label": "real"} | options
    return await Connection.open(host, int(port), security, **bounds)


async def works(connection: Connection) -> bool:
    """Whether a connection serves requests."""
    answer = await connection.request(MetadataRequest(topics=[]), timeout_s=20)
    return len(answer.brokers) == 1


def login(mechanism: str, protocol: str = "SASL_PLAINTEXT", **options: Any) -> Security:
    """Settings of user ann."""
    credentials = {"sasl_username": "ann", "sasl_password": "s3cret"} | options
    return Security(protocol=protocol, sasl_mechanism=mechanism, **credentials)


async def test_versions_are_agreed_upon(source: LocalKafka) -> None:
    """The broker's own list is what counts, and both the newest and an old version of it are understood."""
    connection = await connect(source.bootstrap, Security())
    assert connection.version_of(MetadataRequest) >= 12
    for version in range(connection.version_of(ApiVersionsRequest) + 1):
        question = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        answer = await connection.request(question, timeout_s=10, max_version=version)
        assert answer.error_code == 0
        assert len(answer.api_keys) > 40
    for version in (0, 7, 8, 9, 12):
        answer = await connection.request(MetadataRequest(topics=None), timeout_s=10, max_version=version)
        assert len(answer.brokers) == 1
    await connection.close()


async def test_records_come_as_views(source: LocalKafka, topic: str) -> None:
    """In every version of Fetch that names topics, what was produced comes back, and no byte of it is copied."""
    from confluent_kafka import Producer  # noqa: PLC0415  # only this test produces

    source.create_topic(topic)
    producer = Producer({"bootstrap.servers": source.bootstrap})
    producer.produce(topic, b"v" * 100_000)
    assert producer.flush(20) == 0
    connection = await connect(source.bootstrap, Security())
    for version in range(4, 13):
        part = FetchRequest.FetchTopic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=1,
            session_epoch=-1,
            topics=[FetchRequest.FetchTopic(topic=topic, partitions=[part])],
            forgotten_topics_data=[],
        )
        answer = await connection.request(request, timeout_s=10, max_version=version)
        records = answer.responses[0].partitions[0].records
        assert isinstance(records, memoryview)
        assert len(records) > 100_000
        assert len(records.obj) > len(records)
    await connection.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_passwords(secured: LocalKafka, mechanism: str) -> None:
    """The right password lets us in, a wrong one is refused with the mechanism's name."""
    connection = await connect(secured.bootstrap_of("LOGIN"), login(mechanism))
    assert await works(connection)
    await connection.close()
    with pytest.raises(AuthenticationFailed, match=f"real broker 127.* {mechanism} .*error 58"):
        await connect(secured.bootstrap_of("LOGIN"), login(mechanism, sasl_password="wrong"))


async def test_a_token(secured: LocalKafka) -> None:
    """OAUTHBEARER with an unsecured token, and with one that the broker cannot accept."""
    good = Security(protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER", oauth=OAuthSource(unsecured_subject="ann"))
    connection = await connect(secured.bootstrap_of("LOGIN"), good)
    assert await works(connection)
    await connection.close()


async def test_a_token_that_is_refused(secured: LocalKafka, tmp_path: Path) -> None:
    """What is no token is refused in two steps, as RFC 7628 has it."""
    (tmp_path / "token").write_text("eyJhbGciOiJub25lIn0.e30.")
    bad = OAuthSource(token_file=str(tmp_path / "token"))
    with pytest.raises(AuthenticationFailed, match="OAUTHBEARER"):
        await connect(
            secured.bootstrap_of("LOGIN"),
            Security(protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER", oauth=bad),
        )


async def test_a_mechanism_that_is_not_enabled(secured: LocalKafka) -> None:
    """The message lists those that are."""
    with pytest.raises(AuthenticationFailed, match=r"SCRAM-SHA-256 .*error 33.*it offers PLAIN"):
        await connect(secured.bootstrap_of("SESSION"), login("SCRAM-SHA-256"))


async def test_tls_with_a_client_certificate(secured: LocalKafka) -> None:
    """Both sides show a certificate; without ours the broker refuses."""
    trust = str(TLS / "ca.pem")
    known = Security(protocol="SSL", ssl_truststore_location=trust, ssl_keystore_location=str(TLS / "client.pem"))
    connection = await connect(secured.bootstrap_of("TLS"), known)
    assert await works(connection)
    await connection.close()
    with pytest.raises((AuthenticationFailed, Unreachable), match="real broker"):
        await connect(secured.bootstrap_of("TLS"), Security(protocol="SSL", ssl_truststore_location=trust))


async def test_a_password_over_tls(secured: LocalKafka) -> None:
    """SASL_SSL, and a certificate that is not trusted."""
    trusted = login("PLAIN", "SASL_SSL", ssl_truststore_location=str(TLS / "ca.pem"))
    connection = await connect(secured.bootstrap_of("BOTH"), trusted)
    assert await works(connection)
    await connection.close()
    with pytest.raises(AuthenticationFailed, match="no TLS connection can be made"):
        await connect(
            secured.bootstrap_of("BOTH"), login("PLAIN", "SASL_SSL", ssl_truststore_location=str(TLS / "other-ca.pem"))
        )


@pytest.mark.parametrize(
    ("name", "security"),
    [("PLAINTEXT", login("PLAIN")), ("PLAINTEXT", Security(protocol="SSL")), ("TLS", Security())],
    ids=["sasl-to-plain", "tls-to-plain", "plain-to-tls"],
)
async def test_the_wrong_security_for_a_listener(secured: LocalKafka, name: str, security: Security) -> None:
    """Whatever such a listener does, set-up ends soon, with an error that names it."""
    with pytest.raises((AuthenticationFailed, Unreachable, ProtocolViolation), match=r"real broker 127\.0\.0\.1"):
        await connect(secured.bootstrap_of(name), security, timeout_s=5.0)


async def test_a_connection_is_gone_before_its_session_ends(secured: LocalKafka) -> None:
    """The broker ends sessions (KIP-368); no request is lost to that, since an idle connection closes first."""
    connection = await connect(secured.bootstrap_of("SESSION"), login("PLAIN"))
    assert await works(connection)
    served = 0
    async with asyncio.timeout(SESSION_MS / 1000):
        while not connection.closed:
            served += await works(connection)
            await asyncio.sleep(0.05)
    assert served > 10
    with pytest.raises(ConnectionLost, match="was not sent"):
        connection.submit(MetadataRequest(topics=[]))


async def test_a_flexible_response_is_decoded_to_its_end(source: LocalKafka) -> None:
    """A flexible response of this release is decoded to its last byte."""
    connection = await connect(source.bootstrap, Security())
    answer = await connection.request(DescribeClusterRequest(), timeout_s=10)
    assert answer.cluster_id == source.cluster_id
    await connection.close()
