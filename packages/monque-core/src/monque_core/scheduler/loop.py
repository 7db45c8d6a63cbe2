"""Background loops: one start/stop contract for everything that runs in the background."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from monque_core.display import log
from monque_core.errors import MonqueConnectionError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from datetime import timedelta

_PAUSE_AFTER_ERROR = 1.0
_CANCEL_AGAIN_AFTER = 2.5


class Loop(ABC):
    """A background loop: one task from start to stop, with nothing left behind."""

    def __init__(self, report: Callable[[BaseException], None]) -> None:
        self._report = report
        self._task: asyncio.Task[None] | None = None
        self._fault: tuple[object, ...] | None = None

    def start(self) -> None:
        """Start the task; a stopped loop can be started again."""
        assert self._task is None, "a loop is started once"
        self._task = asyncio.create_task(self._keep_running(), name=f"monque-{type(self).__name__}")

    async def stop(self) -> None:
        """Cancel the task and wait until it has ended; safe to call at any time."""
        task, self._task = self._task, None
        if task is None:
            return
        await end(task)

    async def _keep_running(self) -> None:
        while True:
            try:
                await self._run()
                return
            except Exception as error:  # noqa: BLE001  # no error may end a loop
                self._complain(error)
                await asyncio.sleep(_PAUSE_AFTER_ERROR)

    def _complain(self, error: Exception) -> None:
        """Report an error, but not the same one again until something succeeded.

        Errors of an outage are always passed on: the publisher reports each outage once.
        """
        # Server messages contain timestamps; the error code is stable.
        fault = (type(error), getattr(error, "code", None) or str(error))
        if fault == self._fault and not isinstance(error, MonqueConnectionError):
            log(logging.DEBUG, f"the same error again: {error}")
        else:
            self._fault = fault
            self._report(error)

    def _went_well(self) -> None:
        """Record a success: the next error is reported, whatever it is."""
        self._fault = None

    @abstractmethod
    async def _run(self) -> None:
        """Work until cancelled; an error is reported, and the loop runs again."""


async def end(task: asyncio.Task[Any]) -> None:
    """Cancel a task of our own and wait until it has ended.

    One cancellation may not be enough: `asyncio.wait_for`, which the driver uses, can swallow one
    that arrives together with its result. The task has time to clean up before the next.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=_CANCEL_AGAIN_AFTER)
    if not task.cancelled() and (error := task.exception()) is not None:
        # Retrieved here, since asyncio would log an error that nobody retrieves.
        log(logging.DEBUG, f"{task.get_name()} failed while it was ended: {error!r}")


async def finish(work: Coroutine[Any, Any, object]) -> None:
    """Run to completion, deferring cancellation."""
    task = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled


async def wait_until(deadline: float, work: Coroutine[Any, Any, object]) -> bool:
    """Run something until a loop time, then cancel it; whether it completed."""
    task = asyncio.create_task(work)
    try:
        await asyncio.wait([task], timeout=max(0.0, deadline - asyncio.get_running_loop().time()))
        is_done = task.done()
    finally:
        await end(task)
    if is_done:
        task.result()
    return is_done


class Periodic(Loop):
    """A background loop that does one thing every interval, and sooner after an error."""

    def __init__(self, report: Callable[[BaseException], None], interval: timedelta) -> None:
        super().__init__(report)
        self._interval = interval.total_seconds()

    async def _run(self) -> None:
        pause = self._interval
        while True:
            await asyncio.sleep(pause)
            pause = self._interval
            try:
                await self._tick()
                self._went_well()
            except Exception as error:  # noqa: BLE001  # no error may end a loop
                self._complain(error)
                pause = min(self._interval, _PAUSE_AFTER_ERROR)

    @abstractmethod
    async def _tick(self) -> None:
        """Do the work of one interval."""
