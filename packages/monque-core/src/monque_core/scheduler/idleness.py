"""Whether slots are free and nothing is thought to be due."""

from __future__ import annotations

import asyncio


class Idleness:
    """Spells without work, and the toil between them."""

    def __init__(self) -> None:
        self._is_idle = asyncio.Event()
        self._is_busy = asyncio.Event()
        self._is_busy.set()
        self._spells = 0

    def begin(self) -> None:
        """Note that there is nothing to do."""
        if not self._is_idle.is_set():
            self._spells += 1
            self._is_idle.set()
            self._is_busy.clear()

    def end(self) -> None:
        """Note that there is something to do; a look that fails or finds nothing is not."""
        self._is_idle.clear()
        self._is_busy.set()

    async def wait(self) -> None:
        """Wait until there is nothing to do."""
        await self._is_idle.wait()

    async def wait_for_toil(self, seconds: float) -> None:
        """Wait until there has been something to do all the time for so many seconds."""
        while True:
            await self._is_busy.wait()
            spells = self._spells
            # One timer however often idleness comes and goes meanwhile.
            await asyncio.sleep(seconds)
            if spells == self._spells:
                return
