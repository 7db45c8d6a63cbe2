"""The memory and storage of pending and running jobs."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from typing import TYPE_CHECKING, Any

from monque_core import Monque
from tests.benchmarks import raw
from tests.benchmarks.measure import Reading

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Job

    Db = AsyncDatabase[dict[str, Any]]


async def measure(db: Db, count: int) -> dict[str, Reading]:
    """Store this many jobs, and then run all of them at once; bytes per job."""
    jobs = db["monque_jobs"]
    await raw.fill(jobs, count)
    pending = await _stored_bytes(db) / count
    tracemalloc.start()
    try:
        running = await _running_bytes(db, count)
        bare = await _bare_bytes(db, count)
    finally:
        tracemalloc.stop()
    await jobs.drop()
    await jobs.insert_many(raw.documents({"number": number} for number in range(count)))
    return {
        "stored bytes per pending job": Reading(pending, await _stored_bytes(db) / count),
        "memory per running job": Reading(running / count, bare / count),
    }


async def _stored_bytes(db: Db) -> float:
    """Return the size of the documents, before compression, and of the indexes."""
    # Only a checkpoint updates the sizes of indexes.
    await db.client.admin.command("fsync")
    stats = await db.command("collStats", "monque_jobs")
    return float(stats["size"] + stats["totalIndexSize"])


async def _running_bytes(db: Db, count: int) -> int:
    monque = Monque(db, worker_concurrency=count)
    await monque.initialize()
    started = 0
    all_started, may_end = asyncio.Event(), asyncio.Event()

    @monque.worker(raw.NAME)
    async def wait(_: Job[object]) -> None:
        nonlocal started
        started += 1
        if started == count:
            all_started.set()
        await may_end.wait()

    before = _in_use()
    async with monque:
        await all_started.wait()
        used = _in_use() - before
        may_end.set()
    return used


async def _bare_bytes(db: Db, count: int) -> int:
    """Hold this many documents in waiting tasks: the minimum for running jobs."""
    may_end = asyncio.Event()

    async def wait(document: dict[str, Any]) -> None:
        await may_end.wait()
        document.clear()

    before = _in_use()
    documents = await db["monque_jobs"].find({}, limit=count).to_list()
    tasks = [asyncio.create_task(wait(document)) for document in documents]
    del documents
    await asyncio.sleep(0)
    used = _in_use() - before
    may_end.set()
    await asyncio.gather(*tasks)
    return used


def _in_use() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
