"""An event loop in a background thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from monque_core.errors import MonqueError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

R = TypeVar("R")

_CHECK_SECONDS = 0.2


class WaitAbandonedError(Exception):
    """The caller stopped waiting for its call."""


class LoopThread:
    """A running event loop in a daemon thread, until `end()`."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._is_ended = False
        self._ending = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on this loop."""
        return threading.current_thread() is self._thread

    def call(
        self,
        work: Callable[[], Coroutine[Any, Any, R]],
        abandoned: Callable[[], bool] | None = None,
    ) -> R:
        """Run a coroutine on the loop and return its result.

        An interrupted wait, as by Ctrl-C, cancels the coroutine. If `abandoned` becomes true, the
        coroutine is cancelled and `WaitAbandonedError` is raised.
        """
        self.check_may_wait()
        with self._ending:
            if self._is_ended:
                raise _loop_ended()
            future = asyncio.run_coroutine_threadsafe(_begin(work), self._loop)
        try:
            if abandoned is not None:
                _wait_unless(abandoned, future)
            return future.result()
        except concurrent.futures.CancelledError:
            raise _loop_ended() from None
        except BaseException:
            future.cancel()
            raise

    def check_may_wait(self) -> None:
        """Raise `MonqueError` if called on the loop, which would wait for itself."""
        if self.is_current:
            raise MonqueError(
                "this call would block the event loop that it waits for: "
                "call it from another thread"
            )

    def post(self, call: Callable[..., object], *args: object) -> bool:
        """Call a function on the loop soon, without waiting; return False if the loop has ended."""
        with self._ending:
            if not self._is_ended:
                self._loop.call_soon_threadsafe(call, *args)
            return not self._is_ended

    def end(self) -> None:
        """Stop the loop, cancel its remaining tasks, and wait for the thread."""
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
            # Unlike `asyncio.Runner`, this does not wait for threads that a handler left behind.
            loop.close()


async def _begin(work: Callable[[], Coroutine[Any, Any, R]]) -> R:
    return await work()


def _wait_unless(abandoned: Callable[[], bool], future: concurrent.futures.Future[Any]) -> None:
    while not future.done():
        if abandoned():
            raise WaitAbandonedError
        concurrent.futures.wait([future], timeout=_CHECK_SECONDS)


def _loop_ended() -> MonqueError:
    return MonqueError("the call was cancelled because its event loop has ended")
