"""Start the resources of an application and then monque; stop them in reverse order."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from dependency_injector import providers

from monque_core import MonqueError
from monque_core.process import on_first_signal_async
from monque_di.provider_index import container_chain
from monque_di.resource import MonqueResource
from monque_di.task_context import is_async_result, run_to_completion

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from monque_di.provider_index import AnyContainer


@asynccontextmanager
async def lifespan(container: AnyContainer) -> AsyncIterator[None]:
    """Run an application: start its resources, then monque; on exit stop monque first.

    `container` contains a `MonqueContainer` at any depth, or is one. After a failed start nothing
    is left running.
    """
    resources = list(container_chain(container)[0].traverse(types=[providers.BaseResource]))
    monques = monque_resources(container)
    if any(monque.initialized for monque in monques):
        raise MonqueError(
            "the lifespan of this application is already entered: enter it once, or exit it first"
        )
    try:
        await _start([resource for resource in resources if resource not in monques])
        await _start(monques)
        yield
    finally:
        # A shutdown runs to completion even if the caller is cancelled.
        await run_to_completion(_shut_down(resources))


def monque_resources(container: AnyContainer) -> list[MonqueResource]:
    """Return the monque resource of every `MonqueContainer` in a container; raise if none."""
    found = list(container_chain(container)[0].traverse(types=[MonqueResource]))
    if not found:
        raise MonqueError(
            f"{container.parent_name or type(container).__name__} contains no MonqueContainer: add "
            "monque = providers.Container(MonqueContainer, connection=…, jobs=[…])"
        )
    return found


async def run(container: AnyContainer) -> None:
    """Run an application until SIGINT or SIGTERM; the main function of a worker process.

    A second signal has its default effect.
    """
    stop_requested, is_started = asyncio.Event(), asyncio.Event()

    async def run_lifespan() -> None:
        async with lifespan(container):
            is_started.set()
            await stop_requested.wait()

    with on_first_signal_async(stop_requested.set):
        lifetime = asyncio.create_task(run_lifespan(), name="monque-lifespan")
        signaled = asyncio.create_task(stop_requested.wait(), name="monque-signal")
        try:
            await asyncio.wait([lifetime, signaled], return_when=asyncio.FIRST_COMPLETED)
        finally:
            # A stop during the start, or a cancelled caller, cancels the lifespan.
            if not is_started.is_set() or not stop_requested.is_set():
                lifetime.cancel()
            signaled.cancel()
            await asyncio.wait([lifetime, signaled])
        if not lifetime.cancelled():
            lifetime.result()


async def _start(resources: Sequence[providers.BaseResource[Any]]) -> None:
    """Initialize resources concurrently; raise the first failure after all have finished."""
    starting = [resource.init() for resource in resources]
    results = await asyncio.gather(
        *(start for start in starting if is_async_result(start)), return_exceptions=True
    )
    for result in results:
        if isinstance(result, BaseException):
            raise result


async def _shut_down(resources: list[providers.BaseResource[Any]]) -> None:
    """Shut down all resources, dependents before their dependencies, despite failures.

    The `shutdown_resources` of dependency-injector stops at the first failure.
    """
    failures: list[BaseException] = []
    while up := [resource for resource in resources if resource.initialized]:
        dependencies = [set[providers.Provider[Any]](resource.traverse()) for resource in up]
        needed = set[providers.Provider[Any]]().union(*dependencies)
        free = [resource for resource in up if resource not in needed] or up
        endings = []
        for resource in free:
            try:
                endings.append(resource.shutdown())
            except Exception as error:  # noqa: BLE001  # raised below, after the others
                failures.append(error)
        ends = await asyncio.gather(
            *(ending for ending in endings if ending is not None), return_exceptions=True
        )
        failures += [end for end in ends if isinstance(end, BaseException)]
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise BaseExceptionGroup("resources that failed to shut down", failures)
