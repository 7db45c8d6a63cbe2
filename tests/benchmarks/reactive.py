"""How fast changed documents are planned, and how long a change takes to its handler."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from monque_core import Monque
from tests.benchmarks.measure import Reading, percentile

if TYPE_CHECKING:
    from pymongo.asynchronous.collection import AsyncCollection
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import ReactiveTask

SHARES = {"p50": 0.5, "p99": 0.99}
_CHANGES_PER_SECOND = 200
_BATCH_SIZE = 1000
_HOURS_AWAY = 3600.0


async def measure_planning(db: AsyncDatabase[dict[str, Any]], count: int) -> dict[str, Reading]:
    """Change so many documents at once, and plan them all; documents per second."""
    limit = await _merge_only(db, count)
    await _prepare(db)
    monque = Monque(db)
    reconciled = asyncio.Event()
    monque.on("reconcile:complete", lambda _: reconciled.set())

    @monque.reactive("orders", name="plan", watch=["total"], debounce=_HOURS_AWAY)
    async def never(task: ReactiveTask) -> None: ...

    async with monque:
        await reconciled.wait()
        began = time.perf_counter()
        await _insert(db["orders"], count)
        while await db["orders_tasks"].estimated_document_count() < count:
            await asyncio.sleep(0.01)
        rate = count / (time.perf_counter() - began)
    return {"reactive planning of a burst": Reading(rate, limit)}


async def measure_latency(db: AsyncDatabase[dict[str, Any]], count: int) -> dict[str, Reading]:
    """Insert at a steady rate, and wait for each handler; milliseconds."""
    bare = await _bare_stream(db, count)
    await _prepare(db)
    monque = Monque(db, worker_concurrency=50)
    reconciled = asyncio.Event()
    times: list[float] = []
    monque.on("reconcile:complete", lambda _: reconciled.set())

    @monque.reactive("orders", name="arrive", watch=["sent"], debounce=0)
    async def arrive(task: ReactiveTask) -> None:
        times.append(_milliseconds_since(task.values["sent"]))

    async with monque:
        await reconciled.wait()
        await _insert_steadily(db["orders"], count)
        while len(times) < count:
            await asyncio.sleep(0.01)
    return {
        f"reactive change to handler {label}": Reading(
            percentile(times, share), percentile(bare, share)
        )
        for label, share in SHARES.items()
    }


async def _merge_only(db: AsyncDatabase[dict[str, Any]], count: int) -> float:
    """Insert and merge into records by ids known beforehand: what any planning has to do."""
    await _prepare(db)
    await db["orders_tasks"].create_index([("sourceDocId", 1), ("task", 1)], unique=True)
    await db["orders_tasks"].create_index([("task", 1), ("nextRunAt", 1)])
    began = time.perf_counter()
    await _insert(db["orders"], count)
    for first in range(0, count, _BATCH_SIZE):
        await db["orders"].aggregate(
            [
                {"$match": {"_id": {"$in": list(range(first, first + _BATCH_SIZE))}}},
                {"$project": {"_id": 0, "task": "plan", "sourceDocId": "$_id", "total": 1}},
                {"$merge": {"into": "orders_tasks", "on": ["sourceDocId", "task"]}},
            ]
        )
    return count / (time.perf_counter() - began)


async def _bare_stream(db: AsyncDatabase[dict[str, Any]], count: int) -> list[float]:
    """Watch for inserts, keep a record of each and claim it: what any run has to wait for."""
    await _prepare(db)
    records, times = db["orders_tasks"], list[float]()
    async with await db["orders"].watch() as stream:
        inserting = asyncio.create_task(_insert_steadily(db["orders"], count))
        while len(times) < count:
            change = await stream.next()
            key = {"sourceDocId": change["documentKey"]["_id"]}
            await records.insert_one({**key, "status": "pending"})
            await records.update_one(key, {"$set": {"status": "processing"}})
            times.append(_milliseconds_since(change["fullDocument"]["sent"]))
        await inserting
    return times


async def _prepare(db: AsyncDatabase[dict[str, Any]]) -> None:
    for name in ("orders", "orders_tasks", "monque_jobs", "monque_jobs_meta"):
        await db.drop_collection(name)
    await db.create_collection("orders")


async def _insert(orders: AsyncCollection[dict[str, Any]], count: int) -> None:
    await orders.insert_many([{"_id": n, "total": n} for n in range(count)], ordered=False)


async def _insert_steadily(orders: AsyncCollection[dict[str, Any]], count: int) -> None:
    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for n in range(count):
            await asyncio.sleep(began + n / _CHANGES_PER_SECOND - time.monotonic())
            group.create_task(_insert_one(orders, n))


async def _insert_one(orders: AsyncCollection[dict[str, Any]], n: int) -> None:
    await orders.insert_one({"_id": n, "sent": time.monotonic_ns()})


def _milliseconds_since(sent_ns: int) -> float:
    return (time.monotonic_ns() - sent_ns) / 1e6
