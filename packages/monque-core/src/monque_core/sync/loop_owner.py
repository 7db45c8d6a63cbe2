"""Where the workers of a `SyncMonque` are."""

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
    """A `Monque` and the event loop it lives on, which is there while somebody needs it."""

    def __init__(self, monque: Monque, initialize: Callable[[], None]) -> None:
        self._monque = monque
        self.initialize = initialize
        self._loop: LoopThread | None = None
        self._users = 0
        self._counting = threading.Lock()

    def enter(self) -> LoopThread:
        """Give the event loop to whoever needs it until it leaves."""
        self.check_may_wait()
        with self._counting:
            if self._loop is None:
                self._monque._rebind()
                self._loop = LoopThread("monque-loop")
            self._users += 1
            return self._loop

    def leave(self) -> None:
        """End the event loop if nobody needs it any more."""
        with self._counting:
            self._users -= 1
            loop = self._loop
            if self._users or loop is None:
                return
            try:
                loop.call(self._monque._end_listeners)
                loop.call(self._monque._store.dismiss_threads)
            finally:
                # Only then may there be another one: a `Monque` is on one loop at a time.
                loop.end()
                self._loop = None

    @contextlib.contextmanager
    def entered(self) -> Iterator[LoopThread]:
        """Give the event loop for a while."""
        loop = self.enter()
        try:
            yield loop
        finally:
            self.leave()

    def check_may_wait(self) -> None:
        """Refuse to wait on the event loop for the event loop."""
        loop = self._loop
        if loop is not None:
            loop.check_may_wait()

    def do(self, act: Callable[[], R]) -> R:
        """Call a function where the workers are, if they are at work."""
        loop = self._loop
        if loop is None or loop.is_current:
            return act()

        async def act_there() -> R:
            return act()

        return loop.call(act_there)

    def notice(self, jobs: Sequence[AnyJob]) -> None:
        """Take note of jobs that were stored."""
        loop = self._loop
        if loop is not None:
            loop.post(self._monque._notice, jobs)

    def tell(self, event: str, payload: object) -> None:
        """Let listeners know what was done, where they are always called."""
        loop = self._loop
        if loop is not None and loop.post(self._monque._emit_event, event, payload):
            return
        if self._monque.listeners(event):
            with self.entered() as loop:
                loop.post(self._monque._emit_event, event, payload)

    def running(self, name: str) -> int:
        """Tell how many jobs of a name run."""
        return self._monque._running(name)
