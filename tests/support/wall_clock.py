"""The wall clock of this process, to be wrong."""

from __future__ import annotations

import time


def turn_forward(seconds: float) -> None:
    """Make this process's wall clock wrong by so many seconds, for good."""
    right_ns, right = time.time_ns, time.time
    time.time_ns = lambda: right_ns() + int(seconds * 1e9)
    time.time = lambda: right() + seconds
