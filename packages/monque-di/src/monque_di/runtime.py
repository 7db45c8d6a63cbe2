"""Starting and stopping Monque with the application around it."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from pymongo import AsyncMongoClient

from monque_core import Monque, MonqueConnectionError, MonqueError, events
from monque_di.building import given
from monque_di.connection import resolve_database
from monque_di.discovery import Discovery
from monque_di.errors import WiringError
from monque_di.provider_index import outermost
from monque_di.registry import Registry
from monque_di.resource import needs_monque
from monque_di.settings import Settings
from monque_di.workers import Workers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from monque_di.service import InstanceSlot

logger = logging.getLogger("monque.di")


@asynccontextmanager
async def run_monque(container: Any) -> AsyncIterator[Monque | None]:
    """Run the Monque of a container until the context ends; None where it is disabled."""
    seat: InstanceSlot = container.seat()
    seat.check_free()
    options = await given(container.options)
    settings, refusal = Settings(), None
    try:
        settings = Settings.parse(options)
    except (TypeError, ValueError) as error:
        refusal = error
    if not settings.enabled:
        seat.close()
        try:
            yield None
        finally:
            seat.leave()
        return
    needs = container.monque.find_needs(outermost(container))
    monque, workers = await _put_together(container, settings, refusal)
    seat.take(monque, processes_jobs=settings.process_jobs)
    try:
        for resource in needs:
            await given(resource)
        await workers.build_singletons()
        await monque.initialize()
        if settings.process_jobs:
            await workers.declare_schedules(monque)
            await monque.start()
        yield monque
    finally:
        try:
            await monque.stop()
        finally:
            seat.leave()


async def _put_together(
    container: Any, settings: Settings, refusal: Exception | None
) -> tuple[Monque, Workers]:
    """Make an instance with its workers, or tell everything that is wrong, in one error."""
    refusals = [] if refusal is None else [refusal]
    discovery = Discovery((), ())
    if settings.process_jobs:
        discovery = Discovery(await given(container.jobs), await given(container.packages))
    registry = Registry(discovery.classes)
    workers = Workers(container, registry.jobs)
    monque: Monque | None = None
    try:
        if needs_monque(container.connection):
            raise MonqueConnectionError("the connection draws from Monque, which needs it to start")
        monque = Monque(await resolve_database(container.connection), **settings.options)
        monque.on(events.JOB_FAIL, _log_failure)
    except (MonqueError, ValueError, TypeError) as error:
        refusals.append(error)
    # Names and numbers can be judged without a connection, by an instance that never has one.
    workers.register(monque or Monque(AsyncMongoClient[Any]()["unused"]))
    problems = [*discovery.problems, *registry.problems, *workers.problems]
    if problems or len(refusals) > 1:
        cause = refusals[0] if refusals else None
        raise WiringError([*problems, *map(str, refusals)]) from cause
    if refusals or monque is None:
        raise refusals[0]
    return monque, workers


def _log_failure(failure: events.JobFailed) -> None:
    job = failure.job
    # A schedule is at its next tick by now, where it begins to count again.
    attempt = f"attempt {job.fail_count}" if job.fail_count else "its last attempt"
    fate = "will be retried" if failure.will_retry else "is given up"
    if job.is_recurring and not failure.will_retry:
        fate = f"runs again at {job.next_run_at}"
    logger.error(
        "job %s %s failed in %s and %s", job.name, job.id, attempt, fate, exc_info=failure.error
    )
