"""The methods of `Monque` that need no event loop, in the calling thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from monque_core.controller import Controller
from monque_core.inspector import Inspector
from monque_core.jobs.draft import Limits
from monque_core.producer import Producer
from monque_core.reactive_admin import ReactiveAdmin
from monque_core.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from monque_core.jobs.job import AnyJob
    from monque_core.options import Options
    from monque_core.scheduler.workers import Workers
    from monque_core.store.connectivity import Connectivity

R = TypeVar("R")


class WorkerHost(Protocol):
    """The instance that runs the workers."""

    def initialize(self) -> None:
        """Create indexes, recover stale jobs, check the instance id."""

    def notice(self, jobs: Sequence[AnyJob]) -> None:
        """Wake the instance for jobs that were stored."""

    def emit(self, event: str, payload: object) -> None:
        """Emit an event to the listeners of the instance."""

    def running(self, name: str) -> int:
        """Return how many jobs of a name run."""


class BlockingApi(Producer, Inspector, Controller, ReactiveAdmin):
    """The methods of `Monque` that need no running instance, on a store that blocks.

    They wait only for MongoDB, so each runs to its end in the calling thread, and no busy event
    loop delays it.
    """

    def __init__(
        self, database: object, options: Options, workers: Workers, host: WorkerHost
    ) -> None:
        super().__init__()
        self._options = options
        self._store = Store(database, options, in_place=True)
        self._limits = Limits(self._store.codec, options.max_payload_size)
        self._workers = workers
        self._host = host
        self._is_initialized = False

    async def initialize(self) -> None:
        """Initialize the instance that runs the workers, once."""
        if not self._is_initialized:
            self._host.initialize()
            self._is_initialized = True

    @property
    def connectivity(self) -> Connectivity:
        """Whether and when MongoDB last answered a call of this object."""
        return self._store.connectivity

    def _notice(self, jobs: Sequence[AnyJob]) -> None:
        self._host.notice(jobs)

    def _emit_event(self, event: str, payload: object) -> None:
        self._host.emit(event, payload)

    def _running(self, name: str) -> int:
        return self._host.running(name)


def run_in_place(coroutine: Coroutine[Any, Any, R]) -> R:
    """Return the result of a coroutine that never waits for an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: R = end.value
        return result
    coroutine.close()
    raise AssertionError("a blocking call waited for an event loop")
