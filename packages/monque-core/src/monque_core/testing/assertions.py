"""What a test says about jobs, awaited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol
from unittest.mock import ANY

from pymongo.asynchronous.database import AsyncDatabase

from monque_core.jobs.job import JobStatus
from monque_core.monque import Monque
from monque_core.testing.expectation import Expectation
from monque_core.testing.report import check
from monque_core.testing.stored import ALL, read, still_active

if TYPE_CHECKING:
    from monque_core.durations import Duration
    from monque_core.jobs.job import AnyJob
    from monque_core.jobs.selector import Statuses


class Front(Protocol):
    """What has a `Monque` behind it, as the `MonqueService` of monque-di."""

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
    """Fail unless there is such a job, or just so many; give those there are, oldest first.

    `source` is a `Monque`, a `MonqueService` or a database with the default collection. What is
    left out may be anything, as `unittest.mock.ANY` may be anywhere in the data. A job counts while
    it is pending or processing, unless another status is given; None is any.
    """
    __tracebackhide__ = True
    expected = Expectation(name, data, unique_key, status)
    return check(expected, await _stored(source), count)


async def assert_not_enqueued(
    source: object,
    name: str,
    *,
    data: object = ANY,
    unique_key: str | None = ANY,
    status: Statuses | None = JobStatus.ACTIVE,
) -> None:
    """Fail if there is such a job; the arguments are those of `assert_enqueued`."""
    __tracebackhide__ = True
    expected = Expectation(name, data, unique_key, status)
    check(expected, await _stored(source), 0)


async def run_until_idle(
    monque: Monque | Front,
    timeout: Duration = 10,  # noqa: ASYNC109  # as `Monque.run_until_idle`
) -> None:
    """Run everything that is due by the clock of a `Monque`, and return when it is done.

    A `MonqueService` stands for the `Monque` behind it.

    Retries and jobs in the future stay until the clock is moved. After so many seconds of real
    time, `TimeoutError` tells what is left.
    """
    __tracebackhide__ = True
    monque = monque if isinstance(monque, Monque) else monque.monque
    was_running = monque.is_running
    await monque.start()
    try:
        await monque.run_until_idle(timeout)
    except TimeoutError:
        message = still_active(await monque.get_jobs(status=JobStatus.ACTIVE, limit=ALL), timeout)
        if not was_running:
            # What has not ended by now has had its time.
            await monque.stop(timeout=0)
        raise TimeoutError(message) from None
    finally:
        if not was_running:
            await monque.stop()


async def _stored(source: object) -> list[AnyJob]:
    behind = getattr(source, "monque", None)
    monque = behind if isinstance(behind, Monque) else source
    if isinstance(monque, Monque):
        return (await monque.get_jobs(limit=ALL))[::-1]
    return await read(source, in_place=not isinstance(source, AsyncDatabase))
