"""The async assertions about jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol
from unittest.mock import ANY

from pymongo.asynchronous.database import AsyncDatabase

from monque_core.jobs.job import JobStatus
from monque_core.monque import Monque
from monque_core.testing.expectation import Expectation
from monque_core.testing.jobs import MAX_JOBS, read_jobs
from monque_core.testing.messages import not_idle

if TYPE_CHECKING:
    from monque_core.durations import Duration
    from monque_core.jobs.job import AnyJob
    from monque_core.jobs.selector import Statuses


class HasMonque(Protocol):
    """An object with a `Monque`, such as the `MonqueService` of monque-di."""

    @property
    def monque(self) -> Monque:
        """Return the instance."""
        ...


async def assert_enqueued(
    source: object,
    name: str,
    *,
    data: object = ANY,
    unique_key: str | None = ANY,
    status: Statuses | None = JobStatus.ACTIVE,
    count: int | None = None,
) -> list[AnyJob]:
    """Assert that there is such a job, or exactly `count`; return them, oldest first.

    `source` is a `Monque`, a `MonqueService` or a database with the default collection. Omitted
    arguments match anything, and so does `unittest.mock.ANY` inside `data`. By default, only
    pending and processing jobs count; a `status` of None matches any status.
    """
    __tracebackhide__ = True
    expected = Expectation(name, data, unique_key, status)
    return expected.check(await _stored(source), count)


async def assert_not_enqueued(
    source: object,
    name: str,
    *,
    data: object = ANY,
    unique_key: str | None = ANY,
    status: Statuses | None = JobStatus.ACTIVE,
) -> None:
    """Assert that there is no such job; the arguments are those of `assert_enqueued`."""
    __tracebackhide__ = True
    expected = Expectation(name, data, unique_key, status)
    expected.check(await _stored(source), 0)


async def run_until_idle(
    monque: Monque | HasMonque,
    timeout: Duration = 10,  # noqa: ASYNC109  # as `Monque.run_until_idle`
) -> None:
    """Run all jobs that are due by the clock of a `Monque` or `MonqueService`.

    Retries and future jobs wait until the clock is moved. Raise `TimeoutError` with the remaining
    jobs after `timeout` seconds of real time.
    """
    __tracebackhide__ = True
    monque = monque if isinstance(monque, Monque) else monque.monque
    was_running = monque.is_running
    await monque.start()
    try:
        await monque.run_until_idle(timeout)
    except TimeoutError:
        message = not_idle(await monque.get_jobs(status=JobStatus.ACTIVE, limit=MAX_JOBS), timeout)
        if not was_running:
            # The remaining runs have had their time.
            await monque.stop(timeout=0)
        raise TimeoutError(message) from None
    finally:
        if not was_running:
            await monque.stop()


async def _stored(source: object) -> list[AnyJob]:
    behind = getattr(source, "monque", None)
    monque = behind if isinstance(behind, Monque) else source
    if isinstance(monque, Monque):
        return (await monque.get_jobs(limit=MAX_JOBS))[::-1]
    return await read_jobs(source, in_place=not isinstance(source, AsyncDatabase))
