"""Register the jobs of an application, and build a handler for each run."""

from __future__ import annotations

import inspect
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from dependency_injector import providers

from monque_core import Job, MonqueError
from monque_di.building import BuildPlanner
from monque_di.errors import WiringError
from monque_di.provider_index import ProviderIndex
from monque_di.scope import RunScope, current_scope

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from monque_core import Monque
    from monque_di.building import BuildPlan
    from monque_di.provider_index import AnyContainer
    from monque_di.registry import DeclaredJob


logger = logging.getLogger("monque.di")


class Workers:
    """Builds a handler for each run, in a `RunScope` of its own."""

    def __init__(self, container: AnyContainer, jobs: Iterable[DeclaredJob]) -> None:
        index = ProviderIndex(container)
        planner = BuildPlanner(index)
        self._jobs = {job.name: job for job in jobs}
        self._classes: dict[type, BuildPlan] = {}
        self._handlers: dict[str, BuildPlan] = {}
        self._singletons: dict[type, Any] = {}
        for job in self._jobs.values():
            if job.owner not in self._classes:
                plan = planner.plan_class(job.owner, is_singleton=job.is_singleton)
                self._classes[job.owner] = plan
            self._handlers[job.name] = planner.plan_handler(job.label, job.function)
        self.problems = planner.problems
        traverse = index.root.traverse
        self._singletons_of_contexts = list(traverse(types=[providers.ContextLocalSingleton]))
        self._resources_of_contexts = list(traverse(types=[providers.ContextLocalResource]))

    def register(self, monque: Monque) -> None:
        """Register every job as a worker; collect what `Monque.worker` rejects."""
        monque.use(self.around)
        for job in self._jobs.values():
            try:
                monque.worker(
                    job.name,
                    _on_the_loop if job.is_async else _in_a_thread,
                    concurrency=job.metadata.concurrency if job.metadata else None,
                    timeout=job.metadata.timeout if job.metadata else None,
                )
            except (MonqueError, ValueError, TypeError) as error:
                self.problems.append(f"{job.label} → {error}")

    async def build_singletons(self) -> None:
        """Build the singleton classes."""
        for job in self._jobs.values():
            if job.is_singleton and job.owner not in self._singletons:
                self._singletons[job.owner] = await self._classes[job.owner].build()

    async def declare_schedules(self, monque: Monque) -> None:
        """Create or update every schedule."""
        for job in self._jobs.values():
            for cron in job.crons:
                try:
                    await monque.schedule(
                        cron.expression,
                        job.name,
                        cron.data,
                        unique_key=job.name if cron.unique_key is None else cron.unique_key,
                        timezone=cron.timezone,
                        priority=cron.priority,
                    )
                except ValueError as error:
                    self.problems.append(f"{job.label} → {error}")
        if self.problems:
            raise WiringError(self.problems)
        await self._warn_of_orphans(monque)

    async def _warn_of_orphans(self, monque: Monque) -> None:
        """Warn about stored schedules whose `@cron` was removed from a class that still exists."""
        for stored in await monque.get_schedules():
            job = self._jobs.get(stored.name)
            if job is not None and stored.unique_key == job.name and not job.crons:
                logger.warning(
                    "no @cron declares the schedule %s of job %s any more, but it still runs: "
                    "remove "
                    "it with unschedule(%r)",
                    stored.repeat_interval,
                    job.name,
                    job.name,
                )

    async def around(self, job: Any, call_next: Callable[[], Awaitable[Any]]) -> Any:
        """Run a job in a new scope with its handler; a middleware."""
        scope = RunScope(job)

        async def run() -> Any:
            self._enter_own_context(scope)
            # A reactive task can have the name of a job, but has its own handler.
            if isinstance(job, Job) and job.name in self._jobs:
                scope.handler = await self._handler(job.name)
            return await call_next()

        return await scope.run(run)

    def _enter_own_context(self, scope: RunScope) -> None:
        """Reset context-local providers: values of the parent context would be shared by runs."""
        for singleton in self._singletons_of_contexts:
            singleton.reset()
        for resource in self._resources_of_contexts:
            resource.reset_state()  # type: ignore[attr-defined]  # missing in the stubs
            scope.on_close(partial(_shut_down, resource))

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
    # A test may override the class with one that is not async.
    return await result if inspect.isawaitable(result) else result


def _in_a_thread(job: Job[Any]) -> Any:
    return handle(job)


def handle(job: Job[Any]) -> Any:
    """Call the handler of the current run."""
    scope = current_scope()
    # Middleware may have replaced the job.
    scope.job = job
    if scope.handler is None:
        raise MonqueError(f"no handler was built for job {job.name!r}")
    return scope.handler(job)
