"""What is seen of jobs from outside: pages, figures, queues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from monque_core.jobs.job import AnyJob


@dataclass(frozen=True, slots=True)
class JobPage:
    """Some jobs in order, and the way to those before and after them."""

    jobs: Sequence[AnyJob]
    cursor: str | None
    """Hand it back to go on from here, in either direction; None where nothing was found."""
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
    """From claim to completion, over all completed jobs that are stored; None if none is."""

    @property
    def total(self) -> int:
        """Give the number of jobs in whatever status."""
        return self.pending + self.processing + self.completed + self.failed + self.cancelled


@dataclass(frozen=True, slots=True)
class QueueWorker:
    """The worker that this instance has for a job name."""

    concurrency: int
    running: int
    timeout: timedelta | None


@dataclass(frozen=True, slots=True)
class QueueView:
    """One job name: what is stored of it, and who serves it here."""

    name: str
    stats: QueueStats
    has_jobs: bool
    worker: QueueWorker | None
