"""The record of a task for one source document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from bson import ObjectId

TaskStatusName: TypeAlias = Literal[
    "pending", "processing", "processing_dirty", "completed", "failed"
]
ExecutionStatusName: TypeAlias = Literal[
    "completed", "skipped", "failed", "deferred", "interrupted"
]


class TaskStatus:
    """The five states of a record, as they are stored."""

    PENDING: Final = "pending"
    PROCESSING: Final = "processing"
    PROCESSING_DIRTY: Final = "processing_dirty"
    """Running, but the watched values have changed: it will run again."""
    COMPLETED: Final = "completed"
    FAILED: Final = "failed"

    ALL: Final[tuple[TaskStatusName, ...]] = (
        PENDING,
        PROCESSING,
        PROCESSING_DIRTY,
        COMPLETED,
        FAILED,
    )
    RUNNING: Final[tuple[TaskStatusName, ...]] = (PROCESSING, PROCESSING_DIRTY)
    ACTIVE: Final[tuple[TaskStatusName, ...]] = (PENDING, PROCESSING, PROCESSING_DIRTY)


class ExecutionStatus:
    """How a run in the history ended, as it is stored."""

    COMPLETED: Final = "completed"
    SKIPPED: Final = "skipped"
    """The document no longer matched."""
    FAILED: Final = "failed"
    DEFERRED: Final = "deferred"
    INTERRUPTED: Final = "interrupted"
    """The process died, and another one took over."""

    ALL: Final[tuple[ExecutionStatusName, ...]] = (
        COMPLETED,
        SKIPPED,
        FAILED,
        DEFERRED,
        INTERRUPTED,
    )


@dataclass(frozen=True, slots=True)
class RunSummary:
    """When a run ended, and how long it took."""

    at: datetime
    duration: timedelta


@dataclass(frozen=True, slots=True)
class Execution:
    """One run in the history of a record."""

    at: datetime
    status: ExecutionStatusName
    duration: timedelta | None = None
    error: str | None = None


@dataclass(kw_only=True)
class TaskRecord:
    """A snapshot of one stored record; changing it changes nothing in MongoDB."""

    id: ObjectId
    task: str
    source_id: Any
    status: TaskStatusName
    created_at: datetime
    updated_at: datetime
    attempts: int = 0
    """The number of runs started, crashed ones included."""
    next_run_at: datetime | None = None
    """Pending: the next run; processing: the expiry of the lock; otherwise None."""
    due_at: datetime | None = None
    """When the run was first due."""
    started_at: datetime | None = None
    completed_at: datetime | None = None
    first_error_at: datetime | None = None
    last_error: str | None = None
    last_finalized_at: datetime | None = None
    values: Any = None
    """The watched values; None if the document is gone or no longer matches."""
    last_success: RunSummary | None = None
    history: tuple[Execution, ...] = ()
    claimed_by: str | None = None
    claim_token: ObjectId | None = None
    planned_term: int | None = None
    unmatched_at: datetime | None = None
    """Since when the document is gone or does not match."""
    collection: str | None = None
    """The source collection, where the context does not determine it."""

    @property
    def name(self) -> str:
        """Return the name of the task."""
        return self.task

    @property
    def data(self) -> Any:
        """Return the watched values."""
        return self.values

    @property
    def is_running(self) -> bool:
        """Whether the record is claimed, dirty or not."""
        return self.status in TaskStatus.RUNNING
