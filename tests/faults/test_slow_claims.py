"""Slow claims: the jobs that they hold are neither lost nor run twice."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from bson import ObjectId

from monque_core import Job, Monque
from monque_core.testing import MovableClock
from tests.support.steps import claims, claims_together
from tests.support.stored import jobs_in, stored_jobs
from tests.support.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pymongo.asynchronous.database import AsyncDatabase

    from tests.support.proxy import Proxy

PATIENT: dict[str, Any] = {"heartbeat_interval": 600, "lock_timeout": 7200}
"""Heartbeats that are too slow for recovery to matter."""


def claims_alone(command: Mapping[str, Any]) -> bool:
    return claims(command) and not claims_together(command)


def reads_back(command: Mapping[str, Any]) -> bool:
    return "find" in command and "claimToken" in command["filter"]


async def store_with_one_recovered(monque: Monque, db: AsyncDatabase[dict[str, Any]]) -> None:
    await monque.enqueue_many("work", ["innocent", "innocent", "recovered"])
    await jobs_in(db).update_one({"data": "recovered"}, {"$set": {"claims": 1}})


@pytest.mark.parametrize("held", [claims_alone, claims_together])
@pytest.mark.parametrize("proxied_db", ["async"], indirect=True)
async def test_a_stop_in_the_middle_of_a_claim_hands_back_all_of_it(
    proxied_db: Any, proxy: Proxy, db: AsyncDatabase[dict[str, Any]], held: Any
) -> None:
    monque = Monque(proxied_db, **PATIENT)

    @monque.worker("work", concurrency=5)
    async def wait(job: Job[str]) -> None:
        await asyncio.Event().wait()

    await store_with_one_recovered(monque, db)
    fault = proxy.strike("hold reply", held)
    await monque.start()
    await fault.strikes()
    await monque.stop(timeout=0.1)
    counts = {(job.data, job.status, job.claims) for job in await stored_jobs(db)}
    assert counts == {("innocent", "pending", 0), ("recovered", "pending", 1)}


@pytest.mark.parametrize("proxied_db", ["async"], indirect=True)
async def test_a_stop_after_a_lost_reply_hands_back_jobs_of_a_late_claim(
    proxied_db: Any, proxy: Proxy, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(proxied_db, **PATIENT)
    started = Tally[str]()

    @monque.worker("work", concurrency=1)
    async def wait(job: Job[str]) -> None:
        started.add(job.data)
        await asyncio.Event().wait()

    await monque.enqueue("work", "first")
    fault = proxy.strike("deliver late", claims)
    await monque.start()
    await fault.strikes()
    # Claim it a second time, so that the first claim finds another job when it arrives.
    await started.reach(1)
    await monque.enqueue("work", "second", run_at=datetime.now(UTC) - timedelta(hours=1))
    fault.release()
    await fault.is_over()
    assert [job.status for job in await stored_jobs(db)] == ["processing", "processing"]
    await monque.stop(timeout=0.1)
    assert [(job.status, job.claims) for job in await stored_jobs(db)] == [("pending", 0)] * 2
    assert started == ["first"]


@pytest.mark.parametrize("proxied_db", ["async"], indirect=True)
@pytest.mark.parametrize("count", [1, 5], ids=["single", "batch"])
async def test_a_claim_whose_stamp_is_old_when_the_reply_comes_is_read_back_first(
    proxied_db: Any, proxy: Proxy, db: AsyncDatabase[dict[str, Any]], count: int
) -> None:
    clock = MovableClock()
    monque = Monque(proxied_db, clock=clock, **PATIENT, recover_stale_jobs=False)
    ran = Tally[str]()

    @monque.worker("work", concurrency=5)
    async def note(job: Job[str]) -> None:
        ran.add(job.data)

    await monque.enqueue_many("work", ["first"] * count)
    fault = proxy.strike("hold reply", claims if count == 1 else reads_back)
    async with monque:
        await fault.strikes()
        clock.advance(PATIENT["heartbeat_interval"] + 1)
        another = {"claimedBy": "another", "claimToken": ObjectId()}
        await jobs_in(db).update_many({"status": "processing"}, {"$set": another})
        fault.release()
        await monque.enqueue("work", "second")
        await ran.reach(1)
        assert ran == ["second"]


@pytest.mark.parametrize("count", [1, 5], ids=["single", "batch"])
async def test_a_job_of_a_slow_claim_does_not_run_if_another_instance_has_it(
    proxied_db: Any, proxy: Proxy, db: AsyncDatabase[dict[str, Any]], count: int
) -> None:
    monque = Monque(
        proxied_db,
        heartbeat_interval=0.2,
        recover_stale_jobs=False,
        poll_interval=0.1,
        worker_concurrency=5,
    )
    ran = Tally[str]()

    @monque.worker("work")
    async def note(job: Job[str]) -> None:
        ran.add(job.data)

    await monque.enqueue_many("work", ["first"] * count)
    fault = proxy.strike("hold reply", claims if count == 1 else reads_back)
    async with monque:
        await fault.strikes()
        another = {"claimedBy": "another", "claimToken": ObjectId()}
        taken = await jobs_in(db).update_many({"status": "processing"}, {"$set": another})
        assert taken.modified_count == count
        await asyncio.sleep(0.3)
        fault.release()
        await monque.enqueue("work", "second")
        await ran.reach(1)
        assert ran == ["second"]
    left = await jobs_in(db).count_documents({"data": "first", "status": "processing", **another})
    assert left == count
