"""Starting Monque last and stopping it first."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from dependency_injector import providers

from monque_core import MonqueError
from monque_core.signals import on_first_signal_async
from monque_di.provider_index import outwards
from monque_di.resource import MonqueResource
from monque_di.task_context import is_pending, unhindered

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from monque_di.provider_index import AnyContainer


@asynccontextmanager
async def lifespan(container: AnyContainer) -> AsyncIterator[None]:
    """Run an application: its resources first, then Monque; Monque stops first.

    `container` has a `MonqueContainer` somewhere in it, or is one. A start that fails leaves
    nothing running.
    """
    resources = list(outwards(container)[0].traverse(types=[providers.BaseResource]))
    queues = queues_in(container)
    if any(queue.initialized for queue in queues):
        raise MonqueError("this application runs already: its lifespan is entered once at a time")
    try:
        await _start([resource for resource in resources if resource not in queues])
        await _start(queues)
        yield
    finally:
        # What has begun to stop is owed its end, though who waits for it may be cancelled.
        await unhindered(_shut_down(resources))


def queues_in(container: AnyContainer) -> list[MonqueResource]:
    """Return the Monque of every `MonqueContainer` in a container; at least one is expected."""
    queues = list(outwards(container)[0].traverse(types=[MonqueResource]))
    if not queues:
        raise MonqueError(
            f"no MonqueContainer in {container.parent_name or type(container).__name__}: add "
            "monque = providers.Container(MonqueContainer, connection=…, jobs=[…])"
        )
    return queues


async def run(container: AnyContainer) -> None:
    """Run an application until SIGINT or SIGTERM: the main of a worker process.

    A second signal does what it would do without monque.
    """
    asked_to_stop, is_started = asyncio.Event(), asyncio.Event()

    async def live() -> None:
        async with lifespan(container):
            is_started.set()
            await asked_to_stop.wait()

    with on_first_signal_async(asked_to_stop.set):
        living = asyncio.create_task(live(), name="monque-lifespan")
        asking = asyncio.create_task(asked_to_stop.wait(), name="monque-signal")
        try:
            await asyncio.wait([living, asking], return_when=asyncio.FIRST_COMPLETED)
        finally:
            # A start that is under way, or a caller that is cancelled, ends it here and now.
            if not is_started.is_set() or not asked_to_stop.is_set():
                living.cancel()
            asking.cancel()
            await asyncio.wait([living, asking])
        if not living.cancelled():
            living.result()


async def _start(resources: Sequence[providers.BaseResource[Any]]) -> None:
    """Start resources beside each other; raise the first failure once all have come to an end."""
    starting = [resource.init() for resource in resources]
    ends = await asyncio.gather(
        *(start for start in starting if is_pending(start)), return_exceptions=True
    )
    for end in ends:
        if isinstance(end, BaseException):
            raise end


async def _shut_down(resources: list[providers.BaseResource[Any]]) -> None:
    """Shut down everything, what others draw from after them, even if some of it fails.

    dependency-injector's own `shutdown_resources` stops at the first failure.
    """
    failures: list[BaseException] = []
    while up := [resource for resource in resources if resource.initialized]:
        behind = [set[providers.Provider[Any]](resource.traverse()) for resource in up]
        drawn_from = set[providers.Provider[Any]]().union(*behind)
        free = [resource for resource in up if resource not in drawn_from] or up
        endings = []
        for resource in free:
            try:
                endings.append(resource.shutdown())
            except Exception as error:  # noqa: BLE001  # raised below, when all is shut down
                failures.append(error)
        ends = await asyncio.gather(
            *(ending for ending in endings if ending is not None), return_exceptions=True
        )
        failures += [end for end in ends if isinstance(end, BaseException)]
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise BaseExceptionGroup("resources that failed to shut down", failures)
