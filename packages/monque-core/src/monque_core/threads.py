"""Daemon threads for what must not run on the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

R = TypeVar("R")


class ThreadPool:
    """Threads made when work finds none idle, reused afterwards, and dismissed all at once.

    Unlike `concurrent.futures`, a thread that never returns keeps neither the interpreter
    from exiting nor `dismiss` from finishing.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._crew = _Crew(name)

    def submit(self, function: Callable[[], R]) -> asyncio.Future[R]:
        """Run the function in a thread; the future belongs to the running event loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()

        def work() -> Callable[[], None]:
            result, error = None, None
            try:
                result = function()
            except BaseException as caught:  # noqa: BLE001  # handed to whoever waits
                error = caught
            return lambda: _deliver(loop, future, result, error)

        self._crew.take_on(work)
        return future

    def dismiss(self) -> None:
        """Let every thread end when its work is done, and wait for those that are idle."""
        crew, self._crew = self._crew, _Crew(self._name)
        crew.dismiss()


class _Crew:
    """The threads between two dismissals."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._queue: SimpleQueue[Callable[[], Callable[[], None]] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._idle: set[threading.Thread] = set()
        self._spoken_for = 0

    def take_on(self, work: Callable[[], Callable[[], None]]) -> None:
        with self._lock:
            if len(self._idle) > self._spoken_for:
                self._spoken_for += 1
            else:
                name = f"{self._name}-{len(self._threads) + 1}"
                thread = threading.Thread(target=self._serve, name=name, daemon=True)
                self._threads.append(thread)
                self._idle.add(thread)
                self._spoken_for += 1
                thread.start()
            self._queue.put(work)

    def dismiss(self) -> None:
        with self._lock:
            idle = list(self._idle)
        for _ in self._threads:
            self._queue.put(None)
        for thread in idle:
            thread.join()

    def _serve(self) -> None:
        me = threading.current_thread()
        while (work := self._queue.get()) is not None:
            with self._lock:
                self._spoken_for -= 1
                self._idle.discard(me)
            deliver = work()
            # Idle before the result is known, so that work which follows it finds this thread.
            with self._lock:
                self._idle.add(me)
            deliver()


def _deliver(
    loop: asyncio.AbstractEventLoop,
    future: asyncio.Future[Any],
    result: object,
    error: BaseException | None,
) -> None:
    # The loop may be closed by the time a late thread returns.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(_resolve, future, result, error)


def _resolve(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, StopIteration):
        # A future refuses StopIteration, which would end the waiting coroutine instead.
        wrapped = RuntimeError("a thread raised StopIteration")
        wrapped.__cause__ = error
        future.set_exception(wrapped)
    else:
        future.set_exception(error)
