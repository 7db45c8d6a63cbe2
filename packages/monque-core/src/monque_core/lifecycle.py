"""What an instance logs about itself: what it connects to, what it runs, how it stops."""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from monque_core.display import escape

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from monque_core.reactive.task_registry import TaskRegistry
    from monque_core.scheduler.workers import Worker, Workers
    from monque_core.store.store import Store

_FIRST = 2.0
"""Seconds until the first reminder."""
_LATER = 10.0
_MOST_NAMES = 20

logger = logging.getLogger("monque.worker")


class Lifecycle:
    """The log of one instance, at INFO; credentials are never part of it."""

    def __init__(
        self, instance_id: str, store: Store, workers: Workers, reactive: TaskRegistry
    ) -> None:
        self._instance_id = instance_id
        self._store = store
        self._workers = workers
        self._reactive = reactive
        self._has_begun = False
        self._is_up = False
        self._reminder: asyncio.TimerHandle | None = None

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Log the address of MongoDB, and from time to time what the start waits for."""
        if not self._has_begun:
            self._has_begun = True
            _info(f"connecting to MongoDB at {self._store.place}")
        self._remind_in(_FIRST, 0)
        try:
            yield
        except BaseException as error:
            self._has_begun = False
            if isinstance(error, asyncio.CancelledError):
                _info("stopped before it was up")
            raise
        finally:
            if self._reminder is not None:
                self._reminder.cancel()

    def _remind_in(self, seconds: float, waited: float) -> None:
        # A timer, not a task: awaiting the end of a task could cancel a start that has succeeded.
        loop = asyncio.get_running_loop()
        self._reminder = loop.call_later(seconds, self._remind, waited + seconds, seconds)

    def _remind(self, waited: float, gap: float) -> None:
        self._remind_in(_LATER, waited)
        if self._store.connectivity.age < gap:
            _info(
                f"still starting after {waited:g} s: MongoDB answers, but its indexes are being "
                f"created, or the instance id {self._instance_id} is not free yet"
            )
            return
        fault = self._store.fault
        reason = f": {fault}" if fault else ""
        _info(f"waiting for MongoDB at {self._store.place}, for {waited:g} s so far{reason}")

    def started(self) -> None:
        """Log the names that run here, with their concurrency."""
        self._is_up = True
        tasks = [worker for workers in self._reactive.places.values() for worker in workers]
        served = [
            f"{kind} {_listed(workers)}"
            for kind, workers in (("jobs", list(self._workers)), ("reactive tasks", tasks))
            if workers
        ]
        described = "; ".join(served) or "no worker is registered, so it runs nothing"
        _info(f"instance {self._instance_id} is up at {self._store.place}: {described}")

    def stopping(self, running: int, seconds: float) -> None:
        """Log that nothing more is claimed."""
        if self._is_up:
            jobs = f"{running}, for at most {seconds:g} s" if running else "none"
            _info(f"finishing the jobs that run: {jobs}")

    def stopped(self, cut_short: int) -> None:
        """Log how the instance stopped."""
        if self._is_up:
            _info(
                f"stopped: {cut_short} job(s) did not finish in time and will run again"
                if cut_short
                else "stopped: no job was left running"
            )
        self._has_begun = self._is_up = False


def _listed(workers: Iterable[Worker]) -> str:
    """Return names with their concurrency."""
    named = sorted(f"{worker.name} (concurrency {worker.concurrency})" for worker in workers)
    hidden = len(named) - _MOST_NAMES
    return ", ".join(named[:_MOST_NAMES]) + (f" and {hidden} more" if hidden > 0 else "")


def _info(message: str) -> None:
    logger.info("%s", escape(message))
