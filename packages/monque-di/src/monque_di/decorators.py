"""The decorators `@job`, `@cron` and `@job_controller`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args, overload

from monque_di.enqueueing import add_members
from monque_di.metadata import (
    ClassMetadata,
    ControllerMetadata,
    CronMetadata,
    JobMetadata,
    Lifetime,
)
from monque_di.methods import JobMethod

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from monque_core import Job

C = TypeVar("C")
D = TypeVar("D")
R = TypeVar("R")
S = TypeVar("S")
K = TypeVar("K", JobMetadata, CronMetadata)


def job(
    name: str,
    *,
    concurrency: int | None = None,
    timeout: float | timedelta | None = None,
    replace: bool = False,
    scope: Lifetime | None = None,
) -> MetadataDecorator[JobMetadata]:
    """Make a class, or a method of a controller, the handler of a job name.

    A class needs a method `handle(self, job)`, `async def` or `def`. `concurrency`, `timeout` and
    `replace` mean the same as in `Monque.worker`. `scope="singleton"` builds the class once instead
    of once per run; a controller sets it in `@job_controller`.
    """
    if callable(name):
        target = getattr(name, "__qualname__", repr(name))
        raise TypeError(f'@job on {target} has no name: write @job("send-email")')
    _check_scope(scope)
    _check_name(name)
    return MetadataDecorator(
        JobMetadata(
            name=name, concurrency=concurrency, timeout=timeout, replace=replace, scope=scope
        )
    )


def cron(
    expression: str,
    *,
    name: str | None = None,
    data: object = None,
    timezone: str = "UTC",
    unique_key: str | None = None,
    priority: int = 0,
) -> MetadataDecorator[CronMetadata]:
    """Run a job class, or a method of a controller, at every time of a cron expression.

    Every start of the application declares the schedule. Its unique key is the full name of the
    job, or `unique_key`, so that there is one schedule for any number of processes. `name` names
    the job if there is no `@job`.
    """
    if not isinstance(expression, str):
        raise TypeError(
            f'@cron needs a cron expression, not {expression!r}: write @cron("0 9 * * *")'
        )
    if name is not None:
        _check_name(name)
    return MetadataDecorator(
        CronMetadata(
            expression=expression,
            name=name,
            data=data,
            timezone=timezone,
            unique_key=unique_key,
            priority=priority,
        )
    )


def job_controller(
    namespace: str | None = None, *, scope: Lifetime | None = None
) -> Callable[[type[C]], type[C]]:
    """Make each method with `@job` or `@cron` of a class a job, named `namespace.name`."""
    _check_scope(scope)
    if namespace is not None and not isinstance(namespace, str):
        raise TypeError(
            f"@job_controller needs a namespace, not {namespace!r}: write "
            '@job_controller("billing"), or @job_controller() for names without one'
        )

    def decorate(target: type[C]) -> type[C]:
        metadata = ClassMetadata.of(target) or ClassMetadata()
        if metadata.controller is not None:
            raise TypeError(f"{target.__qualname__} has two @job_controller decorators: remove one")
        controller = ControllerMetadata(namespace=namespace, scope=scope)
        dataclasses.replace(metadata, controller=controller).attach_to(target)
        return target

    return decorate


class MetadataDecorator(Generic[K]):
    """A decorator that attaches metadata to a class or a method."""

    def __init__(self, metadata: K) -> None:
        self._metadata: JobMetadata | CronMetadata = metadata

    @overload
    def __call__(  # type: ignore[overload-overlap]  # a class is callable, but not a method
        self, target: type[C]
    ) -> type[C]: ...

    @overload
    def __call__(self, target: JobMethod[S, D, R]) -> JobMethod[S, D, R]: ...

    @overload
    def __call__(self, target: Callable[[S, Job[D]], R]) -> JobMethod[S, D, R]: ...

    def __call__(self, target: Any) -> Any:
        """Return the class or method with the metadata attached."""
        if isinstance(target, type):
            _decorate_class(target, self._metadata)
            return target
        return JobMethod.of(target).with_metadata(self._metadata)


def _decorate_class(target: type, added: JobMetadata | CronMetadata) -> None:
    metadata = ClassMetadata.of(target) or ClassMetadata()
    if isinstance(added, CronMetadata):
        # Decorators apply from the bottom up; the order of the source is kept.
        dataclasses.replace(metadata, crons=(added, *metadata.crons)).attach_to(target)
    elif metadata.job is not None:
        raise TypeError(f"{target.__qualname__} has two @job decorators: remove one")
    else:
        dataclasses.replace(metadata, job=added).attach_to(target)
    add_members(target)


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"name={name!r} is not allowed: a job name is a str")


def _check_scope(scope: object) -> None:
    if scope is not None and scope not in get_args(Lifetime):
        raise ValueError(f'scope={scope!r} is not allowed: it must be "run" or "singleton"')
