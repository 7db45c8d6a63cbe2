"""Documents that the driver cannot decode, as programs in other languages may store them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import bson
import pytest
from bson import ObjectId
from bson.raw_bson import RawBSONDocument
from pymongo.write_concern import WriteConcern

from monque_core import InvalidJobError, JobSelector, Monque
from tests.support.happenings import Happenings
from tests.support.quarantined import assert_quarantined_once
from tests.support.stored import jobs_in

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from tests.conftest import AnyDatabase

    Db = AsyncDatabase[dict[str, Any]]

AGES_AGO = datetime.now(UTC) - timedelta(days=1)


async def put(db: Db, **fields: object) -> ObjectId:
    """Store a job in which every text that contains GARBAGE is invalid UTF-8."""
    document = {
        "_id": ObjectId(),
        "name": "work",
        "data": {"text": "GARBAGE"},
        "status": "pending",
        "nextRunAt": AGES_AGO,
        "failCount": 0,
        "createdAt": AGES_AGO,
        "updatedAt": AGES_AGO,
        **fields,
    }
    raw = bson.encode(document).replace(b"GARBAGE", b"\xff\xfe\xfd\xfc\xfb\xfa\xf9")
    await db.get_collection("monque_jobs").insert_one(RawBSONDocument(raw))
    job_id = document["_id"]
    assert isinstance(job_id, ObjectId)
    return job_id


async def status_of(db: Db, job_id: ObjectId) -> str:
    found = await jobs_in(db).find_one({"_id": job_id}, {"status": 1})
    return str((found or {}).get("status"))


@pytest.mark.parametrize("concurrency", [1, 5])
async def test_they_are_quarantined_once_and_other_jobs_run(
    any_db: AnyDatabase, db: Db, concurrency: int
) -> None:
    garbage = [await put(db), await put(db, failReason="GARBAGE"), await put(db, claims="GARBAGE")]

    await assert_quarantined_once(any_db, garbage, concurrency)

    for job_id in garbage:
        assert await status_of(db, job_id) == "failed"


async def test_a_claimed_one_is_quarantined_by_recovery_and_hides_no_other(db: Db) -> None:
    garbage = await put(db, status="processing")
    sound = await put(db, status="processing", data="sound")
    monque = Monque(db)
    happenings = Happenings(monque)

    await monque.initialize()

    (event,) = happenings.of("job:error")
    assert isinstance(event.error, InvalidJobError)
    assert await status_of(db, garbage) == "failed"
    assert await status_of(db, sound) == "pending"


async def test_queries_return_the_other_jobs(db: Db) -> None:
    garbage, sound = await put(db), await put(db, data="sound")
    await put(db, name="GARBAGE", data=1)
    monque = Monque(db)

    jobs = await monque.get_jobs(name="work")
    page = await monque.get_jobs_with_cursor(filter=JobSelector(name="work"))
    assert [job.id for job in jobs] == [job.id for job in page.jobs] == [sound]
    assert (await monque.get_queue_stats("work")).pending == 2
    assert "work" in [view.name for view in await monque.get_queue_view_summaries()]
    with pytest.raises(InvalidJobError, match="cannot be decoded"):
        await monque.get_job(garbage)
    with pytest.raises(InvalidJobError, match="cannot be decoded"):
        await monque.cancel_job(garbage)
    assert await monque.delete_job(garbage)


async def test_an_active_one_with_the_same_key_is_named_in_the_error(db: Db) -> None:
    await put(db, uniqueKey="only once")
    monque = Monque(db)
    with pytest.raises(InvalidJobError, match="cannot be decoded"):
        await monque.enqueue("work", 1, unique_key="only once")
    with pytest.raises(InvalidJobError, match="cannot be decoded"):
        await monque.enqueue_many("work", [1, 2], unique_key=lambda _: "only once")
    with pytest.raises(InvalidJobError, match="cannot be decoded"):
        await monque.schedule("@daily", "work", 1, unique_key="only once")


async def test_they_are_quarantined_at_once_without_a_majority_for_their_claim(db: Db) -> None:
    garbage = [await put(db) for _ in range(8)]
    monque = Monque(db.with_options(write_concern=WriteConcern(1)))
    happenings = Happenings(monque)
    monque.worker("work", print, concurrency=1)
    async with monque:
        await happenings.reach("job:error", 8)
    assert {await status_of(db, job_id) for job_id in garbage} == {"failed"}
