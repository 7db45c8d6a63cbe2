"""Jobs of a killed process soon run on another instance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monque_core import Job, Monque
from tests.support.happenings import Happenings
from tests.support.stored import stored_jobs
from tests.support.tally import Tally
from tests.support.worker_process import WorkerProcess

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

HEARTBEAT = 0.3


async def test_jobs_of_a_killed_process_run_elsewhere_when_its_heartbeats_stop(
    db: AsyncDatabase[dict[str, Any]], uri: str
) -> None:
    survivor = Monque(db, heartbeat_interval=HEARTBEAT)
    happenings = Happenings(survivor)
    runs = Tally[Job[int]]()

    @survivor.worker("on-loop", concurrency=5)
    @survivor.worker("in-thread", concurrency=5)
    async def note(job: Job[int]) -> None:
        runs.add(job)

    await survivor.enqueue_many("on-loop", range(3))
    await survivor.enqueue_many("in-thread", range(3, 5))
    async with WorkerProcess(
        uri, db.name, "on-loop", "in-thread", heartbeat_interval=HEARTBEAT
    ) as victim:
        await victim.hear("started", 5)
        claimed_by_victim = {job.claim_token for job in await stored_jobs(db)}
        async with survivor:
            victim.kill()
            # Without heartbeats they would stay claimed for `lock_timeout`, half an hour.
            await runs.reach(5)
            await survivor.run_until_idle()

    assert sorted(job.data for job in runs) == list(range(5))
    assert sum(event.count for event in happenings.of("stale:recovered")) == 5
    assert not happenings.of("job:fail")
    jobs = await stored_jobs(db)
    assert [job.status for job in jobs] == ["completed"] * 5
    assert [job.claims for job in jobs] == [2] * 5
    assert [job.fail_count for job in jobs] == [0] * 5
    # They share a token if the killed process claimed them in a batch.
    assert len(claimed_by_victim) < 5
    assert len({job.claim_token for job in jobs}) == 5
