"""The jobs of a campaign: what they are called, what they do, and how many run at once."""

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
    "rude": 1,
    "poison": 1,
}
INSTANCE_LIMIT = 16


class NastyError(Exception):
    """An exception that cannot be put into words."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class RootError(BaseException):
    """Nothing that `except Exception` catches."""


NASTY: dict[str, Callable[[], BaseException]] = {
    "error": lambda: RuntimeError("as told"),
    "base": lambda: RootError("as told"),
    "exit": lambda: SystemExit(3),
    "interrupt": lambda: KeyboardInterrupt("as told"),
    "generator": lambda: GeneratorExit("as told"),
    "stop": lambda: StopIteration("as told"),
    "cancelled": lambda: asyncio.CancelledError("as told"),
    "speechless": NastyError,
    "group": lambda: BaseExceptionGroup("as told", [RootError("one"), ValueError("two")]),
    "surrogate": lambda: RuntimeError("\ud800\x00"),
    "endless": lambda: RuntimeError("x" * 1_000_000),
}


class Workload:
    """The handlers of a worker process; each writes down when it begins and ends."""

    def __init__(self, recorder: Recorder, heartbeat: float) -> None:
        self._recorder = recorder
        self._heartbeat = heartbeat

    def register(self, monque: Monque) -> None:
        """Give the handlers to an instance."""
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
                raise _nasty(job)
        finally:
            self._end(job, how)

    def _in_thread(self, job: Job[dict[str, Any]]) -> None:
        self._begin(job)
        time.sleep(job.data.get("seconds", 0))
        if _raises(job):
            self._end(job, "raised")
            raise _nasty(job)
        self._end(job, "ok")

    async def _act(self, job: Job[dict[str, Any]]) -> None:
        if job.name == "rude":
            self._block()
        if job.name == "poison":
            self._recorder.note("fault", kind="poison", for_ever=True)
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.sleep(job.data.get("seconds", 0))

    def _block(self) -> None:
        """Keep the event loop from everything, heartbeats included."""
        seconds = 4 * self._heartbeat
        # Before, for it may be killed meanwhile.
        self._recorder.note("fault", kind="blocked loop", lasts=int(seconds * SECOND))
        time.sleep(seconds)

    def _begin(self, job: Job[dict[str, Any]]) -> None:
        self._recorder.note(
            "run", job=str(job.id), token=str(job.claim_token), name=job.name, claims=job.claims
        )

    def _end(self, job: Job[dict[str, Any]], how: str) -> None:
        self._recorder.note("ran", job=str(job.id), token=str(job.claim_token), how=how)


def _raises(job: Job[dict[str, Any]]) -> bool:
    """Tell whether this run is to fail: the first so many do, counted by what was recorded."""
    return job.fail_count < int(job.data.get("failures", 0))


def _nasty(job: Job[dict[str, Any]]) -> BaseException:
    """Give what this job is to raise."""
    return NASTY[job.data["nasty"]]()
