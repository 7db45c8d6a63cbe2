"""Throughput of storing jobs: one at a time, from concurrent tasks, and in bulk."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

from pymongo import UpdateOne

from monque_core import Monque
from monque_core.store.indexes import KEYED
from tests.benchmarks import raw
from tests.benchmarks.measure import Reading, alternately

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from pymongo.asynchronous.database import AsyncDatabase

    Db = AsyncDatabase[dict[str, Any]]

TASKS = 100


async def measure(db: Db, singles: int, many: int, repetitions: int) -> dict[str, Reading]:
    """Store this many jobs in each way; rates in jobs per second."""
    monque = Monque(db)
    await monque.initialize()
    together = max(1, many // TASKS) * TASKS

    async def rate(count: int, store: Callable[[], Awaitable[None]]) -> float:
        await raw.prepare(db["monque_jobs"])
        began = time.perf_counter()
        await store()
        seconds = time.perf_counter() - began
        assert await db["monque_jobs"].count_documents({}) == count
        return count / seconds

    async def reading(
        count: int,
        own: Callable[[], Awaitable[None]],
        bare: Callable[[], Awaitable[None]],
        naive: float | None = None,
    ) -> Reading:
        limits, rates = await alternately(
            repetitions, partial(rate, count, bare), partial(rate, count, own)
        )
        return Reading(median(rates), median(limits), naive)

    inserted = await rate(together, partial(_from_tasks, partial(_insert_singly, db), together))
    upserted = await rate(together, partial(_from_tasks, partial(_upsert_singly, db), together))
    return {
        "enqueue, one by one": await reading(
            singles,
            partial(_enqueue_singly, monque, range(singles)),
            partial(_insert_singly, db, range(singles)),
        ),
        f"enqueue, {TASKS} tasks at once": await reading(
            together,
            partial(_from_tasks, partial(_enqueue_singly, monque), together),
            partial(_insert_in_groups, db, together),
            inserted,
        ),
        f"enqueue with unique keys, {TASKS} tasks at once": await reading(
            together,
            partial(_from_tasks, partial(_enqueue_singly, monque, key="keyed"), together),
            partial(_upsert_in_groups, db, together),
            upserted,
        ),
        "enqueue_many": await reading(
            many, partial(_enqueue_many, monque, many), partial(_insert_many, db, many)
        ),
    }


async def _insert_singly(db: Db, numbers: range) -> None:
    for number in numbers:
        await db["monque_jobs"].insert_one(raw.document({"number": number}))


async def _upsert_singly(db: Db, numbers: range) -> None:
    for number in numbers:
        keyed, change = _upsert(raw.document({"number": number}))
        await db["monque_jobs"].update_one(keyed, change, upsert=True)


def _upsert(document: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the filter and the update that store a job unless its key is active."""
    document["uniqueKey"] = key = f"key-{document['data']['number']}"
    keyed = {"name": raw.NAME, **KEYED, "uniqueKey": {"$eq": key, "$gt": ""}}
    return keyed, {"$setOnInsert": document}


async def _insert_in_groups(db: Db, count: int) -> None:
    """Insert in batches of as many jobs as there are waiting tasks."""
    for first in range(0, count, TASKS):
        numbers = range(first, first + TASKS)
        await db["monque_jobs"].insert_many(raw.documents({"number": n} for n in numbers))


async def _upsert_in_groups(db: Db, count: int) -> None:
    for first in range(0, count, TASKS):
        numbers = range(first, first + TASKS)
        requests = [
            UpdateOne(*_upsert(document), upsert=True)
            for document in raw.documents({"number": number} for number in numbers)
        ]
        await db["monque_jobs"].bulk_write(requests, ordered=False)


async def _insert_many(db: Db, count: int) -> None:
    await db["monque_jobs"].insert_many(raw.documents({"number": n} for n in range(count)))


async def _enqueue_singly(monque: Monque, numbers: range, key: str | None = None) -> None:
    for number in numbers:
        unique_key = key and f"{key}-{number}"
        await monque.enqueue(raw.NAME, {"number": number}, unique_key=unique_key)


async def _from_tasks(
    store_singly: Callable[[range], Coroutine[Any, Any, None]], count: int
) -> None:
    """Store jobs from concurrent tasks, each of which stores its share sequentially."""
    share = count // TASKS
    async with asyncio.TaskGroup() as tasks:
        for first in range(0, count, share):
            tasks.create_task(store_singly(range(first, first + share)))


async def _enqueue_many(monque: Monque, count: int) -> None:
    await monque.enqueue_many(raw.NAME, [{"number": number} for number in range(count)])
