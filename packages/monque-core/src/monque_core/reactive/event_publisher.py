"""Telling listeners what happened to reactive tasks, or the log where nobody listens."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from monque_core import events
from monque_core.errors import MonqueConnectionError
from monque_core.log import log

if TYPE_CHECKING:
    from datetime import timedelta

    from monque_core.scheduler.event_publisher import EventPublisher
    from monque_core.tasks.record import TaskRecord


class TaskEventPublisher:
    """The voice of reactive tasks, over the engine's own."""

    def __init__(self, publisher: EventPublisher) -> None:
        self._publisher = publisher

    def started(self, task: TaskRecord) -> None:
        """Say that a handler is about to run."""
        self._publisher.tell(events.TASK_START, lambda: events.TaskStarted(task))

    def completed(self, task: TaskRecord, duration: timedelta) -> None:
        """Say that a success is written."""
        self._publisher.tell(events.TASK_COMPLETE, lambda: events.TaskCompleted(task, duration))

    def skipped(self, task: TaskRecord, duration: timedelta) -> None:
        """Say that there was nothing to do any more."""
        self._publisher.tell(events.TASK_SKIPPED, lambda: events.TaskSkipped(task, duration))

    def failed(self, task: TaskRecord, error: BaseException, *, will_retry: bool) -> None:
        """Say that a failure is written."""
        made = events.TaskFailed(task, error, will_retry)
        if not self._publisher.tell(events.TASK_FAIL, lambda: made):
            fate = "will be retried" if will_retry else "is given up"
            subject = f"reactive task {task.name} of {task.source_id!r}"
            log(logging.WARNING, f"{subject} failed and {fate}: {task.last_error}", error)

    def errored(self, error: BaseException, task: TaskRecord | None = None) -> None:
        """Say that something unexpected happened; an outage of MongoDB is told as everywhere."""
        if isinstance(error, MonqueConnectionError):
            self._publisher.errored(error)
        elif not self._publisher.tell(events.TASK_ERROR, lambda: events.TaskErrored(error, task)):
            log(logging.ERROR, f"reactive tasks: {error}", error)

    def leads(self, instance_id: str, term: int) -> None:
        """Say that this instance plans from now on."""
        changed = events.LeaderChanged(instance_id, term)
        self._publisher.tell(events.LEADER_ACQUIRED, lambda: changed)

    def leads_no_more(self, instance_id: str, term: int) -> None:
        """Say that this instance has ceased to plan."""
        changed = events.LeaderChanged(instance_id, term)
        self._publisher.tell(events.LEADER_LOST, lambda: changed)

    def reconciles(self, name: str, reason: str) -> None:
        """Say that all documents of a task are examined."""
        self._publisher.tell(events.RECONCILE_START, lambda: events.Reconciliation(name, reason))

    def reconciled(self, name: str, reason: str, documents: int) -> None:
        """Say that all documents of a task were examined."""
        done = events.Reconciliation(name, reason, documents)
        self._publisher.tell(events.RECONCILE_COMPLETE, lambda: done)

    def unwatched(self, reason: str) -> None:
        """Say that changes cannot be seen as they happen."""
        self._publisher.stream_unavailable(reason)

    def stream_failed(self, error: BaseException) -> None:
        """Say that a change stream broke."""
        self._publisher.stream_failed(error)
