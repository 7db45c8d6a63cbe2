"""Documents so large that MongoDB rejects the updates that monque would write to them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import bson
import pytest
from bson import ObjectId

from monque_core import InvalidJobError, Job, JobStatus, Monque, PayloadTooLargeError
from monque_core.jobs.outcome import LONGEST_REASON
from monque_core.jobs.payload import LARGEST_DOCUMENT, LARGEST_PAYLOAD
from tests.support.happenings import Happenings
from tests.support.quarantined import assert_quarantined_once
from tests.support.stored import jobs_in

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    Db = AsyncDatabase[dict[str, Any]]

AGES_AGO = datetime.now(UTC) - timedelta(days=1)
ROOM_FOR_A_CLAIM = 400


async def put_full(db: Db, free: int, **fields: Any) -> ObjectId:
    """Store a due job that leaves this many bytes of the largest document size free."""
    job_id = ObjectId()
    document: dict[str, Any] = {
        "_id": job_id,
        "name": "work",
        "data": "",
        "status": "pending",
        "nextRunAt": AGES_AGO,
        "failCount": 0,
        "createdAt": AGES_AGO,
        "updatedAt": AGES_AGO,
        **fields,
    }
    document["data"] = "x" * (LARGEST_DOCUMENT - free - len(bson.encode(document)))
    await jobs_in(db).insert_one(document)
    return job_id


async def without_data(db: Db, job_id: ObjectId) -> dict[str, Any]:
    """Read a job without its data; only the size of the data is returned."""
    found = await jobs_in(db).aggregate(
        [
            {"$match": {"_id": job_id}},
            {"$set": {"size": {"$strLenBytes": "$data"}}},
            {"$project": {"data": 0}},
        ]
    )
    (document,) = await found.to_list()
    return document


@pytest.mark.parametrize("concurrency", [1, 5])
async def test_a_job_without_room_for_a_claim_is_quarantined_and_others_run(
    db: Db, concurrency: int
) -> None:
    full = [await put_full(db, free) for free in (0, 1, 100)]

    await assert_quarantined_once(db, full, concurrency)

    for job_id, free in zip(full, (0, 1, 100), strict=True):
        document = await without_data(db, job_id)
        assert document["status"] == "failed"
        assert document["updatedAt"] > AGES_AGO
        assert document["size"] > LARGEST_DOCUMENT - free - 300, "its data is incomplete"


async def test_a_full_and_invalid_document_is_quarantined_by_recovery(db: Db) -> None:
    full = await put_full(db, 0, status="processing", failCount="three")
    monque = Monque(db)
    happenings = Happenings(monque)

    await monque.initialize()

    (event,) = happenings.of("job:error")
    assert isinstance(event.error, InvalidJobError)
    document = await without_data(db, full)
    assert (document["status"], document["failCount"]) == ("failed", "three")


@pytest.mark.parametrize("max_retries", [1, 2])
async def test_a_failure_without_room_for_its_reason_is_written_without(
    db: Db, max_retries: int
) -> None:
    full = await put_full(db, ROOM_FOR_A_CLAIM)
    monque = Monque(db, max_retries=max_retries)
    happenings = Happenings(monque)

    @monque.worker("work")
    async def fail(job: Job[str]) -> None:
        raise ValueError("\N{FISH}" * 10 * LONGEST_REASON)

    async with monque:
        (failure,) = await happenings.reach("job:fail")

    assert failure.will_retry is (max_retries == 2)
    assert not happenings.of("job:error")
    document = await without_data(db, full)
    assert document["status"] == (JobStatus.PENDING if max_retries == 2 else JobStatus.FAILED)
    assert document["failCount"] == 1
    assert failure.job.fail_reason == document.get("failReason")
    assert len(document.get("failReason", "")) < ROOM_FOR_A_CLAIM
    assert "claimedBy" not in document


async def test_the_last_failure_of_a_full_schedule_leaves_a_copy_and_moves_it_on(db: Db) -> None:
    tick = AGES_AGO.replace(microsecond=0)
    full = await put_full(db, ROOM_FOR_A_CLAIM, repeatInterval="0 0 1 1 *", nextRunAt=tick)
    monque = Monque(db, max_retries=1)
    happenings = Happenings(monque)

    @monque.worker("work")
    async def fail(job: Job[str]) -> None:
        raise ValueError("x" * LONGEST_REASON)

    async with monque:
        await happenings.reach("job:fail")

    assert not happenings.of("job:error")
    assert (await without_data(db, full))["status"] == "pending"
    (copy,) = [each async for each in jobs_in(db).find({"status": "failed"}, {"data": 0})]
    assert copy["nextRunAt"] == tick


async def test_the_largest_payload_leaves_room_for_every_later_write(db: Db) -> None:
    instance_id = "\N{FISH}" * 255
    monque = Monque(db, scheduler_instance_id=instance_id, max_retries=2, base_retry_interval=0.001)
    happenings = Happenings(monque)
    # The largest number of bytes that a name of 255 UTF-16 units can have.
    name = "\N{EURO SIGN}" * 255
    data = "x" * (LARGEST_PAYLOAD - 5)

    @monque.worker(name, concurrency=2)
    async def fail_once(job: Job[str]) -> None:
        if not job.fail_count:
            raise ValueError("\N{FISH}" * LONGEST_REASON)

    with pytest.raises(PayloadTooLargeError):
        await monque.enqueue(name, data + "x")
    job = await monque.enqueue(name, data, unique_key="\N{EURO SIGN}" * 1024)
    async with monque:
        (failure,) = await happenings.reach("job:fail")
        await happenings.reach("job:complete")

    assert len(failure.job.fail_reason) == LONGEST_REASON
    assert not happenings.of("job:error")
    assert (await without_data(db, job.id))["status"] == "completed"
