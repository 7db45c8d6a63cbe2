"""`MonqueContainer`, which an application nests in its own container."""

from __future__ import annotations

from typing import Any, ClassVar

from dependency_injector import containers, providers

from monque_di.resource import (
    ConnectionProvider,
    MonqueContainerInstance,
    MonqueResource,
    PackagesProvider,
)
from monque_di.runtime import run_monque
from monque_di.service import InstanceSlot, MonqueService


class MonqueContainer(containers.DeclarativeContainer):
    """A container that runs monque inside an application.

    Pass `connection`, `options`, `jobs` and `packages`. It provides `monque`, the running
    instance, and `service`, an injectable `MonqueService`.
    """

    instance_type = MonqueContainerInstance

    connection: providers.Provider[Any] = ConnectionProvider()
    options: providers.Provider[Any] = providers.Object(None)
    jobs: providers.Provider[Any] = providers.Object(())
    packages: providers.Provider[Any] = PackagesProvider(())

    __self__ = providers.Self()
    instance_slot = providers.Singleton(InstanceSlot, __self__)
    running_instance = providers.Callable(InstanceSlot.get_monque, instance_slot)
    service = providers.Singleton(MonqueService, instance_slot)
    monque = MonqueResource(run_monque)

    # Jobs get the running instance, not the resource: its start would wait for itself.
    internal_providers: ClassVar = frozenset(
        [
            *("connection", "instance_slot", "jobs", "monque", "options", "packages"),
            *("running_instance", "service"),
        ]
    )
    injectable_providers: ClassVar = {"monque": "running_instance", "service": "service"}
