"""`MonqueService`, the injectable API of the running `Monque`."""

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
    """Holds the `Monque` that a container runs, or the reason why there is none."""

    def __init__(self, container: AnyContainer) -> None:
        self.container = container
        self._monque: Monque | None = None
        self._processes_jobs = True
        self._why_empty = _NOT_STARTED

    def fill(self, monque: Monque, *, processes_jobs: bool) -> None:
        """Store the running instance."""
        self._monque = monque
        self._processes_jobs = processes_jobs

    def disable(self) -> None:
        """Record that there is no instance because the option `enabled` is False."""
        self._why_empty = "Monque is disabled: set the option enabled to True to use it"

    def clear(self) -> None:
        """Remove the instance."""
        self._monque = None
        self._why_empty = _NOT_STARTED

    def check_empty(self) -> None:
        """Raise if there is an instance: injection during shutdown must not start another."""
        if self._monque is not None:
            raise MonqueError(
                "Monque is stopping and cannot be injected now: inject MonqueService instead"
            )

    def get_monque(self) -> Monque:
        """Return the instance, or raise `MonqueError` with the reason why there is none."""
        if self._monque is None:
            raise MonqueError(self._why_empty)
        return self._monque

    @property
    def runs_jobs(self) -> bool:
        """Whether there is an instance, and it is more than a producer."""
        return self._monque is not None and self._processes_jobs

    @property
    def is_healthy(self) -> bool:
        """Whether the instance runs jobs or, as a producer, is connected."""
        if self._monque is None and self._why_empty == _NOT_STARTED:
            return False
        monque = self.get_monque()
        return monque.is_healthy if self._processes_jobs else monque.is_connected


def _forwarded(
    method: Callable[Concatenate[Monque, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[MonqueService, P], Coroutine[Any, Any, R]]:
    """Return a method that calls the method of the running `Monque`, with its signature."""

    @functools.wraps(method)
    async def forward(service: MonqueService, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await method(service.monque, *args, **kwargs)

    return forward


class MonqueService:
    """The API of `Monque` for injection; unlike the instance, it exists before the start."""

    def __init__(self, slot: InstanceSlot) -> None:
        self._slot = slot

    @property
    def monque(self) -> Monque:
        """Return the running instance; raise `MonqueError` if there is none."""
        return self._slot.get_monque()

    @property
    def is_healthy(self) -> bool:
        """Whether the instance runs jobs; for a producer, whether MongoDB answered the last call.

        False before the start. Reading it sends nothing to MongoDB.
        """
        return self._slot.is_healthy

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
    return service._slot.container
