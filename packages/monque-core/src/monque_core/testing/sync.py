"""The blocking assertions about jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest.mock import ANY

from monque_core.jobs.job import JobStatus
from monque_core.sync.blocking_api import run_in_place
from monque_core.sync.monque import SyncMonque
from monque_core.testing.expectation import Expectation
from monque_core.testing.jobs import MAX_JOBS, read_jobs
from monque_core.testing.messages import not_idle

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
    """Assert that there is such a job, or exactly `count`; return them, oldest first.

    `source` is a `SyncMonque` or a blocking database with the default collection. Omitted
    arguments match anything, and so does `unittest.mock.ANY` inside `data`. By default, only
    pending and processing jobs count; a `status` of None matches any status.
    """
    __tracebackhide__ = True
    return Expectation(name, data, unique_key, status).check(_stored(source), count)


def assert_not_enqueued(
    source: object,
    name: str,
    *,
    data: object = ANY,
    unique_key: str | None = ANY,
    status: Statuses | None = JobStatus.ACTIVE,
) -> None:
    """Assert that there is no such job; the arguments are those of `assert_enqueued`."""
    __tracebackhide__ = True
    Expectation(name, data, unique_key, status).check(_stored(source), 0)


def run_until_idle(monque: SyncMonque, timeout: Duration = 10) -> None:
    """Run all jobs that are due by the clock of a `SyncMonque`.

    Retries and future jobs wait until the clock is moved. Raise `TimeoutError` with the remaining
    jobs after `timeout` seconds of real time.
    """
    __tracebackhide__ = True
    was_running = monque.is_running
    monque.start()
    try:
        monque.run_until_idle(timeout)
    except TimeoutError:
        message = not_idle(monque.get_jobs(status=JobStatus.ACTIVE, limit=MAX_JOBS), timeout)
        if not was_running:
            # The remaining runs have had their time.
            monque.stop(timeout=0)
        raise TimeoutError(message) from None
    finally:
        if not was_running:
            monque.stop()


def _stored(source: object) -> list[AnyJob]:
    if isinstance(source, SyncMonque):
        return source.get_jobs(limit=MAX_JOBS)[::-1]
    return run_in_place(read_jobs(source, in_place=True))
