"""A cluster of one broker that listens in every way that a client may be asked to prove itself, and what it takes.

Listeners: TLS (certificate for 127.0.0.1), MTLS (client certificates required), NAMED (a certificate for another host),
EXPIRED (a certificate of yesterday), LOGIN (SASL without TLS), SAFE (SASL over TLS; sessions live 4 s). The plain
listener is the tests' own.
"""

import base64
import json
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs

import trustme
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from twinlog.testing.kafka import Listener, LocalKafka

PLAIN_LOGIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_LOGIN: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_LOGIN: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
OAUTH_CHECK: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
USER, PASSWORD, STORE_PASSWORD = "twin", "correct horse", "store-pass"
SESSION_MS: Final = 4000
SCRAM: Final = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}
CLIENT, CLIENT_SECRET = "twin-client", "client-secret"
SECRETS: Final = {"TWIN_PASSWORD": PASSWORD, "TWIN_STORE": STORE_PASSWORD, "TWIN_CLIENT": CLIENT_SECRET}
"""What the references of `ways` lead to: variables of the environment."""
TOOL_S: Final = 30.0

Properties: TypeAlias = Mapping[str, str]


@dataclass(frozen=True)
class Files:
    """Certificates, keys and stores of one certificate authority, as files in a folder."""

    folder: Path
    ca: trustme.CA = field(default_factory=trustme.CA)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.ca.cert_pem.write_to_path(str(self.trust))

    @property
    def trust(self) -> Path:
        """The authority's certificate, PEM."""
        return self.folder / "ca.pem"

    def issued(self, name: str, *, expired: bool = False) -> Path:
        """The key and certificate of `name` (a host, or a client), PEM, made at the first call."""
        path = self.folder / f"{name}{'-expired' if expired else ''}.pem"
        if not path.exists():
            now = datetime.now(UTC)
            ends = now - timedelta(days=1) if expired else now + timedelta(days=1)
            leaf = self.ca.issue_cert(name, common_name=name, not_before=now - timedelta(days=2), not_after=ends)
            path.write_bytes(_pkcs8(leaf.private_key_pem.bytes()) + b"".join(c.bytes() for c in leaf.cert_chain_pems))
        return path

    def pkcs12_key(self, name: str) -> Path:
        """The same as PKCS12, made by OpenSSL."""
        pem, path = self.issued(name), self.folder / f"{name}.p12"
        if not path.exists():
            _tool("openssl", "pkcs12", "-export", "-in", pem, "-out", path, "-passout", f"pass:{STORE_PASSWORD}")
        return path

    def java_trust(self, kind: str) -> Path:
        """A trust store made by keytool, PKCS12 or JKS."""
        path = self.folder / f"trust.{'jks' if kind == 'JKS' else 'p12'}"
        if not path.exists():
            words = ["-importcert", "-noprompt", "-alias", "ca", "-file", self.trust, "-keystore", path]
            _tool("keytool", *words, "-storetype", kind, "-storepass", STORE_PASSWORD)
        return path


def _pkcs8(key: bytes) -> bytes:
    """The form of a private key that brokers read."""
    loaded = load_pem_private_key(key, None)
    return loaded.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _tool(*words: object) -> None:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=TOOL_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


class TokenServer:
    """An OAuth token endpoint for client credentials, whose tokens a broker can check by `jwks`."""

    def __init__(self, client: str, secret: str) -> None:
        self.asked = 0
        self._login = "Basic " + base64.b64encode(f"{client}:{secret}".encode()).decode()
        self._client = client
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._http.serve_forever, name="token server", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where tokens are given out."""
        return f"http://127.0.0.1:{self._http.server_port}/token"

    @property
    def jwks(self) -> str:
        """The public key, as brokers read it (RFC 7517)."""
        numbers = self._key.public_key().public_numbers()
        key = {"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "one", "n": _whole(numbers.n), "e": _whole(numbers.e)}
        return json.dumps({"keys": [key]})

    def token(self, lifetime_s: int = 300) -> str:
        """A signed token."""
        now = int(time.time())
        claims = {"sub": self._client, "scope": "kafka", "iat": now, "exp": now + lifetime_s, "iss": "test"}
        text = f"{_part({'alg': 'RS256', 'kid': 'one'})}.{_part(claims)}"
        return f"{text}.{_plain(self._key.sign(text.encode(), padding.PKCS1v15(), SHA256()))}"

    def close(self) -> None:
        """End it."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(TOOL_S)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:  # the name that the library calls
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                server.asked += 1
                known = self.headers["Authorization"] == server._login  # its own class
                good = known and form.get("grant_type") == ["client_credentials"]
                answer = {"access_token": server.token(), "expires_in": 300} if good else {"error": "invalid_client"}
                self.send_response(200 if good else 401)
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode())

            def log_message(self, *_words: object) -> None:
                """Keep quiet."""

        return Handler


def _plain(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _part(value: Mapping[str, Any]) -> str:
    return _plain(json.dumps(value).encode())


def _whole(number: int) -> str:
    return _plain(number.to_bytes((number.bit_length() + 7) // 8, "big"))


@dataclass(frozen=True)
class Secured:
    """The running cluster, its certificates and its token server."""

    kafka: LocalKafka
    files: Files
    tokens: TokenServer

    def at(self, listener: str) -> str:
        """The address of a listener."""
        return self.kafka.bootstrap_of(listener)

    @property
    def trusting(self) -> dict[str, str]:
        """What every client over TLS needs."""
        return {"ssl.truststore.location": str(self.files.trust)}

    def set_password(self, password: str, mechanism: str = "SCRAM-SHA-256", user: str = USER) -> None:
        """Give a user another password for SCRAM."""
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap})
        change = UserScramCredentialUpsertion(user, ScramCredentialInfo(SCRAM[mechanism], 4096), password.encode())
        admin.alter_user_scram_credentials([change])[user].result(TOOL_S)


def login(mechanism: str, password: str = PASSWORD, user: str = USER) -> dict[str, str]:
    """How to log in with PLAIN or SCRAM, as Kafka's clients have it."""
    module = PLAIN_LOGIN if mechanism == "PLAIN" else SCRAM_LOGIN
    jaas = f'{module} required username="{user}" password="{password}";'
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas}


def _of_listener(name: str, config: Mapping[str, str]) -> dict[str, str]:
    return {f"listener.name.{name.lower()}.{key}": value for key, value in config.items()}


def _keys(path: Path) -> dict[str, str]:
    return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path)}


def _sasl(jwks: Path) -> dict[str, str]:
    """The broker's side of each mechanism."""
    config = {f"{name.lower()}.sasl.jaas.config": f"{SCRAM_LOGIN} required;" for name in SCRAM}
    config["plain.sasl.jaas.config"] = f'{PLAIN_LOGIN} required user_{USER}="{PASSWORD}";'
    config["oauthbearer.sasl.jaas.config"] = f"{OAUTH_LOGIN} required;"
    config["oauthbearer.sasl.server.callback.handler.class"] = OAUTH_CHECK
    config["oauthbearer.sasl.oauthbearer.jwks.endpoint.url"] = jwks.as_uri()
    return config


@contextmanager
def secured_kafka(folder: Path, *, config: Mapping[str, str] | None = None) -> Iterator[Secured]:
    """Start it, with a user for each mechanism of SCRAM; `config` is the brokers' over what is needed."""
    files, tokens = Files(folder), TokenServer(CLIENT, CLIENT_SECRET)
    jwks = folder / "jwks.json"
    jwks.write_text(tokens.jwks)
    here, elsewhere = _keys(files.issued("127.0.0.1")), _keys(files.issued("elsewhere.example"))
    wanted = {"ssl.client.auth": "required", "ssl.truststore.type": "PEM", "ssl.truststore.location": str(files.trust)}
    settings = {
        "sasl.enabled.mechanisms": ",".join(("PLAIN", *SCRAM, "OAUTHBEARER")),
        **_of_listener("TLS", here),
        **_of_listener("MTLS", {**here, **wanted}),
        **_of_listener("NAMED", elsewhere),
        **_of_listener("EXPIRED", _keys(files.issued("127.0.0.1", expired=True))),
        **_of_listener("LOGIN", _sasl(jwks)),
        **_of_listener("SAFE", {**here, **_sasl(jwks), "connections.max.reauth.ms": str(SESSION_MS)}),
        **(config or {}),
    }
    listeners = [Listener(name, "SSL") for name in ("TLS", "MTLS", "NAMED", "EXPIRED")]
    listeners += [Listener("LOGIN", "SASL_PLAINTEXT"), Listener("SAFE", "SASL_SSL")]
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={jwks.as_uri()}"
    try:
        with LocalKafka(config=settings, listeners=listeners, java_options=[allowed]) as kafka:
            cluster = Secured(kafka, files, tokens)
            for mechanism in SCRAM:
                cluster.set_password(PASSWORD, mechanism)
            yield cluster
    finally:
        tokens.close()


@dataclass(frozen=True)
class Way:
    """A listener, and how to get in there."""

    listener: str
    properties: Properties


def text(properties: Properties) -> str:
    """As a properties file."""
    return "".join(f"{key}={value}\n" for key, value in properties.items())


def ways(secured: Secured) -> dict[str, Way]:
    """Every kind of connection that is promised; secrets by reference, as a mirror's properties must have them."""
    files, trust = secured.files, secured.trusting
    client = files.issued("client").read_text()
    key, chain = client[: client.index("-----BEGIN CERT")], client[client.index("-----BEGIN CERT") :]
    (files.folder / "client-key").write_text(key)
    pkcs12 = {
        "ssl.truststore.location": str(files.java_trust("PKCS12")),
        "ssl.truststore.password": "${env:TWIN_STORE}",
        "ssl.keystore.location": str(files.pkcs12_key("client")),
        "ssl.keystore.password": "${env:TWIN_STORE}",
    }
    texts = {
        "ssl.truststore.certificates": files.trust.read_text().replace("\n", " "),
        "ssl.keystore.key": f"${{dir:{files.folder}:client-key}}",
        "ssl.keystore.certificate.chain": chain.replace("\n", " "),
    }
    oauth = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": secured.tokens.url,
        "sasl.oauthbearer.client.credentials.client.id": CLIENT,
        "sasl.oauthbearer.client.credentials.client.secret": "${env:TWIN_CLIENT}",
    }
    tls, plain, safe = ({"security.protocol": name} for name in ("SSL", "SASL_PLAINTEXT", "SASL_SSL"))
    by_password = {name: login(name, "${env:TWIN_PASSWORD}") for name in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")}
    return {
        "tls": Way("TLS", tls | trust),
        "client-pem": Way("MTLS", tls | trust | {"ssl.keystore.location": str(files.issued("client"))}),
        "client-pkcs12": Way("MTLS", tls | pkcs12),
        "client-texts": Way("MTLS", tls | texts),
        "wrong-name": Way("NAMED", tls | trust | {"ssl.endpoint.identification.algorithm": ""}),
        "plain": Way("LOGIN", plain | by_password["PLAIN"]),
        "scram-256": Way("LOGIN", plain | by_password["SCRAM-SHA-256"]),
        "scram-512-tls": Way("SAFE", safe | trust | by_password["SCRAM-SHA-512"]),
        "oauth-tls": Way("SAFE", safe | trust | oauth),
    }
