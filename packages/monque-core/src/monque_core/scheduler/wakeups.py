"""Hints that a look at the queue is worth it; correctness never depends on one."""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

MANY: Final = 1 << 30
"""More due jobs than can be counted: nobody knows how many there are."""


class Wakeups:
    """How many jobs of each name are thought to be due, and which become due when."""

    def __init__(self, served: Container[str]) -> None:
        self._served = served
        self._due: dict[str, int] = {}
        self._later: Counter[tuple[datetime, str]] = Counter()
        self._order: list[tuple[datetime, str]] = []
        self._signal = asyncio.Event()
        self.horizon: datetime | None = None
        """Until when `_later` is complete; what lies beyond is asked for when it comes nearer."""

    def hint(self, name: str, count: int = MANY) -> None:
        """Note that so many jobs of this name may be due, if they can be run here."""
        if name not in self._served:
            return
        self._due[name] = min(MANY, self._due.get(name, 0) + count)
        self._signal.set()

    def hint_at(self, name: str, at: datetime, count: int = 1) -> None:
        """Note that jobs of this name become due at this time."""
        if self.horizon is not None and at > self.horizon:
            return
        entry = (at, name)
        if entry not in self._later:
            heapq.heappush(self._order, entry)
        self._later[entry] += count
        if self._order[0] == entry:
            self._signal.set()

    def extend(self, upcoming: Iterable[tuple[str, datetime]], horizon: datetime) -> None:
        """Add what is known to become due until the horizon to what was heard of meanwhile."""
        self.horizon = horizon
        for entry, count in Counter((at, name) for name, at in upcoming).items():
            if entry not in self._later:
                heapq.heappush(self._order, entry)
            self._later[entry] = max(count, self._later[entry])

    def ring(self, now: datetime) -> None:
        """Turn every time that has come into a hint."""
        while self._order and self._order[0][0] <= now:
            entry = heapq.heappop(self._order)
            self.hint(entry[1], self._later.pop(entry))

    def next_at(self) -> datetime | None:
        """Tell the earliest time known."""
        return self._order[0][0] if self._order else None

    def expected(self, name: str) -> int:
        """Tell how many jobs of this name are thought to be due."""
        return self._due.get(name, 0)

    @property
    def is_expecting(self) -> bool:
        """Tell whether any job is thought to be due."""
        return bool(self._due)

    def take(self, name: str) -> None:
        """Take the hints of a name in order to look; hints that come meanwhile stay."""
        self._due.pop(name, None)

    def poke(self) -> None:
        """Wake the dispatcher because its capacity has changed."""
        self._signal.set()

    def reset(self) -> None:
        """Expect wake-ups from here on; what came before must be looked at now."""
        self._signal.clear()

    async def wait(self, seconds: float) -> None:
        """Wait for a wake-up, at most so long."""
        if self._signal.is_set():
            return
        try:
            async with asyncio.timeout(seconds):
                await self._signal.wait()
        except TimeoutError:
            pass


def seconds_until(at: datetime | None, now: datetime) -> float:
    """Give the seconds from now, never negative, infinite for never."""
    if at is None:
        return float("inf")
    return max(0.0, (at - now) / timedelta(seconds=1))
