"""Lets `monque worker MODULE:ATTRIBUTE` run a container or a `MonqueService`.

The command finds `worker_target` through an entry point, since the core does not import monque_di.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from dependency_injector import containers, providers

from monque_core import Monque, MonqueError
from monque_di.lifespan import lifespan, monque_resources
from monque_di.provider_index import root_container
from monque_di.service import MonqueService, container_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from monque_di.provider_index import AnyContainer
    from monque_di.service import InstanceSlot


def worker_target(found: object) -> AbstractAsyncContextManager[Monque] | None:
    """Return a context manager that runs the application of a target; None for other objects."""
    if isinstance(found, MonqueService):
        return _running(container_of(found))
    if isinstance(found, (containers.DynamicContainer, providers.Container)):
        return _running(found)
    return None


@asynccontextmanager
async def _running(container: Any) -> AsyncIterator[Monque]:
    """Run the whole application and yield the `Monque` of the named container.

    If the container has several, all of them run, and the first that processes jobs is yielded.
    """
    application: AnyContainer = root_container(container)
    slots: list[InstanceSlot] = [
        monque.container.instance_slot() for monque in monque_resources(container)
    ]
    async with lifespan(application):
        working = [slot for slot in slots if slot.runs_jobs]
        if not working:
            raise MonqueError(
                "this container does not process jobs: set its options enabled and process_jobs to "
                "True in a worker"
            )
        yield working[0].get_monque()
