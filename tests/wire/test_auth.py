"""TLS and SASL against a fake broker, which plays the server's side of each mechanism. On both event loops."""

import asyncio
import base64
import hashlib
import hmac
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from kafka.protocol.metadata.metadata import MetadataRequest
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from twinlog.config.security import OAuthSource, Security
from twinlog.errors import AuthenticationFailed, BadInput, ConnectionLost, Unreachable
from twinlog.wire import auth

TLS = Path(__file__).parent / "tls"
METADATA, HANDSHAKE, AUTHENTICATE = 3, 17, 36
PLAIN = Security(protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_username="ann", sasl_password="s3cret")
SSL = Security(protocol="SSL", ssl_truststore_location=str(TLS / "ca.pem"))

Fake = Any  # the fixtures `broker` and `tls_broker`: a FakeBroker


def framed(correlation: int, body: bytes, *, flexible: bool = False) -> bytes:
    """A response with its size and header."""
    payload = correlation.to_bytes(4, "big") + (b"\0" if flexible else b"") + body
    return pack(">i", len(payload)) + payload


class Server:
    """The broker's side of SASL: `steps` are called with each token in turn and return the broker's."""

    def __init__(self, fake: Fake, *steps: Any, mechanism: str = "PLAIN", lifetime_ms: int = 0) -> None:
        self.tokens: list[bytes] = []
        self._steps = list(steps)
        self._mechanism = mechanism
        self._lifetime_ms = lifetime_ms
        fake.answers |= {HANDSHAKE: self._handshake, AUTHENTICATE: self._authenticate}

    def _handshake(self, asked: Any) -> bytes:
        request = SaslHandshakeRequest.decode(asked.body, version=asked.version)
        error = 0 if request.mechanism == self._mechanism else 33
        response = SaslHandshakeResponse(error_code=error, mechanisms=[self._mechanism])
        return framed(asked.correlation, bytes(response.encode(version=asked.version)))

    def _authenticate(self, asked: Any) -> bytes:
        request = SaslAuthenticateRequest.decode(asked.body[1:], version=asked.version)  # behind the header's tags
        self.tokens.append(bytes(request.auth_bytes))
        answer = self._steps.pop(0)(self.tokens[-1])
        error, message = (58, answer) if isinstance(answer, str) else (0, None)
        response = SaslAuthenticateResponse(
            error_code=error,
            error_message=message,
            auth_bytes=b"" if error else answer,
            session_lifetime_ms=self._lifetime_ms,
        )
        return framed(asked.correlation, bytes(response.encode(version=asked.version)), flexible=True)


async def test_plain(broker: Fake) -> None:
    """User and password go out as RFC 4616 has them, after a handshake of version 1."""
    server = Server(broker, lambda _: b"")
    connection = await broker.open(PLAIN)
    assert server.tokens == [b"ann\0ann\0s3cret"]
    assert [(asked.api_key, asked.version) for asked in broker.asked[1:]] == [(HANDSHAKE, 1), (AUTHENTICATE, 2)]
    await connection.close()


async def test_refused_credentials(broker: Fake) -> None:
    """The message names cluster, mechanism and the broker's words, and no password."""
    Server(broker, lambda _: "Authentication failed: Invalid username or password")
    with pytest.raises(AuthenticationFailed) as raised:
        await broker.open(PLAIN)
    assert "dr broker localhost:" in str(raised.value)
    assert "refused the login by SASL mechanism PLAIN (SASL_AUTHENTICATION_FAILED, error 58)" in str(raised.value)
    assert "Invalid username or password" in str(raised.value)
    assert "s3cret" not in str(raised.value)


async def test_a_mechanism_that_the_broker_does_not_have(broker: Fake) -> None:
    """The message says which ones it has."""
    Server(broker, mechanism="SCRAM-SHA-512")
    with pytest.raises(AuthenticationFailed, match=r"mechanism PLAIN .*33.*it offers SCRAM-SHA-512"):
        await broker.open(PLAIN)


class Scram:
    """The server's side of SCRAM (RFC 5802) with one user."""

    def __init__(self, algorithm: str, password: bytes, *, honest: bool = True) -> None:
        self._algorithm = algorithm
        self._salted = hashlib.pbkdf2_hmac(algorithm, password, b"salt", 4096)
        self._first = b""
        self._second = b""
        self._honest = honest
        self.bare = b""

    def _hmac(self, key: bytes, text: bytes) -> bytes:
        return hmac.digest(key, text, self._algorithm)

    def first(self, token: bytes) -> bytes:
        """Answer the client's first message."""
        self.bare = token.removeprefix(b"n,,")
        nonce = dict(part.split(b"=", 1) for part in self.bare.split(b","))[b"r"]
        self._second = b"r=" + nonce + b"more,s=" + base64.b64encode(b"salt") + b",i=4096"
        return self._second

    def final(self, token: bytes) -> bytes | str:
        """Check the client's proof, and give our own."""
        unproved, _, proof = token.partition(b",p=")
        text = b",".join((self.bare, self._second, unproved))
        client_key = self._hmac(self._salted, b"Client Key")
        signature = self._hmac(hashlib.new(self._algorithm, client_key).digest(), text)
        expected = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        if base64.b64decode(proof) != expected:
            return "Invalid user credentials"
        ours = self._hmac(self._hmac(self._salted, b"Server Key"), text)
        return b"v=" + base64.b64encode(ours if self._honest else bytes(32))


def scram(
    name: str, username: str = "ann", *, password: str = PLAIN.sasl_password or "", token: bool = False
) -> Security:
    """Security settings for SCRAM."""
    return Security(
        protocol="SASL_PLAINTEXT",
        sasl_mechanism=name,
        sasl_username=username,
        sasl_password=password,
        sasl_token_auth=token,
    )


@pytest.mark.parametrize(("name", "algorithm"), [("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512")])
async def test_scram(broker: Fake, name: str, algorithm: str) -> None:
    """Both sides prove that they know the password; a name's own punctuation is escaped (RFC 5802)."""
    peer = Scram(algorithm, b"s3cret")
    Server(broker, peer.first, peer.final, mechanism=name)
    connection = await broker.open(scram(name, "a=b,c"))
    assert peer.bare.startswith(b"n=a=3Db=2Cc,r=")
    await connection.close()


async def test_scram_with_a_delegation_token(broker: Fake) -> None:
    """The first message carries the extension of KIP-48, and the proof covers it."""
    peer = Scram("sha256", b"s3cret")
    Server(broker, peer.first, peer.final, mechanism="SCRAM-SHA-256")
    connection = await broker.open(scram("SCRAM-SHA-256", token=True))
    assert peer.bare.endswith(b",tokenauth=true")
    await connection.close()


async def test_scram_with_a_wrong_password(broker: Fake) -> None:
    """The broker's refusal is reported as such."""
    peer = Scram("sha256", b"s3cret")
    Server(broker, peer.first, peer.final, mechanism="SCRAM-SHA-256")
    with pytest.raises(AuthenticationFailed, match=r"SCRAM-SHA-256 .*Invalid user credentials"):
        await broker.open(scram("SCRAM-SHA-256", password="wrong"))


@pytest.mark.parametrize("second", [b"", b"garbage", b"r=other,s=c2FsdA==,i=4096", b"\xff\xfe"])
async def test_scram_with_a_broker_that_talks_nonsense(broker: Fake, second: bytes) -> None:
    """A message that is not SCRAM's ends the login, not the process."""
    Server(broker, lambda _: second, mechanism="SCRAM-SHA-256")
    with pytest.raises(AuthenticationFailed, match="is not what the mechanism prescribes"):
        await broker.open(scram("SCRAM-SHA-256"))


async def test_scram_with_a_broker_that_does_not_know_the_password(broker: Fake) -> None:
    """An impostor that accepts anything cannot sign, and is found out."""
    peer = Scram("sha256", b"s3cret", honest=False)
    Server(broker, peer.first, peer.final, mechanism="SCRAM-SHA-256")
    with pytest.raises(AuthenticationFailed, match="wrong signature"):
        await broker.open(scram("SCRAM-SHA-256"))


def bearer(source: OAuthSource) -> Security:
    """Security settings for OAUTHBEARER."""
    return Security(protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER", oauth=source)


async def test_oauthbearer_with_a_token_file(broker: Fake, tmp_path: Path) -> None:
    """Token and extensions go out as RFC 7628 and KIP-342 have them."""
    (tmp_path / "token").write_text("abc.def.ghi\n")
    server = Server(broker, lambda _: b"", mechanism="OAUTHBEARER")
    source = OAuthSource(token_file=str(tmp_path / "token"), extensions=(("tenant", "t1"),))
    connection = await broker.open(bearer(source))
    assert server.tokens == [b"n,,\x01auth=Bearer abc.def.ghi\x01tenant=t1\x01\x01"]
    await connection.close()


async def test_oauthbearer_refused(broker: Fake, tmp_path: Path) -> None:
    """The broker explains in a challenge, gets the byte that RFC 7628 asks for, and then refuses."""
    (tmp_path / "token").write_text("abc")
    server = Server(broker, lambda _: b'{"status":"invalid_token"}', lambda _: "invalid_token", mechanism="OAUTHBEARER")
    with pytest.raises(AuthenticationFailed, match=r"OAUTHBEARER .*invalid_token"):
        await broker.open(bearer(OAuthSource(token_file=str(tmp_path / "token"))))
    assert server.tokens[1] == b"\x01"


async def test_an_endless_exchange_is_ended(broker: Fake, tmp_path: Path) -> None:
    """A broker that asks on and on is given up."""
    (tmp_path / "token").write_text("abc")
    Server(broker, *[lambda _: b"again"] * 20, mechanism="OAUTHBEARER")
    with pytest.raises(AuthenticationFailed, match="did not come to its end"):
        await broker.open(bearer(OAuthSource(token_file=str(tmp_path / "token"))))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
async def test_missing_credentials(broker: Fake, mechanism: str) -> None:
    """Settings without credentials are the user's to complete."""
    with pytest.raises(BadInput, match=f"SASL mechanism {mechanism} needs"):
        await broker.open(Security(protocol="SASL_PLAINTEXT", sasl_mechanism=mechanism))


async def test_an_idle_connection_closes_before_its_session_ends(broker: Fake) -> None:
    """At the end of a session (KIP-368) the broker would drop it in the middle of the next request."""
    Server(broker, lambda _: b"", lifetime_ms=500)
    connection = await broker.open(PLAIN)
    await asyncio.sleep(0.2)
    assert not connection.closed
    async with asyncio.timeout(5):
        await connection.wait_closed()
    with pytest.raises(ConnectionLost, match=r"Metadata was not sent, the connection is closed .its SASL session ends"):
        connection.submit(MetadataRequest(topics=[]))


async def test_a_busy_connection_finishes_its_work_before_its_session_ends(broker: Fake) -> None:
    """Late in the session nothing new is taken, what is under way is answered, and then it closes."""
    gate: list[Any] = []
    Server(broker, lambda _: b"", lifetime_ms=500)
    broker.answers[0] = gate.append
    connection = await broker.open(PLAIN)
    future = connection.submit_frame(0, 8, [b"x"], bytes)
    await asyncio.sleep(0.6)
    assert (connection.closed, connection.in_flight, future.done()) == (True, 1, False)
    with pytest.raises(ConnectionLost, match="was not sent"):
        connection.submit_frame(0, 8, [b"y"], bytes)
    broker.writers[0].write(framed(gate[0].correlation, b"done"))
    assert await future == b"done"
    async with asyncio.timeout(5):
        await connection.wait_closed()
    assert connection.in_flight == 0


async def test_tls(tls_broker: Fake) -> None:
    """The broker's certificate is checked against the trust store and the name that was asked for."""
    connection = await tls_broker.open(SSL)
    assert tls_broker.asked[0].client_id == "tester"
    await connection.close()


async def test_tls_with_large_requests_and_responses(tls_broker: Fake) -> None:
    """Buffers of TLS and ours fit together."""
    tls_broker.answers[0] = lambda asked: framed(asked.correlation, asked.body)
    connection = await tls_broker.open(SSL)
    bodies = [bytes([n]) * size for n, size in enumerate((1, 70_000, 3_000_000, 10))]
    futures = [connection.submit_frame(0, 8, [body[:1], memoryview(body)[1:]], bytes) for body in bodies]
    assert await asyncio.gather(*futures) == bodies
    await connection.close()


async def test_reset_with_tls(tls_broker: Fake) -> None:
    """A reset does not wait for a farewell."""
    tls_broker.answers[0] = lambda _: None
    connection = await tls_broker.open(SSL)
    future = connection.submit_frame(0, 8, [b"x"], bytes)
    connection.reset()
    assert isinstance(future.exception(), ConnectionLost)
    await connection.wait_closed()
    await asyncio.wait_for(tls_broker.over.wait(), 5)
    assert isinstance(tls_broker.ended[0], OSError)


@pytest.mark.parametrize(
    "security",
    [
        Security(protocol="SSL", ssl_truststore_certificates=(TLS / "ca.pem").read_text()),
        Security(
            protocol="SSL", ssl_truststore_location=str(TLS / "ca.pem"), ssl_keystore_location=str(TLS / "client.pem")
        ),
        Security(
            protocol="SSL",
            ssl_truststore_location=str(TLS / "ca.pem"),
            ssl_keystore_location=str(TLS / "client-encrypted.pem"),
            ssl_key_password="secret",
        ),
        Security(
            protocol="SSL",
            ssl_truststore_location=str(TLS / "ca.pem"),
            ssl_keystore_key=(TLS / "client.pem").read_text().partition("-----BEGIN CERT")[0],
            ssl_keystore_certificate_chain="-----BEGIN CERT"
            + (TLS / "client.pem").read_text().partition("-----BEGIN CERT")[2],
        ),
        Security(protocol="SSL", ssl_truststore_location=str(TLS / "ca.pem"), ssl_protocols=("TLSv1.2",)),
    ],
    ids=["trust-text", "key-file", "encrypted-key", "key-text", "tls-1.2"],
)
async def test_stores(tls_broker: Fake, security: Security) -> None:
    """Files and texts, with and without a password, serve alike."""
    connection = await tls_broker.open(security)
    assert not connection.closed
    await connection.close()


async def test_a_certificate_of_another_authority(tls_broker: Fake) -> None:
    """What is not trusted is not spoken to; the message names the settings."""
    with pytest.raises(AuthenticationFailed, match=r"no TLS connection can be made .*ssl\.truststore"):
        await tls_broker.open(Security(protocol="SSL", ssl_truststore_location=str(TLS / "other-ca.pem")))


async def test_the_system_does_not_trust_a_test_authority(tls_broker: Fake) -> None:
    """Without a trust store the system's certificates count."""
    with pytest.raises(AuthenticationFailed, match="no TLS connection can be made"):
        await tls_broker.open(Security(protocol="SSL"))


async def test_a_certificate_for_another_name(tls_broker: Fake) -> None:
    """The name is checked unless ssl.endpoint.identification.algorithm is empty."""
    with pytest.raises(AuthenticationFailed, match="kafka-1"):
        await tls_broker.open(SSL, server_name="kafka-1")
    unchecked = Security(protocol="SSL", ssl_truststore_location=str(TLS / "ca.pem"), ssl_check_hostname=False)
    connection = await tls_broker.open(unchecked, server_name="kafka-1")
    assert not connection.closed
    await connection.close()


async def test_tls_where_none_is_spoken(broker: Fake) -> None:
    """A plain listener hangs up on TLS, or answers something else; both are explained."""
    broker.answers = {}
    with pytest.raises((Unreachable, AuthenticationFailed)):
        await broker.open(SSL, timeout_s=1.0)


async def test_no_tls_where_it_is_spoken(tls_broker: Fake) -> None:
    """A TLS listener does not understand a plain request."""
    with pytest.raises(Exception, match=r"security\.protocol"):
        await tls_broker.open(timeout_s=2.0)


@pytest.mark.parametrize(
    ("security", "setting"),
    [
        (
            Security(protocol="SSL", ssl_truststore_location="no-such.pem"),
            r"ssl\.truststore\.location \(no-such\.pem\)",
        ),
        (Security(protocol="SSL", ssl_truststore_location=__file__), r"ssl\.truststore\.location"),
        (Security(protocol="SSL", ssl_truststore_certificates="nonsense"), r"ssl\.truststore\.certificates"),
        (Security(protocol="SSL", ssl_keystore_location=str(TLS / "ca.pem")), r"ssl\.keystore\.location"),
        (Security(protocol="SSL", ssl_keystore_location=str(TLS / "client-encrypted.pem")), r"ssl\.keystore\.location"),
        (Security(protocol="SSL", ssl_keystore_key="x", ssl_keystore_certificate_chain="y"), r"ssl\.keystore\.key"),
    ],
)
def test_unusable_stores(security: Security, setting: str) -> None:
    """The message names setting and file; an encrypted key without password never asks on the terminal."""
    with pytest.raises(BadInput, match=rf"{setting}.* cannot be used"):
        auth.ssl_context(security)


def test_no_context_without_tls() -> None:
    """PLAINTEXT and SASL_PLAINTEXT are not encrypted."""
    assert auth.ssl_context(PLAIN) is None
