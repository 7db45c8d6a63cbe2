"""Tracking idle and busy periods."""

from __future__ import annotations

import asyncio


class IdleTracker:
    """Whether slots are free and no work is expected."""

    def __init__(self) -> None:
        self._is_idle = asyncio.Event()
        self._is_busy = asyncio.Event()
        self._is_busy.set()
        self._is_pressed = asyncio.Event()
        self._is_pressed.set()
        self._idle_periods = 0

    def mark_idle(self) -> None:
        """Record that there is nothing to do."""
        if not self._is_idle.is_set():
            self._idle_periods += 1
            self._is_idle.set()
            self._is_busy.clear()
        self._is_pressed.clear()

    def mark_busy(self) -> None:
        """Record that work was claimed; a look that fails or finds nothing does not count."""
        self._is_idle.clear()
        self._is_busy.set()
        self._is_pressed.set()

    def mark_stuck(self) -> None:
        """Record that work is expected that finds no slot, though others may be free."""
        self._is_pressed.set()

    async def wait_until_idle(self) -> None:
        """Wait until there is nothing to do."""
        await self._is_idle.wait()

    async def wait_until_pressed(self) -> None:
        """Wait until there is something to do, or to be done that finds no slot."""
        await self._is_pressed.wait()

    async def wait_until_busy_for(self, seconds: float) -> None:
        """Wait until there was something to do all the time for so many seconds."""
        while True:
            await self._is_busy.wait()
            idle_periods = self._idle_periods
            # One timer, however many idle periods there are during it.
            await asyncio.sleep(seconds)
            if idle_periods == self._idle_periods:
                return
