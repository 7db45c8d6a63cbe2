"""Telling listeners what happened, or the log where nobody listens."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from monque_core import events
from monque_core.errors import MonqueConnectionError
from monque_core.log import log

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from pyee import EventEmitter

    from monque_core.jobs.job import AnyJob
    from monque_core.store.connectivity import Connectivity


class EventPublisher:
    """The engine's voice."""

    def __init__(self, emitter: EventEmitter, connectivity: Connectivity) -> None:
        self._emitter = emitter
        self._connectivity = connectivity
        self._outage_told = 0

    def started(self, job: AnyJob) -> None:
        """Say that a handler is about to run."""
        self.tell(events.JOB_START, lambda: events.JobStarted(job))

    def completed(self, stored: Callable[[], AnyJob], duration: timedelta) -> None:
        """Say that a success is written."""
        self.tell(events.JOB_COMPLETE, lambda: events.JobCompleted(stored(), duration))

    def failed(self, job: AnyJob, error: BaseException, *, will_retry: bool) -> None:
        """Say that a failure is written."""
        if not self.tell(events.JOB_FAIL, lambda: events.JobFailed(job, error, will_retry)):
            fate = "will be retried" if will_retry else "is given up"
            said = f"job {job.name} {job.id} failed and {fate}: {job.fail_reason}"
            log(logging.WARNING, said, error)

    def errored(self, error: BaseException, job: AnyJob | None = None) -> None:
        """Say that something unexpected happened; an outage of MongoDB is told once."""
        if isinstance(error, MonqueConnectionError) and self._connectivity.is_lost:
            if self._outage_told == self._connectivity.outages:
                log(logging.DEBUG, f"MongoDB is still away: {error}")
                return
            self._outage_told = self._connectivity.outages
        if not self.tell(events.JOB_ERROR, lambda: events.JobErrored(error, job)):
            log(logging.ERROR, _about(error, job), error)

    def recovered(self, count: int) -> None:
        """Say that abandoned jobs are back in the queue."""
        if not self.tell(events.STALE_RECOVERED, lambda: events.StaleRecovered(count)):
            log(logging.WARNING, f"recovered {count} job(s) of instances that died")

    def stream_connected(self) -> None:
        """Say that changes are seen as they happen."""
        self.tell(events.CHANGESTREAM_CONNECTED, events.ChangeStreamChanged)

    def stream_closed(self) -> None:
        """Say that the change stream is no more."""
        self.tell(events.CHANGESTREAM_CLOSED, events.ChangeStreamChanged)

    def stream_failed(self, error: BaseException) -> None:
        """Say that the change stream broke."""
        changed = events.ChangeStreamChanged(error=error)
        if not self.tell(events.CHANGESTREAM_ERROR, lambda: changed):
            log(logging.WARNING, f"the change stream broke, polling meanwhile: {error}")

    def stream_unavailable(self, reason: str) -> None:
        """Say that there will be no change stream."""
        changed = events.ChangeStreamChanged(reason=reason)
        if not self.tell(events.CHANGESTREAM_FALLBACK, lambda: changed):
            log(logging.INFO, f"no change stream here, polling instead: {reason}")

    def tell(self, event: str, make: Callable[[], object]) -> bool:
        """Emit an event if anyone listens, and tell whether anyone did."""
        # The names first: where nobody listens, which is usual, they are quicker to get.
        if event not in self._emitter.event_names() or not self._emitter.listeners(event):
            return False
        return self._emitter.emit(event, make())


def _about(error: BaseException, job: AnyJob | None) -> str:
    return f"job {job.name} {job.id}: {error}" if job is not None else str(error)
