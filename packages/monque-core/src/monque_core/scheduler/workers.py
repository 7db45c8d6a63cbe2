"""The handlers registered for names."""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from monque_core.display import brief_repr
from monque_core.errors import WorkerRegistrationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from datetime import timedelta

    Handler: TypeAlias = Callable[[Any], Awaitable[object] | object]
    CallNext: TypeAlias = Callable[..., Awaitable[object]]
    Middleware: TypeAlias = Callable[[Any, CallNext], Awaitable[object]]


class Work(Protocol):
    """What every handler and middleware gets: a `Job` or a `ReactiveTask`."""

    @property
    def id(self) -> Any:
        """Return the id of the job or task record."""
        ...

    @property
    def name(self) -> str:
        """Return the name its worker is registered under."""
        ...

    @property
    def data(self) -> Any:
        """Return the payload of a job, or the snapshot of a reactive task."""
        ...


@dataclass(frozen=True, slots=True)
class Worker:
    """The handler of one name in this process."""

    name: str
    handler: Handler
    concurrency: int
    timeout: timedelta | None
    is_async: bool


class Workers:
    """The registered workers; their order does not matter."""

    def __init__(self) -> None:
        self.by_name: dict[str, Worker] = {}

    def add(self, worker: Worker, *, replace: bool) -> None:
        """Register a worker; the runs of one it replaces go on."""
        if worker.name in self.by_name and not replace:
            raise WorkerRegistrationError(
                worker.name,
                f"a worker for {worker.name!r} is registered already; "
                "pass replace=True to put this one in its place",
            )
        self.by_name[worker.name] = worker

    def __contains__(self, name: object) -> bool:
        return name in self.by_name

    def __iter__(self) -> Iterator[Worker]:
        return iter(list(self.by_name.values()))

    @property
    def names(self) -> list[str]:
        """Return the names with a worker here."""
        return list(self.by_name)


def needs_arguments(method: str, target: object, example: str) -> TypeError:
    """Return the error of a decorator that was written without parentheses."""
    shown = getattr(target, "__qualname__", None) or repr(target)
    return TypeError(
        f"@monque.{method} was put on {shown} without its arguments: write "
        f"@monque.{method}({example})"
    )


def check_handler(name: str, handler: Handler) -> Handler:
    """Return a handler that can be called with a job, or a reactive task, and nothing else."""
    if not callable(handler):
        raise TypeError(f"the handler of {name!r} must be callable, not {brief_repr(handler)}")
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError):
        # Not every callable that is written in C has one.
        return handler
    try:
        signature.bind(None)
    except TypeError as error:
        shown = getattr(handler, "__qualname__", None) or repr(handler)
        raise TypeError(
            f"the handler of {name!r} is called with one argument, the job, and "
            f"{shown}{signature} cannot be: {error}"
        ) from None
    return handler


def is_async(handler: object) -> bool:
    """Whether a handler runs on the event loop rather than in a thread."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004  # asked for its kind, not for callability
    )
