"""The event loop of a `SyncMonque`, and the `Monque` on it."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, TypeVar

from monque_core.sync.loop_thread import LoopThread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from monque_core.jobs.job import AnyJob
    from monque_core.monque import Monque

R = TypeVar("R")


class LoopOwner:
    """Runs a `Monque` on an event loop that exists while it has users."""

    def __init__(self, monque: Monque, initialize: Callable[[], None]) -> None:
        self._monque = monque
        self.initialize = initialize
        self._loop: LoopThread | None = None
        self._users = 0
        self._counting = threading.Lock()

    def enter(self) -> LoopThread:
        """Return the event loop, which stays until the caller calls `leave()`."""
        self.check_may_wait()
        with self._counting:
            if self._loop is None:
                self._monque._rebind()
                self._loop = LoopThread("monque-loop")
            self._users += 1
            return self._loop

    def leave(self) -> None:
        """End the event loop if this was its last user."""
        with self._counting:
            self._users -= 1
            loop = self._loop
            if self._users or loop is None:
                return
            try:
                loop.call(self._monque._end_listeners)
                loop.call(self._monque._store.dismiss_threads)
            finally:
                # A `Monque` is on one loop at a time: the next loop starts after this one ended.
                loop.end()
                self._loop = None

    @contextlib.contextmanager
    def entered(self) -> Iterator[LoopThread]:
        """Yield the event loop, which stays until the end of the block."""
        loop = self.enter()
        try:
            yield loop
        finally:
            self.leave()

    def check_may_wait(self) -> None:
        """Raise `MonqueError` if called on the event loop, which would wait for itself."""
        loop = self._loop
        if loop is not None:
            loop.check_may_wait()

    def run(self, function: Callable[[], R]) -> R:
        """Call a function on the event loop, or in this thread if there is no loop."""
        loop = self._loop
        if loop is None or loop.is_current:
            return function()

        async def call() -> R:
            return function()

        return loop.call(call)

    def notice(self, jobs: Sequence[AnyJob]) -> None:
        """Wake the instance for jobs that were stored."""
        loop = self._loop
        if loop is not None:
            loop.post(self._monque._notice, jobs)

    def emit(self, event: str, payload: object) -> None:
        """Emit an event on the event loop; listeners are never called in another thread."""
        loop = self._loop
        if loop is not None and loop.post(self._monque._emit_event, event, payload):
            return
        if self._monque.listeners(event):
            with self.entered() as loop:
                loop.post(self._monque._emit_event, event, payload)

    def running(self, name: str) -> int:
        """Return how many jobs of a name run."""
        return self._monque._running(name)
