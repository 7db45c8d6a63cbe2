"""Bringing back the jobs of instances that died."""

from __future__ import annotations

from typing import TYPE_CHECKING

from monque_core.errors import MonqueError
from monque_core.jobs.outcome import RetryPolicy, after_exhaustion, settled
from monque_core.scheduler.loop import Periodic
from monque_core.store.ledger import Settlement

if TYPE_CHECKING:
    from datetime import timedelta

    from monque_core.clock import Clock
    from monque_core.jobs.job import AnyJob
    from monque_core.scheduler.announcer import Announcer
    from monque_core.scheduler.runs import Runs
    from monque_core.scheduler.wakeups import Wakeups
    from monque_core.store.stale_jobs import StaleBatch
    from monque_core.store.store import Store

_BATCH_SIZE = 1000


class Recovery(Periodic):
    """Looks for abandoned jobs about once per heartbeat interval."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        policy: RetryPolicy,
        interval: timedelta,
        runs: Runs,
        wakeups: Wakeups,
        announcer: Announcer,
    ) -> None:
        super().__init__(announcer.errored, interval)
        self._store = store
        self._clock = clock
        self._policy = policy
        self._runs = runs
        self._wakeups = wakeups
        self._announcer = announcer

    async def recover(self) -> int:
        """Make stale jobs pending again, fail those that were interrupted too often."""
        recovered = 0
        while True:
            now = self._clock.now()
            batch = await self._store.stale_jobs.find(now, _BATCH_SIZE)
            for error in batch.unreadable:
                self._announcer.errored(error)
            revived = await self._take_back(batch)
            recovered += revived
            if not revived or len(batch.jobs) + len(batch.unreadable) < _BATCH_SIZE:
                break
        if recovered:
            self._announcer.recovered(recovered)
        return recovered

    async def _tick(self) -> None:
        await self.recover()

    async def _take_back(self, batch: StaleBatch) -> int:
        # A blocked event loop may have delayed our own heartbeat: what runs here is not abandoned.
        held = {(run.job.id, run.job.claim_token) for run in self._runs}
        abandoned = [
            job
            for job in batch.jobs
            if (job.id, job.claim_token) not in held and self._could_be_heard(job)
        ]
        spent = [job for job in abandoned if job.claims >= self._policy.limit_for(job)]
        for job in spent:
            await self._fail(batch, job)
        alive = [job for job in abandoned if job.claims < self._policy.limit_for(job)]
        if not alive:
            return 0
        revived = await self._store.stale_jobs.revive(batch, alive, self._clock.now())
        for job in alive:
            self._wakeups.hint(job.name, 1)
        return revived

    def _could_be_heard(self, job: AnyJob) -> bool:
        """Tell whether the owner had its three heartbeats' time since MongoDB was last away."""
        if not isinstance(job.heartbeat_interval, (int, float)):
            return True
        return self._store.contact.could_hear(job.heartbeat_interval / 1000)

    async def _fail(self, batch: StaleBatch, job: AnyJob) -> None:
        """Give up a job through the ordinary failure, which a claim of our own allows."""
        now = self._clock.now()
        adopted = await self._store.stale_jobs.adopt(batch, job, now)
        if adopted is None:
            return
        error = MonqueError(
            f"the process running this job died or stalled {job.claims} time(s), "
            "as often as the job may run"
        )
        outcome = after_exhaustion(adopted, str(error), now)
        (verdict,) = await self._store.ledger.settle([Settlement(adopted, outcome)], now)
        if verdict == "written":
            self._announcer.failed(settled(adopted, outcome, now), error, will_retry=False)
