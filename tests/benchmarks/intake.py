"""How fast jobs are stored: one by one, from many tasks at once, and many in one call."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from pymongo import UpdateOne

from monque_core import Monque
from monque_core.store.indexes import KEYED
from tests.benchmarks import raw
from tests.benchmarks.measure import Reading

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from pymongo.asynchronous.database import AsyncDatabase

    Db = AsyncDatabase[dict[str, Any]]

TASKS = 100


async def measure(db: Db, singles: int, many: int) -> dict[str, Reading]:
    """Store so many jobs in each way; rates in jobs per second."""
    monque = Monque(db)
    await monque.initialize()
    together = max(1, many // TASKS) * TASKS

    async def rate(count: int, storing: Awaitable[object]) -> float:
        await raw.prepare(db["monque_jobs"])
        began = time.perf_counter()
        await storing
        seconds = time.perf_counter() - began
        assert await db["monque_jobs"].count_documents({}) == count
        return count / seconds

    alone = await rate(singles, _insert_singly(db, singles))
    own_alone = await rate(singles, _enqueue_singly(monque, range(singles)))
    keyed_alone = await rate(singles, _enqueue_singly(monque, range(singles), "keyed"))
    return {
        "enqueue, one by one": Reading(own_alone, alone),
        f"enqueue, {TASKS} tasks at once": Reading(
            await rate(together, _enqueue_from_tasks(monque, together)),
            await rate(together, _insert_in_groups(db, together)),
            own_alone,
        ),
        f"enqueue with unique keys, {TASKS} tasks at once": Reading(
            await rate(together, _enqueue_from_tasks(monque, together, "keyed")),
            await rate(together, _upsert_in_groups(db, together)),
            keyed_alone,
        ),
        "enqueue_many": Reading(
            await rate(many, _enqueue_many(monque, many)), await rate(many, _insert_many(db, many))
        ),
    }


async def _insert_singly(db: Db, count: int) -> None:
    for number in range(count):
        await db["monque_jobs"].insert_one(raw.document({"number": number}))


async def _insert_in_groups(db: Db, count: int) -> None:
    """Insert as many at once as there are tasks that wait."""
    for first in range(0, count, TASKS):
        numbers = range(first, first + TASKS)
        await db["monque_jobs"].insert_many([raw.document({"number": n}) for n in numbers])


async def _upsert_in_groups(db: Db, count: int) -> None:
    for first in range(0, count, TASKS):
        requests = []
        for number in range(first, first + TASKS):
            key = f"key-{number}"
            keyed = {"name": raw.NAME, **KEYED, "uniqueKey": {"$eq": key, "$gt": ""}}
            document = raw.document({"number": number}, uniqueKey=key)
            requests.append(UpdateOne(keyed, {"$setOnInsert": document}, upsert=True))
        await db["monque_jobs"].bulk_write(requests, ordered=False)


async def _insert_many(db: Db, count: int) -> None:
    await db["monque_jobs"].insert_many([raw.document({"number": n}) for n in range(count)])


async def _enqueue_singly(monque: Monque, numbers: range, key: str | None = None) -> None:
    for number in numbers:
        unique_key = key and f"{key}-{number}"
        await monque.enqueue(raw.NAME, {"number": number}, unique_key=unique_key)


async def _enqueue_from_tasks(monque: Monque, count: int, key: str | None = None) -> None:
    share = count // TASKS
    async with asyncio.TaskGroup() as tasks:
        for first in range(0, count, share):
            tasks.create_task(_enqueue_singly(monque, range(first, first + share), key))


async def _enqueue_many(monque: Monque, count: int) -> None:
    await monque.enqueue_many(raw.NAME, [{"number": number} for number in range(count)])
