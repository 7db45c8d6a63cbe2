"""The workload of the demonstration: handlers, a schedule and a producer."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from monque_core.demo.audit import Audit
    from monque_core.jobs.job import AnyJob, Job
    from monque_core.monque import Monque

EMAIL, IMAGE, CARD, REMINDER, REPORT = "email", "image", "card", "reminder", "report"
EVERY_MINUTE = "* * * * *"
_FAILURES = 2
_REMINDER_DELAY = 1.5
_PRODUCER_INTERVAL = 0.05


@dataclass(frozen=True, slots=True)
class DemoWorker:
    """A worker as the view lists it."""

    name: str
    description: str
    concurrency: int


WORKERS = (
    DemoWorker(EMAIL, "async def, many at once", 20),
    DemoWorker(IMAGE, "blocking def, in threads", 4),
    DemoWorker(CARD, "fails twice, then succeeds", 5),
    DemoWorker(REMINDER, f"due {_REMINDER_DELAY} s after enqueue", 5),
    DemoWorker(REPORT, f"recurs {EVERY_MINUTE}", 1),
)


def register(monque: Monque) -> None:
    """Register the handler of every job name."""

    async def send_email(job: AnyJob) -> None:
        await asyncio.sleep(0.005 * (1 + job.data % 4))

    def shrink_image(job: AnyJob) -> None:
        time.sleep(0.01 * (4 + job.data % 3))

    async def charge_card(job: AnyJob) -> None:
        await asyncio.sleep(0.01)
        if job.fail_count < _FAILURES:
            raise ConnectionError("no answer")

    async def send_reminder(_job: AnyJob) -> None:
        await asyncio.sleep(0.01)

    async def write_report(_job: AnyJob) -> None:
        await asyncio.sleep(0.1)

    handlers = {
        EMAIL: send_email,
        IMAGE: shrink_image,
        CARD: charge_card,
        REMINDER: send_reminder,
        REPORT: write_report,
    }
    for worker in WORKERS:
        monque.worker(worker.name, handlers[worker.name], concurrency=worker.concurrency)


async def schedule(monque: Monque, audit: Audit) -> Job[str]:
    """Create the schedule."""
    job = await monque.schedule(EVERY_MINUTE, REPORT, "turnover")
    audit.scheduled(job)
    return job


async def produce(monque: Monque, audit: Audit, stop_requested: asyncio.Event) -> None:
    """Enqueue about 170 jobs per second until a stop is requested."""
    step = 0
    while not stop_requested.is_set():
        started = time.monotonic()
        audit.enqueued(await monque.enqueue_many(EMAIL, range(8 * step, 8 * step + 8)))
        if step % 4 == 0:
            audit.enqueued([await monque.enqueue(IMAGE, step)])
        if step % 10 == 0:
            audit.enqueued([await monque.enqueue(CARD, step)])
        if step % 20 == 0:
            audit.enqueued([await monque.enqueue(REMINDER, step, delay=_REMINDER_DELAY)])
        step += 1
        await asyncio.sleep(max(0.0, started + _PRODUCER_INTERVAL - time.monotonic()))
