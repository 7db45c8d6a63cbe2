"""The options of a `MonqueContainer`, and the start and stop of its `Monque`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from pymongo import AsyncMongoClient

from monque_core import (
    JobRetention,
    Monque,
    MonqueConnectionError,
    MonqueError,
    MonqueOptions,
    events,
)
from monque_core.validation import check_flag, unknown_option
from monque_di.building import provide
from monque_di.connection import resolve_database
from monque_di.discovery import Discovery
from monque_di.errors import WiringError
from monque_di.provider_index import root_container
from monque_di.registry import Registry
from monque_di.resource import depends_on_monque
from monque_di.workers import Workers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from monque_di.service import InstanceSlot

_OWN = ("enabled", "process_jobs")

logger = logging.getLogger("monque.di")


@dataclass(frozen=True, slots=True)
class Settings:
    """The container's own options, and the options that it passes to `Monque`."""

    enabled: bool = True
    process_jobs: bool = True
    options: MonqueOptions = field(default_factory=MonqueOptions)

    @classmethod
    def parse(cls, given: object) -> Settings:
        """Check all names and our own values; `Monque` checks the rest."""
        if given is None:
            given = {}
        if not isinstance(given, Mapping):
            raise TypeError(
                f"options must be a dict or a Configuration provider, not {type(given).__name__}"
            )
        known = [*_OWN, *MonqueOptions.__annotations__]
        for name in given:
            if name not in known:
                raise unknown_option(name, known)
        options: dict[str, Any] = {name: given[name] for name in given if name not in _OWN}
        if isinstance(options.get("job_retention"), Mapping):
            options["job_retention"] = JobRetention(**options["job_retention"])
        enabled, process_jobs = (check_flag(name, given.get(name, True)) for name in _OWN)
        return cls(enabled, process_jobs, cast("MonqueOptions", options))


@asynccontextmanager
async def run_monque(container: Any) -> AsyncIterator[Monque | None]:
    """Run the `Monque` of a container until the context ends; yield None if it is disabled."""
    slot: InstanceSlot = container.instance_slot()
    slot.check_empty()
    options = await provide(container.options)
    settings, option_error = Settings(), None
    try:
        settings = Settings.parse(options)
    except (TypeError, ValueError) as error:
        option_error = error
    if not settings.enabled:
        slot.disable()
        try:
            yield None
        finally:
            slot.clear()
        return
    dependencies = container.monque.find_dependencies(root_container(container))
    monque, workers = await _assemble(container, settings, option_error)
    slot.fill(monque, processes_jobs=settings.process_jobs)
    try:
        for resource in dependencies:
            await provide(resource)
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
            slot.clear()


async def _assemble(
    container: Any, settings: Settings, option_error: Exception | None
) -> tuple[Monque, Workers]:
    """Return an instance with its workers, or raise one error with every problem."""
    errors = [] if option_error is None else [option_error]
    discovery = Discovery((), ())
    if settings.process_jobs:
        discovery = Discovery(await provide(container.jobs), await provide(container.packages))
    registry = Registry(discovery.classes)
    workers = Workers(container, registry.jobs)
    monque: Monque | None = None
    try:
        if depends_on_monque(container.connection):
            raise MonqueConnectionError(
                "the connection depends on Monque, which needs the connection to start"
            )
        monque = Monque(await resolve_database(container.connection), **settings.options)
        monque.on(events.JOB_FAIL, _log_failure)
    except (MonqueError, ValueError, TypeError) as error:
        errors.append(error)
    # Without a connection, an instance that never connects still validates names and options.
    workers.register(monque or Monque(AsyncMongoClient[Any]()["unused"]))
    problems = [*discovery.problems, *registry.problems, *workers.problems]
    if problems or len(errors) > 1:
        cause = errors[0] if errors else None
        raise WiringError([*problems, *map(str, errors)]) from cause
    if errors or monque is None:
        raise errors[0]
    return monque, workers


def _log_failure(failure: events.JobFailed) -> None:
    job = failure.job
    # A schedule has moved to its next occurrence, which resets `fail_count`.
    attempt = f"attempt {job.fail_count}" if job.fail_count else "its last attempt"
    consequence = "will be retried" if failure.will_retry else "will not be retried"
    if job.is_recurring and not failure.will_retry:
        consequence = f"runs again at {job.next_run_at}"
    logger.error(
        "job %s %s failed in %s and %s",
        job.name,
        job.id,
        attempt,
        consequence,
        exc_info=failure.error,
    )
