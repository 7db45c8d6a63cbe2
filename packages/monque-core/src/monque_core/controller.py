"""The management API: cancel, retry, reschedule and delete jobs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from monque_core import events
from monque_core.jobs.selector import check_selector
from monque_core.validation import check_aware, check_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from bson import ObjectId

    from monque_core.jobs.job import AnyJob
    from monque_core.jobs.selector import JobSelector
    from monque_core.options import Options
    from monque_core.store.store import Store

_RETRY_GAP = timedelta(milliseconds=10)
_LONGEST_SPREAD = timedelta(seconds=30)


class Controller(ABC):
    """The part of `Monque` that cancels, retries, moves and deletes jobs."""

    _options: Options
    _store: Store

    @abstractmethod
    async def initialize(self) -> None:
        """Create indexes, recover stale jobs, check the instance id."""

    @abstractmethod
    def _notice(self, jobs: Sequence[AnyJob]) -> None:
        """Wake this instance for jobs that were stored from here."""

    @abstractmethod
    def _emit_event(self, event: str, payload: object) -> None:
        """Emit an event."""

    async def cancel_job(self, job_id: ObjectId | str) -> AnyJob | None:
        """Cancel a pending job and return it; None if there is no such job.

        A job that is cancelled already is returned as it is. Any other status raises
        `JobStateError`.
        """
        wanted = check_id(job_id)
        await self.initialize()
        change = await self._store.management.cancel(wanted, self._now())
        if change is None:
            return None
        if change.is_new:
            self._emit_event(events.JOB_CANCELLED, events.JobCancelled(change.job))
        return change.job

    async def retry_job(self, job_id: ObjectId | str) -> AnyJob | None:
        """Make a failed or cancelled job pending again, with all its runs, and return it.

        It is due now, or at its own time if it was cancelled before that. Returns None if there is
        no such job. Any other status, or a unique key that is active again, raises `JobStateError`.
        """
        wanted = check_id(job_id)
        await self.initialize()
        change = await self._store.management.retry(wanted, self._now())
        if change is None:
            return None
        self._notice([change.job])
        retried = events.JobRetried(change.job, change.previous_status)
        self._emit_event(events.JOB_RETRIED, retried)
        return change.job

    async def reschedule_job(self, job_id: ObjectId | str, run_at: datetime) -> AnyJob | None:
        """Move a pending job to another time and return it; None if there is no such job.

        Any other status raises `JobStateError`.
        """
        wanted = check_id(job_id)
        instant = check_aware(run_at, field="run_at")
        await self.initialize()
        change = await self._store.management.reschedule(wanted, instant, self._now())
        if change is None:
            return None
        self._notice([change.job])
        return change.job

    async def delete_job(self, job_id: ObjectId | str) -> bool:
        """Delete a job in any status, and return whether there was one.

        If it is running, its run is cancelled at the next heartbeat.
        """
        wanted = check_id(job_id)
        await self.initialize()
        is_deleted = await self._store.management.delete(wanted)
        if is_deleted:
            self._emit_event(events.JOB_DELETED, events.JobDeleted(wanted))
        return is_deleted

    async def cancel_jobs(
        self,
        selector: JobSelector,
        *,
        everything: bool = False,
        schedules: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Cancel the selected jobs that are pending, and return how many.

        Schedules stay unless `schedules` is true: clearing a queue rarely means to stop what
        fills it.
        """
        await self._check_and_initialize(selector, everything=everything)
        batches = self._store.management.cancel_many(selector, self._now(), schedules=schedules)
        return await self._in_bulk(batches, events.JOBS_CANCELLED, progress)

    async def retry_jobs(
        self,
        selector: JobSelector,
        *,
        everything: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Retry the selected jobs that failed or were cancelled, and return how many.

        They become due over a short while, not all at once. A job that was cancelled before it was
        due keeps its due time. A job whose unique key is active again is skipped.
        """
        await self._check_and_initialize(selector, everything=everything)
        now = self._now()
        count = await self._store.management.count_retryable(selector, now)
        spread = min(_LONGEST_SPREAD, _RETRY_GAP * count)
        batches = self._store.management.retry_many(selector, now, spread)
        return await self._in_bulk(batches, events.JOBS_RETRIED, progress)

    async def delete_jobs(
        self,
        selector: JobSelector,
        *,
        everything: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Delete the selected jobs in any status, and return how many."""
        await self._check_and_initialize(selector, everything=everything)
        batches = self._store.management.delete_many(selector, self._now())
        return await self._in_bulk(batches, events.JOBS_DELETED, progress)

    async def _check_and_initialize(self, selector: JobSelector, *, everything: bool) -> None:
        if check_selector(selector).is_empty and not everything:
            raise ValueError("this selector selects every job: narrow it, or pass everything=True")
        await self.initialize()

    async def _in_bulk(
        self, batches: AsyncIterator[int], event: str, progress: Callable[[int], None] | None
    ) -> int:
        """Run the batches, calling `progress` with the count of each, and return the total."""
        total = 0
        async for count in batches:
            total += count
            if progress is not None:
                progress(count)
        if total:
            self._emit_event(event, events.JobsChanged(total))
        return total

    def _now(self) -> datetime:
        return self._options.clock.now()
