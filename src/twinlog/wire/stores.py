"""PKCS12 key and trust stores, as Java keeps them, turned into the PEM text that OpenSSL and librdkafka take."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    PKCS12Certificate,
    PKCS12KeyAndCertificates,
    load_pkcs12,
)

from twinlog.config.client import Security
from twinlog.config.security import JKS_ADVICE
from twinlog.errors import BadInput

MAX_STORE_BYTES: Final = 16 << 20
"""All public authorities together take 200 KB."""

_JAVA_STORES: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
"""How JKS and JCEKS files begin (`sun.security.provider.JavaKeyStore`, `com.sun.crypto.provider.JceKeyStore`)."""
_DER_SEQUENCE: Final = b"\x30"


def pem_stores(security: Security) -> Security:
    """Return the same with each PKCS12 store's content as PEM text, its file read now.

    Raises BadInput naming setting and file, for a file that cannot be read, is no PKCS12 or has another password.
    """
    if security.ssl_truststore_pkcs12 and security.ssl_truststore_location is not None:
        trusted = _opened("ssl.truststore", security.ssl_truststore_location, security.ssl_truststore_password)
        security = replace(
            security,
            ssl_truststore_location=None,
            ssl_truststore_pkcs12=False,
            ssl_truststore_certificates=_trusted(trusted, security.ssl_truststore_location),
        )
    if security.ssl_keystore_pkcs12 and security.ssl_keystore_location is not None:
        own = _opened("ssl.keystore", security.ssl_keystore_location, security.ssl_keystore_password)
        key, chain = _identity(own, security.ssl_keystore_location)
        security = replace(
            security,
            ssl_keystore_location=None,
            ssl_keystore_pkcs12=False,
            ssl_keystore_key=key,
            ssl_keystore_certificate_chain=chain,
            ssl_key_password=None,
        )
    return security


def is_it(path: str, setting: str) -> str:
    """Say what a file that cannot be used seems to be, as a sentence with advice; "" where nothing is known of it."""
    try:
        with Path(path).open("rb") as file:
            begins = file.read(4)
    except OSError:
        return ""
    if begins in _JAVA_STORES:
        return f" It is a JKS store: {JKS_ADVICE}."
    if begins.startswith(_DER_SEQUENCE):
        return f" It may be PKCS12; if so, set {setting}.type to PKCS12 and {setting}.password."
    return ""


def _opened(setting: str, path: str, password: str | None) -> PKCS12KeyAndCertificates:
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_STORE_BYTES)
        return load_pkcs12(content, password.encode() if password is not None else None)
    except OSError as error:
        raise BadInput(f"{setting}.location ({path}) cannot be used: {error.strerror or error}.") from error
    except (ValueError, TypeError) as error:
        raise BadInput(
            f"{setting}.location ({path}) cannot be used: {error}. It must be PKCS12, and {setting}.password its "
            f"password.{_unless_der(path, setting)}"
        ) from error


def _unless_der(path: str, setting: str) -> str:
    seems = is_it(path, setting)
    return seems if "JKS" in seems else ""


def _trusted(store: PKCS12KeyAndCertificates, path: str) -> str:
    text = _certificates([store.cert, *store.additional_certs])
    if not text:
        raise BadInput(f"ssl.truststore.location ({path}) cannot be used: it holds no certificate.")
    return text


def _identity(store: PKCS12KeyAndCertificates, path: str) -> tuple[str, str]:
    if store.key is None or store.cert is None:
        raise BadInput(f"ssl.keystore.location ({path}) cannot be used: it holds no private key with its certificate.")
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return key, _certificates([store.cert, *store.additional_certs])


def _certificates(found: Iterable[PKCS12Certificate | None]) -> str:
    return "".join(one.certificate.public_bytes(Encoding.PEM).decode() for one in found if one is not None)
