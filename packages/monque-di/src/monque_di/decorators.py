"""The decorators that make a class a job, a schedule, or a family of jobs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args, overload

from monque_di.enqueueing import add_members
from monque_di.metadata import ClassMarks, ControllerMark, CronMark, JobMark, Lifetime
from monque_di.methods import JobMethod

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from monque_core import Job

C = TypeVar("C")
D = TypeVar("D")
R = TypeVar("R")
S = TypeVar("S")
K = TypeVar("K", JobMark, CronMark)


def job(
    name: str,
    *,
    concurrency: int | None = None,
    timeout: float | timedelta | None = None,
    replace: bool = False,
    scope: Lifetime | None = None,
) -> Marker[JobMark]:
    """Make a class, or a method of a controller, the worker of a job name.

    A class has a method `handle(self, job)`, `async def` or `def`. `concurrency`, `timeout` and
    `replace` are those of `Monque.worker`. `scope="singleton"` builds the class once instead of
    for each run; of a controller it is `@job_controller` that tells.
    """
    if callable(name):
        shown = getattr(name, "__qualname__", repr(name))
        raise TypeError(f'@job was put on {shown} without a name: write @job("send-email")')
    _check_scope(scope)
    _check_name(name)
    return Marker(
        JobMark(name=name, concurrency=concurrency, timeout=timeout, replace=replace, scope=scope)
    )


def cron(
    expression: str,
    *,
    name: str | None = None,
    data: object = None,
    timezone: str = "UTC",
    unique_key: str | None = None,
    priority: int = 0,
) -> Marker[CronMark]:
    """Run a job class, or a method of a controller, at every tick of a cron expression.

    The schedule is declared at every start of the application and is one however many processes
    declare it: its key is the job's full name unless `unique_key` says otherwise. `name` makes
    it a job where there is no `@job` that does.
    """
    if not isinstance(expression, str):
        raise TypeError(f'@cron takes an expression, not {expression!r}: write @cron("0 9 * * *")')
    if name is not None:
        _check_name(name)
    return Marker(
        CronMark(
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
    """Make a class a family of jobs: its methods with `@job` or `@cron`, named `namespace.name`."""
    _check_scope(scope)
    if namespace is not None and not isinstance(namespace, str):
        raise TypeError(
            f"@job_controller takes a namespace, not {namespace!r}: write "
            '@job_controller("billing"), or @job_controller() for names without one'
        )

    def mark(target: type[C]) -> type[C]:
        marks = ClassMarks.of(target) or ClassMarks()
        if marks.controller is not None:
            raise TypeError(f"{target.__qualname__} has two @job_controller")
        controller = ControllerMark(namespace=namespace, scope=scope)
        dataclasses.replace(marks, controller=controller).put_on(target)
        return target

    return mark


class Marker(Generic[K]):
    """A decorator that writes a mark down on a class or a method."""

    def __init__(self, mark: K) -> None:
        self._mark: JobMark | CronMark = mark

    @overload
    def __call__(  # type: ignore[overload-overlap]  # a class is no method, callable as it is
        self, target: type[C]
    ) -> type[C]: ...

    @overload
    def __call__(self, target: JobMethod[S, D, R]) -> JobMethod[S, D, R]: ...

    @overload
    def __call__(self, target: Callable[[S, Job[D]], R]) -> JobMethod[S, D, R]: ...

    def __call__(self, target: Any) -> Any:
        """Mark the class or method."""
        if isinstance(target, type):
            _mark_class(target, self._mark)
            return target
        return JobMethod.of(target).with_mark(self._mark)


def _mark_class(target: type, mark: JobMark | CronMark) -> None:
    marks = ClassMarks.of(target) or ClassMarks()
    if isinstance(mark, CronMark):
        # Decorators are applied from below, and are read from above.
        dataclasses.replace(marks, crons=(mark, *marks.crons)).put_on(target)
    elif marks.job is not None:
        raise TypeError(f"{target.__qualname__} has two @job: a class has one name")
    else:
        dataclasses.replace(marks, job=mark).put_on(target)
    add_members(target)


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"name={name!r} is not allowed: the name of a job is a text")


def _check_scope(scope: object) -> None:
    if scope is not None and scope not in get_args(Lifetime):
        raise ValueError(f'scope={scope!r} is not allowed: it must be "run" or "singleton"')
