"""TLS and SASL settings."""

from pathlib import Path

import pytest

from twinlog.config.client import ClientSettings, read_client_file
from twinlog.config.properties import parse_properties
from twinlog.config.security import OAuthSource, Security
from twinlog.errors import BadInput

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
PEM = "-----BEGIN CERTIFICATE----- " + "A" * 70 + " -----END CERTIFICATE-----"
PEM_LINES = "-----BEGIN CERTIFICATE-----\n" + "A" * 64 + "\nAAAAAA\n-----END CERTIFICATE-----\n"
OAUTH_LINES = "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n"


def security(text: str) -> Security:
    """Read client properties under the name c.properties."""
    return ClientSettings.from_properties(parse_properties(text, "c.properties"), bootstrap=":1").security


def test_plain_without_anything_is_plaintext() -> None:
    """The default neither encrypts nor logs in."""
    assert security("") == Security()
    assert not Security().encrypted
    assert not Security().sasl


def test_plain_login() -> None:
    """User and password come out of the JAAS entry; no repr shows the password."""
    text = f'security.protocol=SASL_PLAINTEXT\nsasl.jaas.config={PLAIN} required username="u" password="hush";'
    read = security(text)
    assert (read.sasl_mechanism, read.sasl_username, read.sasl_password) == ("PLAIN", "u", "hush")
    assert read.sasl
    assert not read.encrypted
    assert "hush" not in repr(read)


def test_scram_login() -> None:
    """SCRAM over TLS, with a delegation token."""
    read = security(
        "security.protocol=sasl_ssl\nsasl.mechanism=scram-sha-512\n"
        f'sasl.jaas.config={SCRAM} required username="u" password="p" tokenauth="true";'
    )
    assert (read.protocol, read.sasl_mechanism) == ("SASL_SSL", "SCRAM-SHA-512")
    assert (read.sasl_username, read.sasl_password, read.sasl_token_auth) == ("u", "p", True)
    assert read.encrypted


def test_references_in_a_jaas_entry_are_resolved_after_it_is_split(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A password with quotes and semicolons cannot break the entry; the whole entry may be a reference too."""
    monkeypatch.setenv("TWINLOG_TEST_PW", '";evil=')
    entry = f'{PLAIN} required username="u" password="${{env:TWINLOG_TEST_PW}}";'
    assert security(f"security.protocol=SASL_SSL\nsasl.jaas.config={entry}").sasl_password == '";evil='
    (tmp_path / "jaas").write_text(f'{PLAIN} required username="u" password="p";\n')
    assert security(f"security.protocol=SASL_SSL\nsasl.jaas.config=${{dir:{tmp_path}:jaas}}").sasl_password == "p"


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        ("", "c.properties:1: security.protocol is SASL_SSL, which needs sasl.jaas.config"),
        ("sasl.jaas.config=x", "c.properties:2: sasl.jaas.config must read"),
        (f"sasl.jaas.config={PLAIN} required password=p;", "sasl.jaas.config gives no username"),
        (f"sasl.jaas.config={PLAIN} required username=u;", "sasl.jaas.config gives no password"),
        (
            f"sasl.jaas.config={SCRAM} required username=u password=p;",
            "names ScramLoginModule, but sasl.mechanism PLAIN needs PlainLoginModule",
        ),
        ("sasl.mechanism=GSSAPI", "must be one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER: Kerberos"),
        ("sasl.login.class=com.example.Login", "names a Java class"),
    ],
)
def test_logins_that_cannot_work(entry: str, complaint: str) -> None:
    """Each is refused before anything is sent: above all SCRAM's password never goes out as PLAIN."""
    with pytest.raises(BadInput, match=complaint):
        security(f"security.protocol=SASL_SSL\n{entry}")


def test_tokens_from_a_file() -> None:
    """A file URL names the token file; Kafka's own handler class may stay."""
    handler = "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
    read = security(
        f"{OAUTH_LINES}sasl.oauthbearer.token.endpoint.url=file:///var/run/my%20token\n"
        f'sasl.login.callback.handler.class={handler}\nsasl.jaas.config={OAUTH} required extension_pool="x";'
    )
    assert read.oauth == OAuthSource(token_file="/var/run/my token", extensions=(("pool", "x"),))


def test_tokens_from_an_endpoint() -> None:
    """Client id and secret come from the JAAS entry or from keys of their own, which win."""
    url = "https://idp.example.com/token"
    entry = f'sasl.jaas.config={OAUTH} required clientId="i" clientSecret="hush" scope="s";'
    read = security(f"{OAUTH_LINES}sasl.oauthbearer.token.endpoint.url={url}\n{entry}")
    assert read.oauth == OAuthSource(token_endpoint=url, client_id="i", client_secret="hush", scope="s")
    assert "hush" not in repr(read)
    own = (
        "sasl.oauthbearer.client.credentials.client.id=i2\nsasl.oauthbearer.client.credentials.client.secret=x\n"
        "sasl.oauthbearer.scope=s2"
    )
    read = security(f"{OAUTH_LINES}sasl.oauthbearer.token.endpoint.url={url}\n{own}")
    assert read.oauth == OAuthSource(token_endpoint=url, client_id="i2", client_secret="x", scope="s2")


def test_unsecured_tokens() -> None:
    """The option by which Kafka's own tests make a token is understood."""
    read = security(f'{OAUTH_LINES}sasl.jaas.config={OAUTH} required unsecuredLoginStringClaim_sub="alice";')
    assert read.oauth == OAuthSource(unsecured_subject="alice")


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ("", "sasl.mechanism is OAUTHBEARER, which needs sasl.oauthbearer.token.endpoint.url"),
        ("sasl.oauthbearer.token.endpoint.url=ftp://x/y", "must be an https:, http: or file: URL"),
        ("sasl.oauthbearer.token.endpoint.url=https://[x", "must be an https:, http: or file: URL"),
        ("sasl.oauthbearer.token.endpoint.url=https://x/y", "which needs sasl.oauthbearer.client.credentials"),
    ],
)
def test_token_sources_that_cannot_work(lines: str, complaint: str) -> None:
    """A missing or impossible source of tokens is refused."""
    with pytest.raises(BadInput, match=complaint):
        security(OAUTH_LINES + lines)


def test_pem_files_and_texts() -> None:
    """Locations are kept for the connection to read; inline PEM gets proper lines."""
    read = security(
        "security.protocol=SSL\nssl.truststore.location=/etc/ca.pem\nssl.truststore.type=PEM\n"
        f"ssl.keystore.type=PEM\nssl.keystore.key={PEM}\nssl.keystore.certificate.chain={PEM}{PEM}\n"
        "ssl.key.password=hush\nssl.endpoint.identification.algorithm=\nssl.enabled.protocols=TLSv1.3"
    )
    assert (read.ssl_truststore_location, read.ssl_truststore_certificates) == ("/etc/ca.pem", None)
    assert (read.ssl_keystore_key, read.ssl_keystore_certificate_chain) == (PEM_LINES, PEM_LINES * 2)
    assert (read.ssl_key_password, read.ssl_check_hostname, read.ssl_protocols) == ("hush", False, ("TLSv1.3",))
    assert "hush" not in repr(read)
    assert "AAAA" not in repr(read)


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ("ssl.truststore.type=JKS", r"ssl.truststore.type is 'JKS', but must be PEM or PKCS12: .*keytool"),
        ("ssl.keystore.type=PKCS12", "is PKCS12, which needs ssl.keystore.location"),
        ("ssl.keystore.location=/x/server.jks", "must be a PEM or PKCS12 file: .*keytool"),
        ("ssl.keystore.location=/x/a.pem\nssl.keystore.password=hush", "a PEM store has none"),
        ("ssl.truststore.location=/a\nssl.truststore.certificates=" + PEM, "cannot be used together"),
        ("ssl.keystore.location=/a\nssl.keystore.key=" + PEM, "ssl.keystore.key cannot be used together"),
        ("ssl.keystore.location=/a\nssl.keystore.certificate.chain=" + PEM, "chain cannot be used together"),
        ("ssl.keystore.key=" + PEM, "needs ssl.keystore.certificate.chain"),
        ("ssl.keystore.certificate.chain=" + PEM, "needs ssl.keystore.key"),
        ("ssl.truststore.certificates=MIIB", "must be PEM: -----BEGIN"),
        ("ssl.keystore.key=hush\nssl.keystore.certificate.chain=" + PEM, "ssl.keystore.key must be PEM"),
        ("ssl.truststore.password=hush", "a PEM store has none"),
        ("ssl.cipher.suites=TLS_AES_128_GCM_SHA256", "is not supported here"),
        ("ssl.engine.factory.class=com.example.F", "names a Java class"),
        ("ssl.enabled.protocols=SSLv3", "must be TLSv1.2, TLSv1.3 or both"),
        ("ssl.endpoint.identification.algorithm=none", r"must be one of https, \(empty\)"),
    ],
)
def test_stores_that_cannot_be_used(lines: str, complaint: str) -> None:
    """What TLS cannot do here is refused aloud, without showing a secret."""
    with pytest.raises(BadInput, match=complaint) as problem:
        security(f"security.protocol=SSL\n{lines}")
    assert "hush" not in str(problem.value)


def test_a_store_is_pkcs12_by_its_type_or_by_its_name() -> None:
    """A file's suffix says what it is unless the type does; the passwords are kept, and no repr shows them."""
    read = security(
        "security.protocol=SSL\nssl.truststore.location=/a/trust.p12\nssl.truststore.password=hush\n"
        "ssl.keystore.location=/a/keystore\nssl.keystore.type=pkcs12\nssl.keystore.password=hush2"
    )
    assert (read.ssl_truststore_pkcs12, read.ssl_truststore_password) == (True, "hush")
    assert (read.ssl_keystore_pkcs12, read.ssl_keystore_password) == (True, "hush2")
    assert "hush" not in repr(read)
    assert not security(
        "security.protocol=SSL\nssl.truststore.location=/a/trust.p12\nssl.truststore.type=PEM"
    ).ssl_truststore_pkcs12


def test_a_changed_secret_is_found_by_the_next_connection(tmp_path: Path) -> None:
    """References, and a file of client properties, are read anew each time that a connection is made."""
    (tmp_path / "pw").write_text("old\n")
    text = (
        "security.protocol=SASL_SSL\nsasl.jaas.config="
        f'{PLAIN} required username="u" password="${{dir:{tmp_path}:pw}}";\n'
    )
    (tmp_path / "client.properties").write_text(text)
    by_reference = ClientSettings.from_properties(parse_properties(text, "c.properties"), bootstrap=":1")
    by_file = read_client_file(str(tmp_path / "client.properties"), bootstrap=":1")
    (tmp_path / "pw").write_text("new\n")
    assert by_reference.security.sasl_password == by_file.security.sasl_password == "old"
    assert by_reference.security_now().sasl_password == by_file.security_now().sasl_password == "new"
    (tmp_path / "client.properties").write_text(text.replace("${", "clear-${"))
    assert by_file.security_now().sasl_password == "clear-new"
    (tmp_path / "pw").unlink()
    with pytest.raises(BadInput, match="cannot be resolved"):
        by_reference.security_now()
