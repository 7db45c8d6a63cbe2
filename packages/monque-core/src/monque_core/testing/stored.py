"""Every job there is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from monque_core.jobs.selector import JobSelector
from monque_core.monque import Monque
from monque_core.options import Options
from monque_core.store.driver import Driver
from monque_core.store.listing import JobListing, Order
from monque_core.sync.monque import SyncMonque
from monque_core.testing.report import tell_jobs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monque_core.durations import Duration
    from monque_core.jobs.job import AnyJob

ALL: Final = 2**31 - 1
"""More jobs than a test has, and the most that MongoDB can be asked for."""

_OLDEST_FIRST = Order("created_at", descending=False)


async def read(database: object, *, in_place: bool) -> list[AnyJob]:
    """Read the default collection of any kind of database, the oldest job first.

    Nothing is initialized for it: that a test looks changes nothing. In place, a blocking database
    is read by the thread that asks, and no other is left behind.
    """
    if isinstance(database, (Monque, SyncMonque)):
        module = "monque_core.testing" + (".sync" if isinstance(database, SyncMonque) else "")
        raise TypeError(f"the assertions about a {type(database).__name__} are in {module}")
    handle = Driver(database, in_place=in_place)
    listing = JobListing(handle.collection(Options.collection_name))
    return await listing.find(JobSelector(), _OLDEST_FIRST, ALL, 0, datetime.now(UTC))


def still_active(jobs: Sequence[AnyJob], patience: Duration) -> str:
    """Say which jobs are left after waiting for so many seconds, the earliest due first."""
    seconds = patience if isinstance(patience, (int, float)) else patience.total_seconds()
    by_time = sorted(jobs, key=lambda job: job.next_run_at)
    return "\n".join([f"not idle after {seconds:g} seconds; left are", *tell_jobs(by_time)])
