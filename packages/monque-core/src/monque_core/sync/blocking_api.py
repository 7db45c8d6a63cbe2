"""Storing, looking and managing in the thread that asks."""

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


class HostInstance(Protocol):
    """Where the workers are, if there are any."""

    def initialize(self) -> None:
        """Make the collection ready for jobs."""

    def notice(self, jobs: Sequence[AnyJob]) -> None:
        """Take note of jobs that were stored."""

    def tell(self, event: str, payload: object) -> None:
        """Let listeners know what was done."""

    def running(self, name: str) -> int:
        """Tell how many jobs of a name run."""


class BlockingApi(Producer, Inspector, Controller, ReactiveAdmin):
    """The methods of `Monque` that need no running instance, on a store that blocks.

    Not one of them waits for anything but MongoDB, so each runs to its end by itself, in
    whichever thread it is called, and no busy event loop holds it up.
    """

    def __init__(
        self,
        database: object,
        options: Options,
        workers: Workers,
        home: HostInstance,
    ) -> None:
        super().__init__()
        self._options = options
        self._store = Store(database, options, in_place=True)
        self._limits = Limits(self._store.codec, options.max_payload_size)
        self._workers = workers
        self._home = home
        self._is_initialized = False

    async def initialize(self) -> None:
        """Let who owns this make the collection ready, once."""
        if not self._is_initialized:
            self._home.initialize()
            self._is_initialized = True

    @property
    def connectivity(self) -> Connectivity:
        """Return whether, and when, MongoDB last answered a call from here."""
        return self._store.connectivity

    def _notice(self, jobs: Sequence[AnyJob]) -> None:
        self._home.notice(jobs)

    def _emit_event(self, event: str, payload: object) -> None:
        self._home.tell(event, payload)

    def _running(self, name: str) -> int:
        return self._home.running(name)


def run_in_place(coroutine: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine that never waits to its end."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: R = end.value
        return result
    coroutine.close()
    raise AssertionError("a call of the counter waited for an event loop")
