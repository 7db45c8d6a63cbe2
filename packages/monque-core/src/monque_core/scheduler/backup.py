"""Looking after the work that another listener is to claim first."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from monque_core.scheduler.loop import Loop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from monque_core.clock import Clock
    from monque_core.scheduler.source import WorkQueue
    from monque_core.scheduler.wakeups import Wakeups

    Check: TypeAlias = "tuple[float, datetime]"

DELAY_SECONDS: Final = 0.04
"""A little more than a claim and its event usually take."""


class Backup(Loop):
    """Checks a moment later whether the other listener has claimed what it was to claim."""

    def __init__(
        self,
        queue: WorkQueue[Any, Any],
        wakeups: Wakeups,
        clock: Clock,
        missed: Callable[[bool], Awaitable[None]],
        report: Callable[[BaseException], None],
    ) -> None:
        super().__init__(report)
        self._queue = queue
        self._wakeups = wakeups
        self._clock = clock
        self._missed = missed
        self._checks: dict[str, Check] = {}
        self._following: dict[str, Check] = {}
        self._has_checks = asyncio.Event()

    def expect(self, name: str) -> None:
        """Check soon that nothing of this name that is due now was left.

        At most two checks of a name are ahead, so that a flow of jobs costs one for many.
        """
        at = asyncio.get_running_loop().time() + DELAY_SECONDS
        checks = self._following if name in self._checks else self._checks
        checks[name] = (at, self._clock.now())
        self._has_checks.set()

    async def _run(self) -> None:
        while True:
            await self._has_checks.wait()
            loop = asyncio.get_running_loop()
            first = min(at for at, _ in self._checks.values())
            await asyncio.sleep(first - loop.time())
            await self._check(loop.time())
            if not self._checks:
                self._has_checks.clear()

    async def _check(self, now: float) -> None:
        due = {name: check for name, check in self._checks.items() if check[0] <= now}
        for name in due:
            del self._checks[name]
            if name in self._following:
                self._checks[name] = self._following.pop(name)
        if not due:
            return
        # What came later may be on its way to the other one. A test's clock may stand still.
        latest = self._clock.now() - timedelta(seconds=DELAY_SECONDS / 2)
        instant = max(latest, *(instant for _, instant in due.values()))
        is_left = True
        try:
            is_left = await self._queue.has_due(list(due), instant)
        finally:
            # Also after an error: nobody checks these again.
            if is_left:
                for name in due:
                    self._wakeups.hint(name)
        await self._missed(is_left)
