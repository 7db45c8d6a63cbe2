"""A service that does nothing but run schedules: `make example NAME=cron_service`.

Start it on as many machines as you like, with one MONGODB_URI: each tick runs once. What is no
longer among the chores is no longer scheduled.
"""

import asyncio
from contextlib import asynccontextmanager, contextmanager

from examples.cron_service.chores import CHORES
from examples.mongodb import connect, mongodb_uri
from monque_core import Monque


async def declare(monque: Monque) -> None:
    """Bring the stored schedules up to date: safe at every start of every process."""
    for chore in CHORES:
        monque.worker(chore.name, chore.handler)
        await monque.schedule(
            chore.cron, chore.name, None, unique_key="chore", timezone=chore.timezone
        )
    for job in await monque.get_schedules():
        if job.unique_key == "chore" and job.name not in {chore.name for chore in CHORES}:
            await monque.unschedule(job.name, "chore")
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
