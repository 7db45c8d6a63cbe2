"""Work that follows the data: from a change of a document to its handler.

A change goes one way: follower → batch → planner → records → lane of the engine → handler.
"""

from monque_core.reactive.reactive_task import ReactiveTask, SyncReactiveTask
from monque_core.tasks.cleanup import Cleanup
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
