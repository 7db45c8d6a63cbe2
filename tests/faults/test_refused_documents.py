"""Documents that the server does not allow to change, for example because of a validator."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from bson import ObjectId
from pymongo.errors import OperationFailure

from monque_core import InvalidJobError, Job, Monque
from monque_core.store import quarantine
from tests.support.happenings import Happenings
from tests.support.stored import count_by_status, jobs_in
from tests.support.tally import Tally

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    Db = AsyncDatabase[dict[str, Any]]

AGES_AGO = datetime.now(UTC) - timedelta(days=1)


def a_document(**fields: object) -> dict[str, Any]:
    """Return a job that has been due for longer than any other."""
    return {
        "_id": ObjectId(),
        "name": "work",
        "data": "untouchable",
        "status": "pending",
        "nextRunAt": AGES_AGO,
        "failCount": 0,
        "createdAt": AGES_AGO,
        "updatedAt": AGES_AGO,
        **fields,
    }


async def forbid(db: Db, validator: dict[str, Any]) -> None:
    """Make the server reject every write whose result violates the validator."""
    await db.command("collMod", "monque_jobs", validator=validator)


@pytest.mark.parametrize("concurrency", [1, 5])
async def test_a_job_that_cannot_be_claimed_is_reported_once_and_others_run(
    db: Db, concurrency: int
) -> None:
    monque = Monque(db, poll_interval=0.02, heartbeat_interval=0.1)
    happenings = Happenings(monque)
    ran = Tally[str]()

    @monque.worker("work", concurrency=concurrency)
    async def note(job: Job[str]) -> None:
        ran.add(job.data)

    await monque.initialize()
    refused = [a_document(), a_document(nextRunAt=[AGES_AGO], failCount="three")]
    await jobs_in(db).insert_many(refused)
    await forbid(db, {"data": {"$ne": "untouchable"}})
    await monque.enqueue_many("work", ["one", "two", "three"])
    async with monque:
        await happenings.reach("job:complete", 3)
        await happenings.reach("job:error", 2)
        # Later jobs are claimed as well, and the rejected ones are not reported again.
        for number in range(4):
            await monque.enqueue("work", "later")
            await happenings.reach("job:complete", 4 + number)
        await monque.run_until_idle()

    errors = [event.error for event in happenings.of("job:error")]
    assert [type(error) for error in errors] == [InvalidJobError] * 2
    for document in refused:
        assert sum(str(document["_id"]) in str(error) for error in errors) == 1
        # The validator itself may be wrong: no job is failed because of it.
        assert await jobs_in(db).find_one({"_id": document["_id"]}) is not None
    assert await count_by_status(db) == {"completed": 7, "pending": 2}


async def test_a_job_that_could_not_be_claimed_runs_once_it_can_be(
    db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quarantine, "SKIPPED_SECONDS", 0.05)
    monque = Monque(db, poll_interval=0.02, safety_poll_interval=0.02)
    happenings = Happenings(monque)

    @monque.worker("work", concurrency=2)
    async def run(job: Job[str]) -> None: ...

    await monque.initialize()
    await jobs_in(db).insert_one(a_document())
    await forbid(db, {"data": {"$ne": "untouchable"}})
    async with monque:
        await happenings.reach("job:error")
        # The claim is retried in the meantime.
        await asyncio.sleep(0.5)
        await forbid(db, {})
        (done,) = await happenings.reach("job:complete")

    assert done.job.data == "untouchable"
    assert len(happenings.of("job:error")) == 1


@pytest.mark.parametrize("concurrency", [1, 5])
async def test_a_validator_that_refuses_every_claim_is_not_reported_for_every_job(
    db: Db, monkeypatch: pytest.MonkeyPatch, concurrency: int
) -> None:
    monkeypatch.setattr(quarantine, "MOST_SKIPPED", 5)
    monkeypatch.setattr(quarantine, "SKIPPED_SECONDS", 0.3)
    monque = Monque(db, poll_interval=0.02, safety_poll_interval=0.02)
    happenings = Happenings(monque)

    @monque.worker("work", concurrency=concurrency)
    async def run(job: Job[int]) -> None: ...

    await monque.initialize()
    await forbid(db, {"status": {"$ne": "processing"}})
    await monque.enqueue_many("work", range(50))
    async with monque:
        await happenings.reach("job:error", 6)
        # For a few more claim attempts.
        await asyncio.sleep(0.2)
        assert len(happenings.of("job:error")) <= 6 + concurrency
        assert await count_by_status(db) == {"pending": 50}
        await forbid(db, {})
        await happenings.reach("job:complete", 50)


async def test_a_claim_that_cannot_be_renewed_does_not_affect_others(db: Db) -> None:
    first = Monque(db, heartbeat_interval=0.2)
    happenings = Happenings(first)
    may_end = asyncio.Event()

    @first.worker("work", concurrency=5)
    async def wait(job: Job[str]) -> None:
        await may_end.wait()

    await first.initialize()
    await jobs_in(db).insert_one(a_document())
    await first.enqueue_many("work", ["one", "two", "three"])
    async with first:
        await happenings.reach("job:start", 4)
        begun = datetime.now(UTC)
        await forbid(db, {"data": {"$ne": "untouchable"}})
        await happenings.reach("job:error")
        # Three heartbeats later, a claim that is not renewed is stale.
        await asyncio.sleep(1)
        second = Monque(db, heartbeat_interval=0.2)
        watched = Happenings(second)
        # Recovery fails as well, but does not keep an instance from starting.
        await second.initialize()
        renewed = jobs_in(db).find({"data": {"$ne": "untouchable"}})
        assert all([job["lastHeartbeat"] > begun async for job in renewed])
        assert await count_by_status(db) == {"processing": 4}
        await forbid(db, {})
        may_end.set()
        await happenings.reach("job:complete", 4)

    # It is reported once, however many heartbeats fail.
    (event,) = happenings.of("job:error")
    assert isinstance(event.error, OperationFailure)
    assert not watched.of("stale:recovered")


async def test_a_stale_job_that_cannot_be_recovered_does_not_block_others(db: Db) -> None:
    monque = Monque(db, heartbeat_interval=0.1)
    happenings = Happenings(monque)

    @monque.worker("work")
    async def run(job: Job[str]) -> None: ...

    await monque.initialize()
    await jobs_in(db).insert_many(
        [
            a_document(status="processing"),
            a_document(status="processing", failCount="three"),
            *(a_document(status="processing", data=f"sound {number}") for number in range(3)),
        ]
    )
    await forbid(db, {"data": {"$ne": "untouchable"}})
    async with monque:
        await happenings.reach("job:complete", 3)
        await happenings.reach("job:error", 2)
        # For some more recovery passes.
        await asyncio.sleep(0.5)

    assert len(happenings.of("job:error")) == 2
    assert await count_by_status(db) == {"completed": 3, "processing": 2}


async def test_a_success_that_the_server_refuses_is_reported_once_and_never_lost(db: Db) -> None:
    monque = Monque(db, heartbeat_interval=0.1, poll_interval=0.02)
    happenings = Happenings(monque)
    runs = Tally[str]()

    @monque.worker("work", concurrency=1)
    async def note(job: Job[str]) -> None:
        runs.add(job.data)

    await monque.initialize()
    await forbid(db, {"$nor": [{"status": "completed", "data": "refused"}]})
    async with monque:
        refused = await monque.enqueue("work", "refused")
        (event,) = await happenings.reach("job:error")
        assert event.job.id == refused.id
        # Its slot is free, its claim is kept, and the write is retried without further reports.
        await monque.enqueue("work", "next")
        await happenings.reach("job:complete")
        await asyncio.sleep(0.5)
        assert (await jobs_in(db).find_one({"_id": refused.id}) or {})["status"] == "processing"
        await forbid(db, {})
        await happenings.reach("job:complete", 2)

    assert runs == ["refused", "next"]
    assert len(happenings.of("job:error")) == 1


async def test_a_reason_that_the_server_refuses_is_left_out(db: Db) -> None:
    monque = Monque(db, max_retries=1)
    happenings = Happenings(monque)

    @monque.worker("work")
    async def fail(job: Job[str]) -> None:
        raise ValueError("no reason is ever good enough")

    await monque.initialize()
    schema = {"properties": {"failReason": {"maxLength": 5}}}
    await forbid(db, {"$jsonSchema": schema})
    async with monque:
        job = await monque.enqueue("work", None)
        (failure,) = await happenings.reach("job:fail")

    assert failure.job.fail_reason is None
    assert str(failure.error) == "no reason is ever good enough"
    stored = await jobs_in(db).find_one({"_id": job.id}) or {}
    assert (stored["status"], stored["failCount"]) == ("failed", 1)
    assert not happenings.of("job:error")
