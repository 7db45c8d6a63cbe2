"""The results of queries about reactive tasks: pages and statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from monque_core.tasks.record import TaskRecord


@dataclass(frozen=True, slots=True)
class TaskPage:
    """A page of task records, and a cursor for the pages before and after it."""

    tasks: Sequence[TaskRecord]
    cursor: str | None
    """Pass it to get the next or the previous page; None if nothing was found."""
    has_next: bool
    has_previous: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReactiveTaskStats:
    """Statistics of one reactive task: records per status, and planning."""

    name: str
    database: str
    collection: str
    """The source collection."""
    pending: int = 0
    processing: int = 0
    processing_dirty: int = 0
    completed: int = 0
    failed: int = 0
    lag: timedelta | None = None
    """How long the oldest pending record has been due; None if none is pending."""
    parked: int = 0
    """The number of documents for which it cannot be planned."""
    reconciled_at: datetime | None = None
    reconciling: bool = False
    """Whether a reconciliation was requested and is not complete."""
    error: str | None = None
    """Why it cannot be planned at the moment."""

    @property
    def total(self) -> int:
        """Return the number of records in any status."""
        running = self.processing + self.processing_dirty
        return self.pending + running + self.completed + self.failed


@dataclass(frozen=True, slots=True, kw_only=True)
class ReactiveStats:
    """Statistics of all reactive tasks, ordered by name."""

    tasks: Sequence[ReactiveTaskStats] = ()
    leader: str | None = None
    """The instance id of the leader; None if there is none."""
    stream_lag: timedelta | None = None
    """The largest delay of planning behind the changes; None before the first planning."""
