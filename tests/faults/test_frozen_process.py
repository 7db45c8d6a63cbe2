"""A process that was frozen for too long does no harm when it resumes."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest
from pymongo import MongoClient

from monque_core import Job, Monque, OwnershipLostError
from tests.support.happenings import Happenings
from tests.support.patience import wait_until
from tests.support.stored import jobs_in, stored_jobs
from tests.support.tally import Tally
from tests.support.worker_process import WorkerProcess

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

HEARTBEAT = 0.3
NAMES = ("on-loop", "in-thread")


async def test_a_frozen_process_settles_nothing_over_the_newer_runs(
    db: AsyncDatabase[dict[str, Any]], uri: str
) -> None:
    survivor = Monque(db, heartbeat_interval=HEARTBEAT)
    happenings = Happenings(survivor)
    may_end = asyncio.Event()

    async def wait(job: Job[str]) -> None:
        await may_end.wait()

    for name in NAMES:
        survivor.worker(name, wait)
        await survivor.enqueue(name, name)
    async with WorkerProcess(uri, db.name, *NAMES, heartbeat_interval=HEARTBEAT) as frozen:
        await frozen.hear("started", 2)
        async with survivor:
            frozen.freeze()
            newer = {
                event.job.id: event.job.claim_token
                for event in await happenings.reach("job:start", 2)
            }
            # Its runs end at the moment it resumes, before or after it notices the loss.
            frozen.let_runs_end()
            frozen.thaw()
            errors = await frozen.hear("error", 2)
            for job in await stored_jobs(db):
                assert (job.status, job.claim_token) == ("processing", newer[job.id])
                assert job.claimed_by == survivor.scheduler_instance_id
            may_end.set()
            await happenings.reach("job:complete", 2)
        assert [error["kind"] for error in errors] == ["OwnershipLostError"] * 2
        assert len(frozen.of("error")) == 2
        assert not frozen.of("completed")

    assert sum(event.count for event in happenings.of("stale:recovered")) == 2
    assert len(happenings.of("job:start")) == 2
    assert not happenings.of("job:error")
    for job in await stored_jobs(db):
        assert (job.status, job.claims, job.fail_count) == ("completed", 2, 0)


@pytest.mark.parametrize("ends", ["well", "badly"])
async def test_a_blocked_event_loop_loses_its_jobs_to_a_rival_and_writes_nothing_over_them(
    db: AsyncDatabase[dict[str, Any]], uri: str, ends: str
) -> None:
    blocked = Monque(db, heartbeat_interval=HEARTBEAT, poll_interval=600)
    happenings = Happenings(blocked)
    may_block, has_thawed = asyncio.Event(), asyncio.Event()
    newer: dict[object, object] = {}

    with MongoClient[dict[str, Any]](uri) as client:
        jobs = client[db.name]["monque_jobs"]

        def taken_over() -> bool:
            processing = {"status": "processing", "claimedBy": {"$ne": blocked_id}}
            newer.update({job["_id"]: job["claimToken"] for job in jobs.find(processing)})
            return len(newer) == 2

        blocked_id = blocked.scheduler_instance_id

        @blocked.worker(NAMES[0])
        async def block(job: Job[str]) -> None:
            await may_block.wait()
            # The whole event loop is blocked: no heartbeat, no recovery, nothing.
            wait_until(taken_over)
            has_thawed.set()
            if ends == "badly":
                raise ValueError("as told")

        @blocked.worker(NAMES[1])
        async def stand_by(job: Job[str]) -> None:
            await has_thawed.wait()

        async with blocked:
            for name in NAMES:
                await blocked.enqueue(name, name)
            await happenings.reach("job:start", 2)
            async with WorkerProcess(uri, db.name, *NAMES, heartbeat_interval=HEARTBEAT) as rival:
                may_block.set()
                await happenings.reach("job:error", 2)
                for job in await stored_jobs(db):
                    assert (job.status, job.claim_token) == ("processing", newer[job.id])
                rival.let_runs_end()
                await rival.hear("completed", 2)
        assert len(rival.of("started")) == 2

    errors = [event.error for event in happenings.of("job:error")]
    assert [type(error) for error in errors] == [OwnershipLostError] * 2
    assert not happenings.of("job:complete")
    assert not happenings.of("job:fail")
    for job in await stored_jobs(db):
        assert (job.status, job.claims, job.fail_count) == ("completed", 2, 0)
        assert job.claim_token == newer[job.id]


async def test_a_blocked_event_loop_does_not_lose_its_own_jobs_to_its_own_recovery(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    monque = Monque(db, heartbeat_interval=0.1, poll_interval=0.05)
    happenings = Happenings(monque)
    runs = Tally[str]()
    may_end = asyncio.Event()

    @monque.worker("bystander", concurrency=10)
    async def wait(job: Job[str]) -> None:
        runs.add(job.data)
        await may_end.wait()

    @monque.worker("rude")
    async def block(job: Job[str]) -> None:
        runs.add(job.data)
        for _ in range(4):
            time.sleep(0.5)
            # Long enough for recovery to run before and after the late heartbeat.
            await asyncio.sleep(0.03)

    async with monque:
        await monque.enqueue_many("bystander", [f"bystander {n}" for n in range(10)])
        await runs.reach(10)
        await monque.enqueue("rude", "rude")
        await happenings.reach("job:complete")
        may_end.set()
        await happenings.reach("job:complete", 11)

    assert len(runs) == len(set(runs)) == 11
    assert not happenings.of("stale:recovered")
    assert not happenings.of("job:error")
    assert await jobs_in(db).count_documents({"status": "completed", "claims": 1}) == 11
