"""Whether MongoDB has answered lately."""

from __future__ import annotations

import time

_SLOW_SECONDS = 1.0


class Contact:
    """The last time MongoDB answered, and since when it has not."""

    def __init__(self) -> None:
        self._last = float("-inf")
        self._back_since = float("-inf")
        self._lost_at = float("-inf")
        self.is_lost = False
        self.outages = 0

    def made(self, asked_at: float) -> None:
        """Note the answer to a question of that time, by `time.monotonic()`."""
        if self.is_lost and asked_at < self._lost_at:
            # It was on its way before the connection broke.
            return
        self._last = time.monotonic()
        # A server that freezes loses no connection, but nobody's heartbeat gets through either.
        if self.is_lost or self._last - asked_at > _SLOW_SECONDS:
            self.is_lost = False
            self._back_since = self._last

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

    @property
    def steady_for(self) -> float:
        """Tell for how many seconds MongoDB has answered in time, since it last did not."""
        return 0.0 if self.is_lost else time.monotonic() - self._back_since
