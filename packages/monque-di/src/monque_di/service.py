"""The injectable front of Monque."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from monque_core import Monque, MonqueError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from monque_di.provider_index import AnyContainer

P = ParamSpec("P")
R = TypeVar("R")

_NOT_STARTED = (
    "Monque is not started: enter `async with lifespan(container)`, or await "
    "container.init_resources(), before the queue is used"
)


class InstanceSlot:
    """The place of the one `Monque` that a container runs, taken or free."""

    def __init__(self, container: AnyContainer) -> None:
        self.container = container
        self._monque: Monque | None = None
        self._processes_jobs = True
        self._why_free = _NOT_STARTED

    def take(self, monque: Monque, *, processes_jobs: bool) -> None:
        """Let an instance be found here."""
        self._monque = monque
        self._processes_jobs = processes_jobs

    def close(self) -> None:
        """Say that there will be none, because the application is told to do without."""
        self._why_free = "Monque is disabled here: the option enabled is False"

    def leave(self) -> None:
        """Let nothing be found here any more."""
        self._monque = None
        self._why_free = _NOT_STARTED

    def check_free(self) -> None:
        """Refuse a second instance, which an injection during the shutdown would make."""
        if self._monque is not None:
            raise MonqueError("Monque is stopping: take the MonqueService to reach it until then")

    def get_monque(self) -> Monque:
        """Give the instance, or say why there is none."""
        if self._monque is None:
            raise MonqueError(self._why_free)
        return self._monque

    @property
    def runs_jobs(self) -> bool:
        """Whether there is an instance, and it is more than a producer."""
        return self._monque is not None and self._processes_jobs

    @property
    def is_healthy(self) -> bool:
        """Tell whether the instance does what it is there for."""
        if self._monque is None and self._why_free == _NOT_STARTED:
            return False
        monque = self.get_monque()
        return monque.is_healthy if self._processes_jobs else monque.is_connected


def _forwarded(
    method: Callable[Concatenate[Monque, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[MonqueService, P], Coroutine[Any, Any, R]]:
    """Make a method of `Monque` one of the service, signature and all."""

    @functools.wraps(method)
    async def forward(service: MonqueService, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await method(service.monque, *args, **kwargs)

    return forward


class MonqueService:
    """The queue, for the constructors of an application: it may be injected before the start."""

    def __init__(self, seat: InstanceSlot) -> None:
        self._seat = seat

    @property
    def monque(self) -> Monque:
        """Give the instance behind this; a `MonqueError` says why there is none."""
        return self._seat.get_monque()

    @property
    def is_healthy(self) -> bool:
        """Whether it runs jobs; of a producer, whether MongoDB answered the last call or `ping`.

        It asks nothing by itself, and is False before the start.
        """
        return self._seat.is_healthy

    enqueue = _forwarded(Monque.enqueue)
    enqueue_many = _forwarded(Monque.enqueue_many)
    now = _forwarded(Monque.now)
    schedule = _forwarded(Monque.schedule)
    unschedule = _forwarded(Monque.unschedule)
    ping = _forwarded(Monque.ping)
    run_until_idle = _forwarded(Monque.run_until_idle)

    cancel_job = _forwarded(Monque.cancel_job)
    cancel_jobs = _forwarded(Monque.cancel_jobs)
    retry_job = _forwarded(Monque.retry_job)
    retry_jobs = _forwarded(Monque.retry_jobs)
    reschedule_job = _forwarded(Monque.reschedule_job)
    delete_job = _forwarded(Monque.delete_job)
    delete_jobs = _forwarded(Monque.delete_jobs)

    get_job = _forwarded(Monque.get_job)
    get_jobs = _forwarded(Monque.get_jobs)
    get_jobs_with_cursor = _forwarded(Monque.get_jobs_with_cursor)
    get_schedules = _forwarded(Monque.get_schedules)
    get_queue_stats = _forwarded(Monque.get_queue_stats)
    get_queue_view_summaries = _forwarded(Monque.get_queue_view_summaries)

    get_reactive_tasks = _forwarded(Monque.get_reactive_tasks)
    count_reactive_tasks = _forwarded(Monque.count_reactive_tasks)
    retry_reactive_tasks = _forwarded(Monque.retry_reactive_tasks)
    reconcile = _forwarded(Monque.reconcile)
    get_reactive_stats = _forwarded(Monque.get_reactive_stats)


def container_of(service: MonqueService) -> AnyContainer:
    """Return the `MonqueContainer` that a service belongs to."""
    return service._seat.container
