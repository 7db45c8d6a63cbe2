"""A job that kills its process is given up, and other jobs survive it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from monque_core import Monque, MonqueOptions
from tests.support.happenings import Happenings
from tests.support.stored import jobs_in, stored, stored_jobs
from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

LIMIT = 3
DOCTOR: MonqueOptions = {"heartbeat_interval": 0.1, "max_retries": LIMIT}
VICTIM: MonqueOptions = {"heartbeat_interval": 0.1, "recover_stale_jobs": False}


@pytest.mark.parametrize("poison", ["exits", "kills"])
async def test_a_job_that_kills_its_process_every_time_ends_as_failed(
    db: AsyncDatabase[dict[str, Any]], uri: str, poison: str
) -> None:
    doctor = Monque(db, **DOCTOR)
    happenings = Happenings(doctor)
    job = await doctor.enqueue(poison, "poison")
    claims: list[int] = []
    async with doctor:
        for death in range(1, LIMIT + 1):
            async with WorkerProcess(uri, db.name, poison, **VICTIM) as victim:
                assert await victim.end() != 0
                claims += [line["claims"] for line in victim.of("started")]
            if death < LIMIT:
                await happenings.reach("stale:recovered", death)
        (failure,) = await happenings.reach("job:fail")

    assert claims == [1, 2, 3]
    assert [event.count for event in happenings.of("stale:recovered")] == [1] * (LIMIT - 1)
    assert len(happenings.of("job:fail")) == 1
    assert not failure.will_retry
    assert "died" in str(failure.error)
    assert str(LIMIT) in str(failure.error)
    dead = await stored(db, job)
    assert dead == failure.job
    assert dead.status == "failed"
    assert dead.fail_reason is not None
    assert "died" in dead.fail_reason
    assert (dead.claimed_by, dead.locked_at, dead.last_heartbeat) == (None, None, None)


async def test_a_recurring_job_that_kills_its_process_leaves_a_failed_occurrence_and_continues(
    db: AsyncDatabase[dict[str, Any]], uri: str
) -> None:
    doctor = Monque(db, **DOCTOR)
    happenings = Happenings(doctor)
    schedule = await doctor.schedule("0 0 1 1 *", "exits", {"a": 1}, unique_key="yearly")
    tick = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=1)
    await jobs_in(db).update_one(
        {"_id": schedule.id}, {"$set": {"nextRunAt": tick, "maxRetries": 1}}
    )
    async with doctor:
        async with WorkerProcess(uri, db.name, "exits", **VICTIM) as victim:
            assert await victim.end() != 0
        (failure,) = await happenings.reach("job:fail")

    assert not failure.will_retry
    living, occurrence = sorted(await stored_jobs(db), key=lambda job: job.id != schedule.id)
    assert (living.status, living.repeat_interval, living.unique_key) == (
        "pending",
        "0 0 1 1 *",
        "yearly",
    )
    assert living.next_run_at == schedule.next_run_at
    assert (living.claims, living.fail_count, living.claimed_by) == (0, 0, None)
    assert (occurrence.status, occurrence.name, occurrence.data) == ("failed", "exits", {"a": 1})
    assert (occurrence.repeat_interval, occurrence.unique_key) == (None, None)
    assert occurrence.next_run_at == tick
    assert occurrence.fail_reason is not None
    assert "died" in occurrence.fail_reason


async def test_other_jobs_complete_despite_a_poison_job(
    db: AsyncDatabase[dict[str, Any]], uri: str
) -> None:
    producer = Monque(db)
    poison = await producer.enqueue("exits", "poison", max_retries=LIMIT)
    innocents = await producer.enqueue_many("quick", range(8), max_retries=LIMIT)
    deaths: list[int] = []
    while await count_active(db):
        assert len(deaths) < 3 * LIMIT, "the poison job is never given up"
        async with WorkerProcess(uri, db.name, "exits", "quick", heartbeat_interval=0.1) as victim:
            dying = asyncio.create_task(victim.end())
            await eventually(partial(_is_over, db, dying))
            if dying.done():
                deaths.append(await jobs_in(db).count_documents({"status": "processing"}))
            victim.kill()
            await dying

    assert deaths[0] > 1, "the first process died with innocents in its batch"
    assert len(deaths) == LIMIT
    assert (await stored(db, poison)).status == "failed"
    assert [(await stored(db, job)).status for job in innocents] == ["completed"] * 8


async def _is_over(db: AsyncDatabase[dict[str, Any]], dying: asyncio.Task[int]) -> bool:
    return dying.done() or not await count_active(db)


async def count_active(db: AsyncDatabase[dict[str, Any]]) -> int:
    return await jobs_in(db).count_documents({"status": {"$in": ["pending", "processing"]}})
