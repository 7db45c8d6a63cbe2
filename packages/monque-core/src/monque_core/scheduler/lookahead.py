"""Asking the queue what becomes due soon, so that it starts on time."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from monque_core.scheduler.wakeups import MANY, seconds_until

if TYPE_CHECKING:
    from monque_core.clock import Clock
    from monque_core.scheduler.source import Source
    from monque_core.scheduler.wakeups import Wakeups

_LONGEST_SPAN = timedelta(seconds=120)
_SHORTEST_SPAN = timedelta(milliseconds=100)
_LIMIT = 1000


class Lookahead:
    """Keeps the wake-ups complete up to a horizon that moves with time."""

    def __init__(self, source: Source[Any, Any], wakeups: Wakeups, clock: Clock) -> None:
        self._queue = source.queue
        self._workers = source.workers
        self._polling = source.polling
        self._wakeups = wakeups
        self._clock = clock
        self._span = _LONGEST_SPAN
        self.next_at = 0.0
        """When to ask again, by the time of the event loop."""

    def invalidate(self) -> None:
        """Ask again at the next opportunity, as after a worker was added."""
        self.next_at = 0.0

    async def refresh(self) -> None:
        """Ask what becomes due next, if it is time."""
        now = asyncio.get_running_loop().time()
        names = self._workers.names
        if now < self.next_at:
            return
        # `invalidate` during the query sets it to 0, and then it stays 0.
        self.next_at = float("inf")
        if not names or self._polling.is_standby:
            return
        current = self._clock.now()
        # Include what became due between the old horizon and now.
        begin = min(current, self._wakeups.horizon or current)
        horizon = current + self._span
        try:
            upcoming = await self._queue.upcoming(names, begin, horizon, _LIMIT)
        except BaseException:
            self.invalidate()
            raise
        if len(upcoming) == _LIMIT:
            horizon = upcoming[-1][1]
            self._span = max(_SHORTEST_SPAN, 2 * (horizon - current))
            next_at = now + seconds_until(horizon, current)
        else:
            self._span = min(_LONGEST_SPAN, 2 * self._span)
            next_at = now + seconds_until(horizon, current) / 2
        self.next_at = min(self.next_at, next_at)
        self._wakeups.extend(upcoming, horizon)
        if len(upcoming) == _LIMIT:
            # The limit may have cut off jobs that become due at the same instant as the last one.
            for name in names:
                self._wakeups.hint_at(name, horizon, MANY)
