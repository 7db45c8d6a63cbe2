"""Free ports on the loopback interface."""

from __future__ import annotations

import random
import socket

from monque_core.errors import MonqueConnectionError

# Below the ports that systems use for outgoing connections, so that the port of a node stays free
# until the node is started again.
_CANDIDATES = range(20000, 32000)
_ATTEMPTS = 200

_random = random.SystemRandom()


def free_port() -> int:
    """Return a port that no program listens on now."""
    for _ in range(_ATTEMPTS):
        port = _random.choice(_CANDIDATES)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise MonqueConnectionError(
        f"no free port found between {_CANDIDATES.start} and {_CANDIDATES.stop} "
        f"in {_ATTEMPTS} attempts; choose one with LocalMongo(port=...)"
    )
