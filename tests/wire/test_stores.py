"""PKCS12 stores: what connections make of them, and what is said of those that cannot be used."""

from dataclasses import replace
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509 import Certificate, load_pem_x509_certificate

from twinlog.config.security import Security
from twinlog.errors import BadInput
from twinlog.wire.auth import ssl_context
from twinlog.wire.stores import pem_stores


def _certificate(blob: trustme.Blob) -> Certificate:
    return load_pem_x509_certificate(blob.bytes())


@pytest.fixture
def stores(tmp_path: Path) -> Security:
    """A trust store of one authority, and a key store with its private key and chain, as Java writes them."""
    authority = trustme.CA()
    own = authority.issue_cert("client.example")
    root = _certificate(authority.cert_pem)
    encrypted = BestAvailableEncryption(b"hush")
    key = load_pem_private_key(own.private_key_pem.bytes(), None)
    leaf = _certificate(own.cert_chain_pems[0])
    trust, keys = tmp_path / "trust.p12", tmp_path / "keys.p12"
    trust.write_bytes(serialize_key_and_certificates(None, None, None, [root], encrypted))
    keys.write_bytes(serialize_key_and_certificates(b"own", key, leaf, [root], encrypted))  # type: ignore[arg-type]
    return Security(
        protocol="SSL",
        ssl_truststore_location=str(trust),
        ssl_truststore_pkcs12=True,
        ssl_truststore_password="hush",
        ssl_keystore_location=str(keys),
        ssl_keystore_pkcs12=True,
        ssl_keystore_password="hush",
    )


def test_both_stores_serve_tls(stores: Security) -> None:
    """OpenSSL takes the authority, the key and its chain; the stores' paths are gone, so nothing reads them as PEM."""
    read = pem_stores(stores)
    assert read.ssl_truststore_location is None
    assert read.ssl_keystore_location is None
    assert (read.ssl_keystore_certificate_chain or "").count("BEGIN CERTIFICATE") == 2
    context = ssl_context(stores)
    assert context is not None
    assert len(context.get_ca_certs()) == 1


def test_pem_stores_are_left_alone() -> None:
    """What is PEM already is handed on as it is."""
    pem = Security(protocol="SSL", ssl_truststore_location="/nowhere/ca.pem")
    assert pem_stores(pem) is pem


@pytest.mark.parametrize("store", ["truststore", "keystore"])
def test_a_wrong_password_and_a_missing_file_are_named(stores: Security, store: str) -> None:
    """The setting and the file are in the sentence, the password is not."""
    wrong = replace(stores, **{f"ssl_{store}_password": "other-secret"})
    with pytest.raises(BadInput, match=rf"ssl\.{store}\.location .*It must be PKCS12") as refused:
        pem_stores(wrong)
    assert "other-secret" not in str(refused.value)
    with pytest.raises(BadInput, match=rf"ssl\.{store}\.location .*No such file"):
        pem_stores(replace(stores, **{f"ssl_{store}_location": "/nowhere/x.p12"}))


def test_a_store_without_what_is_needed(stores: Security) -> None:
    """A trust store holds no key of ours."""
    with pytest.raises(BadInput, match="holds no private key with its certificate"):
        pem_stores(replace(stores, ssl_keystore_location=stores.ssl_truststore_location))


@pytest.mark.parametrize(("begins", "said"), [(b"\xfe\xed\xfe\xed\0", "keytool"), (b"\x30\x82\1\2", "to PKCS12")])
def test_what_a_file_seems_to_be_is_told(tmp_path: Path, begins: bytes, said: str) -> None:
    """A store of Java's that is named as PEM gets the advice that helps."""
    (tmp_path / "store").write_bytes(begins)
    with pytest.raises(BadInput, match=rf"ssl\.truststore\.location .*{said}"):
        ssl_context(Security(protocol="SSL", ssl_truststore_location=str(tmp_path / "store")))


def test_a_jks_store_that_is_said_to_be_pkcs12_is_told(tmp_path: Path) -> None:
    """The type alone does not make it one."""
    (tmp_path / "store").write_bytes(b"\xfe\xed\xfe\xed\0")
    wrong = Security(protocol="SSL", ssl_keystore_location=str(tmp_path / "store"), ssl_keystore_pkcs12=True)
    with pytest.raises(BadInput, match=r"ssl\.keystore\.location .*keytool -importkeystore"):
        ssl_context(wrong)
