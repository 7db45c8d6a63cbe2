"""The same work in bare PyMongo calls: the limit, and the naive way."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from bson import ObjectId

from monque_core.store.indexes import job_indexes

if TYPE_CHECKING:
    from pymongo.asynchronous.collection import AsyncCollection

    Jobs = AsyncCollection[dict[str, Any]]

NAME = "noop"
BATCH_SIZE = 300
NAIVE_TASKS = 20
_OWNER = "raw"
_ORDER = [("priority", -1), ("nextRunAt", 1)]
_CLAIM_FIELDS = {"lockedAt": "", "claimedBy": "", "lastHeartbeat": "", "heartbeatInterval": ""}


async def prepare(jobs: Jobs) -> None:
    """Empty the collection and give it the indexes that the engine has."""
    await jobs.drop()
    await jobs.create_indexes(list(job_indexes(retention=False)))


def document(data: object) -> dict[str, Any]:
    """Give a pending job as the engine stores it."""
    now = datetime.now(UTC)
    return {
        "_id": ObjectId(),
        "name": NAME,
        "data": data,
        "status": "pending",
        "nextRunAt": now,
        "failCount": 0,
        "createdAt": now,
        "updatedAt": now,
    }


async def fill(jobs: Jobs, count: int) -> None:
    """Store so many due jobs."""
    await prepare(jobs)
    await jobs.insert_many([document({"number": number}) for number in range(count)])


async def drain_in_batches(jobs: Jobs, count: int) -> float:
    """Claim and complete all jobs in batches, the two overlapping; give the seconds."""
    began = time.perf_counter()
    completing: asyncio.Task[None] | None = None
    done = 0
    while done < count:
        token, now = ObjectId(), datetime.now(UTC)
        due = {"name": NAME, **_due(now)}
        found = await jobs.find(due, {"_id": 1}, sort=_ORDER, limit=BATCH_SIZE).to_list()
        ids = [one["_id"] for one in found]
        await jobs.update_many({"_id": {"$in": ids}, **_due(now)}, _claim(token, now))
        claimed = await jobs.find(
            {"_id": {"$in": ids}, "status": "processing", "claimedBy": _OWNER, "claimToken": token}
        ).to_list()
        if completing is not None:
            await completing
        mine = [job["_id"] for job in claimed]
        completing = asyncio.create_task(_complete(jobs, mine, token))
        done += len(mine)
    if completing is not None:
        await completing
    return time.perf_counter() - began


async def drain_one_by_one(jobs: Jobs, count: int) -> float:
    """Claim and complete every job by itself, from several tasks; give the seconds."""

    async def work() -> None:
        while await claim_one(jobs, {"name": NAME}) is not None:
            pass

    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(NAIVE_TASKS):
            tasks.create_task(work())
    seconds = time.perf_counter() - began
    assert await jobs.count_documents({"status": "completed"}) == count
    return seconds


async def claim_one(
    jobs: Jobs, selection: dict[str, Any], *, complete: bool = True
) -> dict[str, Any] | None:
    """Claim a job by itself, and complete it unless told otherwise."""
    token, now = ObjectId(), datetime.now(UTC)
    found: dict[str, Any] | None = await jobs.find_one_and_update(
        {**selection, **_due(now)}, _claim(token, now), sort=_ORDER, return_document=True
    )
    if found is not None and complete:
        await jobs.update_one(_held(found["_id"], token), _completion())
    return found


async def _complete(jobs: Jobs, ids: list[ObjectId], token: ObjectId) -> None:
    await jobs.update_many(_held({"$in": ids}, token), _completion())


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


def _held(selection: object, token: ObjectId) -> dict[str, Any]:
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
