"""Storing a job by its class instead of by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeAlias, TypedDict, TypeVar

from monque_di.marks import ClassMarks, name_in

if TYPE_CHECKING:
    from datetime import datetime, timedelta
    from typing import Unpack

    from monque_core import Job, Monque
    from monque_di.service import MonqueService

    Queue: TypeAlias = Monque | MonqueService

D = TypeVar("D")


class EnqueueOptions(TypedDict, total=False):
    """The keyword arguments of `Monque.enqueue`; durations are seconds or `timedelta`."""

    run_at: datetime | None
    delay: float | timedelta | None
    unique_key: str | None
    priority: int
    max_retries: int | None
    """Runs in all, the first one included."""
    timeout: float | timedelta | None
    session: object


class JobHandler(Generic[D]):
    """The optional base of a job class, from which type checkers know its `enqueue`.

    `@job` gives every class that method; but what a decorator adds to a class, no checker sees.
    """

    @classmethod
    async def enqueue(cls, queue: Queue, data: D, **options: Unpack[EnqueueOptions]) -> Job[D]:
        """Store a job for this class; the options are those of `Monque.enqueue`."""
        return await send(queue, job_name(cls), data, options)


def add_enqueue(target: type) -> None:
    """Give a class the method `enqueue`, unless it has one of that name."""
    if not hasattr(target, "enqueue"):
        target.enqueue = vars(JobHandler)["enqueue"]  # type: ignore[attr-defined]  # it is new


def job_name(target: type) -> str:
    """Give the name of a job class."""
    marks = ClassMarks.of(target) or ClassMarks()
    name = name_in(marks.job, marks.crons)
    if name is None:
        raise TypeError(f"{target.__qualname__} is no job: it needs a @job(name=…) of its own")
    return name


async def send(queue: Queue, name: str, data: D, options: EnqueueOptions) -> Job[D]:
    """Store a job."""
    return await queue.enqueue(name, data, **options)
