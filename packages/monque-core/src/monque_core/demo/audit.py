"""The audit of the demonstration: compares what was enqueued with what ran."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from monque_core.jobs.job import JobStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from datetime import datetime

    from bson import ObjectId
    from pymongo.asynchronous.collection import AsyncCollection

    from monque_core.jobs.job import AnyJob


@dataclass(frozen=True, slots=True)
class AuditResult:
    """The jobs that did not run exactly once."""

    lost: frozenset[ObjectId]
    duplicated: frozenset[ObjectId]

    @property
    def is_good(self) -> bool:
        """Whether every job ran exactly once."""
        return not self.lost and not self.duplicated

    def __str__(self) -> str:
        if self.is_good:
            return "No job was lost and none ran twice."
        return f"{len(self.lost)} job(s) lost, {len(self.duplicated)} ran more than once."


class Audit:
    """Counts the successful runs of every job."""

    def __init__(self) -> None:
        self._enqueued: set[ObjectId] = set()
        self._schedules: set[ObjectId] = set()
        self._done: set[ObjectId] = set()
        self._runs: Counter[tuple[ObjectId, datetime | None]] = Counter()

    def enqueued(self, jobs: Iterable[AnyJob]) -> None:
        """Record jobs that must run once."""
        self._enqueued.update(job.id for job in jobs)

    def scheduled(self, job: AnyJob) -> None:
        """Record a job that must run once per occurrence."""
        self._schedules.add(job.id)

    async def count_run(self, job: AnyJob, call_next: Callable[..., Awaitable[object]]) -> object:
        """Count a run unless it fails; a middleware."""
        occurrence = (job.id, job.next_run_at if job.is_recurring else None)
        self._runs[occurrence] += 1
        try:
            result = await call_next()
        except Exception:
            self._runs[occurrence] -= 1
            raise
        self._done.add(job.id)
        return result

    @property
    def total(self) -> int:
        """Return the number of jobs that must run once."""
        return len(self._enqueued)

    @property
    def outstanding(self) -> int:
        """Return the number of jobs that have not succeeded yet."""
        return len(self._enqueued - self._done)

    @property
    def schedule_runs(self) -> int:
        """Return the number of successful runs of schedules."""
        return sum(1 for (_, run_at), runs in self._runs.items() if run_at is not None and runs)

    async def check(self, collection: AsyncCollection[dict[str, Any]]) -> AuditResult:
        """Compare the counts with the collection, after the last run."""
        lost = self._enqueued | self._schedules
        duplicated = {job_id for (job_id, _), runs in self._runs.items() if runs > 1}
        fields = {"status": 1, "claims": 1, "failCount": 1, "repeatInterval": 1}
        async for document in collection.find({}, fields):
            job_id = document["_id"]
            is_scheduled = "repeatInterval" in document and document["status"] == JobStatus.PENDING
            if is_scheduled or (document["status"] == JobStatus.COMPLETED and job_id in self._done):
                lost.discard(job_id)
            # Every claim has one outcome; an extra claim is a run that was not counted.
            if document.get("claims", 0) > document["failCount"] + 1:
                duplicated.add(job_id)
        return AuditResult(frozenset(lost), frozenset(duplicated))
