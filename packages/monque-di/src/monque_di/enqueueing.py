"""Storing a job by its class instead of by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from monque_di.metadata import ClassMarks, name_in

if TYPE_CHECKING:
    from typing import Unpack

    from monque_core import EnqueueOptions, Job, Monque
    from monque_di.service import MonqueService

    Queue: TypeAlias = Monque | MonqueService

D = TypeVar("D")


class JobName:
    """The name of a job class, as its attribute `job_name`; a class of its own may hide it."""

    def __get__(self, instance: object, owner: type) -> str:
        try:
            return job_name(owner)
        except TypeError as error:
            raise AttributeError(str(error)) from None


class JobHandler(Generic[D]):
    """The optional base of a job class, from which type checkers know `job_name` and `enqueue`.

    `@job` gives both to every class; but what a decorator adds to a class, no checker sees.
    """

    job_name = JobName()
    """The name of the job, for `queue.get_jobs(name=SendEmail.job_name)` and the like."""

    @classmethod
    async def enqueue(cls, queue: Queue, data: D, **options: Unpack[EnqueueOptions]) -> Job[D]:
        """Store a job for this class; the options are those of `Monque.enqueue`."""
        return await send(queue, job_name(cls), data, options)


def add_members(target: type) -> None:
    """Add `enqueue` and `job_name` to a class, unless it has attributes of these names."""
    for name in ("enqueue", "job_name"):
        if not hasattr(target, name):
            setattr(target, name, vars(JobHandler)[name])


def job_name(target: type) -> str:
    """Give the name of a job class."""
    marks = ClassMarks.of(target) or ClassMarks()
    name = name_in(marks.job, marks.crons)
    if name is None:
        raise TypeError(f'{target.__qualname__} is no job: it needs a @job("…") of its own')
    return name


async def send(queue: Queue, name: str, data: D, options: EnqueueOptions) -> Job[D]:
    """Store a job."""
    return await queue.enqueue(name, data, **options)
