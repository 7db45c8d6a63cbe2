"""Run one job in a test, without MongoDB."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from monque_di.discovery import Discovery
from monque_di.errors import WiringError
from monque_di.methods import ControllerJob
from monque_di.registry import Registry
from monque_di.task_context import run_to_completion
from monque_di.workers import Workers, handle

if TYPE_CHECKING:
    from monque_core import Job
    from monque_di.provider_index import AnyContainer


async def run_job(
    container: AnyContainer, target: type | ControllerJob[Any, Any, Any], data: object = None
) -> Any:
    """Run one job of a class, or of a controller method, in a run scope of its own.

    The class is built from the container, overrides included, as a worker builds it. Return what
    the handler returns and raise what it raises. MongoDB is not needed.
    """
    owner, method = target, "handle"
    if isinstance(target, ControllerJob):
        owner, method = target.owner, target.method.attribute
    discovery = Discovery([owner], None)
    registry = Registry(discovery.classes)
    declared = [job for job in registry.jobs if job.method == method]
    workers = Workers(container, declared)
    problems = [*discovery.problems, *registry.problems, *workers.problems]
    if problems or not declared:
        raise WiringError(problems or [_missing_method(registry)])
    await workers.build_singletons()
    from monque_core.testing import make_job  # noqa: PLC0415  # workers do not need it

    job = make_job(data, name=declared[0].name)

    async def call_handler() -> Any:
        if declared[0].is_async:
            return await handle(job)
        result = await _in_a_thread(job)
        return await result if inspect.isawaitable(result) else result

    # Each run has its own context, as in a worker.
    return await asyncio.create_task(workers.around(job, call_handler), name="monque-run-job")


def _missing_method(registry: Registry) -> str:
    methods = ", ".join(job.label for job in registry.jobs)
    return (
        f"{registry.jobs[0].owner.__qualname__} → is a controller: pass one of its methods, "
        f"{methods}"
    )


async def _in_a_thread(job: Job[Any]) -> Any:
    """Call the handler in a thread; the scope stays open until the thread returns."""

    def call() -> Any:
        try:
            return handle(job)
        except StopIteration as error:
            # A future cannot hold `StopIteration` and would never complete.
            raise RuntimeError("the handler raised StopIteration") from error

    return await run_to_completion(asyncio.to_thread(call))
