"""The time during which a fault is felt, for those who wait for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.faults.lab.fleet import Member


class Effect:
    """Begins when the harm is done, and not when it is decided upon."""

    def __init__(self) -> None:
        self._is_decided = asyncio.Event()
        self._is_on = False
        self.victim: Member | None = None
        """The process that it hits, if it is one."""
        self.shortest = 0.0
        """For how many seconds it is on at least."""

    def begin(self, shortest: float, victim: Member | None = None) -> None:
        """Say that the harm is done, for how many seconds, and to whom."""
        self.shortest = shortest
        self.victim = victim
        self._is_on = True
        self._is_decided.set()

    def end(self) -> None:
        """Say that there is nothing to wait for, if the harm was not done at all."""
        self._is_decided.set()

    async def until_on(self) -> bool:
        """Wait until the harm is done, and tell whether it was."""
        await self._is_decided.wait()
        return self._is_on
