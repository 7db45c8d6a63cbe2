"""Options that make polls rare or frequent."""

from __future__ import annotations

from typing import Final, TypedDict


class Polling(TypedDict):
    """Seconds between polls without and with a change stream."""

    poll_interval: float
    safety_poll_interval: float


NO_POLLS: Final[Polling] = {"poll_interval": 3600, "safety_poll_interval": 3600}
"""After the polls at the start and when a stream opens or closes, only wake-ups start jobs."""

QUICK_POLLS: Final[Polling] = {"poll_interval": 0.02, "safety_poll_interval": 0.02}
"""For clocks that a test moves: nothing wakes an instance up when they jump."""
