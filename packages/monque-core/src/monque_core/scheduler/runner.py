"""Running a handler and deciding what its end means."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import time
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from monque_core.jobs.job import twin
from monque_core.jobs.outcome import (
    COMPLETED,
    RELEASED,
    Outcome,
    RetryPolicy,
    after_failure,
    after_success,
    failure_reason,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from monque_core.clock import Clock
    from monque_core.jobs.job import AnyJob
    from monque_core.scheduler.announcer import Announcer
    from monque_core.scheduler.runs import Run
    from monque_core.scheduler.workers import Middleware, Worker, Workers
    from monque_core.threads import ThreadPool


class Ending:
    """How a run ended."""

    __slots__ = ("duration", "error", "outcome", "run")

    def __init__(
        self,
        run: Run,
        outcome: Outcome,
        error: BaseException | None = None,
        duration: timedelta = timedelta(0),
    ) -> None:
        self.run = run
        self.outcome = outcome
        self.error = error
        self.duration = duration


class Runner:
    """Calls handlers: coroutines on the loop, functions in threads, middleware around both."""

    def __init__(
        self,
        workers: Workers,
        middleware: Sequence[Middleware],
        threads: ThreadPool,
        clock: Clock,
        policy: RetryPolicy,
        announcer: Announcer,
    ) -> None:
        self._workers = workers
        self._middleware = middleware
        self._threads = threads
        self._clock = clock
        self._policy = policy
        self._announcer = announcer

    async def execute(self, run: Run, ended: Callable[[Run, Ending | None], None]) -> None:
        """Run a claimed job; report its ending, or None if it is no longer ours to end."""
        started = time.perf_counter()
        error: BaseException | None = None
        # What a handler does to its job must not reach the engine's own; only the data is shared.
        job = twin(run.job)
        try:
            self._announcer.started(job)
            await self._call(run, job)
        except BaseException as raised:  # noqa: BLE001  # whatever a handler raises is its failure
            error = raised
        duration = time.perf_counter() - started
        ended(run, self._conclude(run, error, timedelta(seconds=duration)))

    def _conclude(
        self, run: Run, error: BaseException | None, duration: timedelta
    ) -> Ending | None:
        if run.ended_by == "loss" or run.is_abandoned:
            return None
        job = run.job
        if error is None and not job.is_recurring:
            return Ending(run, COMPLETED, None, duration)
        now = self._clock.now()
        if error is None:
            return Ending(run, after_success(job, now), None, duration)
        if run.ended_by == "stop":
            return Ending(run, RELEASED, error, duration)
        outcome = after_failure(job, failure_reason(error), now, self._policy)
        return Ending(run, outcome, error, duration)

    async def _call(self, run: Run, job: AnyJob) -> None:
        worker = self._workers[job.name]
        limit = worker.timeout if job.timeout is None else job.timeout
        if limit is None:
            await self._chain(run, worker, job, 0)
            return
        watch = asyncio.timeout(limit.total_seconds())
        cause: BaseException | None = None
        try:
            async with watch:
                await self._chain(run, worker, job, 0)
        except BaseException as error:
            if not watch.expired():
                raise
            cause = error
        if watch.expired():
            # Whatever the handler made of its cancellation, it was too late.
            raise TimeoutError(f"the run took longer than its timeout of {limit}") from cause

    async def _chain(self, run: Run, worker: Worker, job: AnyJob, depth: int) -> object:
        """Go through the middleware from this depth on, then call the handler."""
        if depth < len(self._middleware):

            def call_next(changed: AnyJob | None = None) -> Any:
                return self._chain(run, worker, changed or job, depth + 1)

            return await self._middleware[depth](job, call_next)
        if worker.is_async:
            return await worker.handler(job)  # type: ignore[misc]  # is_async says it is awaitable
        result = await self._in_thread(run, partial(worker.handler, job))
        return await result if inspect.isawaitable(result) else result

    async def _in_thread(self, run: Run, call: Callable[[], object]) -> object:
        """Wait for a thread through every cancellation but that of `stop()` giving up on it.

        A thread cannot be cancelled: until it returns, its job keeps slot, claim and scope.
        """
        context = contextvars.copy_context()
        future = self._threads.submit(lambda: context.run(call))
        cancelled: asyncio.CancelledError | None = None
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError as error:
                cancelled = error
                if run.is_stopping:
                    run.is_abandoned = True
                    raise
        if cancelled is not None:
            future.exception()
            raise cancelled
        return future.result()
