"""How fast a full queue of jobs that do nothing is emptied."""

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

    Readings = dict[str, Reading]

CONCURRENCIES = (5, 20, 100)
_NAIVE_SHARE = 8


async def measure(db: AsyncDatabase[dict[str, Any]], count: int) -> Readings:
    """Drain so many jobs in each way, one after the other; rates in jobs per second."""
    jobs = db["monque_jobs"]
    await raw.fill(jobs, count)
    limit = count / await raw.drain_in_batches(jobs, count)
    few = count // _NAIVE_SHARE
    await raw.fill(jobs, few)
    naive = few / await raw.drain_one_by_one(jobs, few)
    readings = {}
    for concurrency in CONCURRENCIES:
        await raw.fill(jobs, count)
        rate = count / await _drain(db, count, concurrency)
        readings[f"drain, concurrency {concurrency}"] = Reading(rate, limit, naive)
    return readings


async def _drain(db: AsyncDatabase[dict[str, Any]], count: int, concurrency: int) -> float:
    """Give the seconds from start until every outcome is written."""
    monque = Monque(db)
    await monque.initialize()
    done = 0
    all_done = asyncio.Event()

    @monque.worker(raw.NAME, concurrency=concurrency)
    async def do_nothing(_: Job[object]) -> None:
        nonlocal done
        done += 1
        if done == count:
            all_done.set()

    began = time.perf_counter()
    await monque.start()
    await all_done.wait()
    await monque.stop()
    seconds = time.perf_counter() - began
    assert await db["monque_jobs"].count_documents({"status": "completed"}) == count
    return seconds
