"""Sample jobs for the tests of the store and of the modules without I/O."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from bson import ObjectId

from monque_core.jobs.job import Job, JobStatus

if TYPE_CHECKING:
    from monque_core.jobs.job import AnyJob

NOW = datetime(2026, 5, 5, 12, 0, 30, tzinfo=UTC)


def a_job(**fields: Any) -> AnyJob:
    """Return a pending job that is due, unless a field says otherwise."""
    defaults: dict[str, Any] = {
        "id": ObjectId(),
        "name": "send-email",
        "data": {"to": "ada@example.org"},
        "status": JobStatus.PENDING,
        "next_run_at": NOW,
        "created_at": NOW,
        "updated_at": NOW,
    }
    return Job(**(defaults | fields))


def a_schedule(**fields: Any) -> AnyJob:
    """Return a recurring job that is due, on the hour in UTC, unless a field says otherwise."""
    return a_job(
        **{"repeat_interval": "0 * * * *", "timezone": "UTC", "unique_key": "hourly"} | fields
    )
