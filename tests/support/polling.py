"""Options that make polls rare or frequent."""

from __future__ import annotations

from typing import Final, TypedDict


class Polling(TypedDict):
    """Seconds between looks without and with a change stream."""

    poll_interval: float
    safety_poll_interval: float


NO_POLLS: Final[Polling] = {"poll_interval": 3600, "safety_poll_interval": 3600}
"""After the looks at the start and when a stream comes or goes, only wake-ups can start a job."""

QUICK_POLLS: Final[Polling] = {"poll_interval": 0.02, "safety_poll_interval": 0.02}
"""For clocks that a test moves: nothing wakes an instance when they jump."""
