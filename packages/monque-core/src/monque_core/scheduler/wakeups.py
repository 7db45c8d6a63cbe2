"""Wake-ups: hints that a look at the queue is worthwhile. Correctness never depends on one."""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from monque_core.waiting import wait_for_event

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable

MANY: Final = 1 << 30
"""An unknown number of due jobs."""


class Wakeups:
    """How many jobs of each name are expected to be due, and which become due when."""

    def __init__(self, served: Container[str]) -> None:
        self._served = served
        self._due: dict[str, int] = {}
        self._later: Counter[tuple[datetime, str]] = Counter()
        self._order: list[tuple[datetime, str]] = []
        self._signal = asyncio.Event()
        self.hinted = asyncio.Event()
        """Set by each hint; whoever waits for it clears it."""
        self.rank: Callable[[str, datetime], int | None] = _first
        """How many instances are to claim before this one what is due at a time, None if it is not
        to claim it at all."""
        self.back_up: Callable[[str], None] = _nothing
        """Called for a name of which another instance is to claim first."""
        self.overdue: Callable[[datetime], None] = _nothing
        """Called with the due time of work that only a poll has found."""
        self.horizon: datetime | None = None
        """Until when `_later` is complete; the lookahead asks for what lies beyond."""

    def hint(self, name: str, count: int = MANY) -> None:
        """Record that so many jobs of this name may be due, if they can run here."""
        if name not in self._served:
            return
        self._due[name] = min(MANY, self._due.get(name, 0) + count)
        self._signal.set()
        self.hinted.set()

    def hint_at(self, name: str, at: datetime, count: int = 1) -> None:
        """Record that jobs of this name become due at this time."""
        if self.horizon is not None and at > self.horizon:
            return
        entry = (at, name)
        if entry not in self._later:
            heapq.heappush(self._order, entry)
        self._later[entry] += count
        if self._order[0] == entry:
            self._signal.set()

    def extend(self, upcoming: Iterable[tuple[str, datetime]], horizon: datetime) -> None:
        """Add what becomes due until the horizon to what is already recorded."""
        self.horizon = horizon
        for entry, count in Counter((at, name) for name, at in upcoming).items():
            if entry not in self._later:
                heapq.heappush(self._order, entry)
            self._later[entry] = max(count, self._later[entry])

    def ring(self, now: datetime) -> None:
        """Turn every due time that has passed into a hint."""
        while self._order and self._order[0][0] <= now:
            at, name = entry = heapq.heappop(self._order)
            self.arrived(name, at, self._later.pop(entry))

    def arrived(self, name: str, at: datetime, count: int = 1) -> None:
        """Record that jobs which were to be due at this time are due."""
        rank = self.rank(name, at)
        if rank == 0:
            self.hint(name, count)
        elif rank is not None:
            self.back_up(name)

    def next_at(self) -> datetime | None:
        """Return the earliest due time known, None if there is none."""
        return self._order[0][0] if self._order else None

    def expected(self, name: str) -> int:
        """Return how many jobs of this name are expected to be due."""
        return self._due.get(name, 0)

    @property
    def expected_names(self) -> Iterable[str]:
        """Return the names with jobs expected to be due."""
        return list(self._due)

    @property
    def is_expecting(self) -> bool:
        """Whether any job is expected to be due."""
        return bool(self._due)

    def take(self, name: str) -> None:
        """Consume the hints of a name before a look; hints that come during the look stay."""
        self._due.pop(name, None)

    def poke(self) -> None:
        """Wake the dispatcher, for example because its capacity has changed."""
        self._signal.set()

    def reset(self) -> None:
        """Clear the signal; the caller looks at everything recorded so far."""
        self._signal.clear()

    async def wait(self, seconds: float) -> None:
        """Wait for a wake-up, at most so many seconds."""
        await wait_for_event(self._signal, seconds)


def _first(name: str, at: datetime) -> int | None:  # noqa: ARG001  # whatever becomes due
    return 0


def _nothing(what: object) -> None:
    """Leave out what only an instance among others does."""


def seconds_until(at: datetime | None, now: datetime) -> float:
    """Return the seconds from now, never negative, infinity for never."""
    if at is None:
        return float("inf")
    return max(0.0, (at - now) / timedelta(seconds=1))
