"""Documents in the jobs collection that are not jobs, as other programs may store them."""

from __future__ import annotations

import asyncio
import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from bson import ObjectId
from bson.datetime_ms import DatetimeMS

from monque_core import InvalidJobError, Job, Monque
from tests.support.happenings import Happenings
from tests.support.stored import jobs_in
from tests.support.tally import Tally
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

NOW = datetime.now(UTC)
AGES_AGO = NOW - timedelta(days=1)


def pending(**fields: object) -> dict[str, Any]:
    """Return a job that has been due for longer than any other."""
    return {
        "_id": ObjectId(),
        "name": "work",
        "data": "garbage",
        "status": "pending",
        "nextRunAt": AGES_AGO,
        "failCount": 0,
        "createdAt": AGES_AGO,
        "updatedAt": AGES_AGO,
        **fields,
    }


GARBAGE: dict[str, dict[str, Any]] = {
    "claims is not a number": {"claims": math.nan},
    "claims is infinite": {"claims": math.inf},
    "failCount is a document": {"failCount": {"a": 1}},
    "failCount is not a number": {"failCount": math.nan},
    "failCount is negative": {"failCount": -1},
    "maxRetries is text": {"maxRetries": "y"},
    "maxRetries is not a number": {"maxRetries": math.nan},
    "timeoutMs is text": {"timeoutMs": "x"},
    "timeoutMs is not a number": {"timeoutMs": math.nan},
    "priority is text": {"priority": "high"},
    "priority is not a number": {"priority": math.nan},
    "name is an array": {"name": ["work"]},
    "nextRunAt is an array": {"nextRunAt": [AGES_AGO]},
    "nextRunAt is no year of ours": {"nextRunAt": DatetimeMS(-(10**17))},
    "createdAt is text": {"createdAt": "2020-01-01"},
}

ODDITIES: dict[str, dict[str, Any]] = {
    "claims is null": {"claims": None},
    "updatedAt is text": {"updatedAt": "2020-01-01"},
    "claims is text": {"claims": "abc"},
    "claims is true": {"claims": True},
    "claims is an array": {"claims": []},
    "everything optional is null": dict.fromkeys(
        (
            "lockedAt",
            "claimedBy",
            "lastHeartbeat",
            "heartbeatInterval",
            "failReason",
            "repeatInterval",
            "uniqueKey",
            "claimToken",
            "claims",
            "priority",
            "maxRetries",
            "timeoutMs",
            "timezone",
        )
    ),
    "counts are floats": {"failCount": 0.0, "claims": 0.0, "maxRetries": 3.0},
    "the id is text": {"_id": "a job of another program"},
    "there are fields of another program": {"owner": "node", "progress": 0.5},
    "createdAt and updatedAt are missing": {"createdAt": None, "updatedAt": None},
}


@pytest.mark.parametrize("concurrency", [1, 5])
async def test_garbage_is_quarantined_once_and_valid_jobs_run(
    db: AsyncDatabase[dict[str, Any]], concurrency: int
) -> None:
    garbage = [pending(**fields) for fields in GARBAGE.values()]
    await jobs_in(db).insert_many(garbage)
    monque = Monque(db, poll_interval=0.05, heartbeat_interval=0.1)
    happenings = Happenings(monque)
    ran = Tally[str]()

    @monque.worker("work", concurrency=concurrency)
    async def note(job: Job[str]) -> None:
        ran.add(job.data)

    await monque.enqueue_many("work", [f"innocent {number}" for number in range(5)])
    async with monque:
        await happenings.reach("job:error", len(garbage))
        await happenings.reach("job:complete", 5)
        # Another round of queries and recoveries reports nothing new.
        await monque.enqueue("work", "the last one")
        await happenings.reach("job:complete", 6)
        await monque.run_until_idle()

    assert "garbage" not in ran
    assert len(ran) == 6
    errors = [event.error for event in happenings.of("job:error")]
    assert len(errors) == len(garbage)
    assert all(isinstance(error, InvalidJobError) for error in errors)
    stored = {
        document["_id"]: document
        async for document in jobs_in(db).find(
            {"data": "garbage"}, {"status": 1, "failReason": 1, "claimedBy": 1, "lockedAt": 1}
        )
    }
    for what, document in zip(GARBAGE, garbage, strict=True):
        found = stored[document["_id"]]
        assert found["status"] == "failed", what
        assert what.split()[0].lower() in found["failReason"].replace("_", "").lower(), what
        assert not {"claimedBy", "lockedAt"} & set(found), what


async def test_among_several_instances_one_reports_each_document(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    garbage = [pending(**fields) for fields in GARBAGE.values()]
    instances = [Monque(db, poll_interval=0.01, heartbeat_interval=0.1) for _ in range(3)]
    heard = [Happenings(monque) for monque in instances]

    async def run(job: Job[str]) -> None: ...

    for monque in instances:
        monque.worker("work", run, concurrency=5)
    async with instances[0], instances[1], instances[2]:
        # Two of them listen for changes, the third one is on standby.
        await eventually(lambda: sum(one.follows_changes for one in heard) == 2)
        # Stale ones, too: all instances search for them and find them at the same time.
        stale = [{**document, "_id": ObjectId(), "status": "processing"} for document in garbage]
        await jobs_in(db).insert_many([*garbage, *stale])

        async def is_over() -> bool:
            return not await jobs_in(db).count_documents(
                {"status": {"$in": ["pending", "processing"]}}
            )

        await eventually(is_over)
        await instances[0].run_until_idle()

    errors = [event.error for one in heard for event in one.of("job:error")]
    assert all(isinstance(error, InvalidJobError) for error in errors)
    told = [str(document["_id"]) for document in [*garbage, *stale]]
    counts = [sum(job_id in str(error) for error in errors) for job_id in told]
    assert max(counts) == 1
    # Stale documents that are valid jobs are recovered.
    assert sum(counts) == len(errors) == await jobs_in(db).count_documents({"status": "failed"})


@pytest.mark.parametrize("concurrency", [1, 5])
async def test_unusual_but_valid_jobs_run(
    db: AsyncDatabase[dict[str, Any]], concurrency: int
) -> None:
    await jobs_in(db).insert_many(
        [pending(**{"data": what, **fields}) for what, fields in ODDITIES.items()]
    )
    monque = Monque(db, poll_interval=0.05, heartbeat_interval=0.1)
    happenings = Happenings(monque)
    ran = Tally[str]()

    @monque.worker("work", concurrency=concurrency)
    async def note(job: Job[str]) -> None:
        ran.add(job.data)

    async with monque:
        await happenings.reach("job:complete", len(ODDITIES))

    assert sorted(ran) == sorted(ODDITIES)
    assert not happenings.of("job:error")
    assert await jobs_in(db).count_documents({"status": "completed"}) == len(ODDITIES)


async def test_garbage_that_becomes_due_later_does_not_keep_others_from_being_planned(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=1)
    await jobs_in(db).insert_many(
        [pending(nextRunAt=[soon]), pending(nextRunAt=soon, name=["work"])]
    )
    monque = Monque(db, poll_interval=600, safety_poll_interval=600)
    happenings = Happenings(monque)

    @monque.worker("work")
    async def run(job: Job[str]) -> None: ...

    async with monque:
        await monque.enqueue("work", "innocent", delay=1.5)
        (done,) = await happenings.reach("job:complete")

    assert done.job.data == "innocent"
    for event in happenings.of("job:error"):
        assert isinstance(event.error, InvalidJobError)


async def test_a_job_whose_id_is_a_document_harms_nothing(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    monque = Monque(db, heartbeat_interval=0.1, poll_interval=0.1)
    happenings = Happenings(monque)
    may_end = asyncio.Event()

    @monque.worker("work", concurrency=5)
    async def wait(job: Job[str]) -> None:
        await may_end.wait()

    async with monque:
        await happenings.reach("changestream:connected")
        await jobs_in(db).insert_one(pending(_id={"tenant": 1, "number": 2}))
        await monque.enqueue("work", "innocent")
        await happenings.reach("job:start")
        # For some heartbeats and recovery passes.
        await asyncio.sleep(0.5)
        may_end.set()

        async def is_over() -> bool:
            return not await jobs_in(db).count_documents(
                {"status": {"$in": ["pending", "processing"]}}
            )

        await eventually(is_over)

    assert "innocent" in [event.job.data for event in happenings.of("job:complete")]
    assert not happenings.of("changestream:error")
    # Each one either runs or is quarantined.
    errors = [event.error for event in happenings.of("job:error")]
    assert len(happenings.of("job:complete")) + len(errors) == 2
    assert all(isinstance(error, InvalidJobError) for error in errors)
