"""What monque tells its listeners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from datetime import timedelta

    from bson import ObjectId

    from monque_core.jobs.job import AnyJob, StatusName

JOB_START: Final = "job:start"
JOB_COMPLETE: Final = "job:complete"
JOB_FAIL: Final = "job:fail"
JOB_ERROR: Final = "job:error"
JOB_CANCELLED: Final = "job:cancelled"
JOB_RETRIED: Final = "job:retried"
JOB_DELETED: Final = "job:deleted"
JOBS_CANCELLED: Final = "jobs:cancelled"
JOBS_RETRIED: Final = "jobs:retried"
JOBS_DELETED: Final = "jobs:deleted"
STALE_RECOVERED: Final = "stale:recovered"
CHANGESTREAM_CONNECTED: Final = "changestream:connected"
CHANGESTREAM_CLOSED: Final = "changestream:closed"
CHANGESTREAM_ERROR: Final = "changestream:error"
CHANGESTREAM_FALLBACK: Final = "changestream:fallback"


@dataclass(frozen=True, slots=True)
class JobStarted:
    """A handler is about to run."""

    job: AnyJob


@dataclass(frozen=True, slots=True)
class JobCompleted:
    """A run succeeded and its outcome is stored; `job` is as stored."""

    job: AnyJob
    duration: timedelta


@dataclass(frozen=True, slots=True)
class JobFailed:
    """A run failed and its outcome is stored; `job` is as stored."""

    job: AnyJob
    error: BaseException
    will_retry: bool


@dataclass(frozen=True, slots=True)
class JobErrored:
    """Something unexpected happened, to a job or to the scheduler itself."""

    error: BaseException
    job: AnyJob | None = None


@dataclass(frozen=True, slots=True)
class JobCancelled:
    """A pending job was cancelled."""

    job: AnyJob


@dataclass(frozen=True, slots=True)
class JobRetried:
    """A failed or cancelled job was made pending again."""

    job: AnyJob
    previous_status: StatusName


@dataclass(frozen=True, slots=True)
class JobDeleted:
    """A job was deleted."""

    job_id: ObjectId


@dataclass(frozen=True, slots=True)
class JobsChanged:
    """A bulk action changed this many jobs."""

    count: int


@dataclass(frozen=True, slots=True)
class StaleRecovered:
    """Jobs of instances that died were made pending again."""

    count: int


@dataclass(frozen=True, slots=True)
class ChangeStreamChanged:
    """The change stream connected, closed, failed, or is not to be had."""

    error: BaseException | None = None
    reason: str | None = None
