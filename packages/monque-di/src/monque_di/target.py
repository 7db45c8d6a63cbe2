"""What `monque worker MODULE:ATTRIBUTE` runs of an application in a container.

The command finds this by an entry point, since the core does not import monque_di.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from dependency_injector import containers, providers

from monque_core import Monque, MonqueError
from monque_di.lifespan import lifespan, queues_in
from monque_di.provider_index import outermost
from monque_di.service import MonqueService, container_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from monque_di.provider_index import AnyContainer
    from monque_di.service import InstanceSlot


def worker_target(found: object) -> AbstractAsyncContextManager[Monque] | None:
    """Return what runs the application of a container or `MonqueService`; None for all else."""
    if isinstance(found, MonqueService):
        return _running(container_of(found))
    if isinstance(found, (containers.DynamicContainer, providers.Container)):
        return _running(found)
    return None


@asynccontextmanager
async def _running(container: Any) -> AsyncIterator[Monque]:
    """Run the whole application, and give the Monque of the container that was named.

    Of a container with several, the first that runs jobs is given; all of them run.
    """
    application: AnyContainer = outermost(container)
    seats: list[InstanceSlot] = [queue.container.seat() for queue in queues_in(container)]
    async with lifespan(application):
        working = [seat for seat in seats if seat.runs_jobs]
        if not working:
            raise MonqueError(
                "this container runs no jobs: its option enabled or process_jobs is False, and a "
                "worker needs both to be True"
            )
        yield working[0].get_monque()
