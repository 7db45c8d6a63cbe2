"""Enqueue a job by its class instead of its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from monque_di.metadata import ClassMetadata, declared_name

if TYPE_CHECKING:
    from typing import Unpack

    from monque_core import EnqueueOptions, Job, Monque
    from monque_di.service import MonqueService

    Queue: TypeAlias = Monque | MonqueService

D = TypeVar("D")


class JobName:
    """The attribute `job_name` of a job class; a class may define its own."""

    def __get__(self, instance: object, owner: type) -> str:
        try:
            return job_name(owner)
        except TypeError as error:
            raise AttributeError(str(error)) from None


class JobHandler(Generic[D]):
    """Optional base of job classes, so that type checkers see `job_name` and `enqueue`.

    `@job` adds both to every class, but type checkers do not see what a decorator adds.
    """

    job_name = JobName()
    """The name of the job, for `queue.get_jobs(name=SendEmail.job_name)` and the like."""

    @classmethod
    async def enqueue(cls, queue: Queue, data: D, **options: Unpack[EnqueueOptions]) -> Job[D]:
        """Enqueue a job for this class; the options are those of `Monque.enqueue`."""
        return await send(queue, job_name(cls), data, options)


def add_members(target: type) -> None:
    """Add `enqueue` and `job_name` to a class, unless it has its own."""
    for name in ("enqueue", "job_name"):
        if not hasattr(target, name):
            setattr(target, name, vars(JobHandler)[name])


def job_name(target: type) -> str:
    """Return the job name of a class."""
    metadata = ClassMetadata.of(target) or ClassMetadata()
    name = declared_name(metadata.job, metadata.crons)
    if name is None:
        raise TypeError(f'{target.__qualname__} is not a job: decorate it with @job("…")')
    return name


async def send(queue: Queue, name: str, data: D, options: EnqueueOptions) -> Job[D]:
    """Enqueue a job."""
    return await queue.enqueue(name, data, **options)
