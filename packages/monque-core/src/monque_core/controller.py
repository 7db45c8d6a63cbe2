"""Managing jobs from outside."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from monque_core import events
from monque_core.jobs.rules import check_aware, check_id
from monque_core.jobs.selector import check_selector
from monque_core.store.selection import selected

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from bson import ObjectId

    from monque_core.jobs.job import AnyJob
    from monque_core.jobs.selector import JobSelector
    from monque_core.options import Options
    from monque_core.store.driver import Document
    from monque_core.store.store import Store

_RETRY_GAP = timedelta(milliseconds=10)
_LONGEST_SPREAD = timedelta(seconds=30)


class Controller(ABC):
    """The part of `Monque` that cancels, retries, moves and deletes jobs."""

    _options: Options
    _store: Store

    @abstractmethod
    async def initialize(self) -> None:
        """Make the collection ready for jobs."""

    @abstractmethod
    def _notice(self, jobs: Sequence[AnyJob]) -> None:
        """Take note of jobs that were stored from here."""

    @abstractmethod
    def _tell(self, event: str, payload: object) -> None:
        """Let listeners know what was done from here."""

    async def cancel_job(self, job_id: ObjectId | str) -> AnyJob | None:
        """Cancel a pending job and give it; None if there is none.

        One that is cancelled already is given as it is; any other status is a `JobStateError`.
        """
        wanted = check_id(job_id)
        await self.initialize()
        change = await self._store.control.cancel(wanted, self._now())
        if change is None:
            return None
        if change.is_new:
            self._tell(events.JOB_CANCELLED, events.JobCancelled(change.job))
        return change.job

    async def retry_job(self, job_id: ObjectId | str) -> AnyJob | None:
        """Make a failed or cancelled job pending again, with all its attempts; None if none.

        It is due at once, or at its own time if it was cancelled before that.
        Any other status, or a unique key that is active again, is a `JobStateError`.
        """
        wanted = check_id(job_id)
        await self.initialize()
        change = await self._store.control.retry(wanted, self._now())
        if change is None:
            return None
        self._notice([change.job])
        retried = events.JobRetried(change.job, change.previous_status)
        self._tell(events.JOB_RETRIED, retried)
        return change.job

    async def reschedule_job(self, job_id: ObjectId | str, run_at: datetime) -> AnyJob | None:
        """Move a pending job to another time; None if there is none.

        Any other status is a `JobStateError`.
        """
        wanted = check_id(job_id)
        instant = check_aware(run_at, field="run_at")
        await self.initialize()
        change = await self._store.control.reschedule(wanted, instant, self._now())
        if change is None:
            return None
        self._notice([change.job])
        return change.job

    async def delete_job(self, job_id: ObjectId | str) -> bool:
        """Delete a job in whatever status; tell whether there was one.

        A run of it is cancelled when it finds out.
        """
        wanted = check_id(job_id)
        await self.initialize()
        is_deleted = await self._store.control.delete(wanted)
        if is_deleted:
            self._tell(events.JOB_DELETED, events.JobDeleted(wanted))
        return is_deleted

    async def cancel_jobs(
        self,
        selector: JobSelector,
        *,
        everything: bool = False,
        schedules: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Cancel the chosen jobs that are pending; tell how many.

        Schedules are left alone unless `schedules` is true: who clears a queue of its waiting jobs
        seldom means to end what adds to it.
        """
        chosen = await self._chosen(selector, everything=everything)
        batches = self._store.control.cancel_many(chosen, self._now(), schedules=schedules)
        return await self._in_bulk(batches, events.JOBS_CANCELLED, progress)

    async def retry_jobs(
        self,
        selector: JobSelector,
        *,
        everything: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Retry the chosen jobs that failed or were cancelled; tell how many.

        They become due over a short while, not all at once, and those that were cancelled before
        they were due become due as they were. One whose unique key is active again is skipped.
        """
        chosen = await self._chosen(selector, everything=everything)
        count = await self._store.control.count_retryable(chosen)
        spread = min(_LONGEST_SPREAD, _RETRY_GAP * count)
        batches = self._store.control.retry_many(chosen, self._now(), spread)
        return await self._in_bulk(batches, events.JOBS_RETRIED, progress)

    async def delete_jobs(
        self,
        selector: JobSelector,
        *,
        everything: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Delete the chosen jobs, whatever their status; tell how many."""
        chosen = await self._chosen(selector, everything=everything)
        batches = self._store.control.delete_many(chosen)
        return await self._in_bulk(batches, events.JOBS_DELETED, progress)

    async def _chosen(self, selector: JobSelector, *, everything: bool) -> Document:
        if check_selector(selector).is_empty and not everything:
            raise ValueError(
                "this selector chooses every job there is: narrow it, or say everything=True"
            )
        await self.initialize()
        return selected(selector, self._now())

    async def _in_bulk(
        self, batches: AsyncIterator[int], event: str, progress: Callable[[int], None] | None
    ) -> int:
        """Go through the batches; `progress` is told the count of each."""
        total = 0
        async for count in batches:
            total += count
            if progress is not None:
                progress(count)
        if total:
            self._tell(event, events.JobsChanged(total))
        return total

    def _now(self) -> datetime:
        return self._options.clock.now()
