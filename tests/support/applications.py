"""Applications with a `MonqueContainer`, built for one test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dependency_injector import containers, providers

from monque_di import MonqueContainer, lifespan
from monque_di.registry import Registry
from monque_di.workers import Workers
from tests.support.happenings import Happenings
from tests.support.polling import NO_POLLS

if TYPE_CHECKING:
    from monque_core import Job

QUIET = {"max_retries": 1, **NO_POLLS}


def queue_on(db: object, *jobs: object, **more: Any) -> providers.Container[Any]:
    """Return a `MonqueContainer` for these jobs, to be nested in an application."""
    more.setdefault("options", providers.Object(QUIET))
    return providers.Container(
        MonqueContainer, connection=providers.Object(db), jobs=[*jobs], **more
    )


def application(db: object, *jobs: object, **offered: Any) -> Any:
    """Return an application that offers these providers to these jobs."""
    parts = {**offered, "monque": queue_on(db, *jobs)}
    return type("App", (containers.DeclarativeContainer,), parts)()


def mistakes(*jobs: type, **offered: Any) -> list[str]:
    """Return the problems that keep such an application from starting; nothing is connected."""
    return mistakes_in(application(None, *jobs, **offered), *jobs)


def mistakes_in(app: Any, *jobs: type) -> list[str]:
    """Return the problems that keep these jobs of an application from starting."""
    registry = Registry(jobs)
    return [*registry.problems, *Workers(app, registry.jobs).problems]


async def perform(app: Any, *targets: Any, data: object = None) -> list[Job[Any]]:
    """Start an application, run a job of each class or controller method, and stop it.

    Return the jobs in their final state; errors of handlers are raised.
    """
    async with lifespan(app):
        return await perform_in(app, *targets, data=data)


async def perform_in(app: Any, *targets: Any, data: object = None) -> list[Job[Any]]:
    """Run a job of each class or controller method in an application that has started."""
    service = app.monque.service()
    happenings = Happenings(service.monque)
    jobs = [await target.enqueue(service, data) for target in targets]
    ended: dict[Any, Job[Any]] = {}

    def have_all_ended() -> bool:
        for failure in happenings.of("job:fail"):
            raise failure.error
        ended.update({done.job.id: done.job for done in happenings.of("job:complete")})
        return all(job.id in ended for job in jobs)

    await happenings.all.wait_until(have_all_ended)
    return [ended[job.id] for job in jobs]
