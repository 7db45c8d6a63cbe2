"""Throughput of jobs with individual outcomes: failures, and ticks of schedules."""

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
_NAIVE_SHARE = 8
_HOURLY: dict[str, object] = {"repeatInterval": "0 * * * *", "timezone": "UTC"}


async def measure(db: Db, count: int, batch_size: int) -> dict[str, Reading]:
    """Run this many failing and this many recurring jobs; rates in jobs per second."""
    few = max(1, count // _NAIVE_SHARE)
    naive = few / await _bare_seconds(db, few, None)
    failing = count / await _seconds(db, count, fails=True)
    # The limit for both is measured between them.
    limit = count / await _bare_seconds(db, count, batch_size)
    recurring = count / await _seconds(db, count, fails=False)
    return {
        "settle failures": Reading(failing, limit, naive),
        "settle recurring jobs": Reading(recurring, limit, naive),
    }


async def _bare_seconds(db: Db, count: int, batch_size: int | None) -> float:
    """Store a failure for every job, one at a time unless there is a batch size."""
    jobs = db["monque_jobs"]
    await raw.fill(jobs, count)
    began = time.perf_counter()
    if batch_size is None:
        await raw.drain_one_by_one(jobs, raw.failure)
    else:
        await raw.drain_in_batches(jobs, batch_size, raw.fail_batch)
    seconds = time.perf_counter() - began
    await _assert_settled(db, count)
    return seconds


async def _seconds(db: Db, count: int, *, fails: bool) -> float:
    """Return the seconds from start until every outcome is written."""
    await raw.fill(db["monque_jobs"], count, **({} if fails else _HOURLY))
    monque = Monque(db, base_retry_interval=3600)
    await monque.initialize()
    # Otherwise every failure would be logged.
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
    await _assert_settled(db, count)
    return seconds


async def _assert_settled(db: Db, count: int) -> None:
    moved = {"status": "pending", "$expr": {"$gt": ["$nextRunAt", "$createdAt"]}}
    settled = await db["monque_jobs"].count_documents(moved)
    assert settled == count, f"{settled} of {count} jobs wait for their next run"
