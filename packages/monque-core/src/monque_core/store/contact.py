"""Whether MongoDB has answered lately, and in time."""

from __future__ import annotations

import time

from monque_core.options import STALE_AFTER_HEARTBEATS


class Contact:
    """The last time MongoDB answered, and the last gap in which nobody's heartbeat got through.

    A server that freezes loses no connection: an answer that takes long is such a gap, too.
    """

    def __init__(self) -> None:
        self._last = float("-inf")
        self._lost_at = float("-inf")
        self._gap = 0.0
        self._gap_ended_at = float("-inf")
        self.is_lost = False
        self.outages = 0

    def made(self, asked_at: float) -> None:
        """Note the answer to a question of that time, by `time.monotonic()`."""
        if self.is_lost and asked_at < self._lost_at:
            # It was on its way before the connection broke.
            return
        now = time.monotonic()
        self._note_gap(now - (min(asked_at, self._last) if self.is_lost else asked_at), now)
        self._last = now
        self.is_lost = False

    def lost(self) -> None:
        """Note that MongoDB could not be reached."""
        self._lost_at = time.monotonic()
        if not self.is_lost:
            self.is_lost = True
            self.outages += 1

    @property
    def age(self) -> float:
        """Tell how many seconds ago MongoDB answered."""
        return time.monotonic() - self._last

    def could_hear(self, heartbeat_seconds: float) -> bool:
        """Tell whether a silence of three such heartbeats is the owner's, not MongoDB's."""
        patience = STALE_AFTER_HEARTBEATS * heartbeat_seconds
        return self._gap < heartbeat_seconds or time.monotonic() - self._gap_ended_at >= patience

    def _note_gap(self, gap: float, now: float) -> None:
        is_over = now - self._gap_ended_at >= STALE_AFTER_HEARTBEATS * self._gap
        if is_over or gap >= self._gap:
            self._gap = gap
            self._gap_ended_at = now
