"""How long to wait between two looks that nothing asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import timedelta


class Polling(ABC):
    """The gap between polls, in seconds."""

    @abstractmethod
    def gap(self) -> float:
        """Give the time from this poll to the next one."""

    @abstractmethod
    def took(self, count: int) -> float:
        """Note how much a claim brought in, and give the longest time to the next poll."""


class SteadyPolling(Polling):
    """Seldom while a change stream tells of new work, often while none does."""

    def __init__(self, often: timedelta, seldom: timedelta) -> None:
        self._often = often.total_seconds()
        self._seldom = seldom.total_seconds()
        self.sees_changes = False

    def gap(self) -> float:
        """Give the time from this poll to the next one."""
        return self._seldom if self.sees_changes else self._often

    def took(self, count: int) -> float:  # noqa: ARG002  # however much it was
        """Go on as before: whoever stores more tells of it."""
        return float("inf")


class AdaptivePolling(Polling):
    """Often while there is work; each look in vain doubles the gap up to a limit."""

    def __init__(self, shortest: timedelta, longest: timedelta) -> None:
        self._shortest = shortest.total_seconds()
        self._longest = longest.total_seconds()
        self._next = self._shortest

    def gap(self) -> float:
        """Give the time from this poll to the next one, if this one is in vain."""
        gap, self._next = self._next, min(self._longest, 2 * self._next)
        return gap

    def took(self, count: int) -> float:
        """Begin anew with the shortest gap if there was work."""
        if not count:
            return float("inf")
        self._next = self._shortest
        return self._shortest
