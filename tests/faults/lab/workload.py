"""The jobs of an experiment: their names, handlers and concurrency limits."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import TYPE_CHECKING, Any

from tests.faults.lab.times import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from monque_core import Job, Monque
    from tests.faults.lab.recorder import Recorder

LIMITS = {
    "quick": 8,
    "thread": 4,
    "long": 6,
    "flaky": 4,
    "doomed": 2,
    "timed": 2,
    "keyed": 3,
    "keyed-many": 3,
    "cron": 1,
    "blocks-loop": 1,
    "poison": 1,
    "lone": 1,
}
INSTANCE_LIMIT = 16


class UnprintableError(Exception):
    """An exception whose `str` and `repr` raise."""

    def __str__(self) -> str:
        raise RuntimeError("unprintable")

    __repr__ = __str__


class RootError(BaseException):
    """An exception that `except Exception` does not catch."""


HANDLER_ERRORS: dict[str, Callable[[], BaseException]] = {
    "error": lambda: RuntimeError("on purpose"),
    "base": lambda: RootError("on purpose"),
    "exit": lambda: SystemExit(3),
    "interrupt": lambda: KeyboardInterrupt("on purpose"),
    "generator": lambda: GeneratorExit("on purpose"),
    "stop": lambda: StopIteration("on purpose"),
    "cancelled": lambda: asyncio.CancelledError("on purpose"),
    "unprintable": UnprintableError,
    "group": lambda: BaseExceptionGroup("on purpose", [RootError("one"), ValueError("two")]),
    "surrogate": lambda: RuntimeError("\ud800\x00"),
    "endless": lambda: RuntimeError("x" * 1_000_000),
}


class Workload:
    """The handlers of a worker process; each records its beginning and end."""

    def __init__(self, recorder: Recorder, heartbeat: float) -> None:
        self._recorder = recorder
        self._heartbeat = heartbeat

    def register(self, monque: Monque) -> None:
        """Register the handlers with an instance."""
        for name, limit in LIMITS.items():
            handler = self._in_thread if name == "thread" else self._on_loop
            monque.worker(name, handler, concurrency=limit)

    async def _on_loop(self, job: Job[dict[str, Any]]) -> None:
        self._begin(job)
        how = "cancelled"
        try:
            await self._act(job)
            how = "raised" if _raises(job) else "ok"
            if how == "raised":
                raise _error_of(job)
        finally:
            self._end(job, how)

    def _in_thread(self, job: Job[dict[str, Any]]) -> None:
        self._begin(job)
        time.sleep(job.data.get("seconds", 0))
        if _raises(job):
            self._end(job, "raised")
            raise _error_of(job)
        self._end(job, "ok")

    async def _act(self, job: Job[dict[str, Any]]) -> None:
        if job.name == "blocks-loop":
            self._block()
        if job.name == "poison":
            self._recorder.note("fault", kind="poison", for_ever=True)
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.sleep(job.data.get("seconds", 0))

    def _block(self) -> None:
        """Block the event loop, including heartbeats."""
        seconds = 4 * self._heartbeat
        # Recorded in advance, because the process may be killed meanwhile.
        self._recorder.note("fault", kind="blocked loop", lasts=int(seconds * SECOND))
        time.sleep(seconds)

    def _begin(self, job: Job[dict[str, Any]]) -> None:
        self._recorder.note(
            "run started",
            job=str(job.id),
            token=str(job.claim_token),
            name=job.name,
            claims=job.claims,
        )

    def _end(self, job: Job[dict[str, Any]], how: str) -> None:
        self._recorder.note("run ended", job=str(job.id), token=str(job.claim_token), how=how)


def _raises(job: Job[dict[str, Any]]) -> bool:
    """Return whether this run has to fail: the first runs do, by the stored fail count."""
    return job.fail_count < int(job.data.get("failures", 0))


def _error_of(job: Job[dict[str, Any]]) -> BaseException:
    """Return the exception that this job has to raise."""
    return HANDLER_ERRORS[job.data["error"]]()
