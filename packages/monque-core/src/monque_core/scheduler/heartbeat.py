"""Heartbeats: renewing the claims of this instance and noticing lost ones."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic

from monque_core.scheduler.loop import Periodic
from monque_core.scheduler.source import C, W

if TYPE_CHECKING:
    from monque_core.clock import Clock
    from monque_core.scheduler.backlog import Backlog
    from monque_core.scheduler.event_publisher import EventPublisher
    from monque_core.scheduler.runs import Run, Runs
    from monque_core.scheduler.source import Source
    from monque_core.scheduler.wakeups import Wakeups
    from monque_core.store.claim_renewal import Loss


class Heartbeat(Periodic, Generic[W, C]):
    """Renews every claim on a source with one write per interval."""

    def __init__(
        self,
        source: Source[W, C],
        clock: Clock,
        runs: Runs[W],
        backlog: Backlog[W],
        wakeups: Wakeups,
        publisher: EventPublisher,
    ) -> None:
        super().__init__(publisher.errored, source.renewal_interval)
        self._source = source
        self._clock = clock
        self._runs = runs
        self._backlog = backlog
        self._wakeups = wakeups

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        await self._beat()
        if loop.time() - began_at > self._interval / 2:
            # The server was slow: the time it has stored is older than it should be.
            await self._beat()

    async def _beat(self) -> None:
        beating = list(self._runs)
        if not beating:
            return
        lost = await self._source.renew(beating, self._clock.now())
        for run in beating:
            loss = lost.get((run.work.id, run.work.claim_token))
            if loss is not None and run in self._runs:
                self._lose(run, loss)

    def _lose(self, run: Run[W], loss: Loss) -> None:
        # The outcome of a run that is being settled may just have been written; the settler checks.
        if run.stage == "settling" or run.ended_by is not None:
            return
        self._source.report_lost(run.work, loss)
        if run.stage == "waiting":
            self._backlog.remove(run)
            self._runs.discard(run)
            self._wakeups.poke()
        else:
            run.end("loss")
