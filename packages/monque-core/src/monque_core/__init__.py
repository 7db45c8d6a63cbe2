"""Monque: a job scheduler for Python that lives in one MongoDB collection."""

from typing import TYPE_CHECKING

from monque_core.clock import Clock, ServerClock
from monque_core.errors import (
    AggregationTimeoutError,
    InvalidCronError,
    InvalidCursorError,
    InvalidJobError,
    JobStateError,
    LeadershipLostError,
    MonqueConnectionError,
    MonqueError,
    OwnershipLostError,
    PayloadTooLargeError,
    ShutdownTimeoutError,
    UnplannableError,
    WorkerRegistrationError,
)
from monque_core.jobs.backoff import backoff_delay
from monque_core.jobs.cron import next_cron_run
from monque_core.jobs.draft import EnqueueManyOptions, EnqueueOptions
from monque_core.jobs.job import Job, JobStatus
from monque_core.jobs.selector import JobSelector
from monque_core.jobs.views import JobPage, QueueStats, QueueView, QueueWorker
from monque_core.local import LocalMongo
from monque_core.monque import Monque
from monque_core.options import JobRetention, MonqueOptions, ReactiveOptions
from monque_core.reactive import ReactiveTask, SyncReactiveTask
from monque_core.scheduler.workers import Work
from monque_core.sync.monque import SyncMonque

__all__ = [
    "AggregationTimeoutError",
    "Clock",
    "EnqueueManyOptions",
    "EnqueueOptions",
    "InvalidCronError",
    "InvalidCursorError",
    "InvalidJobError",
    "Job",
    "JobPage",
    "JobRetention",
    "JobSelector",
    "JobStateError",
    "JobStatus",
    "LeadershipLostError",
    "LocalMongo",
    "Monque",
    "MonqueConnectionError",
    "MonqueError",
    "MonqueOptions",
    "OwnershipLostError",
    "PayloadTooLargeError",
    "QueueStats",
    "QueueView",
    "QueueWorker",
    "ReactiveOptions",
    "ReactiveTask",
    "ServerClock",
    "ShutdownTimeoutError",
    "SyncMonque",
    "SyncReactiveTask",
    "UnplannableError",
    "Work",
    "WorkerRegistrationError",
    "backoff_delay",
    "next_cron_run",
]

if TYPE_CHECKING:
    __version__: str
else:

    def __getattr__(name: str) -> str:
        """Return `__version__`, for which reading the metadata takes some milliseconds."""
        if name != "__version__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from monque_core.version import installed_version  # noqa: PLC0415  # as above

        return installed_version("monque-core")
