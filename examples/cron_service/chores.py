"""What is done, and when: the crontab of this service."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from monque_core import Job


async def tick(job: Job[None]) -> None:
    print(f"tick of {job.next_run_at:%H:%M}", flush=True)


async def report(job: Job[None]) -> None:
    print(f"report of {job.next_run_at:%A}", flush=True)


def clean_up(job: Job[None]) -> None:
    """Remove what is old, in a thread: work on files blocks."""
    print(f"cleaned up on {job.next_run_at:%A}", flush=True)


@dataclass(frozen=True)
class Chore:
    """A line of the crontab; its handler is known by the name of the function."""

    cron: str
    handler: Callable[[Job[None]], Awaitable[None] | None]
    timezone: str = "UTC"

    @property
    def name(self) -> str:
        return self.handler.__name__.replace("_", "-")


CHORES = (
    Chore("* * * * *", tick),
    Chore("0 9 * * 1-5", report, timezone="Europe/Berlin"),
    Chore("30 3 * * *", clean_up),
)
