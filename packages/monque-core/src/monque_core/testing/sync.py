"""What a test says about jobs, without asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest.mock import ANY

from monque_core.jobs.job import JobStatus
from monque_core.sync.blocking_api import run_in_place
from monque_core.sync.monque import SyncMonque
from monque_core.testing.expectation import Expectation
from monque_core.testing.report import check
from monque_core.testing.stored import ALL, read, still_active

if TYPE_CHECKING:
    from monque_core.durations import Duration
    from monque_core.jobs.job import AnyJob
    from monque_core.jobs.selector import Statuses


def assert_enqueued(
    source: object,
    name: str,
    *,
    data: object = ANY,
    unique_key: str | None = ANY,
    status: Statuses | None = JobStatus.ACTIVE,
    count: int | None = None,
) -> list[AnyJob]:
    """Fail unless there is such a job, or just so many; give those there are, oldest first.

    `source` is a `SyncMonque` or a blocking database with the default collection. What is left out
    may be anything, as `unittest.mock.ANY` may be anywhere in the data. A job counts while it is
    pending or processing, unless another status is given; None is any.
    """
    __tracebackhide__ = True
    return check(Expectation(name, data, unique_key, status), _stored(source), count)


def assert_not_enqueued(
    source: object,
    name: str,
    *,
    data: object = ANY,
    unique_key: str | None = ANY,
    status: Statuses | None = JobStatus.ACTIVE,
) -> None:
    """Fail if there is such a job; the arguments are those of `assert_enqueued`."""
    __tracebackhide__ = True
    check(Expectation(name, data, unique_key, status), _stored(source), 0)


def run_until_idle(monque: SyncMonque, timeout: Duration = 10) -> None:
    """Run everything that is due by the clock of the `SyncMonque`, and return when it is done.

    Retries and jobs in the future stay until the clock is moved. After so many seconds of real
    time, `TimeoutError` tells what is left.
    """
    __tracebackhide__ = True
    was_running = monque.is_running
    monque.start()
    try:
        monque.run_until_idle(timeout)
    except TimeoutError:
        message = still_active(monque.get_jobs(status=JobStatus.ACTIVE, limit=ALL), timeout)
        if not was_running:
            # What has not ended by now has had its time.
            monque.stop(timeout=0)
        raise TimeoutError(message) from None
    finally:
        if not was_running:
            monque.stop()


def _stored(source: object) -> list[AnyJob]:
    if isinstance(source, SyncMonque):
        return source.get_jobs(limit=ALL)[::-1]
    return run_in_place(read(source, in_place=True))
