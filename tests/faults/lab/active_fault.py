"""The phase in which an injected fault is active, for those who wait for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.faults.lab.process_supervisor import ManagedProcess


class ActiveFault:
    """Becomes active when the fault is in place, not when it is chosen."""

    def __init__(self) -> None:
        self._is_decided = asyncio.Event()
        self._is_active = False
        self.affected_process: ManagedProcess | None = None
        """The process that the fault hits, if it hits a single one."""
        self.min_seconds = 0.0
        """The minimum number of seconds for which the fault stays active."""

    def begin(self, min_seconds: float, affected_process: ManagedProcess | None = None) -> None:
        """Mark the fault as active for at least this many seconds."""
        self.min_seconds = min_seconds
        self.affected_process = affected_process
        self._is_active = True
        self._is_decided.set()

    def end(self) -> None:
        """Release those who wait for the fault, even if it was never injected."""
        self._is_decided.set()

    async def wait_until_active(self) -> bool:
        """Wait until the fault is active or cancelled; return whether it is active."""
        await self._is_decided.wait()
        return self._is_active
