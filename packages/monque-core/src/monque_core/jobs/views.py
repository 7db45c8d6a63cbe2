"""Results of queries: pages, statistics and queues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from monque_core.jobs.job import AnyJob


@dataclass(frozen=True, slots=True)
class JobPage:
    """One page of jobs, and whether there are others."""

    jobs: Sequence[AnyJob]
    cursor: str | None
    """Pass it to the next call to continue in either direction; None if nothing was found."""
    has_next: bool
    has_previous: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats:
    """How many jobs are in each status."""

    pending: int = 0
    processing: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    average_duration: timedelta | None = None
    """Mean time from claim to completion of all stored completed jobs; None without any."""

    @property
    def total(self) -> int:
        """Return the number of jobs in all statuses."""
        return self.pending + self.processing + self.completed + self.failed + self.cancelled


@dataclass(frozen=True, slots=True)
class QueueWorker:
    """The worker that this instance has for a job name."""

    concurrency: int
    running: int
    timeout: timedelta | None


@dataclass(frozen=True, slots=True)
class QueueView:
    """One job name: its stored jobs, and its worker in this instance."""

    name: str
    stats: QueueStats
    has_jobs: bool
    worker: QueueWorker | None
