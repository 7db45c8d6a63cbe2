"""Recovering the jobs of instances that died."""

from __future__ import annotations

import asyncio
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from monque_core.errors import MonqueConnectionError, MonqueError
from monque_core.jobs.outcome import after_exhaustion, max_runs, settled
from monque_core.scheduler.loop import Periodic
from monque_core.store.outcomes import Settlement
from monque_core.store.stale_jobs import is_interval

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import timedelta

    from monque_core.clock import Clock
    from monque_core.jobs.job import AnyJob
    from monque_core.jobs.retry import Retry
    from monque_core.scheduler.event_publisher import EventPublisher
    from monque_core.scheduler.runs import Runs
    from monque_core.scheduler.wakeups import Wakeups
    from monque_core.store.stale_jobs import StaleBatch
    from monque_core.store.store import Store

_BATCH_SIZE = 1000
_GRACE_SECONDS = 2.0


class Recovery(Periodic):
    """Looks for stale jobs about once per heartbeat interval."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        retry: Retry,
        interval: timedelta,
        runs: Runs[AnyJob],
        wakeups: Wakeups,
        publisher: EventPublisher,
    ) -> None:
        super().__init__(publisher.errored, interval)
        self._store = store
        self._clock = clock
        self._retry = retry
        self._runs = runs
        self._wakeups = wakeups
        self._publisher = publisher

    def begin_grace(self) -> float:
        """Suppress recovery for a while after startup, and return for how many seconds.

        There may have been an outage that this instance did not see: owners get time to renew
        their claims first.
        """
        grace_seconds = min(_GRACE_SECONDS, self._interval)
        self._store.connectivity.suppress_recovery(grace_seconds)
        return grace_seconds

    async def recover(self, grace_seconds: float = 0.0) -> int:
        """Make stale jobs pending again, and fail those that have no run left."""

        async def find(now: datetime, limit: int) -> StaleBatch:
            nonlocal grace_seconds
            batch = await self._store.stale_jobs.find(now, limit)
            if batch.jobs and grace_seconds:
                # A claim that is renewed meanwhile no longer matches the condition of the batch.
                await asyncio.sleep(grace_seconds)
                grace_seconds = 0.0
            return batch

        return await self._recover(find, self._could_be_heard)

    async def recover_instance(self, instance_id: str) -> int:
        """Recover all jobs of an instance whose process has ended."""
        find = partial(self._store.stale_jobs.find_of, instance_id)
        return await self._recover(find, lambda _: True)

    async def _recover(
        self,
        find: Callable[[datetime, int], Awaitable[StaleBatch]],
        is_abandoned: Callable[[AnyJob], bool],
    ) -> int:
        recovered = 0
        is_more = True
        while is_more:
            batch = await find(self._clock.now(), _BATCH_SIZE)
            for error in batch.unreadable:
                self._publisher.errored(error)
            abandoned = [job for job in self._not_ours(batch.jobs) if is_abandoned(job)]
            revived = await self._revive(batch, abandoned)
            failed = await self._fail_spent(batch, abandoned)
            recovered += revived
            is_full = len(batch.jobs) + len(batch.unreadable) == _BATCH_SIZE
            is_more = is_full and bool(revived + failed + len(batch.unreadable))
        if recovered:
            self._publisher.recovered(recovered)
        return recovered

    async def _tick(self) -> None:
        await self.recover()

    def _not_ours(self, jobs: Sequence[AnyJob]) -> list[AnyJob]:
        # A blocked event loop may have delayed our own heartbeat: what runs here is not abandoned.
        held = {(run.work.id, run.work.claim_token) for run in self._runs}
        return [job for job in jobs if (job.id, job.claim_token) not in held]

    async def _revive(self, batch: StaleBatch, abandoned: Sequence[AnyJob]) -> int:
        alive = [job for job in abandoned if not self._is_spent(job)]
        if not alive:
            return 0
        revived = await self._store.stale_jobs.revive(batch, alive, self._clock.now())
        for job in alive:
            self._wakeups.hint(job.name, 1)
        return revived

    async def _fail_spent(self, batch: StaleBatch, abandoned: Sequence[AnyJob]) -> int:
        failed = 0
        for job in abandoned:
            if not self._is_spent(job):
                continue
            try:
                failed += await self._fail(batch, job)
            except MonqueConnectionError:
                raise
            except Exception as error:  # noqa: BLE001  # a rejected write must not stop the others
                self._publisher.errored(error, job)
        return failed

    def _is_spent(self, job: AnyJob) -> bool:
        limit = max_runs(job, self._retry)
        return limit is not None and job.claims >= limit and not _is_counted_by_others(job)

    def _could_be_heard(self, job: AnyJob) -> bool:
        """Whether the owner had time for three heartbeats since the last outage."""
        interval = job.heartbeat_interval
        return not is_interval(interval) or self._store.connectivity.could_hear(interval / 1000)

    async def _fail(self, batch: StaleBatch, job: AnyJob) -> bool:
        """Fail a job through the ordinary failure transition, under a claim of our own."""
        now = self._clock.now()
        adopted = await self._store.stale_jobs.adopt(batch, job, now)
        if adopted is None:
            return False
        error = MonqueError(_spent(job, max_runs(job, self._retry)))
        outcome = after_exhaustion(adopted, str(error), now)
        (verdict,) = await self._store.outcomes.settle([Settlement(adopted, outcome)], now)
        if verdict == "written":
            self._publisher.failed(settled(adopted, outcome, now), error, will_retry=False)
        return verdict == "written"


def _is_counted_by_others(job: AnyJob) -> bool:
    """Whether Node claimed the job last: it moves `nextRunAt`, and does not count claims."""
    return isinstance(job.claimed_at, datetime) and job.next_run_at > job.claimed_at


def _spent(job: AnyJob, limit: int | None) -> str:
    """Return what used up the runs of a job: interruptions and failures."""
    interruptions = max(1, job.claims - job.fail_count)
    failures = f" and {job.fail_count} run(s) failed" if job.fail_count else ""
    return (
        f"the process running this job died or stalled {interruptions} time(s){failures}; "
        f"it may run {limit} time(s) in all"
    )
