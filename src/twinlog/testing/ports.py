"""Free ports on 127.0.0.1 that stay free while their broker is down."""

import random
import socket

# Below every system's range for outgoing connections: a client that redials a dead broker cannot be given
# the broker's own port as its source port.
LOWEST = 20_000
HIGHEST = 32_000

_given: set[int] = set()


def free_port() -> int:
    """A port that nobody listens on now and that this process has not given out before."""
    for _ in range(1000):
        port = random.randint(LOWEST, HIGHEST)
        if port not in _given and _is_free(port):
            _given.add(port)
            return port
    raise OSError(f"no free port between {LOWEST} and {HIGHEST} on 127.0.0.1")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
