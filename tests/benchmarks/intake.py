"""How fast jobs are stored, one by one and many at once."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from monque_core import Monque
from tests.benchmarks import raw
from tests.benchmarks.measure import Reading

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase


async def measure(db: AsyncDatabase[dict[str, Any]], singles: int, many: int) -> dict[str, Reading]:
    """Store so many jobs in each way; rates in jobs per second."""
    jobs = db["monque_jobs"]
    await raw.prepare(jobs)
    monque = Monque(db)
    await monque.initialize()

    began = time.perf_counter()
    for number in range(singles):
        await jobs.insert_one(raw.document({"number": number}))
    raw_singles = singles / (time.perf_counter() - began)

    began = time.perf_counter()
    for number in range(singles):
        await monque.enqueue(raw.NAME, {"number": number})
    own_singles = singles / (time.perf_counter() - began)

    await raw.prepare(jobs)
    began = time.perf_counter()
    await jobs.insert_many([raw.document({"number": number}) for number in range(many)])
    raw_many = many / (time.perf_counter() - began)

    await raw.prepare(jobs)
    began = time.perf_counter()
    await monque.enqueue_many(raw.NAME, [{"number": number} for number in range(many)])
    own_many = many / (time.perf_counter() - began)

    return {
        "enqueue, one by one": Reading(own_singles, raw_singles),
        "enqueue_many": Reading(own_many, raw_many),
    }
