"""The books of the demonstration: what was enqueued, what ran, and whether they agree."""

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
class Verdict:
    """The jobs that did not run exactly once."""

    lost: frozenset[ObjectId]
    doubled: frozenset[ObjectId]

    @property
    def is_good(self) -> bool:
        """Tell whether every job ran exactly once."""
        return not self.lost and not self.doubled

    def __str__(self) -> str:
        if self.is_good:
            return "No job was lost and none ran twice."
        return f"{len(self.lost)} job(s) lost, {len(self.doubled)} ran more than once."


class Audit:
    """Counts the runs of every job; one that failed and was tried again is no second run."""

    def __init__(self) -> None:
        self._enqueued: set[ObjectId] = set()
        self._schedules: set[ObjectId] = set()
        self._done: set[ObjectId] = set()
        self._runs: Counter[tuple[ObjectId, datetime | None]] = Counter()

    def enqueued(self, jobs: Iterable[AnyJob]) -> None:
        """Note jobs that have to run once."""
        self._enqueued.update(job.id for job in jobs)

    def scheduled(self, job: AnyJob) -> None:
        """Note a job that has to run once at each of its ticks."""
        self._schedules.add(job.id)

    async def count_run(self, job: AnyJob, call_next: Callable[..., Awaitable[object]]) -> object:
        """Count a run unless it fails: a middleware."""
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
        """Tell how many jobs have to run once."""
        return len(self._enqueued)

    @property
    def outstanding(self) -> int:
        """Tell how many of them have not succeeded yet."""
        return len(self._enqueued - self._done)

    @property
    def ticks(self) -> int:
        """Tell how many occurrences of schedules succeeded."""
        return sum(1 for (_, tick), runs in self._runs.items() if tick is not None and runs)

    async def check(self, collection: AsyncCollection[dict[str, Any]]) -> Verdict:
        """Compare the books with what is stored, after the last run."""
        lost = self._enqueued | self._schedules
        doubled = {job_id for (job_id, _), runs in self._runs.items() if runs > 1}
        fields = {"status": 1, "claims": 1, "failCount": 1, "repeatInterval": 1}
        async for document in collection.find({}, fields):
            job_id = document["_id"]
            waits = "repeatInterval" in document and document["status"] == JobStatus.PENDING
            if waits or (document["status"] == JobStatus.COMPLETED and job_id in self._done):
                lost.discard(job_id)
            # Every claim ends in an outcome; one more than that was a run nobody heard of.
            if document.get("claims", 0) > document["failCount"] + 1:
                doubled.add(job_id)
        return Verdict(frozenset(lost), frozenset(doubled))
