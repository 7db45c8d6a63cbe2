"""The cost of a claim in collections of a thousand to a million jobs."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

from bson import ObjectId

from monque_core.options import Options
from monque_core.store.store import Store
from tests.benchmarks import raw
from tests.benchmarks.measure import Reading, alternately

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pymongo.asynchronous.database import AsyncDatabase

    Db = AsyncDatabase[dict[str, Any]]

SIZES = (1_000, 10_000, 100_000, 1_000_000)
_BATCH_SIZE = 100
_WARM_UP = 5


async def measure(db: Db, scale: float, times: int) -> dict[str, Reading]:
    """Claim a hundred jobs repeatedly from collections of each size; milliseconds.

    Half of the jobs are due and half are completed. Claimed jobs are not put back, so each claim
    has to skip the dead index entries of the earlier ones. They are deleted, and the same number of
    due jobs is added behind the others, so that the size of the collection stays constant.
    """
    jobs = db["monque_jobs"]
    store = Store(db, Options.parse({}))

    async def own_claim() -> int:
        now, token = datetime.now(UTC), ObjectId()
        candidates = await store.queue.look([raw.NAME], _BATCH_SIZE, now)
        return len(await store.queue.claim_batch(candidates, token, now))  # type: ignore[arg-type]  # none is unreadable

    async def bare_claim() -> int:
        return len(await raw.claim_batch(jobs, _BATCH_SIZE) or ())

    async def milliseconds(claim: Callable[[], Awaitable[int]]) -> float:
        began = time.perf_counter()
        assert await claim() == _BATCH_SIZE
        seconds = time.perf_counter() - began
        await jobs.delete_many({"status": "processing"})
        await raw.add(jobs, _BATCH_SIZE)
        return seconds * 1000

    readings = {}
    for size in SIZES:
        await _fill(db, max(4 * _BATCH_SIZE, round(size * scale)))
        taken = await alternately(
            times + _WARM_UP, partial(milliseconds, own_claim), partial(milliseconds, bare_claim)
        )
        own, bare = (median(each[_WARM_UP:]) for each in taken)
        readings[f"claim of {_BATCH_SIZE}, {size:,} jobs stored"] = Reading(own, bare)
    return readings


def growth(readings: dict[str, Reading]) -> Reading:
    """Return the cost of a claim in the largest collection relative to the smallest."""
    first, *_, last = readings.values()
    assert first.limit is not None
    assert last.limit is not None
    return Reading(last.monque / first.monque, last.limit / first.limit)


async def _fill(db: Db, count: int) -> None:
    await raw.fill(db["monque_jobs"], count // 2, status="completed")
    await raw.add(db["monque_jobs"], count - count // 2)
    # Otherwise the checkpoint of the inserts would be measured.
    await db.client.admin.command("fsync")
