"""The schedules of this service and their handlers."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from monque_core import Job


async def tick(job: Job[None]) -> None:
    print(f"tick of {job.next_run_at:%H:%M}", flush=True)


async def report(job: Job[None]) -> None:
    print(f"report of {job.next_run_at:%A}", flush=True)


def clean_up(job: Job[None]) -> None:
    """Remove old files; a plain function runs in a thread, so it may block."""
    print(f"cleaned up on {job.next_run_at:%A}", flush=True)


@dataclass(frozen=True)
class Schedule:
    """A cron expression and its handler, whose function name is the job name."""

    cron: str
    handler: Callable[[Job[None]], Awaitable[None] | None]
    timezone: str = "UTC"

    @property
    def name(self) -> str:
        return self.handler.__name__.replace("_", "-")


SCHEDULES = (
    Schedule("* * * * *", tick),
    Schedule("0 9 * * 1-5", report, timezone="Europe/Berlin"),
    Schedule("30 3 * * *", clean_up),
)
