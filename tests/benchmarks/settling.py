"""How fast jobs are worked off whose outcomes differ: failures, and ticks of schedules."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from monque_core import Monque
from tests.benchmarks import raw
from tests.benchmarks.measure import Reading

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Job

    Db = AsyncDatabase[dict[str, Any]]

_CONCURRENCY = 20
_NAIVE_SHARE = 4
_HOURLY: dict[str, object] = {"repeatInterval": "0 * * * *", "timezone": "UTC"}


async def measure(db: Db, count: int) -> dict[str, Reading]:
    """Run so many jobs that fail, and so many that recur; rates in jobs per second."""
    jobs = db["monque_jobs"]
    await raw.fill(jobs, count)
    limit = count / await raw.drain_in_batches(jobs, raw.fail_batch)
    few = max(1, count // _NAIVE_SHARE)
    await raw.fill(jobs, few)
    naive = few / await raw.drain_one_by_one(jobs, few, raw.retrial)
    await raw.fill(jobs, count)
    failing = count / await _run_all(db, count, fails=True)
    await raw.fill(jobs, count, **_HOURLY)
    recurring = count / await _run_all(db, count, fails=False)
    return {
        "settle failures": Reading(failing, limit, naive),
        "settle recurring jobs": Reading(recurring, limit, naive),
    }


async def _run_all(db: Db, count: int, *, fails: bool) -> float:
    """Give the seconds from start until every outcome is written."""
    monque = Monque(db, base_retry_interval=3600)
    await monque.initialize()
    # Or every failure would be logged.
    monque.on("job:fail", lambda _: None)
    done = 0
    all_done = asyncio.Event()

    @monque.worker(raw.NAME, concurrency=_CONCURRENCY)
    async def end(_: Job[object]) -> None:
        nonlocal done
        done += 1
        if done == count:
            all_done.set()
        if fails:
            raise ValueError("no")

    began = time.perf_counter()
    await monque.start()
    await all_done.wait()
    await monque.stop()
    seconds = time.perf_counter() - began
    assert await db["monque_jobs"].count_documents({"status": "processing"}) == 0
    return seconds
