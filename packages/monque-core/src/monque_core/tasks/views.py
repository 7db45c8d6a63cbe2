"""What is seen of reactive tasks from outside: pages and figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from monque_core.tasks.record import TaskRecord


@dataclass(frozen=True, slots=True)
class TaskPage:
    """Some records of reactive tasks in order, and the way to those before and after them."""

    tasks: Sequence[TaskRecord]
    cursor: str | None
    """Hand it back to go on from here, in either direction; None where nothing was found."""
    has_next: bool
    has_previous: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReactiveTaskStats:
    """How one reactive task is doing: its records in each status, and its planning."""

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
    """For how long the oldest pending record has been due; None if none is pending."""
    parked: int = 0
    """How many documents it cannot be planned for."""
    reconciled_at: datetime | None = None
    reconciling: bool = False
    """Whether a reconciliation was asked for and is not complete."""
    error: str | None = None
    """Why it cannot be planned at present."""

    @property
    def total(self) -> int:
        """Give the number of records in whatever status."""
        running = self.processing + self.processing_dirty
        return self.pending + running + self.completed + self.failed


@dataclass(frozen=True, slots=True, kw_only=True)
class ReactiveStats:
    """How the reactive tasks are doing, in the order of their names."""

    tasks: Sequence[ReactiveTaskStats] = ()
    leader: str | None = None
    """Who plans at present; None if nobody does."""
    stream_lag: timedelta | None = None
    """How far planning is behind the changes, at worst; None before it has begun."""
