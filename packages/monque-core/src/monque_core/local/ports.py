"""Ports on loopback."""

from __future__ import annotations

import random
import socket

from monque_core.errors import MonqueConnectionError

# Below where systems take the ports of outgoing connections from, so that a node that is restarted
# finds its port still free.
_CANDIDATES = range(20000, 32000)
_ATTEMPTS = 200

_random = random.SystemRandom()


def free_port() -> int:
    """Pick a port that nobody listens on at the moment."""
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
        f"in {_ATTEMPTS} attempts; name one with LocalMongo(port=...)"
    )
