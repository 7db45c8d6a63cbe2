"""The same work in bare PyMongo calls: the limit, and the naive way."""

from __future__ import annotations

import asyncio
import gc
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from bson import ObjectId
from pymongo import UpdateOne

from monque_core.store.indexes import job_indexes

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from concurrent.futures import Executor

    from pymongo.asynchronous.collection import AsyncCollection

    Jobs = AsyncCollection[dict[str, Any]]
    Settle = Callable[[Jobs, list[ObjectId], ObjectId], Coroutine[Any, Any, None]]
    Change = Callable[[], dict[str, Any]]

NAME = "noop"
BATCH_SIZES = (100, 300, 1000)
"""Batch sizes for the limit, which uses the fastest one."""
NAIVE_TASKS = 20
_INSERT_SIZE = 20_000
_OWNER = "raw"
_ORDER = [("priority", -1), ("nextRunAt", 1)]
_CLAIM_FIELDS = {"lockedAt": "", "claimedBy": "", "lastHeartbeat": "", "heartbeatInterval": ""}


async def prepare(jobs: Jobs) -> None:
    """Empty the collection and create the engine's indexes."""
    await jobs.drop()
    await jobs.create_indexes(list(job_indexes(retention=False)))
    # Garbage of earlier measurements must not be collected during the next one.
    gc.collect()


def document(data: object, **fields: object) -> dict[str, Any]:
    """Return a pending job as the engine stores it."""
    return documents([data], **fields)[0]


def documents(payloads: Iterable[object], **fields: object) -> list[dict[str, Any]]:
    """Return the pending jobs of one call, which share their creation time."""
    now = datetime.now(UTC)
    return [
        {
            "_id": ObjectId(),
            "name": NAME,
            "data": data,
            "status": "pending",
            "nextRunAt": now,
            "failCount": 0,
            "createdAt": now,
            "updatedAt": now,
            **fields,
        }
        for data in payloads
    ]


async def fill(jobs: Jobs, count: int, **fields: object) -> None:
    """Empty the collection and store this many jobs, due unless a field says otherwise."""
    await prepare(jobs)
    await add(jobs, count, **fields)


async def add(jobs: Jobs, count: int, **fields: object) -> None:
    """Store this many more jobs."""
    for first in range(0, count, _INSERT_SIZE):
        numbers = range(first, min(count, first + _INSERT_SIZE))
        await jobs.insert_many(documents(({"number": number} for number in numbers), **fields))


async def drain_in_batches(jobs: Jobs, size: int, settle: Settle | None = None) -> None:
    """Claim and settle all due jobs in batches; settling overlaps with the next claim."""
    settle = settle or complete_batch
    settling: asyncio.Task[None] | None = None
    while (claimed := await claim_batch(jobs, size)) is not None:
        if not claimed:
            continue
        if settling is not None:
            await settling
        token = claimed[0]["claimToken"]
        settling = asyncio.create_task(settle(jobs, [job["_id"] for job in claimed], token))
    if settling is not None:
        await settling


async def claim_batch(jobs: Jobs, size: int) -> list[dict[str, Any]] | None:
    """Claim the first due jobs in a batch: find their ids, update them, and read back the claim.

    Return None if no job is due, and an empty list if other clients took them.
    """
    token, now = ObjectId(), datetime.now(UTC)
    due = {"name": NAME, **_due(now)}
    found = await jobs.find(due, {"_id": 1}, sort=_ORDER, limit=size, batch_size=size + 1).to_list()
    if not found:
        return None
    ids = {"$in": [one["_id"] for one in found]}
    await jobs.update_many({"_id": ids, **_due(now)}, _claim(token, now))
    return await jobs.find(held(ids, token), batch_size=size + 1).to_list()


async def complete_batch(jobs: Jobs, ids: list[ObjectId], token: ObjectId) -> None:
    """Complete jobs of one claim."""
    await jobs.update_many(held({"$in": ids}, token), _completion())


def run_in(threads: Executor) -> Settle:
    """Return a function that runs a no-op in a thread per job and then completes the batch."""

    async def run_batch(jobs: Jobs, ids: list[ObjectId], token: ObjectId) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(threads, _do_nothing, one) for one in ids))
        await complete_batch(jobs, ids, token)

    return run_batch


def _do_nothing(_: ObjectId) -> None: ...


async def fail_batch(jobs: Jobs, ids: list[ObjectId], token: ObjectId) -> None:
    """Store a failure with its own retry time for each job of a claim."""
    await jobs.bulk_write(
        [UpdateOne(held(job_id, token), failure()) for job_id in ids], ordered=False
    )


async def drain_one_by_one(jobs: Jobs, change: Change | None = None) -> None:
    """Claim and settle one job after the other in several tasks, until none is due."""

    async def work() -> None:
        while await claim_one(jobs, {"name": NAME}, change or _completion) is not None:
            pass

    async with asyncio.TaskGroup() as tasks:
        for _ in range(NAIVE_TASKS):
            tasks.create_task(work())


async def claim_one(
    jobs: Jobs, selection: dict[str, Any], change: Change | None = None
) -> dict[str, Any] | None:
    """Claim a single job, and settle it if a change is given."""
    token, now = ObjectId(), datetime.now(UTC)
    found: dict[str, Any] | None = await jobs.find_one_and_update(
        {**selection, **_due(now)}, _claim(token, now), sort=_ORDER, return_document=True
    )
    if found is not None and change is not None:
        await jobs.update_one(held(found["_id"], token), change())
    return found


def _due(now: datetime) -> dict[str, Any]:
    return {"status": "pending", "nextRunAt": {"$lte": now}, "claimedBy": None}


def _claim(token: ObjectId, now: datetime) -> dict[str, Any]:
    claimed = {
        "status": "processing",
        "claimedBy": _OWNER,
        "lockedAt": now,
        "lastHeartbeat": now,
        "heartbeatInterval": 30_000,
        "updatedAt": now,
        "claimToken": token,
    }
    return {"$set": claimed, "$inc": {"claims": 1}}


def held(selection: object, token: ObjectId) -> dict[str, Any]:
    """Return the filter for jobs that a claim still owns."""
    return {
        "_id": selection,
        "status": "processing",
        "claimedBy": _OWNER,
        "claimToken": token,
    }


def _completion() -> dict[str, Any]:
    return {
        "$set": {"status": "completed", "updatedAt": datetime.now(UTC)},
        "$unset": {**_CLAIM_FIELDS, "failReason": ""},
    }


def failure() -> dict[str, Any]:
    """Return the update of a failed job that will be retried."""
    now = datetime.now(UTC)
    later = now + timedelta(hours=1)
    failed = {"status": "pending", "updatedAt": now, "nextRunAt": later, "failCount": 1}
    return {"$set": {**failed, "failReason": "ValueError: no"}, "$unset": _CLAIM_FIELDS}
