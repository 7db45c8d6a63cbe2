"""A service that only runs schedules: `make example NAME=cron_service`.

Start it on any number of machines with the same MONGODB_URI: each occurrence runs once. Schedules
that are removed from `schedules.py` are unscheduled at the next start.
"""

import asyncio
from contextlib import asynccontextmanager, contextmanager

from examples.cron_service.schedules import SCHEDULES
from examples.mongodb import connect, mongodb_uri
from monque_core import Monque


async def declare(monque: Monque) -> None:
    """Create, update and remove the stored schedules; safe at every start of every process."""
    for schedule in SCHEDULES:
        monque.worker(schedule.name, schedule.handler)
        await monque.schedule(
            schedule.cron,
            schedule.name,
            None,
            unique_key="cron_service",
            timezone=schedule.timezone,
        )
    declared = {schedule.name for schedule in SCHEDULES}
    for job in await monque.get_schedules():
        if job.unique_key == "cron_service" and job.name not in declared:
            await monque.unschedule(job.name, "cron_service")
            print(f"{job.name} is no longer scheduled", flush=True)


async def main() -> None:
    with contextmanager(mongodb_uri)() as uri:
        async with asynccontextmanager(connect)(uri) as db:
            monque = Monque(db, max_retries=3)
            await declare(monque)
            for job in await monque.get_schedules():
                print(f"{job.name} is next due at {job.next_run_at:%Y-%m-%d %H:%M} UTC", flush=True)
            await monque.run()
    print("stopped", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
