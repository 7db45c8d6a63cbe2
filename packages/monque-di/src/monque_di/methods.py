"""Controller methods that are jobs."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

from monque_di.enqueueing import send
from monque_di.metadata import ClassMetadata, CronMetadata, JobMetadata, declared_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from monque_core import EnqueueOptions, Job
    from monque_di.enqueueing import Queue

D = TypeVar("D")
R = TypeVar("R")
S = TypeVar("S")


class JobMethod(Generic[S, D, R]):
    """A method with `@job` or `@cron`: bound on an instance, a `ControllerJob` on the class."""

    def __init__(
        self,
        function: Callable[[S, Job[D]], R],
        job: JobMetadata | None = None,
        crons: tuple[CronMetadata, ...] = (),
    ) -> None:
        functools.update_wrapper(cast("Callable[..., object]", self), function)
        self.function = function
        self.job = job
        self.crons = crons
        self.attribute = getattr(function, "__name__", "handle")

    @classmethod
    def of(cls, target: Callable[[S, Job[D]], R] | JobMethod[S, D, R]) -> JobMethod[S, D, R]:
        """Return the wrapper of a method, which may be wrapped already."""
        if isinstance(target, cls):
            return target
        if isinstance(target, (classmethod, staticmethod)):
            raise TypeError(
                f"{target.__qualname__} is a {type(target).__name__}: a job must be an instance "
                "method, (self, job)"
            )
        if not callable(target) or not hasattr(target, "__name__"):
            raise TypeError(f"@job and @cron decorate a class or a method, not {target!r}")
        if "." not in target.__qualname__:
            raise TypeError(
                f"{target.__qualname__} is a plain function: @job and @cron decorate classes and "
                "methods; register a function with Monque.worker"
            )
        return cls(target)

    def with_metadata(self, added: JobMetadata | CronMetadata) -> JobMethod[S, D, R]:
        """Return a copy with the metadata of one more decorator."""
        if isinstance(added, CronMetadata):
            return JobMethod(self.function, self.job, (added, *self.crons))
        if self.job is not None:
            raise TypeError(f"{self.function.__qualname__} has two @job decorators: remove one")
        return JobMethod(self.function, added, self.crons)

    def __set_name__(self, owner: type[S], name: str) -> None:
        self.attribute = name

    @overload
    def __get__(self, instance: None, owner: type[S]) -> ControllerJob[S, D, R]: ...

    @overload
    def __get__(self, instance: S, owner: type[S]) -> Callable[[Job[D]], R]: ...

    def __get__(self, instance: S | None, owner: type[S]) -> Any:
        if instance is None:
            return ControllerJob(self, owner)
        return self.function.__get__(instance, owner)


class ControllerJob(Generic[S, D, R]):
    """A job of a controller: the value of `Billing.charge`."""

    def __init__(self, method: JobMethod[S, D, R], owner: type[S]) -> None:
        functools.update_wrapper(self, method.function)
        self.method = method
        self.owner = owner

    @property
    def job_name(self) -> str:
        """Return the full name of the job."""
        own_name = declared_name(self.method.job, self.method.crons)
        metadata = ClassMetadata.of(self.owner)
        if own_name is None or metadata is None or metadata.controller is None:
            raise TypeError(
                f"{self.owner.__qualname__}.{self.method.attribute} is not a job: it needs a name, "
                "and its class needs @job_controller"
            )
        return metadata.controller.full_name(own_name)

    async def enqueue(self, queue: Queue, data: D, **options: Unpack[EnqueueOptions]) -> Job[D]:
        """Enqueue a job for this method; the options are those of `Monque.enqueue`."""
        return await send(queue, self.job_name, data, options)

    def __call__(self, instance: S, job: Job[D], *args: Any, **kwargs: Any) -> R:
        """Call the method with an explicit instance."""
        return self.function(instance, job, *args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return (getattr, (self.owner, self.method.attribute))

    @property
    def function(self) -> Callable[[S, Job[D]], R]:
        """Return the undecorated method."""
        return self.method.function
