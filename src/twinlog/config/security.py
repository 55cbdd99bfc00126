"""How to prove who we are to a cluster, and how to know that it is the right one: `security.*`, `sasl.*`, `ssl.*`.

Names and meanings are those of Kafka's clients, with three differences, all of them refused aloud: key and trust
stores are PEM or PKCS12 (no JKS), a key that names a Java class cannot be followed, and SASL is PLAIN, SCRAM or
OAUTHBEARER. The default of `sasl.mechanism` is PLAIN, as KIP-1279 has it (Kafka's clients: GSSAPI); the default type of
a store is what its file's name says, else PEM (Kafka's clients: JKS).
"""

import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from twinlog.config.jaas import JaasEntry, parse_jaas
from twinlog.config.keys import OPTIONAL_TEXT, TEXT, ConfigKey, Kind, Reader, choice, one_of, text_list

JKS_ADVICE = (
    "a JKS store cannot be read here; convert it (keytool -importkeystore -srckeystore store.jks -destkeystore "
    "store.p12 -deststoretype PKCS12), name store.p12 and set the type to PKCS12"
)
KERBEROS_ADVICE = (
    "must be one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER: Kerberos is not supported here; a listener of "
    "the brokers may offer one of these beside GSSAPI"
)
_PKCS12 = (".p12", ".pfx", ".pkcs12")
_PEM_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----([A-Za-z0-9+/=\s]+)-----END \1-----")
_OAUTH_HANDLERS = re.compile(r"org\.apache\.kafka\.common\.security\.oauthbearer\.(secured\.)?OAuthBearer\w+Handler")


def _store_type(text: str) -> str:
    if text.upper() not in {"", "PEM", "PKCS12"}:
        raise ValueError(f"must be PEM or PKCS12: {JKS_ADVICE}")
    return text.upper()


def _store_file(text: str) -> str | None:
    if text.lower().endswith(".jks"):
        raise ValueError(f"must be a PEM or PKCS12 file: {JKS_ADVICE}")
    return text or None


def _pem(text: str) -> str | None:
    """Bring PEM blocks, which a properties file may hold on one line, into lines of 64 characters."""
    if not text:
        return None
    blocks = _PEM_BLOCK.findall(text)
    if not blocks or _PEM_BLOCK.sub("", text).strip():
        raise ValueError("must be PEM: -----BEGIN ...-----, base64, -----END ...-----")
    return "".join(f"-----BEGIN {name}-----\n{_lines(body)}\n-----END {name}-----\n" for name, body in blocks)


def _lines(base64: str) -> str:
    joined = "".join(base64.split())
    return "\n".join(joined[at : at + 64] for at in range(0, len(joined), 64))


def _tls_versions(text: str) -> tuple[str, ...]:
    versions = text_list(text)
    if not versions or not set(versions) <= {"TLSv1.2", "TLSv1.3"}:
        raise ValueError
    return versions


def _mechanism(text: str) -> str:
    if text.upper() == "GSSAPI":
        raise ValueError(KERBEROS_ADVICE)
    return one_of(*_MECHANISMS).parse(text)


def _no_java_class(text: str) -> None:
    if text and not _OAUTH_HANDLERS.fullmatch(text):
        raise ValueError("names a Java class, and no Java runs here; remove the key")


def _not_supported(text: str) -> None:
    if text:
        raise ValueError("is not supported here; remove the key")


_STORE_TYPE = Kind("string", "PEM, PKCS12, or empty", _store_type)
_STORE_FILE = Kind("string", "the path of a PEM or PKCS12 file", _store_file)
_PASSWORD: Kind[str | None] = Kind("password", "any text", lambda text: text or None)
_PEM = Kind("password", "PEM text", _pem)
_JAVA_CLASS = Kind("class", "empty, or Kafka's own OAUTHBEARER handler", _no_java_class)
_NOT_SUPPORTED = Kind("list", "empty", _not_supported)
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

PROTOCOL = ConfigKey(
    "security.protocol",
    one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "PLAINTEXT",
    "Protocol spoken with the brokers.",
)
MECHANISM = ConfigKey(
    "sasl.mechanism",
    Kind("string", one_of(*_MECHANISMS).allowed, _mechanism),
    "PLAIN",
    "SASL mechanism; GSSAPI is not supported.",
)
JAAS = ConfigKey(
    "sasl.jaas.config",
    Kind("password", "a JAAS entry", str),
    "",
    "Login module and credentials, as Kafka's clients write them; secrets in it by reference.",
)
TOKEN_URL = ConfigKey(
    "sasl.oauthbearer.token.endpoint.url",
    OPTIONAL_TEXT,
    "",
    "Where OAUTHBEARER tokens come from: the URL of a token endpoint, or file:///path of a file that holds one.",
)
OAUTH_ID = ConfigKey(
    "sasl.oauthbearer.client.credentials.client.id", OPTIONAL_TEXT, "", "Client id for the token endpoint."
)
OAUTH_SECRET = ConfigKey(
    "sasl.oauthbearer.client.credentials.client.secret",
    _PASSWORD,
    "",
    "Client secret for the token endpoint.",
)
OAUTH_SCOPE = ConfigKey("sasl.oauthbearer.scope", OPTIONAL_TEXT, "", "Scope asked of the token endpoint.")
TRUST_TYPE = ConfigKey(
    "ssl.truststore.type",
    _STORE_TYPE,
    "",
    "Format of the trust store; empty: PKCS12 for a file .p12, .pfx or .pkcs12, else PEM.",
)
TRUST_FILE = ConfigKey(
    "ssl.truststore.location",
    _STORE_FILE,
    "",
    "PEM or PKCS12 file of the certificates to trust; empty: those of the system.",
)
TRUST_PASSWORD = ConfigKey("ssl.truststore.password", _PASSWORD, "", "Password of a PKCS12 trust store.")
TRUST_PEM = ConfigKey("ssl.truststore.certificates", _PEM, "", "Certificates to trust, as PEM text.")
KEY_TYPE = ConfigKey(
    "ssl.keystore.type",
    _STORE_TYPE,
    "",
    "Format of the key store; empty: PKCS12 for a file .p12, .pfx or .pkcs12, else PEM.",
)
KEY_FILE = ConfigKey(
    "ssl.keystore.location",
    _STORE_FILE,
    "",
    "File of our private key and its certificate chain, PEM (the key first) or PKCS12.",
)
KEY_STORE_PASSWORD = ConfigKey("ssl.keystore.password", _PASSWORD, "", "Password of a PKCS12 key store.")
KEY_CHAIN = ConfigKey("ssl.keystore.certificate.chain", _PEM, "", "Our certificate chain, as PEM text.")
KEY_PEM = ConfigKey("ssl.keystore.key", _PEM, "", "Our private key (PKCS#8), as PEM text.")
KEY_PASSWORD = ConfigKey("ssl.key.password", _PASSWORD, "", "Password of the private key, if it is encrypted.")
CHECK_HOST = ConfigKey(
    "ssl.endpoint.identification.algorithm",
    choice({"https": True, "": False}),
    "https",
    "Whether a broker's certificate must be for its host name; empty switches the check off.",
)
TLS_VERSIONS = ConfigKey(
    "ssl.enabled.protocols",
    Kind("list", "TLSv1.2, TLSv1.3 or both", _tls_versions),
    "TLSv1.2,TLSv1.3",
    "TLS versions that may be spoken.",
)

_READ = (
    *(PROTOCOL, MECHANISM, JAAS, TOKEN_URL, OAUTH_ID, OAUTH_SECRET, OAUTH_SCOPE, TRUST_TYPE, TRUST_FILE, TRUST_PEM),
    *(KEY_TYPE, KEY_FILE, KEY_CHAIN, KEY_PEM, KEY_PASSWORD, CHECK_HOST, TLS_VERSIONS),
    *(TRUST_PASSWORD, KEY_STORE_PASSWORD),
)
_REFUSED = (
    *(
        ConfigKey(name, _JAVA_CLASS, "", "Refused: names a Java class (Kafka's own OAUTHBEARER handlers are accepted).")
        for name in (
            "sasl.client.callback.handler.class",
            "sasl.login.callback.handler.class",
            "sasl.login.class",
            "sasl.oauthbearer.jwt.retriever.class",
            "security.providers",
            "ssl.engine.factory.class",
        )
    ),
    ConfigKey("ssl.cipher.suites", _NOT_SUPPORTED, "", "Refused: Java's names of cipher suites mean nothing here."),
)
_WITHOUT_EFFECT = tuple(
    ConfigKey(name, TEXT, "", "Accepted, without effect.")
    for name in (
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.service.name",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.header.urlencode",
        "sasl.oauthbearer.jwt.validator.class",
        "sasl.oauthbearer.scope.claim.name",
        "sasl.oauthbearer.sub.claim.name",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    )
)
SECURITY_KEYS: tuple[ConfigKey[Any], ...] = (*_READ, *_REFUSED, *_WITHOUT_EFFECT)


@dataclass(frozen=True, slots=True)
class OAuthSource:
    """Where OAUTHBEARER tokens come from: a file, a token endpoint, or (for tests) an unsecured token of our own.

    Exactly one of `token_file`, `token_endpoint` and `unsecured_subject` is set. `extensions` are sent to the broker.
    """

    token_file: str | None = None
    token_endpoint: str | None = None
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    scope: str | None = None
    extensions: tuple[tuple[str, str], ...] = ()
    unsecured_subject: str | None = None


@dataclass(frozen=True, slots=True)
class Security:
    """Everything that a connection needs to encrypt, to check the broker and to log in.

    Files named here are read anew at each connection, so that renewed certificates are found. `ssl_truststore_*` unset
    means the system's certificates. PEM texts have lines of 64 characters, as OpenSSL wants them. A store is PKCS12
    where `ssl_*store_pkcs12` says so; only then has it a password.
    """

    protocol: str = "PLAINTEXT"
    sasl_mechanism: str = "PLAIN"
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    sasl_token_auth: bool = False
    oauth: OAuthSource | None = None
    ssl_truststore_location: str | None = None
    ssl_truststore_pkcs12: bool = False
    ssl_truststore_password: str | None = field(default=None, repr=False)
    ssl_truststore_certificates: str | None = field(default=None, repr=False)
    ssl_keystore_location: str | None = None
    ssl_keystore_pkcs12: bool = False
    ssl_keystore_password: str | None = field(default=None, repr=False)
    ssl_keystore_certificate_chain: str | None = field(default=None, repr=False)
    ssl_keystore_key: str | None = field(default=None, repr=False)
    ssl_key_password: str | None = field(default=None, repr=False)
    ssl_check_hostname: bool = True
    ssl_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")

    @property
    def encrypted(self) -> bool:
        """Whether connections use TLS."""
        return self.protocol in {"SSL", "SASL_SSL"}

    @property
    def sasl(self) -> bool:
        """Whether connections log in with SASL."""
        return self.protocol.startswith("SASL_")


def read_security(reader: Reader) -> Security:
    """Build `Security` from client properties; the reader's error for anything missing, wrong or not supported."""
    for key in _REFUSED:
        reader.get(key)
    _check_stores(reader)
    login = _login(reader) if reader.get(PROTOCOL).startswith("SASL_") else _Login()
    return Security(
        protocol=reader.get(PROTOCOL),
        sasl_mechanism=reader.get(MECHANISM),
        sasl_username=login.username,
        sasl_password=login.password,
        sasl_token_auth=login.token_auth,
        oauth=login.oauth,
        ssl_truststore_location=reader.get(TRUST_FILE),
        ssl_truststore_pkcs12=_is_pkcs12(reader, TRUST_TYPE, TRUST_FILE),
        ssl_truststore_password=reader.get(TRUST_PASSWORD),
        ssl_truststore_certificates=reader.get(TRUST_PEM),
        ssl_keystore_location=reader.get(KEY_FILE),
        ssl_keystore_pkcs12=_is_pkcs12(reader, KEY_TYPE, KEY_FILE),
        ssl_keystore_password=reader.get(KEY_STORE_PASSWORD),
        ssl_keystore_certificate_chain=reader.get(KEY_CHAIN),
        ssl_keystore_key=reader.get(KEY_PEM),
        ssl_key_password=reader.get(KEY_PASSWORD),
        ssl_check_hostname=reader.get(CHECK_HOST),
        ssl_protocols=reader.get(TLS_VERSIONS),
    )


def _is_pkcs12(reader: Reader, kind: ConfigKey[str], file: ConfigKey[str | None]) -> bool:
    return (reader.get(kind) or _by_name(reader.get(file))) == "PKCS12"


def _by_name(path: str | None) -> str:
    return "PKCS12" if (path or "").lower().endswith(_PKCS12) else "PEM"


def _check_stores(reader: Reader) -> None:
    stores = ((TRUST_TYPE, TRUST_FILE, TRUST_PASSWORD), (KEY_TYPE, KEY_FILE, KEY_STORE_PASSWORD))
    for kind, file, password in stores:
        pkcs12 = _is_pkcs12(reader, kind, file)
        if reader.has(password) and not pkcs12 and not reader.is_deferred(file.name):
            reader.refuse(password.name, f"is of no use: a PEM store has none; set {kind.name} to PKCS12 if it is that")
        if pkcs12 and not reader.has(file):
            reader.refuse(kind.name, f"is PKCS12, which needs {file.name}")
    if reader.has(TRUST_FILE) and reader.has(TRUST_PEM):
        reader.refuse(TRUST_PEM.name, f"cannot be used together with {TRUST_FILE.name}; keep one of them")
    if reader.has(KEY_FILE) and (reader.has(KEY_PEM) or reader.has(KEY_CHAIN)):
        other = KEY_PEM if reader.has(KEY_PEM) else KEY_CHAIN
        reader.refuse(other.name, f"cannot be used together with {KEY_FILE.name}; keep one of them")
    for key, partner in ((KEY_PEM, KEY_CHAIN), (KEY_CHAIN, KEY_PEM)):
        if reader.has(key) and not reader.has(partner):
            reader.refuse(key.name, f"needs {partner.name} beside it")


@dataclass(frozen=True, slots=True)
class _Login:
    username: str | None = None
    password: str | None = None
    token_auth: bool = False
    oauth: OAuthSource | None = None


def _login(reader: Reader) -> _Login:
    mechanism = reader.get(MECHANISM)
    entry = _jaas(reader)
    if entry is None:
        return _Login()
    wanted = {"PLAIN": "PlainLoginModule", "OAUTHBEARER": "OAuthBearerLoginModule"}.get(mechanism, "ScramLoginModule")
    if entry.module != wanted:
        reader.refuse(
            JAAS.name,
            f"names {entry.module}, but {MECHANISM.name} {mechanism} needs {wanted}; set the mechanism that was meant",
        )
    options = {name: reader.resolved(JAAS.name, value) for name, value in entry.options.items()}
    if mechanism == "OAUTHBEARER":
        return _Login(oauth=_oauth(reader, options))
    for name in ("username", "password"):
        if not options.get(name):
            reader.refuse(JAAS.name, f"gives no {name}, which {mechanism} needs")
    return _Login(options["username"], options["password"], options.get("tokenauth", "").lower() == "true")


def _jaas(reader: Reader) -> JaasEntry | None:
    """Return the entry; None where it is a reference that only the worker resolves."""
    if not reader.has(JAAS):
        if reader.get(MECHANISM) == "OAUTHBEARER":
            return JaasEntry("OAuthBearerLoginModule", {})
        reader.refuse(PROTOCOL.name, f"is {reader.get(PROTOCOL)}, which needs {JAAS.name}")
    text = reader.raw(JAAS)
    if reader.is_whole_reference(JAAS):
        if reader.deferred:
            return None
        text = reader.resolved(JAAS.name, text)
    try:
        return parse_jaas(text)
    except ValueError as problem:
        reader.refuse(JAAS.name, str(problem))


def _url_parts(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:  # a bracket that is not closed
        return urlsplit("")


def _oauth(reader: Reader, options: dict[str, str]) -> OAuthSource:
    extensions = tuple((n.removeprefix("extension_"), v) for n, v in options.items() if n.startswith("extension_"))
    url = reader.get(TOKEN_URL)
    subject = options.get("unsecuredLoginStringClaim_sub")
    if url is None:
        if subject is None and not reader.is_deferred(TOKEN_URL.name):
            reader.refuse(MECHANISM.name, f"is OAUTHBEARER, which needs {TOKEN_URL.name}")
        return OAuthSource(unsecured_subject=subject, extensions=extensions)
    parts = _url_parts(url)
    if parts.scheme == "file" and parts.path:
        return OAuthSource(token_file=unquote(parts.path), extensions=extensions)
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        reader.refuse(TOKEN_URL.name, "must be an https:, http: or file: URL")
    client_id = reader.get(OAUTH_ID) or options.get("clientId")
    secret = reader.get(OAUTH_SECRET) or options.get("clientSecret")
    if not reader.deferred and not (client_id and secret):
        reader.refuse(TOKEN_URL.name, f"is a token endpoint, which needs {OAUTH_ID.name} and {OAUTH_SECRET.name}")
    scope = reader.get(OAUTH_SCOPE) or options.get("scope")
    return OAuthSource(
        token_endpoint=url, client_id=client_id, client_secret=secret, scope=scope, extensions=extensions
    )
