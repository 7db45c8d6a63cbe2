"""Jobs for tests: one that is not stored, and all that are stored."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

from bson import ObjectId

from monque_core.jobs.job import Job, JobStatus
from monque_core.jobs.selector import JobSelector
from monque_core.monque import Monque
from monque_core.options import Options
from monque_core.store.driver import Driver
from monque_core.store.listing import JobListing, Order
from monque_core.sync.monque import SyncMonque

if TYPE_CHECKING:
    from monque_core.jobs.job import AnyJob

T = TypeVar("T")
MAX_JOBS: Final = 2**31 - 1
"""The highest limit that MongoDB accepts."""
_OLDEST_FIRST = Order("created_at", descending=False)


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


async def read_jobs(database: object, *, in_place: bool) -> list[AnyJob]:
    """Return the jobs in the default collection of a database, oldest first.

    Reading creates no indexes and changes nothing. With `in_place`, a blocking database is read in
    the calling thread.
    """
    if isinstance(database, (Monque, SyncMonque)):
        module = "monque_core.testing" + (".sync" if isinstance(database, SyncMonque) else "")
        raise TypeError(f"use the assertions of {module} for a {type(database).__name__}")
    handle = Driver(database, in_place=in_place)
    listing = JobListing(handle.collection(Options.collection_name))
    return await listing.find(JobSelector(), _OLDEST_FIRST, MAX_JOBS, 0, datetime.now(UTC))
