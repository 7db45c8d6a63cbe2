"""An event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from monque_core.errors import MonqueError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

R = TypeVar("R")

_LOOK_GAP = 0.2


class GivenUpError(Exception):
    """Whoever waited for a call has stopped waiting."""


class LoopThread:
    """A running event loop for those who have none; it ends with `end()`, or the process."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._is_ended = False
        self._ending = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Tell whether this is called on the loop."""
        return threading.current_thread() is self._thread

    def call(
        self,
        work: Callable[[], Coroutine[Any, Any, R]],
        given_up: Callable[[], bool] | None = None,
    ) -> R:
        """Run a coroutine on the loop and wait for its result.

        Whoever is interrupted while it waits, as by Ctrl-C, cancels it; so does `given_up` when
        it becomes true, and `GivenUpError` is raised.
        """
        self.check_may_wait()
        with self._ending:
            if self._is_ended:
                raise _cut_off()
            future = asyncio.run_coroutine_threadsafe(_begin(work), self._loop)
        try:
            if given_up is not None:
                _wait_unless(given_up, future)
            return future.result()
        except concurrent.futures.CancelledError:
            raise _cut_off() from None
        except BaseException:
            future.cancel()
            raise

    def check_may_wait(self) -> None:
        """Refuse to wait on the loop for the loop."""
        if self.is_current:
            raise MonqueError(
                "this would wait for the event loop it is called on: call it from another thread"
            )

    def post(self, call: Callable[..., object], *args: object) -> bool:
        """Call a function on the loop, soon, without waiting; False if that has ended."""
        with self._ending:
            if not self._is_ended:
                self._loop.call_soon_threadsafe(call, *args)
            return not self._is_ended

    def end(self) -> None:
        """Stop the loop, cancel what is left on it, and wait for the thread."""
        with self._ending:
            if not self._is_ended:
                self._is_ended = True
                self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        loop = self._loop
        try:
            loop.run_forever()
            while left := asyncio.all_tasks(loop):
                for task in left:
                    task.cancel()
                loop.run_until_complete(asyncio.wait(left))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            # Unlike `asyncio.Runner`, without a wait for threads that a handler left behind.
            loop.close()


async def _begin(work: Callable[[], Coroutine[Any, Any, R]]) -> R:
    return await work()


def _wait_unless(given_up: Callable[[], bool], future: concurrent.futures.Future[Any]) -> None:
    while not future.done():
        if given_up():
            raise GivenUpError
        concurrent.futures.wait([future], timeout=_LOOK_GAP)


def _cut_off() -> MonqueError:
    return MonqueError("the call was cut off: its event loop has ended")
