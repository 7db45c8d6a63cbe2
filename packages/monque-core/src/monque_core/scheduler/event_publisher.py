"""Publishing events to listeners, or to the log if nobody listens."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from monque_core import events
from monque_core.display import log
from monque_core.errors import MonqueConnectionError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from monque_core.emitter import IsolatingEmitter
    from monque_core.jobs.job import AnyJob
    from monque_core.store.connectivity import Connectivity


class EventPublisher:
    """Publishes what happens to jobs and streams."""

    def __init__(self, emitter: IsolatingEmitter, connectivity: Connectivity) -> None:
        self._emitter = emitter
        self.is_heard = emitter.has_listeners
        """Whether anybody listens to an event."""
        self._connectivity = connectivity
        self._reported_outage = 0

    def started(self, job: AnyJob) -> None:
        """Publish that a handler is about to run."""
        if self.is_heard(events.JOB_START):
            self._emitter.emit(events.JOB_START, events.JobStarted(job))

    def completed(self, job: AnyJob, duration: timedelta) -> None:
        """Publish a success that is written."""
        self.tell(events.JOB_COMPLETE, lambda: events.JobCompleted(job, duration))

    def failed(self, job: AnyJob, error: BaseException, *, will_retry: bool) -> None:
        """Publish a failure that is written, or log it."""
        if not self.tell(events.JOB_FAIL, lambda: events.JobFailed(job, error, will_retry)):
            fate = "will be retried" if will_retry else "is given up"
            message = f"job {job.name} {job.id} failed and {fate}: {job.fail_reason}"
            log(logging.WARNING, message, error)

    def errored(self, error: BaseException, job: AnyJob | None = None) -> None:
        """Publish or log an unexpected error; an outage of MongoDB is reported once."""
        if isinstance(error, MonqueConnectionError) and self._connectivity.is_lost:
            if self._reported_outage == self._connectivity.outages:
                log(logging.DEBUG, f"MongoDB is still unreachable: {error}")
                return
            self._reported_outage = self._connectivity.outages
        if not self.tell(events.JOB_ERROR, lambda: events.JobErrored(error, job)):
            log(logging.ERROR, _message(error, job), error)

    def recovered(self, count: int) -> None:
        """Publish or log that stale jobs are pending again."""
        if not self.tell(events.STALE_RECOVERED, lambda: events.StaleRecovered(count)):
            log(logging.WARNING, f"recovered {count} job(s) of instances that died")

    def stream_connected(self) -> None:
        """Publish that the change stream is open."""
        self.tell(events.CHANGESTREAM_CONNECTED, events.ChangeStreamChanged)

    def stream_closed(self) -> None:
        """Publish that the change stream is closed."""
        self.tell(events.CHANGESTREAM_CLOSED, events.ChangeStreamChanged)

    def stream_failed(self, error: BaseException) -> None:
        """Publish or log that the change stream failed."""
        changed = events.ChangeStreamChanged(error=error)
        if not self.tell(events.CHANGESTREAM_ERROR, lambda: changed):
            log(
                logging.WARNING,
                f"the change stream failed, polling until it is open: {error}",
            )

    def stream_unavailable(self, reason: str) -> None:
        """Publish or log that change streams are not available."""
        changed = events.ChangeStreamChanged(reason=reason)
        if not self.tell(events.CHANGESTREAM_FALLBACK, lambda: changed):
            log(logging.INFO, f"change streams are not available, polling instead: {reason}")

    def tell(self, event: str, make: Callable[[], object]) -> bool:
        """Emit an event if there are listeners, and return whether there are."""
        return self.is_heard(event) and self._emitter.emit(event, make())


def _message(error: BaseException, job: AnyJob | None) -> str:
    return f"job {job.name} {job.id}: {error}" if job is not None else str(error)
