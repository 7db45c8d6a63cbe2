"""Showing that this instance lives, and noticing what it has lost."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from monque_core.scheduler.loop import Periodic
from monque_core.scheduler.settler import ownership_lost

if TYPE_CHECKING:
    from datetime import timedelta

    from monque_core.clock import Clock
    from monque_core.scheduler.announcer import Announcer
    from monque_core.scheduler.backlog import Backlog
    from monque_core.scheduler.runs import Run, Runs
    from monque_core.scheduler.wakeups import Wakeups
    from monque_core.store.ledger import Ledger


class Heartbeat(Periodic):
    """One write per interval that keeps every claim of this instance alive."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        interval: timedelta,
        runs: Runs,
        backlog: Backlog,
        wakeups: Wakeups,
        announcer: Announcer,
    ) -> None:
        super().__init__(announcer.errored, interval)
        self._ledger = ledger
        self._clock = clock
        self._runs = runs
        self._backlog = backlog
        self._wakeups = wakeups
        self._announcer = announcer

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        await self._beat()
        if loop.time() - began_at > self._interval / 2:
            # The server took its time: what it stored now is older than it should be.
            await self._beat()

    async def _beat(self) -> None:
        beating = list(self._runs)
        if not beating:
            return
        lost = await self._ledger.renew([run.job for run in beating], self._clock.now())
        for run in beating:
            if (run.job.id, run.job.claim_token) in lost and run in self._runs:
                self._lose(run)

    def _lose(self, run: Run) -> None:
        # A run that is being settled may just have been written; the settler finds out.
        if run.stage == "settling" or run.ended_by is not None:
            return
        self._announcer.errored(ownership_lost(run.job), run.job)
        if run.stage == "waiting":
            self._backlog.remove(run)
            self._runs.discard(run)
            self._wakeups.poke()
        else:
            run.end("loss")
