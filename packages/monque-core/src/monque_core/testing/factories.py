"""`make_job`: a job for unit tests of handlers, without MongoDB."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, TypeVar

from bson import ObjectId

from monque_core.jobs.job import Job, JobStatus

T = TypeVar("T")


def make_job(data: T, *, name: str = "test", **fields: Any) -> Job[T]:
    """Return a job with this data, as a handler gets it in its first run.

    The job is not stored. Other keyword arguments are fields of `Job`, such as `fail_count=2`.
    """
    now = datetime.now(UTC)
    first_run = {
        "id": ObjectId(),
        "status": JobStatus.PROCESSING,
        "next_run_at": now,
        "created_at": now,
        "updated_at": now,
        "locked_at": now,
        "claims": 1,
    }
    return Job(name=name, data=data, **{**first_run, **fields})
