"""Claim counts, which Node does not know and leaves unchanged, do no harm."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from monque_core import Job, Monque
from tests.support.happenings import Happenings
from tests.support.stored import jobs_in, stored, stored_jobs
from tests.support.tally import Tally

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from tests.interop.node_worker import NodeWorker

_JOBS = 20


async def _fail(job: Job[Any]) -> None:
    raise ValueError(job.data)


async def test_jobs_that_node_retries_after_python_gave_them_up_run_together_again(
    node_worker: NodeWorker, db: AsyncDatabase[dict[str, Any]]
) -> None:
    failing = Monque(db, max_retries=2, base_retry_interval=0.001)
    failing.worker("import", _fail, concurrency=_JOBS)
    happenings = Happenings(failing)
    async with failing:
        jobs = await failing.enqueue_many("import", range(_JOBS))
        await happenings.reach("job:fail", 2 * _JOBS)
    assert {(job.status, job.claims) for job in await stored_jobs(db)} == {("failed", 2)}

    for job in jobs:
        await node_worker.retry(job)
    monque = Monque(db, max_retries=2)
    started: Tally[int] = Tally()

    @monque.worker("import", concurrency=_JOBS)
    async def run(job: Job[int]) -> None:
        started.add(job.data)
        # Interrupted jobs would be claimed one at a time, each after the previous one ended.
        await started.reach(_JOBS)

    await monque.run_until_idle()
    assert sorted(started) == list(range(_JOBS))
    assert {(job.status, job.claims) for job in await stored_jobs(db)} == {("completed", 1)}


async def test_a_job_that_node_retries_has_all_its_runs_before_it_in_python(
    node_worker: NodeWorker, db: AsyncDatabase[dict[str, Any]]
) -> None:
    failing = Monque(db, max_retries=1)
    failing.worker("import", _fail)
    job = await failing.enqueue("import", 1)
    await failing.run_until_idle()
    await node_worker.retry(job)

    monque = Monque(db, max_retries=2)
    monque.worker("import", _fail)
    happenings = Happenings(monque)
    await monque.run_until_idle()
    (failure,) = happenings.of("job:fail")
    assert failure.will_retry
    assert (failure.job.fail_count, failure.job.claims) == (1, 1)


async def test_a_schedule_that_node_moved_to_its_next_tick_does_not_count_as_interrupted(
    node_worker: NodeWorker, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(db, max_retries=3)
    schedule = await monque.schedule("@daily", "report", None, unique_key="daily")
    now = datetime.now(UTC)
    interrupted_twice = {"claims": 2, "claimedAt": now - timedelta(minutes=9)}
    due = {"nextRunAt": now - timedelta(minutes=10)}
    await jobs_in(db).update_one({"_id": schedule.id}, {"$set": interrupted_twice | due})
    await node_worker.work("report")
    await node_worker.see_end(schedule)
    await node_worker.kill()
    assert (await stored(db, schedule)).claims == 2

    due_again = {"nextRunAt": now - timedelta(minutes=1)}
    await jobs_in(db).update_one({"_id": schedule.id}, {"$set": due_again})
    runs: Tally[Job[None]] = Tally()
    monque.worker("report", runs.add)
    await monque.run_until_idle()
    assert [run.claims for run in runs] == [1]
    assert (await stored(db, schedule)).claims == 0
