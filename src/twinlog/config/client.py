"""Settings of a connection to one cluster, from Kafka's client properties."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from twinlog.config.bootstrap import Address, parse_bootstrap
from twinlog.config.keys import LONG_MAX, OPTIONAL_TEXT, TEXT, ConfigKey, Kind, Reader, whole
from twinlog.config.properties import read_properties
from twinlog.config.secrets import has_reference
from twinlog.config.security import SECURITY_KEYS, OAuthSource, Security, read_security
from twinlog.errors import BadInput

__all__ = [
    "CLIENT_KEYS",
    "Address",
    "ClientSettings",
    "OAuthSource",
    "Security",
    "parse_bootstrap",
    "read_client",
    "read_client_file",
]


def _addresses(text: str) -> tuple[Address, ...]:
    if not text:
        return ()
    try:
        return parse_bootstrap(text)
    except BadInput as problem:
        raise ValueError(f"this cannot be used: {str(problem).removesuffix('.')}") from None


BOOTSTRAP = ConfigKey(
    "bootstrap.servers",
    Kind("list", "a comma-separated list of host:port", _addresses),
    "",
    "Required. Addresses of some brokers of the cluster, as host:port; :9092 means localhost.",
)
CLIENT_ID = ConfigKey("client.id", OPTIONAL_TEXT, "", "Name under which the brokers see us.")
REQUEST_TIMEOUT = ConfigKey(
    "request.timeout.ms", whole(1), "30000", "How long an answer is awaited before the connection is given up."
)
SETUP_TIMEOUT = ConfigKey(
    "socket.connection.setup.timeout.ms", whole(1), "10000", "How long the first attempt to connect may take."
)
SETUP_TIMEOUT_MAX = ConfigKey(
    "socket.connection.setup.timeout.max.ms", whole(1), "30000", "How long any later attempt to connect may take."
)
MAX_IDLE = ConfigKey(
    "connections.max.idle.ms",
    whole(-1, LONG_MAX),
    "600000",
    "After how much idle time a connection is closed; -1: never.",
)
RECONNECT = ConfigKey("reconnect.backoff.ms", whole(0), "50", "Pause before the first new attempt to connect.")
RECONNECT_MAX = ConfigKey("reconnect.backoff.max.ms", whole(0), "1000", "Longest pause between attempts to connect.")
RETRY = ConfigKey("retry.backoff.ms", whole(0), "100", "Pause before a refused request is sent again.")
RETRY_MAX = ConfigKey("retry.backoff.max.ms", whole(0), "1000", "Longest pause before a refused request is sent again.")

_OWN = (
    *(BOOTSTRAP, CLIENT_ID, REQUEST_TIMEOUT, SETUP_TIMEOUT, SETUP_TIMEOUT_MAX, MAX_IDLE),
    *(RECONNECT, RECONNECT_MAX, RETRY, RETRY_MAX),
)
_WITHOUT_EFFECT = tuple(
    ConfigKey(name, kind, default, "Accepted, without effect.")
    for name, kind, default in (
        ("default.api.timeout.ms", whole(0), "60000"),
        ("metadata.max.age.ms", whole(0, LONG_MAX), "300000"),
        ("receive.buffer.bytes", whole(-1), "65536"),
        ("retries", whole(0), "2147483647"),
        ("send.buffer.bytes", whole(-1), "131072"),
    )
)
_TEXTS_WITHOUT_EFFECT = tuple(
    ConfigKey(name, TEXT, "", "Accepted, without effect.")
    for name in ("client.dns.lookup", "enable.metrics.push", "metadata.recovery.strategy", "metric.reporters")
)
CLIENT_KEYS: tuple[ConfigKey[Any], ...] = (
    *_OWN,
    *_WITHOUT_EFFECT,
    *_TEXTS_WITHOUT_EFFECT,
    *SECURITY_KEYS,
)


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Where a cluster is and how to talk to it; times in milliseconds, `connections_max_idle_ms` -1 for never.

    `unknown` lists the keys that mean nothing to us, in the order of the file, for a warning. `renewed` reads the
    credentials anew from where they came.
    """

    bootstrap: tuple[Address, ...]
    security: Security = field(default_factory=Security)
    request_timeout_ms: int = 30_000
    connection_setup_timeout_ms: int = 10_000
    connection_setup_timeout_max_ms: int = 30_000
    connections_max_idle_ms: int = 600_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    client_id: str | None = None
    unknown: tuple[str, ...] = ()
    renewed: Callable[[], Security] | None = field(default=None, repr=False, compare=False)

    def security_now(self) -> Security:
        """Return what a new connection needs, with files and references read anew; BadInput where they cannot be."""
        return self.security if self.renewed is None else self.renewed()

    @classmethod
    def from_properties(
        cls, props: Mapping[str, str], *, bootstrap: str | None = None, origin: str = "the client properties"
    ) -> "ClientSettings":
        """Build settings from client properties whose references (`${env:X}`) are resolved now.

        `bootstrap`, if given, is the command line's list and wins over `bootstrap.servers`; `origin` names where the
        properties come from, for those that do not know it themselves. BadInput names key, value, file and line.
        """
        addresses = parse_bootstrap(bootstrap) if bootstrap is not None else None
        return read_client(Reader(props, origin), bootstrap=addresses)

    def with_client_id(self, client_id: str) -> "ClientSettings":
        """Return the same settings under another client id."""
        return replace(self, client_id=client_id)


def read_client_file(path: str, *, bootstrap: str | None = None) -> ClientSettings:
    """Read a `--command-config` file; as `ClientSettings.from_properties`, and anew for each new connection."""
    settings = ClientSettings.from_properties(read_properties(path), bootstrap=bootstrap, origin=path)
    return replace(settings, renewed=lambda: read_security(Reader(read_properties(path), path)))


def read_client(reader: Reader, *, bootstrap: tuple[Address, ...] | None = None) -> ClientSettings:
    """Build settings from what a reader holds; the reader's error for every bad value, also of keys without effect."""
    for key in _WITHOUT_EFFECT:
        reader.get(key)
    addresses = bootstrap if bootstrap is not None else reader.get(BOOTSTRAP)
    if not addresses and not reader.is_deferred(BOOTSTRAP.name):
        reader.refuse(BOOTSTRAP.name, "is missing or empty; give the address of at least one broker as host:port")
    changes = not reader.deferred and any(has_reference(reader.raw(key)) for key in SECURITY_KEYS)
    return ClientSettings(
        bootstrap=addresses,
        security=read_security(reader),
        renewed=(lambda: read_security(reader)) if changes else None,
        request_timeout_ms=reader.get(REQUEST_TIMEOUT),
        connection_setup_timeout_ms=reader.get(SETUP_TIMEOUT),
        connection_setup_timeout_max_ms=reader.get(SETUP_TIMEOUT_MAX),
        connections_max_idle_ms=reader.get(MAX_IDLE),
        reconnect_backoff_ms=reader.get(RECONNECT),
        reconnect_backoff_max_ms=reader.get(RECONNECT_MAX),
        retry_backoff_ms=reader.get(RETRY),
        retry_backoff_max_ms=reader.get(RETRY_MAX),
        client_id=reader.get(CLIENT_ID),
        unknown=reader.unknown(key.name for key in CLIENT_KEYS),
    )
