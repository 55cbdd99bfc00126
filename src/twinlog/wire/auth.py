"""Proves to a broker who we are, and makes sure that it is the broker we meant: TLS and SASL.

SASL runs as Kafka's clients run it: SaslHandshake version 1, then SaslAuthenticate (KIP-152). The mechanisms are
kafka-python's. No message of ours holds a password, a token or what a mechanism says about them.
"""

import asyncio
import contextlib
import ssl
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast

from kafka.net.sasl.oauth import SaslMechanismOAuth
from kafka.net.sasl.plain import SaslMechanismPlain
from kafka.net.sasl.scram import SaslMechanismScram, ScramClient
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from twinlog.config.client import Security
from twinlog.errors import AuthenticationFailed, BadInput, ConnectionLost, TwinlogError, Unreachable
from twinlog.wire import codes, oauth
from twinlog.wire.messages import Message
from twinlog.wire.stores import is_it, pem_stores

T = TypeVar("T")
Submit: TypeAlias = Callable[[Message], Awaitable[Message]]

MAX_ROUNDS: Final = 10
"""SCRAM takes two, OAUTHBEARER at most two; a broker that asks on and on is none."""

_TLS_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def ssl_context(security: Security) -> ssl.SSLContext | None:
    """Build what TLS needs, reading the files anew; None where connections are not encrypted.

    Raises BadInput naming the setting whose file or text cannot be used.
    """
    if not security.encrypted:
        return None
    security = pem_stores(security)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = security.ssl_check_hostname
    allowed = [_TLS_VERSIONS[name] for name in security.ssl_protocols]
    context.minimum_version, context.maximum_version = min(allowed), max(allowed)
    _trust(context, security)
    _identify(context, security)
    return context


def _trust(context: ssl.SSLContext, security: Security) -> None:
    if security.ssl_truststore_location is not None:
        with _usable("ssl.truststore.location", security.ssl_truststore_location):
            context.load_verify_locations(cafile=security.ssl_truststore_location)
    elif security.ssl_truststore_certificates is not None:
        with _usable("ssl.truststore.certificates"):
            context.load_verify_locations(cadata=security.ssl_truststore_certificates)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)


def _identify(context: ssl.SSLContext, security: Security) -> None:
    password = security.ssl_key_password or ""  # never None: OpenSSL would ask for it on the terminal
    if security.ssl_keystore_location is not None:
        with _usable("ssl.keystore.location", security.ssl_keystore_location):
            context.load_cert_chain(security.ssl_keystore_location, password=password)
    elif security.ssl_keystore_key is not None and security.ssl_keystore_certificate_chain is not None:
        with _usable("ssl.keystore.key"), tempfile.NamedTemporaryFile("w", suffix=".pem") as both:
            both.write(security.ssl_keystore_key + security.ssl_keystore_certificate_chain)
            both.flush()  # OpenSSL reads files only; this one is readable for us alone, and gone with the block
            context.load_cert_chain(both.name, password=password)


@contextlib.contextmanager
def _usable(setting: str, path: str | None = None) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        what = f"{setting} ({path})" if path else setting
        seems = is_it(path, setting.removesuffix(".location")) if path else ""
        reason = error.strerror or error.args[-1] if isinstance(error, OSError) else error
        raise BadInput(
            f"{what} cannot be used: {reason}. It must be PEM, with the certificates, and for a key store the private "
            f"key and its ssl.key.password if it is encrypted.{seems}"
        ) from error


@contextlib.contextmanager
def explained(peer: str, security: Security) -> Iterator[None]:
    """Turn what ends the set-up of a connection into AuthenticationFailed or Unreachable, with advice."""
    try:
        yield
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionResetError) as error:
        raise Unreachable(f"{peer} ended the connection during its set-up. {advice(security)}") from error
    except ssl.SSLError as error:
        raise _no_tls(peer, error) from error
    except OSError as error:
        raise Unreachable(f"{peer} cannot be reached: {error.strerror or error}.") from error
    except ConnectionLost as error:
        if isinstance(error.__cause__, ssl.SSLError):  # TLS 1.3 refuses our certificate after its handshake
            raise _no_tls(peer, error.__cause__) from error
        raise Unreachable(f"{peer} ended the connection during its set-up. {advice(security)}") from error


def _no_tls(peer: str, error: ssl.SSLError) -> AuthenticationFailed:
    detail = getattr(error, "verify_message", None) or error.reason or str(error)
    return AuthenticationFailed(
        f"{peer}: no TLS connection can be made ({detail}). Check ssl.truststore.*, ssl.keystore.* and the name in the "
        f"broker's certificate, and whether this listener speaks TLS at all."
    )


def advice(security: Security) -> str:
    """What to check where a broker ends a connection before it has answered anything that needs a login."""
    return f"If it does so each time, check whether security.protocol of this listener is {security.protocol}."


async def authenticate(submit: Submit, security: Security, peer: str) -> int:
    """Log in with SASL, if so configured, and return the session's lifetime in ms (KIP-368), 0 for no end.

    Raises AuthenticationFailed naming peer and mechanism.
    """
    if not security.sasl:
        return 0
    mechanism = _mechanism(security)
    name = security.sasl_mechanism
    refused = f"{peer} refused the login by SASL mechanism {name}"
    offer = await submit(SaslHandshakeRequest(mechanism=name))
    codes.check(offer.error_code, refused, f"it offers {', '.join(offer.mechanisms) or 'no mechanism'}")
    lifetime_ms = 0
    for _ in range(MAX_ROUNDS):
        # In a thread: SCRAM's key stretching and a token endpoint may take their time.
        token = await asyncio.to_thread(_guarded, mechanism.auth_bytes, refused)
        answer = await submit(SaslAuthenticateRequest(auth_bytes=token))
        codes.check(answer.error_code, refused, answer.error_message)
        lifetime_ms = answer.session_lifetime_ms if answer.version > 0 else 0
        await asyncio.to_thread(_guarded, partial(mechanism.receive, bytes(answer.auth_bytes)), refused)
        if mechanism.is_done():
            break
    if not mechanism.is_authenticated():
        raise AuthenticationFailed(f"{refused} (the exchange did not come to its end).")
    return lifetime_ms


def _guarded(step: Callable[[], T], peer_and_mechanism: str) -> T:
    """Run a step of a mechanism; it raises whatever a broker's nonsense makes it raise."""
    try:
        return step()
    except TwinlogError:
        raise
    except Exception as error:  # a mechanism trusts what it is sent
        raise AuthenticationFailed(
            f"{peer_and_mechanism} (its answer is not what the mechanism prescribes: {error}). "
            f"Check the credentials, and that this is the right cluster."
        ) from error


class _Mechanism(Protocol):
    """The client's side of a SASL mechanism (`kafka.net.sasl.abc.SaslMechanism`, which has no types)."""

    def auth_bytes(self) -> bytes: ...
    def receive(self, auth_bytes: bytes) -> object: ...
    def is_done(self) -> bool: ...
    def is_authenticated(self) -> bool: ...


def _mechanism(security: Security) -> _Mechanism:
    name = security.sasl_mechanism
    if name == "OAUTHBEARER":
        if security.oauth is None:
            raise BadInput("SASL mechanism OAUTHBEARER needs to know where its tokens come from (sasl.jaas.config).")
        return _OAuth(sasl_oauth_token_provider=oauth.TokenProvider(security.oauth))
    username, password = security.sasl_username, security.sasl_password
    if username is None or password is None:
        raise BadInput(f"SASL mechanism {name} needs a username and a password (sasl.jaas.config).")
    if name == "PLAIN":
        return _Plain(sasl_plain_username=username, sasl_plain_password=password)
    username = username.replace("=", "=3D").replace(",", "=2C")  # RFC 5802's saslname, which the library leaves to us
    mechanism = _Scram(sasl_plain_username=username, sasl_plain_password=password, sasl_mechanism=name)
    if security.sasl_token_auth:
        mechanism._scram_client = _TokenScram(username, password, name)  # type: ignore[no-untyped-call]  # noqa: SLF001  # it knows no tokens
    return cast("_Mechanism", mechanism)


_Plain: Callable[..., _Mechanism] = SaslMechanismPlain
_OAuth: Callable[..., _Mechanism] = SaslMechanismOAuth
_Scram: Callable[..., Any] = SaslMechanismScram


class _TokenScram(ScramClient):
    """SCRAM with a delegation token: an extension in the first message says so (KIP-48)."""

    def first_message(self) -> bytes:
        """Return the client's first message."""
        first = cast("bytes", super().first_message()) + b",tokenauth=true"  # type: ignore[no-untyped-call]  # as it is
        self.auth_message = first.removeprefix(b"n,,")
        return first
