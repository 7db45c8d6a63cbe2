"""Throughput of planning changed documents, and latency from a change to its handler."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from statistics import median
from typing import TYPE_CHECKING, Any

from monque_core import Monque
from monque_core.store.tasks.indexes import task_indexes
from tests.benchmarks.measure import Reading, alternately, percentile

if TYPE_CHECKING:
    from pymongo.asynchronous.collection import AsyncCollection
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import ReactiveTask

    Db = AsyncDatabase[dict[str, Any]]

SHARES = {"p50": 0.5, "p99": 0.99}
_CHANGES_PER_SECOND = 200
_BATCH_SIZE = 1000
_HOURS_AWAY = 3600.0
_TASK = "plan"


async def measure_planning(db: Db, count: int, repetitions: int) -> dict[str, Reading]:
    """Change this many documents at once, and plan them all; documents per second."""
    bare, own = await alternately(
        repetitions, partial(_merge, db, count), partial(_plan, db, count)
    )
    return {"reactive planning of a burst": Reading(count / median(own), count / median(bare))}


async def measure_latency(db: Db, count: int, repetitions: int) -> dict[str, Reading]:
    """Insert at a steady rate, and wait for each handler; milliseconds."""
    block = -(-count // repetitions)
    bare, own = await alternately(
        repetitions, partial(_bare_stream, db, block), partial(_handler, db, block)
    )
    return {
        f"reactive change to handler {label}": Reading(
            percentile([*chain(*own)], share), percentile([*chain(*bare)], share)
        )
        for label, share in SHARES.items()
    }


async def _plan(db: Db, count: int) -> float:
    """Return the seconds from the first insert until each document has its record."""
    await _prepare(db)
    monque = Monque(db)
    reconciled = asyncio.Event()
    monque.on("reconcile:complete", lambda _: reconciled.set())

    @monque.reactive("orders", name=_TASK, watch=["total"], debounce=_HOURS_AWAY)
    async def never(task: ReactiveTask) -> None: ...

    async with monque:
        await reconciled.wait()
        began = time.perf_counter()
        await _insert(db["orders"], count)
        while await db["orders_tasks"].estimated_document_count() < count:
            await asyncio.sleep(0.01)
        return time.perf_counter() - began


async def _merge(db: Db, count: int) -> float:
    """Insert, follow the stream and merge by the reported ids: the minimum work of planning."""
    await _prepare(db)
    await db["orders_tasks"].create_indexes(list(task_indexes()))
    inserts: list[dict[str, Any]] = [
        {"$match": {"operationType": "insert"}},
        {"$project": {"documentKey": 1}},
    ]
    async with await db["orders"].watch(inserts, batch_size=_BATCH_SIZE) as stream:
        began = time.perf_counter()
        inserting = asyncio.create_task(_insert(db["orders"], count))
        merging: asyncio.Task[None] | None = None
        for first in range(0, count, _BATCH_SIZE):
            size = min(_BATCH_SIZE, count - first)
            ids = [(await stream.next())["documentKey"]["_id"] for _ in range(size)]
            # While one batch is merged, the next one is collected.
            if merging is not None:
                await merging
            merging = asyncio.create_task(_merge_batch(db, ids))
        if merging is not None:
            await merging
        seconds = time.perf_counter() - began
        await inserting
    assert await db["orders_tasks"].estimated_document_count() == count
    return seconds


async def _merge_batch(db: Db, ids: list[Any]) -> None:
    record = {"task": _TASK, "sourceDocId": "$_id", "status": "pending", "nextRunAt": "$$NOW"}
    await db["orders"].aggregate(
        [
            {"$match": {"_id": {"$in": ids}}},
            {"$project": {"_id": 0, "total": 1, **record}},
            {"$merge": {"into": "orders_tasks", "on": ["sourceDocId", "task"]}},
        ]
    )


async def _handler(db: Db, count: int) -> list[float]:
    await _prepare(db)
    monque = Monque(db, worker_concurrency=50)
    reconciled = asyncio.Event()
    times: list[float] = []
    monque.on("reconcile:complete", lambda _: reconciled.set())

    @monque.reactive("orders", name=_TASK, watch=["sent"], debounce=0)
    async def arrive(task: ReactiveTask) -> None:
        times.append(_milliseconds_since(task.values["sent"]))

    async with monque:
        await reconciled.wait()
        await _insert_steadily(db["orders"], count)
        while len(times) < count:
            await asyncio.sleep(0.01)
    return times


async def _bare_stream(db: Db, count: int) -> list[float]:
    """Watch for inserts, store a record of each and claim it: the minimum latency of a run."""
    await _prepare(db)
    records, times = db["orders_tasks"], list[float]()
    await records.create_indexes(list(task_indexes()))
    async with await db["orders"].watch([{"$match": {"operationType": "insert"}}]) as stream:
        inserting = asyncio.create_task(_insert_steadily(db["orders"], count))
        while len(times) < count:
            change = await stream.next()
            key = {"sourceDocId": change["documentKey"]["_id"], "task": _TASK}
            now = datetime.now(UTC)
            await records.insert_one({**key, "status": "pending", "nextRunAt": now})
            await records.update_one(key, {"$set": {"status": "processing"}})
            times.append(_milliseconds_since(change["fullDocument"]["sent"]))
        await inserting
    return times


async def _prepare(db: Db) -> None:
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
