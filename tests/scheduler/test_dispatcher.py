"""The dispatcher fills free slots."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pymongo import AsyncMongoClient

from monque_core import Monque
from tests.support.commands import CommandLog
from tests.support.polling import NO_POLLS
from tests.support.steps import claims, settles
from tests.support.stored import count_by_status, jobs_in
from tests.support.tally import Tally

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Job
    from tests.conftest import AnyDatabase


async def test_six_hundred_jobs_in_five_slots_need_no_poll(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(any_db, **NO_POLLS)
    runs = Tally[int]()

    @monque.worker("noop", concurrency=5)
    async def note(job: Job[int]) -> None:
        runs.add(job.data)

    await monque.enqueue_many("noop", range(600))
    async with monque:
        # Polls come once an hour.
        await runs.reach(600)

    assert sorted(runs) == list(range(600))
    assert await count_by_status(db) == {"completed": 600}


async def test_short_jobs_are_claimed_and_settled_many_at_a_time(
    uri: str, database_name: str
) -> None:
    log = CommandLog()
    async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
        monque = Monque(client[database_name], **NO_POLLS)
        runs = Tally[int]()

        @monque.worker("noop", concurrency=20)
        async def note(job: Job[int]) -> None:
            runs.add(job.data)

        await monque.enqueue_many("noop", range(1000))
        async with monque:
            await runs.reach(1000)

    # Twenty slots and one round trip per claim would take fifty of them.
    assert 2 <= sum(map(claims, log.sent)) <= 60
    assert 3 <= sum(map(settles, log.sent)) <= 60


async def test_a_freed_slot_is_refilled_at_once(
    standalone_db: AsyncDatabase[dict[str, Any]],
) -> None:
    monque = Monque(standalone_db, max_retries=1, **NO_POLLS)
    runs = Tally[str]()

    @monque.worker("mixed", concurrency=1)
    async def handle(job: Job[str]) -> None:
        runs.add(job.data)
        if job.data == "fail":
            raise ValueError(job.data)
        if job.data == "time out":
            await asyncio.sleep(3600)

    rounds = ["succeed", "fail", "time out", "recur", "fail", "recur", "time out", "succeed"]
    overdue = datetime.now(UTC) - timedelta(hours=1)
    for position, kind in enumerate(rounds):
        run_at = overdue + timedelta(seconds=position)
        if kind == "recur":
            schedule = await monque.schedule("@yearly", "mixed", kind, unique_key=str(position))
            await jobs_in(standalone_db).update_one(
                {"_id": schedule.id}, {"$set": {"nextRunAt": run_at}}
            )
        else:
            timeout = 0.01 if kind == "time out" else None
            await monque.enqueue("mixed", kind, run_at=run_at, timeout=timeout)

    async with monque:
        await runs.reach(len(rounds))

    assert runs == rounds
    assert await count_by_status(standalone_db) == {"completed": 2, "failed": 4, "pending": 2}


async def test_a_slot_freed_by_a_thread_is_refilled_at_once(any_db: AnyDatabase) -> None:
    monque = Monque(any_db, **NO_POLLS)
    runs = Tally[int]()

    @monque.worker("blocking", concurrency=2)
    def note(job: Job[int]) -> None:
        runs.add(job.data)

    await monque.enqueue_many("blocking", range(50))
    async with monque:
        await runs.reach(50)

    assert sorted(runs) == list(range(50))


async def test_a_long_job_does_not_block_other_slots(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    monque = Monque(db, **NO_POLLS)
    runs = Tally[int]()
    may_end = asyncio.Event()

    @monque.worker("uneven", concurrency=2)
    async def handle(job: Job[int]) -> None:
        runs.add(job.data)
        if job.data == 0:
            await may_end.wait()

    await monque.enqueue("uneven", 0)
    async with monque:
        await runs.reach(1)
        for number in range(1, 20):
            await monque.enqueue("uneven", number)
            await runs.reach(number + 1)
        may_end.set()

    assert runs == list(range(20))


async def test_jobs_run_by_priority_and_then_by_due_time(any_db: AnyDatabase) -> None:
    monque = Monque(any_db, **NO_POLLS)
    runs = Tally[str]()

    @monque.worker("ordered", concurrency=1)
    async def note(job: Job[str]) -> None:
        runs.add(job.data)

    now = datetime.now(UTC)
    for minutes in (1, 3, 2):
        run_at = now - timedelta(minutes=minutes)
        await monque.enqueue("ordered", f"plain, {minutes} min ago", run_at=run_at)
        await monque.enqueue("ordered", f"urgent, {minutes} min ago", run_at=run_at, priority=9)
        await monque.enqueue("ordered", f"raised, {minutes} min ago", run_at=run_at, priority=1)

    async with monque:
        await runs.reach(9)

    assert runs == [
        f"{rank}, {minutes} min ago"
        for rank in ("urgent", "raised", "plain")
        for minutes in (3, 2, 1)
    ]


async def test_jobs_without_a_worker_here_are_left_alone(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    monque = Monque(db)
    runs = Tally[str]()

    @monque.worker("known")
    async def note(job: Job[str]) -> None:
        runs.add(job.data)

    await monque.enqueue("unknown", "left")
    await monque.enqueue("known", "run")
    async with monque:
        await runs.reach(1)
        await monque.run_until_idle()

    (left,) = await jobs_in(db).find({"name": "unknown"}).to_list()
    assert left["status"] == "pending"
    assert "claims" not in left
    assert runs == ["run"]


async def test_two_instances_share_the_jobs_and_run_each_once(any_db: AnyDatabase) -> None:
    instances = [Monque(any_db, **NO_POLLS) for _ in range(2)]
    runs = Tally[int]()
    by_instance = [0, 0]

    async def note(job: Job[int]) -> None:
        by_instance[
            [one.scheduler_instance_id for one in instances].index(str(job.claimed_by))
        ] += 1
        runs.add(job.data)
        await asyncio.sleep(0.002)

    for instance in instances:
        instance.worker("shared", note, concurrency=3)
    await instances[0].enqueue_many("shared", range(400))
    async with instances[0], instances[1]:
        await runs.reach(400)

    assert sorted(runs) == list(range(400))
    assert min(by_instance) > 0
