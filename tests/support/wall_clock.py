"""Setting the wall clock of this process to a wrong time."""

from __future__ import annotations

import time


def turn_forward(seconds: float) -> None:
    """Move this process's wall clock forward by this many seconds, permanently."""
    right_ns, right = time.time_ns, time.time
    time.time_ns = lambda: right_ns() + int(seconds * 1e9)
    time.time = lambda: right() + seconds
