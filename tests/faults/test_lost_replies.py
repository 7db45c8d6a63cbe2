"""Writes that MongoDB executed although its reply was lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from monque_core import Job, Monque, MonqueConnectionError, OwnershipLostError
from tests.support.happenings import Happenings
from tests.support.steps import claims, claims_together, settles
from tests.support.stored import jobs_in, stored_jobs
from tests.support.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pymongo.asynchronous.database import AsyncDatabase

    from tests.support.proxy import Proxy


def reads_back(command: Mapping[str, Any]) -> bool:
    return "find" in command and "claimToken" in command["filter"]


def check_errors(happenings: Happenings) -> None:
    """Check that nothing but connection errors was reported."""
    for event in happenings.of("job:error"):
        assert isinstance(event.error, MonqueConnectionError), event.error


@pytest.mark.parametrize(
    ("count", "test"),
    [(10, claims_together), (10, reads_back), (1, claims)],
    ids=["batch", "read-back", "single"],
)
async def test_claims_whose_reply_was_lost_run_exactly_once(
    proxied_db: Any, proxy: Proxy, db: AsyncDatabase[dict[str, Any]], count: int, test: Any
) -> None:
    # The heartbeat is too slow for recovery to matter.
    monque = Monque(proxied_db, worker_concurrency=10, heartbeat_interval=600, poll_interval=0.1)
    happenings = Happenings(monque)
    ran = Tally[int]()

    @monque.worker("work")
    async def note(job: Job[int]) -> None:
        ran.add(job.data)

    await monque.enqueue_many("work", range(count))
    fault = proxy.strike("lose reply", test)
    async with monque:
        await ran.reach(count)
        await happenings.reach("job:complete", count)

    assert fault.has_struck
    assert sorted(ran) == list(range(count))
    assert [(job.status, job.claims) for job in await stored_jobs(db)] == [("completed", 1)] * count
    check_errors(happenings)


@pytest.mark.parametrize("proxied_db", ["async"], indirect=True)
async def test_a_claim_that_reaches_the_server_late_runs_as_well(
    proxied_db: Any, proxy: Proxy, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(
        proxied_db,
        heartbeat_interval=600,
        lock_timeout=7200,
        poll_interval=600,
        safety_poll_interval=600,
    )
    happenings = Happenings(monque)
    ran = Tally[str]()

    @monque.worker("work", concurrency=5)
    async def note(job: Job[str]) -> None:
        ran.add(job.data)

    await monque.enqueue_many("work", ["late 1", "late 2"])
    fault = proxy.strike("deliver late", claims_together)
    # The late claim must find the job unclaimed, so no other claim may get through.
    barrier = proxy.strike("hold request", claims)
    async with monque:
        await fault.strikes()
        await barrier.strikes()
        fault.release()
        await fault.is_over()
        barrier.release()
        await ran.reach(2)
        await happenings.reach("job:complete", 2)

    assert sorted(ran) == ["late 1", "late 2"]
    assert [(job.status, job.claims) for job in await stored_jobs(db)] == [("completed", 1)] * 2
    check_errors(happenings)


OUTCOMES = {
    "completed": ("completed", 0),
    "failed": ("failed", 1),
    "retried": ("pending", 1),
    "recurred": ("pending", 0),
    "recurred in vain": ("pending", 0),
}


@pytest.mark.parametrize("outcome", OUTCOMES)
async def test_an_outcome_whose_reply_was_lost_counts_as_written(
    proxied_db: Any, proxy: Proxy, db: AsyncDatabase[dict[str, Any]], outcome: str
) -> None:
    monque = Monque(proxied_db, base_retry_interval=3600, heartbeat_interval=600, lock_timeout=7200)
    happenings = Happenings(monque)
    fails = outcome in ("failed", "retried", "recurred in vain")
    ran = Tally[int]()

    @monque.worker("work", concurrency=5)
    async def work(job: Job[int]) -> None:
        ran.add(job.data)
        if fails:
            raise RuntimeError("as told")

    limit = 1 if outcome == "failed" else 5
    if outcome.startswith("recurred"):
        await monque.schedule("0 0 1 1 *", "work", 0)
        due = datetime.now(UTC) - timedelta(seconds=1)
        await jobs_in(db).update_one({}, {"$set": {"nextRunAt": due, "maxRetries": 1}})
    else:
        await monque.enqueue_many("work", range(5), max_retries=limit)
    count = 1 if outcome.startswith("recurred") else 5
    fault = proxy.strike("lose reply", settles)
    async with monque:
        await happenings.reach("job:fail" if fails else "job:complete", count)

    assert fault.has_struck
    assert sorted(ran) == list(range(count))
    events = Counter(name for name in happenings.names if name in ("job:complete", "job:fail"))
    assert events == {"job:fail" if fails else "job:complete": count}
    assert not [e for e in happenings.of("job:error") if isinstance(e.error, OwnershipLostError)]
    check_errors(happenings)
    jobs = await stored_jobs(db)
    if outcome == "recurred in vain":
        (occurrence,) = [job for job in jobs if not job.is_recurring]
        assert (occurrence.status, occurrence.fail_count) == ("failed", 1)
        jobs = [job for job in jobs if job.is_recurring]
    assert [(job.status, job.fail_count) for job in jobs] == [OUTCOMES[outcome]] * count
    assert not any(job.claimed_by for job in jobs)


async def test_a_release_whose_reply_was_lost_is_uncounted_once(
    proxied_db: Any, proxy: Proxy, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(proxied_db, heartbeat_interval=600, lock_timeout=7200)
    happenings = Happenings(monque)

    @monque.worker("long", concurrency=5)
    async def wait(job: Job[int]) -> None:
        await asyncio.Event().wait()

    await monque.enqueue_many("long", range(5))
    async with monque:
        await happenings.reach("job:start", 5)
        fault = proxy.strike("lose reply", settles)
        await monque.stop(timeout=0.1)

    assert fault.has_struck
    jobs = await stored_jobs(db)
    assert [(job.status, job.claims, job.fail_count) for job in jobs] == [("pending", 0, 0)] * 5
    assert not [e for e in happenings.of("job:error") if isinstance(e.error, OwnershipLostError)]
