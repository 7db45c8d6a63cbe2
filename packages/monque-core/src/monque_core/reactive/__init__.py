"""Work that follows the data: from a change of a document to its handler.

A change goes one way: follower → batch → planner → records → lane of the engine → handler.
"""

from typing import TYPE_CHECKING

from monque_core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from monque_core.reactive.reactive_task import ReactiveTask, SyncReactiveTask
    from monque_core.tasks.cleanup import Cleanup
    from monque_core.tasks.record import Execution, RunSummary, TaskRecord, TaskStatus
    from monque_core.tasks.retry import Cron, Exponential, Fixed, Linear, Retry, Series
    from monque_core.tasks.views import ReactiveStats, ReactiveTaskStats, TaskPage

__all__ = [
    "Cleanup",
    "Cron",
    "Execution",
    "Exponential",
    "Fixed",
    "Linear",
    "ReactiveStats",
    "ReactiveTask",
    "ReactiveTaskStats",
    "Retry",
    "RunSummary",
    "Series",
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
            "monque_core.tasks.cleanup": ["Cleanup"],
            "monque_core.tasks.record": ["Execution", "RunSummary", "TaskRecord", "TaskStatus"],
            "monque_core.tasks.retry": [
                *("Cron", "Exponential", "Fixed", "Linear", "Retry", "Series"),
            ],
            "monque_core.tasks.views": ["ReactiveStats", "ReactiveTaskStats", "TaskPage"],
        },
    )
