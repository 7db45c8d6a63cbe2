"""How often to look at the queue when no wake-up asks for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from monque_core.waiting import ExponentialPause

if TYPE_CHECKING:
    from datetime import timedelta


class Polling(ABC):
    """The gap between polls, in seconds."""

    is_standby = False
    """Whether other instances listen for this one, and wake it if they need it."""

    @property
    def looks_after_runs(self) -> bool:
        """Whether to look for work whenever a run ends."""
        return False

    @abstractmethod
    def gap(self) -> float:
        """Return the seconds from this poll to the next one."""

    @abstractmethod
    def took(self, count: int) -> float:
        """Record how much a claim brought in, and return the most seconds to the next poll."""


class SteadyPolling(Polling):
    """Rarely while this instance or others listen for new work, often while nobody does."""

    def __init__(self, often: timedelta, seldom: timedelta, *, streams_lag: bool = False) -> None:
        self._often = often.total_seconds()
        self._seldom = seldom.total_seconds()
        # A stream that may be seconds late spares no polls.
        self._with_stream = min(self._often, self._seldom) if streams_lag else self._seldom
        self.sees_changes = False

    def gap(self) -> float:
        """Return the seconds from this poll to the next one."""
        if self.is_standby:
            return self._seldom
        return self._with_stream if self.sees_changes else self._often

    @property
    def looks_after_runs(self) -> bool:
        """Whether to look for work whenever a run ends, since no stream reports any."""
        return self.is_standby and not self.sees_changes

    def took(self, count: int) -> float:  # noqa: ARG002  # however much it was
        """Keep the gap: new work is reported by the stream."""
        return float("inf")


class AdaptivePolling(Polling):
    """Often while there is work; each look that finds nothing doubles the gap up to a limit."""

    def __init__(self, shortest: timedelta, longest: timedelta) -> None:
        self._shortest = shortest.total_seconds()
        self._pause = ExponentialPause(self._shortest, longest.total_seconds())

    def gap(self) -> float:
        """Return the seconds from this poll to the next one, if this one finds nothing."""
        return self._pause.lengthen()

    def took(self, count: int) -> float:
        """Return to the shortest gap if there was work."""
        if not count:
            return float("inf")
        self._pause.reset()
        return self._shortest
