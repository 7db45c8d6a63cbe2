"""Job classes for monque, built by dependency-injector.

What lives here: decorators that make a class a job, and `MonqueContainer`, which runs those jobs
inside an application container.

At import time, `decorators` attach `metadata` to classes and methods. At startup, `lifespan`
initializes the resources of the application and then `runtime`: `discovery` finds the decorated
classes, `registry` turns them into jobs, `building` plans each constructor from `provider_index`,
`inspection` checks the providers behind it, and `workers` registers the handlers. Every mistake
found on the way is reported in one `WiringError`. During a run, `workers` opens a `RunScope`,
builds the class in it and calls its method; `scope` closes what the run opened.

This package uses only the public API of `monque_core`.
"""

from typing import TYPE_CHECKING

from monque_core.package import lazy_exports
from monque_di.connection import resolve_database
from monque_di.container import MonqueContainer
from monque_di.decorators import cron, job, job_controller
from monque_di.enqueueing import JobHandler
from monque_di.errors import WiringError
from monque_di.lifespan import lifespan, run
from monque_di.scope import RunScoped, current_job
from monque_di.service import MonqueService
from monque_di.testing import run_job

__all__ = [
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

if TYPE_CHECKING:
    __version__: str
else:
    __getattr__ = lazy_exports(__name__, {}, distribution="monque-di")
