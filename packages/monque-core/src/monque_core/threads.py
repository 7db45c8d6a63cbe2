"""A pool of daemon threads for blocking calls."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

R = TypeVar("R")
_LOOK_GAP = 0.005


@dataclass(slots=True)
class _Call:
    """A function to call in a thread, and the future that waits for it."""

    function: Callable[[], Any]
    future: asyncio.Future[Any]
    deliveries: _Deliveries


class ThreadPool:
    """Threads that are created on demand, reused, and dismissed together.

    Unlike `concurrent.futures`, a thread that never returns keeps neither the interpreter
    from exiting nor `dismiss` from finishing.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._crew = _Crew(name)
        self._deliveries: _Deliveries | None = None

    def submit(
        self, function: Callable[[], R], future: asyncio.Future[R] | None = None
    ) -> asyncio.Future[R]:
        """Run the function in a thread; a future of the running event loop gets its result."""
        loop = asyncio.get_running_loop()
        if future is None:
            future = loop.create_future()
        if self._deliveries is None or self._deliveries.loop is not loop:
            self._deliveries = _Deliveries(loop)
        self._crew.take_on(_Call(function, future, self._deliveries))
        return future

    async def dismiss(self, patience: float = 0.0) -> None:
        """End every thread when its work is done; wait for busy ones so many seconds."""
        crew, self._crew = self._crew, _Crew(self._name)
        crew.dismiss()
        deadline = time.monotonic() + patience
        while crew.is_alive() and time.monotonic() < deadline:  # noqa: ASYNC110  # no event in it
            await asyncio.sleep(_LOOK_GAP)


class _Crew:
    """The threads between two dismissals, each with an inbox of its own."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._idle: list[_Thread] = []
        self._threads: list[_Thread] = []
        self._is_dismissed = False

    def take_on(self, call: _Call) -> None:
        with self._lock:
            if self._idle:
                thread = self._idle.pop()
            else:
                thread = _Thread(self, f"{self._name}-{len(self._threads) + 1}")
                self._threads.append(thread)
                thread.start()
        thread.inbox.put(call)

    def make_idle(self, thread: _Thread) -> bool:
        """Keep a thread for reuse, unless the pool was dismissed."""
        with self._lock:
            if not self._is_dismissed:
                self._idle.append(thread)
            return not self._is_dismissed

    def is_alive(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def dismiss(self) -> None:
        with self._lock:
            self._is_dismissed = True
            idle, self._idle = self._idle, []
        for thread in idle:
            thread.inbox.put(None)
        for thread in idle:
            thread.join()


class _Thread(threading.Thread):
    """A thread that executes the calls in its inbox, one at a time."""

    def __init__(self, crew: _Crew, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.inbox: SimpleQueue[_Call | None] = SimpleQueue()
        self._crew = crew

    def run(self) -> None:
        """Execute calls until dismissed."""
        is_needed = True
        while is_needed and (call := self.inbox.get()) is not None:
            outcome = _outcome(call.function)
            # Idle before the result is known, so that work which follows it finds this thread.
            is_needed = self._crew.make_idle(self)
            call.deliveries.add(call.future, *outcome)
            # Otherwise an idle thread would keep its last call and result alive.
            del call, outcome


def _outcome(function: Callable[[], R]) -> tuple[R | None, BaseException | None]:
    """Return what a function returns or raises.

    The traceback of the error holds this frame and those above it. If they held the error or its
    future, there would be a reference cycle, which only the garbage collector frees.
    """
    try:
        return function(), None
    except BaseException as error:  # noqa: BLE001  # raised where the future is awaited
        return None, error


class _Deliveries:
    """What threads have returned for one event loop, which is woken once for all of it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._ready: deque[tuple[asyncio.Future[Any], object, BaseException | None]] = deque()
        self._is_awaited = False

    def add(self, future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
        """Deliver an outcome; called in a thread."""
        # First: a delivery that is under way may still take it.
        self._ready.append((future, result, error))
        if not self._is_awaited:
            self._is_awaited = True
            # The loop may be closed by the time a late thread returns.
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        # First: what is added from here on wakes the loop again.
        self._is_awaited = False
        while self._ready:
            _resolve(*self._ready.popleft())


def _resolve(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif issubclass(type(error), StopIteration):
        # A future refuses StopIteration, which would end the waiting coroutine instead.
        future.set_exception(_wrapped("a thread raised StopIteration", error))
    else:
        # No isinstance(): an exception may have a misleading `__class__`, or raise in it.
        try:
            future.set_exception(error)
        except BaseException:  # noqa: BLE001  # the future must not stay pending
            future.set_exception(_wrapped("a thread raised what a future refuses", error))


def _wrapped(message: str, error: BaseException) -> RuntimeError:
    wrapped = RuntimeError(message)
    wrapped.__cause__ = error
    return wrapped
