"""Reactive tasks: handlers that run when documents of a source collection change.

Every instance stores its tasks (`task_registration`), and one of them is the leader (`leader`).
For as long as it leads, a `leader_session` plans the tasks of all instances (`task_set`):

    change stream → follower → change_buffer → planner → task records → pipeline → handler

The `follower` of each source database reads its change stream. A `change_buffer` collects the ids
of changed documents in batches. The `planner` lets the server evaluate filters and watched
values and write the records. The `reconciler` examines all documents of a task when changes may
have been missed, and the `cleaner` deletes the records of documents that are gone.

On every instance, a `task_source` per source collection runs due records in a pipeline of the
scheduler; a handler gets a `ReactiveTask`. `runtime` puts the parts together. All access to MongoDB
goes through `store.tasks`.
"""

from typing import TYPE_CHECKING

from monque_core.package import lazy_exports

if TYPE_CHECKING:
    from monque_core.reactive.reactive_task import ReactiveTask, SyncReactiveTask
    from monque_core.tasks.definition import Cleanup
    from monque_core.tasks.record import Execution, RunSummary, TaskRecord, TaskStatus
    from monque_core.tasks.views import ReactiveStats, ReactiveTaskStats, TaskPage

__all__ = [
    "Cleanup",
    "Execution",
    "ReactiveStats",
    "ReactiveTask",
    "ReactiveTaskStats",
    "RunSummary",
    "SyncReactiveTask",
    "TaskPage",
    "TaskRecord",
    "TaskStatus",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_exports(
        __name__,
        {
            "monque_core.reactive.reactive_task": ["ReactiveTask", "SyncReactiveTask"],
            "monque_core.tasks.definition": ["Cleanup"],
            "monque_core.tasks.record": ["Execution", "RunSummary", "TaskRecord", "TaskStatus"],
            "monque_core.tasks.views": ["ReactiveStats", "ReactiveTaskStats", "TaskPage"],
        },
    )
