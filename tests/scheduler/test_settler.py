"""Writing outcomes in batches."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from bson import ObjectId
from pymongo import AsyncMongoClient

from monque_core import Job, Monque
from tests.support.commands import CommandLog
from tests.support.happenings import Happenings
from tests.support.steps import settles
from tests.support.stored import count_by_status, jobs_in, stored, stored_jobs
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pymongo.asynchronous.database import AsyncDatabase

    from tests.support.proxy import Proxy


@pytest.fixture
def log() -> CommandLog:
    return CommandLog()


@pytest.fixture
async def proxied_db(
    proxy: Proxy, db: AsyncDatabase[dict[str, Any]], log: CommandLog
) -> AsyncIterator[AsyncDatabase[dict[str, Any]]]:
    """Yield the test's database behind a proxy and a client whose commands are recorded."""
    async with AsyncMongoClient[dict[str, Any]](proxy.uri, event_listeners=[log]) as client:
        yield client[db.name]


def settlements(log: CommandLog) -> list[list[dict[str, Any]]]:
    """Return the updates of each command that wrote outcomes."""
    return [list(command["updates"]) for command in log.sent if settles(command)]


async def test_outcomes_are_batched_while_a_write_is_running(
    proxied_db: AsyncDatabase[dict[str, Any]],
    proxy: Proxy,
    log: CommandLog,
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    monque = Monque(proxied_db, base_retry_interval=3600)
    happenings = Happenings(monque)
    may_end = asyncio.Event()
    ended = 0

    @monque.worker("work", concurrency=60)
    async def work(job: Job[int]) -> None:
        nonlocal ended
        if job.data:
            await may_end.wait()
        ended += 1
        if job.data % 10 == 9:
            raise RuntimeError("as told")

    await monque.enqueue_many("work", range(60))
    first = proxy.strike("hold request", settles)
    async with monque:
        await first.strikes()
        may_end.set()
        await eventually(lambda: ended == 60)
        await asyncio.sleep(0.05)
        assert not happenings.of("job:complete")
        first.release()
        await happenings.reach("job:complete", 54)
        await happenings.reach("job:fail", 6)

    alone, gathered = settlements(log)
    assert len(alone) == 1
    # All completions of one claim in one operation, and one operation per retry.
    assert len(gathered) == 7
    assert await count_by_status(db) == {"completed": 54, "pending": 6}


async def test_each_operation_pairs_its_ids_with_one_token(
    proxied_db: AsyncDatabase[dict[str, Any]], proxy: Proxy, log: CommandLog
) -> None:
    monque = Monque(proxied_db)
    happenings = Happenings(monque)
    may_end = asyncio.Event()

    @monque.worker("work", concurrency=40)
    async def work(job: Job[int]) -> None:
        await may_end.wait()

    async with monque:
        tokens: dict[ObjectId | None, set[ObjectId]] = {}
        for batch in (1, 2, 3):
            await monque.enqueue_many("work", range(10))
            await happenings.reach("job:start", 10 * batch)
        for event in happenings.of("job:start"):
            tokens.setdefault(event.job.claim_token, set()).add(event.job.id)
        may_end.set()
        await happenings.reach("job:complete", 30)

    assert len(tokens) >= 3
    written: dict[ObjectId, set[ObjectId]] = {}
    for update in (update for group in settlements(log) for update in group):
        condition = update["q"]
        assert condition["status"] == "processing"
        assert condition["claimedBy"] == monque.scheduler_instance_id
        assert isinstance(condition["claimToken"], ObjectId)
        written.setdefault(condition["claimToken"], set()).update(condition["_id"]["$in"])
    assert written == tokens


async def test_an_outcome_that_the_server_refuses_is_kept_and_blocks_no_other(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    monque = Monque(db, max_retries=1)
    happenings = Happenings(monque)
    may_end = asyncio.Event()

    @monque.worker("work", concurrency=30)
    async def work(job: Job[str]) -> None:
        await may_end.wait()
        if job.data == "refused":
            raise RuntimeError("as told")

    await monque.initialize()
    await db.command("collMod", "monque_jobs", validator={"status": {"$ne": "failed"}})
    async with monque:
        await monque.enqueue_many("work", [*["good"] * 10, "refused", *["good"] * 10])
        await happenings.reach("job:start", 21)
        may_end.set()
        await happenings.reach("job:complete", 20)
        await happenings.reach("job:error")
        assert await count_by_status(db) == {"completed": 20, "processing": 1}
        # Later outcomes are written before it.
        await monque.enqueue("work", "good")
        await happenings.reach("job:complete", 21)
        await db.command("collMod", "monque_jobs", validator={})
        await happenings.reach("job:fail")

    assert await count_by_status(db) == {"completed": 21, "failed": 1}
    (failure,) = happenings.of("job:fail")
    assert (failure.job.data, failure.will_retry) == ("refused", False)
    # The reason, which was left out of the failed write, is stored again.
    assert (await stored(db, failure.job)).fail_reason == "RuntimeError: as told"


async def test_a_failed_occurrence_interrupted_between_its_two_writes_leaves_one_copy(
    proxied_db: AsyncDatabase[dict[str, Any]], proxy: Proxy, db: AsyncDatabase[dict[str, Any]]
) -> None:
    first = Monque(proxied_db, max_retries=1, heartbeat_interval=0.1)

    @first.worker("recurring")
    async def fail(job: Job[int]) -> None:
        raise RuntimeError("as told")

    schedule = await first.schedule("0 0 1 1 *", "recurring", 1)
    tick = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=1)
    await jobs_in(db).update_one({"_id": schedule.id}, {"$set": {"nextRunAt": tick}})
    moving = proxy.strike("hold request", settles)
    await first.start()
    await moving.strikes()
    (copy,) = await stored_jobs(db, status="failed")
    await first.stop(timeout=0)
    assert (await stored(db, schedule)).status == "processing"

    second = Monque(db, max_retries=1, heartbeat_interval=0.1)
    happenings = Happenings(second)
    async with second:
        await happenings.reach("job:fail")

    (left,) = await stored_jobs(db, status="failed")
    # It belongs to the second run now, and is the only one that the first run left.
    assert left.claim_token != copy.claim_token
    assert replace(left, claim_token=copy.claim_token) == copy
    assert copy.next_run_at == tick
    moved = await stored(db, schedule)
    assert (moved.status, moved.next_run_at) == ("pending", schedule.next_run_at)
    assert (moved.claims, moved.fail_count) == (0, 0)
