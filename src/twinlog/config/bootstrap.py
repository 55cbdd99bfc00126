"""Lists of broker addresses, as `bootstrap.servers` and `--bootstrap-server` take them."""

import re
from ipaddress import IPv6Address

from twinlog.errors import BadInput

MAX_ADDRESSES = 100
"""Far more than anyone lists; a bound on how long connecting to a dead cluster can take."""

_HOST = re.compile(r"(?=.{1,253}\Z)[0-9A-Za-z_]([0-9A-Za-z_.-]*[0-9A-Za-z_.])?")
_PORT = re.compile(r"[0-9]{1,5}")

Address = tuple[str, int]


def parse_bootstrap(text: str) -> tuple[Address, ...]:
    """Parse `host:port,host:port`; `:9094` means localhost, IPv6 addresses stand in brackets.

    Returns (host, port) in the order given, each once. BadInput quotes the address that is wrong and says why.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise BadInput("the list of broker addresses is empty; give at least one as host:port.")
    addresses = tuple(dict.fromkeys(_address(part) for part in parts))
    if len(addresses) > MAX_ADDRESSES:
        raise BadInput(f"{len(addresses)} broker addresses are too many; a few are enough, {MAX_ADDRESSES} the most.")
    return addresses


def _address(text: str) -> Address:
    shown = repr(text if len(text) <= 100 else f"{text[:100]}...")
    if "://" in text:
        raise BadInput(f"{shown} has a protocol in front; give only host:port, and the protocol in security.protocol.")
    host, colon, port = text.rpartition(":")
    if not colon:
        raise BadInput(f"{shown} has no port; give a broker as host:port, for example {text[:100]}:9092.")
    if not _PORT.fullmatch(port) or not 1 <= int(port) <= 65535:
        raise BadInput(f"{shown} has no valid port behind the last colon; a port is a number from 1 to 65535.")
    return _host(host, shown), int(port)


def _host(host: str, shown: str) -> str:
    if not host:
        return "localhost"
    if host.startswith("[") and host.endswith("]"):
        try:
            IPv6Address(host[1:-1])
        except ValueError:
            raise BadInput(f"{shown} has no valid IPv6 address in its brackets.") from None
        return host[1:-1]
    if ":" in host:
        raise BadInput(f"{shown} has too many colons; put an IPv6 address in brackets, as [::1]:9092.")
    if not _HOST.fullmatch(host):
        raise BadInput(f"{shown} has no valid host name; letters, digits, '.', '-' and '_' are allowed.")
    return host
