"""Running a handler to its end."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import time
from typing import TYPE_CHECKING, Any, Generic

from monque_core.scheduler.source import C, W

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta

    from monque_core.scheduler.runs import Run
    from monque_core.scheduler.source import RunResult, Source
    from monque_core.scheduler.workers import Handler, Middleware, Work, Worker
    from monque_core.threads import ThreadPool


class Runner(Generic[W, C]):
    """Calls handlers: coroutines on the loop, functions in threads, middleware around both."""

    def __init__(
        self, source: Source[W, C], middleware: Sequence[Middleware], threads: ThreadPool
    ) -> None:
        self._source = source
        self._middleware = middleware
        self._threads = threads

    async def execute(
        self, run: Run[W], ended: Callable[[Run[W], RunResult[W] | None], None]
    ) -> None:
        """Run claimed work, and hand over its result, or None if its claim was lost."""
        started = time.perf_counter()
        error: BaseException | None = None
        try:
            worker = self._source.workers.by_name[run.work.name]
            run.given = work = self._source.begin(run)
            limit = self._source.timeout(run.work, worker)
            if limit is not None:
                await self._within(limit, run, worker, work)
            elif worker.is_async and not self._middleware:
                await worker.handler(work)  # type: ignore[misc]  # is_async says it is awaitable
            else:
                await self._chain(run, worker, work, 0)
        except BaseException as raised:  # noqa: BLE001  # whatever a handler raises is its failure
            error = raised
        seconds = time.perf_counter() - started
        if run.ended_by == "loss" or run.is_abandoned:
            ended(run, None)
        else:
            ended(run, self._source.conclude(run, error, seconds))
        # Break the reference cycle of frame and traceback, so that the error is freed at once.
        error = None

    async def _within(self, limit: timedelta, run: Run[W], worker: Worker, work: Work) -> None:
        """Call the handler, and raise `TimeoutError` if it takes longer than the limit."""
        watch = asyncio.timeout(limit.total_seconds())
        cause: BaseException | None = None
        try:
            async with watch:
                await self._chain(run, worker, work, 0)
        except BaseException as error:
            if not watch.expired():
                raise
            cause = error
        try:
            if watch.expired():
                # Whatever the handler did with its cancellation, it was too late.
                raise TimeoutError(f"the run took longer than its timeout of {limit}") from cause
        finally:
            cause = None

    async def _chain(self, run: Run[W], worker: Worker, work: Work, depth: int) -> object:
        """Call the middleware from this depth on, then the handler."""
        if depth < len(self._middleware):

            def call_next(changed: Work | None = None) -> Any:
                return self._chain(run, worker, changed or work, depth + 1)

            return await self._middleware[depth](work, call_next)
        if worker.is_async:
            return await worker.handler(work)  # type: ignore[misc]  # is_async says it is awaitable
        result = await self._in_thread(run, worker.handler, work)
        return await result if inspect.isawaitable(result) else result

    async def _in_thread(self, run: Run[W], handler: Handler, work: Work) -> object:
        """Call a handler in a thread, with the context of this run, and wait for it."""
        context = contextvars.copy_context()
        future = _ThreadFuture(run)
        self._threads.submit(lambda: context.run(handler, work), future)
        try:
            return await future
        except asyncio.CancelledError:
            if future.cancelled():
                run.is_abandoned = True
            else:
                # The cancellation takes the place of what the thread may have raised.
                future.exception()
            raise
        finally:
            del future


class _ThreadFuture(asyncio.Future[object]):
    """Defers every cancellation except that of `stop()` giving up on the thread.

    A thread cannot be cancelled: until it returns, its work keeps slot, claim and scope.
    """

    def __init__(self, run: Run[Any]) -> None:
        super().__init__()
        self._run = run

    def cancel(self, msg: Any | None = None) -> bool:
        """Refuse, so that asyncio cancels the waiting task when the thread has returned."""
        return self._run.is_stopping and super().cancel(msg)
