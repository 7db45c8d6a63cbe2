"""Monque's jobs as classes, built and wired by dependency-injector."""

from monque_di.connection import resolve_database
from monque_di.container import MonqueContainer
from monque_di.decorators import cron, job, job_controller
from monque_di.enqueueing import EnqueueOptions, JobHandler
from monque_di.errors import WiringError
from monque_di.lifespan import lifespan, run
from monque_di.scope import RunScoped, current_job
from monque_di.service import MonqueService
from monque_di.testing import run_job

__all__ = [
    "EnqueueOptions",
    "JobHandler",
    "MonqueContainer",
    "MonqueService",
    "RunScoped",
    "WiringError",
    "cron",
    "current_job",
    "job",
    "job_controller",
    "lifespan",
    "resolve_database",
    "run",
    "run_job",
]
