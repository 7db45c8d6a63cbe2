"""The jobs of the demonstration: their handlers, and a producer that enqueues them."""

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
_PRODUCER_GAP = 0.05


@dataclass(frozen=True, slots=True)
class Part:
    """A worker, in the words of the display."""

    name: str
    shows: str
    concurrency: int


PARTS = (
    Part(EMAIL, "async def, many at once", 20),
    Part(IMAGE, "blocking def, in threads", 4),
    Part(CARD, "fails twice, then succeeds", 5),
    Part(REMINDER, f"due {_REMINDER_DELAY} s after enqueue", 5),
    Part(REPORT, f"recurs {EVERY_MINUTE}", 1),
)


def register(monque: Monque) -> None:
    """Give every job name its handler."""

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
    for part in PARTS:
        monque.worker(part.name, handlers[part.name], concurrency=part.concurrency)


async def schedule(monque: Monque, audit: Audit) -> Job[str]:
    """Store the recurring job."""
    job = await monque.schedule(EVERY_MINUTE, REPORT, "turnover")
    audit.scheduled(job)
    return job


async def produce(monque: Monque, audit: Audit, enough: asyncio.Event) -> None:
    """Enqueue about 170 jobs per second until it is enough; never stops within an enqueue."""
    turn = 0
    while not enough.is_set():
        began = time.monotonic()
        audit.enqueued(await monque.enqueue_many(EMAIL, range(8 * turn, 8 * turn + 8)))
        if turn % 4 == 0:
            audit.enqueued([await monque.enqueue(IMAGE, turn)])
        if turn % 10 == 0:
            audit.enqueued([await monque.enqueue(CARD, turn)])
        if turn % 20 == 0:
            audit.enqueued([await monque.enqueue(REMINDER, turn, delay=_REMINDER_DELAY)])
        turn += 1
        await asyncio.sleep(max(0.0, began + _PRODUCER_GAP - time.monotonic()))
