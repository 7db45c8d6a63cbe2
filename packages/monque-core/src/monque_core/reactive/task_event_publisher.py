"""Publishing the events of reactive tasks, or logging them if there is no listener."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from monque_core import events
from monque_core.display import log
from monque_core.errors import MonqueConnectionError

if TYPE_CHECKING:
    from datetime import timedelta

    from monque_core.scheduler.event_publisher import EventPublisher
    from monque_core.tasks.record import TaskRecord


class TaskEventPublisher:
    """Publishes the events of reactive tasks through the publisher of the engine."""

    def __init__(self, publisher: EventPublisher) -> None:
        self._publisher = publisher

    def started(self, task: TaskRecord) -> None:
        """Publish that a handler is about to run."""
        self._publisher.tell(events.TASK_START, lambda: events.TaskStarted(task))

    def completed(self, task: TaskRecord, duration: timedelta) -> None:
        """Publish that a success was written."""
        self._publisher.tell(events.TASK_COMPLETE, lambda: events.TaskCompleted(task, duration))

    def skipped(self, task: TaskRecord, duration: timedelta) -> None:
        """Publish that the document of a run no longer matched."""
        self._publisher.tell(events.TASK_SKIPPED, lambda: events.TaskSkipped(task, duration))

    def failed(self, task: TaskRecord, error: BaseException, *, will_retry: bool) -> None:
        """Publish that a failure was written."""
        made = events.TaskFailed(task, error, will_retry)
        if not self._publisher.tell(events.TASK_FAIL, lambda: made):
            fate = "will be retried" if will_retry else "is given up"
            subject = f"reactive task {task.name} of {task.source_id!r}"
            log(logging.WARNING, f"{subject} failed and {fate}: {task.last_error}", error)

    def errored(self, error: BaseException, task: TaskRecord | None = None) -> None:
        """Publish an unexpected error; an outage of MongoDB is published like everywhere."""
        if isinstance(error, MonqueConnectionError):
            self._publisher.errored(error)
        elif not self._publisher.tell(events.TASK_ERROR, lambda: events.TaskErrored(error, task)):
            log(logging.ERROR, f"reactive tasks: {error}", error)

    def leader_acquired(self, instance_id: str, term: int) -> None:
        """Publish that this instance is the leader now."""
        changed = events.LeaderChanged(instance_id, term)
        self._publisher.tell(events.LEADER_ACQUIRED, lambda: changed)

    def leader_lost(self, instance_id: str, term: int) -> None:
        """Publish that this instance is no longer the leader."""
        changed = events.LeaderChanged(instance_id, term)
        self._publisher.tell(events.LEADER_LOST, lambda: changed)

    def reconcile_started(self, name: str, reason: str) -> None:
        """Publish that a reconciliation starts."""
        self._publisher.tell(events.RECONCILE_START, lambda: events.Reconciliation(name, reason))

    def reconcile_completed(self, name: str, reason: str, documents: int) -> None:
        """Publish that a reconciliation is complete."""
        done = events.Reconciliation(name, reason, documents)
        self._publisher.tell(events.RECONCILE_COMPLETE, lambda: done)

    def stream_unavailable(self, reason: str) -> None:
        """Publish that there are no change streams."""
        self._publisher.stream_unavailable(reason)

    def stream_failed(self, error: BaseException) -> None:
        """Publish that a change stream failed."""
        self._publisher.stream_failed(error)
