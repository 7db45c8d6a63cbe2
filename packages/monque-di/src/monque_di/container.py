"""The container that an application nests in its own."""

from __future__ import annotations

from typing import Any, ClassVar

from dependency_injector import containers, providers

from monque_di.resource import (
    ConnectionSource,
    MonqueContainerInstance,
    MonqueResource,
    PackageSource,
)
from monque_di.runtime import run_monque
from monque_di.service import InstanceSlot, MonqueService


class MonqueContainer(containers.DeclarativeContainer):
    """Monque within an application: `connection`, `options`, `jobs` and `packages` go in.

    Out come `monque`, the running instance, and `service`, its injectable front.
    """

    instance_type = MonqueContainerInstance

    connection: providers.Provider[Any] = ConnectionSource()
    options: providers.Provider[Any] = providers.Object(None)
    jobs: providers.Provider[Any] = providers.Object(())
    packages: providers.Provider[Any] = PackageSource(())

    __self__ = providers.Self()
    seat = providers.Singleton(InstanceSlot, __self__)
    occupant = providers.Callable(InstanceSlot.get_monque, seat)
    service = providers.Singleton(MonqueService, seat)
    monque = MonqueResource(run_monque)

    # What jobs are offered: not the resource, for which its own start would wait for ever.
    hidden: ClassVar = frozenset(
        ["connection", "jobs", "monque", "occupant", "options", "packages", "seat", "service"]
    )
    offered: ClassVar = {"monque": "occupant", "service": "service"}
