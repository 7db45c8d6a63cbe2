"""Outage tracking: when MongoDB answered last, and when it was too slow for heartbeats."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pymongo.errors import ConnectionFailure, InvalidOperation

from monque_core.options import SHORTEST_HEARTBEAT, STALE_AFTER_HEARTBEATS

if TYPE_CHECKING:
    from pymongo.errors import PyMongoError

# Not primary any more, shutting down, or interrupted by either.
_GOING_AWAY_CODES = frozenset({91, 189, 10058, 10107, 11600, 11602, 13435, 13436})
_SHORTEST_GAP = SHORTEST_HEARTBEAT.total_seconds()


class Connectivity:
    """When MongoDB answered last, and the gaps in which no heartbeat could be written.

    A frozen server loses no connection, so a slow answer counts as a gap, too.
    """

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._has_answered = False
        self._lost_at = float("-inf")
        self._gaps: list[tuple[float, float]] = []
        self._suppressed_until = 0.0
        self.is_lost = False
        self.outages = 0

    def made(self, asked_at: float, *, at_leisure: bool = False) -> None:
        """Record an answer to a call that began at a time of `time.monotonic()`.

        With `at_leisure`, MongoDB may take its time: a late answer is not a gap.
        """
        if self.is_lost and asked_at < self._lost_at:
            # The call began before the connection was lost.
            return
        now = time.monotonic()
        silent_since = now if at_leisure else asked_at
        gap = now - (min(silent_since, self._last) if self.is_lost else silent_since)
        if gap >= _SHORTEST_GAP:
            self._gaps = [kept for kept in self._gaps if _counts(kept, now)]
            self._gaps.append((gap, now))
        self._last = now
        self._has_answered = True
        self.is_lost = False

    def lost(self) -> None:
        """Record that MongoDB could not be reached."""
        self._lost_at = time.monotonic()
        if not self.is_lost:
            self.is_lost = True
            self.outages += 1

    def suppress_recovery(self, seconds: float) -> None:
        """Treat no owner as dead for so long: there may have been an outage before our start."""
        self._suppressed_until = time.monotonic() + seconds

    @property
    def is_made(self) -> bool:
        """Whether MongoDB answered when it was last asked."""
        return self._has_answered and not self.is_lost

    @property
    def asked_at(self) -> float:
        """Return when MongoDB last answered, or failed to, by `time.monotonic()`."""
        return max(self._last, self._lost_at)

    @property
    def age(self) -> float:
        """Return how many seconds ago MongoDB answered."""
        return time.monotonic() - self._last if self._has_answered else float("inf")

    def could_hear(self, heartbeat_seconds: float) -> bool:
        """Whether heartbeats of this interval could be written, so that a silent owner is dead."""
        patience = STALE_AFTER_HEARTBEATS * heartbeat_seconds
        now = time.monotonic()
        return now >= self._suppressed_until and all(
            gap < heartbeat_seconds or now - ended_at >= patience for gap, ended_at in self._gaps
        )


def _counts(gap: tuple[float, float], now: float) -> bool:
    """Whether a gap can still explain the silence of an owner."""
    length, ended_at = gap
    return now - ended_at < STALE_AFTER_HEARTBEATS * length


def is_outage(error: PyMongoError | RuntimeError) -> bool:
    """Whether an error means that MongoDB could not be reached, or that the server stops."""
    if isinstance(error, ConnectionFailure):
        return True
    if isinstance(error, RuntimeError):
        # PyMongo was cancelled while it waited for a server, see `store/cancellation.py`.
        return "Lock is not acquired" in str(error)
    if isinstance(error, InvalidOperation):
        # The application closed its client; only the message of the error shows it.
        return "after close" in str(error)
    details = getattr(error, "details", None) or {}
    reported = [details, *details.get("writeConcernErrors", [])]
    if concern := details.get("writeConcernError"):
        reported.append(concern)
    return any(report.get("code") in _GOING_AWAY_CODES for report in reported)
