"""How fast a full queue of jobs that do nothing is emptied."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import TYPE_CHECKING, Any

from monque_core import Monque
from tests.benchmarks import raw
from tests.benchmarks.drainer import drain_with_processes
from tests.benchmarks.measure import Reading

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Job

    Db = AsyncDatabase[dict[str, Any]]
    Readings = dict[str, Reading]

CONCURRENCIES = (5, 20, 100)
_NAIVE_SHARE = 8
_PROCESSES = 2


async def measure(db: Db, count: int) -> Readings:
    """Drain so many jobs in each way, one after the other; rates in jobs per second."""
    jobs = db["monque_jobs"]
    few = max(1, count // _NAIVE_SHARE)
    await raw.fill(jobs, few)
    naive = few / await raw.drain_one_by_one(jobs, few)
    readings = {}
    for kind, threads in (("drain", False), ("drain, thread handlers", True)):
        for concurrency in CONCURRENCIES:
            # Each time anew: a minute later the machine may be busy with something else.
            await raw.fill(jobs, count)
            limit = count / await raw.drain_in_batches(jobs)
            await raw.fill(jobs, count)
            rate = count / await _drain(db, count, concurrency, threads=threads)
            readings[f"{kind}, concurrency {concurrency}"] = Reading(rate, limit, naive)
    return readings


async def measure_processes(db: Db, uri: str, count: int) -> Readings:
    """Drain so many jobs with two processes at once; rates in jobs per second."""

    async def rate(way: str, jobs: int) -> float:
        await raw.fill(db["monque_jobs"], jobs)
        return jobs / await drain_with_processes(_PROCESSES, uri, db.name, way)

    limit = await rate("limit", count)
    naive = await rate("naive", max(1, count // _NAIVE_SHARE))
    return {
        "drain, two processes, concurrency 20": Reading(await rate("monque", count), limit, naive)
    }


async def _drain(db: Db, count: int, concurrency: int, *, threads: bool) -> float:
    """Give the seconds from start until every outcome is written."""
    monque = Monque(db)
    await monque.initialize()
    loop = asyncio.get_running_loop()
    all_done = asyncio.Event()
    # The next number is drawn in one step, whatever the threads do.
    numbers = itertools.count(1)

    async def do_nothing(_: Job[object]) -> None:
        if next(numbers) == count:
            all_done.set()

    def do_nothing_in_a_thread(_: Job[object]) -> None:
        if next(numbers) == count:
            loop.call_soon_threadsafe(all_done.set)

    handler = do_nothing_in_a_thread if threads else do_nothing
    monque.worker(raw.NAME, handler, concurrency=concurrency)
    began = time.perf_counter()
    await monque.start()
    await all_done.wait()
    await monque.stop()
    seconds = time.perf_counter() - began
    assert await db["monque_jobs"].count_documents({"status": "completed"}) == count
    return seconds
