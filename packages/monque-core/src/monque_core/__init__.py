"""Monque: a job scheduler for Python that lives in one MongoDB collection.

Applications use `Monque`, or `SyncMonque` without asyncio. Both enqueue jobs, run workers, and read
and manage what is stored. Everything public is in this module, `monque_core.events`,
`monque_core.reactive` and `monque_core.testing`.

A call goes down through these layers, and no layer imports one above it:

- `monque` and `sync`: the two classes, put together from `producer`, `inspector`, `controller`,
  `reactive_admin` and `registration`
- `reactive`: the leader that plans reactive tasks
- `scheduler`: what runs when
- `store`: everything that MongoDB sees
- `tasks` and `jobs`: what a reactive task and a job are, without I/O

`docs/architecture.md` follows a job and a change through the modules.
"""

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
from monque_core.jobs.retry import Cron, Exponential, Fixed, Linear, Retry, Series
from monque_core.jobs.selector import JobSelector
from monque_core.jobs.views import JobPage, QueueStats, QueueView, QueueWorker
from monque_core.monque import Monque
from monque_core.options import JobRetention, MonqueOptions, ReactiveOptions
from monque_core.package import lazy_exports
from monque_core.scheduler.workers import Work

if TYPE_CHECKING:
    from monque_core.local import LocalMongo
    from monque_core.reactive import ReactiveTask, SyncReactiveTask
    from monque_core.sync.monque import SyncMonque

    __version__: str

__all__ = [
    "AggregationTimeoutError",
    "Clock",
    "Cron",
    "EnqueueManyOptions",
    "EnqueueOptions",
    "Exponential",
    "Fixed",
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
    "Linear",
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
    "Retry",
    "Series",
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

if not TYPE_CHECKING:
    __getattr__ = lazy_exports(
        __name__,
        {
            "monque_core.local": ["LocalMongo"],
            "monque_core.reactive": ["ReactiveTask", "SyncReactiveTask"],
            "monque_core.sync.monque": ["SyncMonque"],
        },
        distribution="monque-core",
    )
