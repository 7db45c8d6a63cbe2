"""The jobs of an application with the way to build their handlers."""

from __future__ import annotations

import inspect
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from dependency_injector import providers

from monque_core import Job, MonqueError
from monque_di.building import Planner
from monque_di.errors import WiringError
from monque_di.provider_index import ProviderIndex
from monque_di.scope import Scope, current_scope

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from monque_core import Monque
    from monque_di.building import Plan
    from monque_di.provider_index import AnyContainer
    from monque_di.registry import DeclaredJob


logger = logging.getLogger("monque.di")


class Workers:
    """Builds a handler for each run, within a scope of the run's own."""

    def __init__(self, container: AnyContainer, jobs: Iterable[DeclaredJob]) -> None:
        catalogue = ProviderIndex(container)
        planner = Planner(catalogue)
        self._jobs = {job.name: job for job in jobs}
        self._classes: dict[type, Plan] = {}
        self._handlers: dict[str, Plan] = {}
        self._singletons: dict[type, Any] = {}
        for job in self._jobs.values():
            if job.owner not in self._classes:
                plan = planner.plan_class(job.owner, is_singleton=job.is_singleton)
                self._classes[job.owner] = plan
            self._handlers[job.name] = planner.plan_handler(job.label, job.function)
        self.problems = planner.problems
        traverse = catalogue.root.traverse
        self._singletons_of_contexts = list(traverse(types=[providers.ContextLocalSingleton]))
        self._resources_of_contexts = list(traverse(types=[providers.ContextLocalResource]))

    def register(self, monque: Monque) -> None:
        """Make every job a worker of an instance, noting what that refuses."""
        monque.use(self.around)
        for job in self._jobs.values():
            try:
                monque.worker(
                    job.name,
                    _on_the_loop if job.is_async else _in_a_thread,
                    concurrency=job.mark.concurrency if job.mark else None,
                    timeout=job.mark.timeout if job.mark else None,
                )
            except (MonqueError, ValueError, TypeError) as error:
                self.problems.append(f"{job.label} → {error}")

    async def build_singletons(self) -> None:
        """Build the classes that are built once."""
        for job in self._jobs.values():
            if job.is_singleton and job.owner not in self._singletons:
                self._singletons[job.owner] = await self._classes[job.owner].build()

    async def declare_schedules(self, monque: Monque) -> None:
        """Store every schedule; those that are there already are brought up to date."""
        for job in self._jobs.values():
            for mark in job.crons:
                try:
                    await monque.schedule(
                        mark.expression,
                        job.name,
                        mark.data,
                        unique_key=job.name if mark.unique_key is None else mark.unique_key,
                        timezone=mark.timezone,
                        priority=mark.priority,
                    )
                except ValueError as error:
                    self.problems.append(f"{job.label} → {error}")
        if self.problems:
            raise WiringError(self.problems)
        await self._tell_of_orphans(monque)

    async def _tell_of_orphans(self, monque: Monque) -> None:
        """Warn of schedules that go on because their `@cron` is gone and their job is not."""
        for stored in await monque.get_schedules():
            job = self._jobs.get(stored.name)
            if job is not None and stored.unique_key == job.name and not job.crons:
                logger.warning(
                    "the schedule %s of job %s is declared by no @cron any more and goes on: end "
                    "it with unschedule(%r)",
                    stored.repeat_interval,
                    job.name,
                    job.name,
                )

    async def around(self, job: Any, call_next: Callable[[], Awaitable[Any]]) -> Any:
        """Give a run its scope and, in it, its handler."""
        scope = Scope(job)

        async def run() -> Any:
            self._enter_own_context(scope)
            # A reactive task may have the name of a job, and has a handler of its own.
            if isinstance(job, Job) and job.name in self._jobs:
                scope.handler = await self._handler(job.name)
            return await call_next()

        return await scope.run(run)

    def _enter_own_context(self, scope: Scope) -> None:
        """Forget what the parent context holds, which would be shared by all runs."""
        for singleton in self._singletons_of_contexts:
            singleton.reset()
        for resource in self._resources_of_contexts:
            resource.reset_state()  # type: ignore[attr-defined]  # missing in the stubs
            scope.at_end(partial(_shut_down, resource))

    async def _handler(self, name: str) -> Callable[[Job[Any]], Any]:
        job = self._jobs[name]
        instance = self._singletons.get(job.owner)
        if instance is None:
            instance = await self._classes[job.owner].build()
        method: Callable[[Job[Any]], Any] = getattr(instance, job.method)
        injected = await self._handlers[name].build()
        return partial(method, **injected) if injected else method


async def _shut_down(resource: providers.BaseResource[Any], _: BaseException | None) -> None:
    ending = resource.shutdown()
    if ending is not None:
        await ending


async def _on_the_loop(job: Job[Any]) -> Any:
    result = handle(job)
    # What overrides the class in a test need not be async.
    return await result if inspect.isawaitable(result) else result


def _in_a_thread(job: Job[Any]) -> Any:
    return handle(job)


def handle(job: Job[Any]) -> Any:
    """Call the handler that was built for the run this is called in."""
    scope = current_scope()
    # Middleware between the scope and here may have put another job in its place.
    scope.job = job
    if scope.handler is None:
        raise MonqueError(f"no handler was built for job {job.name!r}")
    return scope.handler(job)
